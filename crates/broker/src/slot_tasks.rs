//! Tasks that no other replica replaces, and what becomes of them after a panic.
//!
//! Some have begun something in the memory of a slot which no other replica can end: a slot writer, a reader of a page.
//! One that ends in a panic would leave it begun for ever. So the slot is lost then, and reacquired with a memory of
//! its own. Others go on for as long as the service runs, or until something is done that many wait for: those are
//! begun again after a pause.

use std::sync::Arc;
use std::time::Duration;

use tracing::error;

use super::Broker;
use super::slot::Slot;

/// The pause after a panic: the next try may end in one too.
const PAUSE: Duration = Duration::from_secs(1);

/// Loses its slot when it is dropped by a panic.
pub(super) struct PanicGuard(Arc<Slot>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lose("a task of the slot ended in a panic");
        }
    }
}

impl Slot {
    /// Held by a step that was begun in the slot's memory, until it has ended.
    pub(super) fn lost_on_panic(self: &Arc<Self>) -> PanicGuard {
        PanicGuard(Arc::clone(self))
    }
}

impl Broker {
    /// Spawns a task that ends what was begun in the memory of a slot.
    pub(super) fn spawn_in(&self, slot: &Arc<Slot>, task: impl Future<Output = ()> + Send + 'static) {
        let guard = slot.lost_on_panic();
        self.0.tasks.spawn(async move {
            let _guard = guard;
            task.await;
        });
    }

    /// Starts a background task, which lasts until the service stops or there is nothing to do. After a panic it is
    /// begun again.
    pub(super) fn start_background_task<T>(
        &self,
        name: &'static str,
        duty: impl Fn(Self) -> T + Send + 'static,
    ) where
        T: Future<Output = ()> + Send + 'static,
    {
        let broker = self.clone();
        self.0.tasks.spawn(async move {
            while let Err(panic) = broker.0.tasks.spawn(duty(broker.clone())).await {
                error!(task = name, error = %panic, "background task panicked");
                if !broker.sleep_tick(PAUSE).await {
                    return;
                }
            }
        });
    }
}
