//! What this replica does for every part: changes run to their end, ticks, the state of its session.

use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{Instrument, debug};

use angarium_catalogue::Link;
use angarium_core::error::{Error, Part};
use angarium_core::limits::Limits;
use angarium_metrics::{Meter, SessionState};

use crate::replica::LocalReplica;

impl LocalReplica {
    /// What clients may ask for. A caller that makes a value of input checks it by these.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// From here on no claim waits for messages: those that do are told that there is nothing.
    pub(crate) fn stop_waiters(&self) {
        self.waits.cancel();
    }

    /// Whether only a restart can help: the embedded tree closes itself after a failed write.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        self.catalogue.check_alive()
    }

    /// What it counts and measures.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Brings to its end what no caller waits for any more; the shutdown does.
    pub(crate) fn drain_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Runs a change to its end in a task of its own and hands back its answer. When no caller waits for the
    /// answer any more it is dropped there.
    pub(crate) async fn carry_out<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let task = async move {
            if let Err(Err(error)) = reply.send(change.await) {
                debug!(error = %error.detail(), "change failed without its client");
            }
        };
        // What it logs is of the request that began it.
        self.tasks.spawn(task.in_current_span());
        answer.await.unwrap_or_else(|_| Err(Error::unknown(Part::Server, "a task ended without an answer")))
    }

    /// Sleeps for a tick. False when the service stops.
    pub(crate) async fn sleep_tick(&self, tick: Duration) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(tick) => true,
        }
    }

    /// Waits until no claim may wait here any more.
    pub(crate) async fn await_no_waiters(&self) {
        self.waits.cancelled().await;
    }

    pub(crate) fn session_state(&self) -> SessionState {
        match self.catalogue.session().borrow().link {
            Link::Connected => SessionState::Connected,
            Link::Suspended => SessionState::Suspended,
            Link::Lost => SessionState::Lost,
        }
    }
}
