//! Tasks that no other replica replaces, and what becomes of them after a panic.
//!
//! Some have begun something in the memory of a slot which no other replica can end: a slot writer, a reader of a page.
//! One that ends in a panic would leave it begun for ever. So the slot is lost then, and reacquired with a memory of
//! its own. Others go on for as long as the service runs, or until something is done that many wait for: those are
//! begun again after a pause.

use std::sync::Arc;
use std::time::Duration;

use tracing::error;

use crate::replica::LocalReplica;

/// The pause after a panic: the next try may end in one too.
const PAUSE: Duration = Duration::from_secs(1);

impl LocalReplica {
    /// Starts a background task, which lasts until the service stops or there is nothing to do. After a panic it is
    /// begun again.
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
