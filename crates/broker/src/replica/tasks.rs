//! Tasks of this replica, and their handling after a panic.
//!
//! Some tasks have begun something in the memory of a slot that only they can end, for example a slot writer or the
//! reader of a page. If such a task panics, that work stays begun, so the slot is given up and reacquired with fresh
//! memory. Other tasks run as long as the service, or until a result that many callers wait for: these are started
//! again after a pause.

use std::sync::Arc;
use std::time::Duration;

use tracing::error;

use crate::replica::LocalReplica;

/// Pause after a panic, since the next attempt may panic too.
const PAUSE: Duration = Duration::from_secs(1);

impl LocalReplica {
    /// Starts a background task, which runs until the service stops or there is nothing to do. After a panic it is
    /// started again.
    pub(crate) fn start_background_task<P, T>(
        self: &Arc<Self>,
        name: &'static str,
        part: &P,
        tick: impl Fn(P) -> T + Send + 'static,
    ) where
        P: Clone + Send + Sync + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        let (replica, part) = (Arc::clone(self), part.clone());
        self.tasks.spawn(async move {
            while let Err(panic) = replica.tasks.spawn(tick(part.clone())).await {
                error!(task = name, error = %panic, "background task panicked");
                if !replica.sleep_tick(PAUSE).await {
                    return;
                }
            }
        });
    }
}
