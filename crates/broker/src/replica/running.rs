//! Services of this replica for every component: running changes to their end, ticks, the state of its session.

use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{Instrument, debug};

use angarium_catalogue::Link;
use angarium_core::error::{Error, Part};
use angarium_core::limits::Limits;
use angarium_metrics::{Meter, SessionState};

use crate::replica::LocalReplica;

impl LocalReplica {
    /// Returns the limits of requests. A caller that builds an input value checks it against them.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Ends the wait of all waiting claims: they get an empty answer. From here on no claim waits for messages.
    pub(crate) fn stop_waiters(&self) {
        self.waits.cancel();
    }

    /// Fails when only a restart can help: the embedded tree closes itself after a failed write.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        self.catalogue.check_alive()
    }

    /// Returns the meter of this replica.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Runs to its end a task for which no caller waits any more. The shutdown waits for it.
    pub(crate) fn drain_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Runs a change to its end in a task of its own and returns its result. If the caller is canceled, the change
    /// continues and its result is dropped.
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
        // Its log entries belong to the span of the request that began it.
        self.tasks.spawn(task.in_current_span());
        answer.await.unwrap_or_else(|_| Err(Error::unknown(Part::Server, "a task ended without an answer")))
    }

    /// Sleeps for a tick. Returns false when the service stops.
    pub(crate) async fn sleep_tick(&self, tick: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(tick) => true,
        }
    }

    /// Waits until no claim may wait for messages any more.
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
