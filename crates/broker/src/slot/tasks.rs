//! Tasks that complete a step in the memory of a slot, and the loss of the slot when they panic.

use std::sync::Arc;

use crate::slot::state::Slot;

impl Slot {
    /// Spawns a task that completes a step which was begun in the memory of a slot.
    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let guard = self.lost_on_panic();
        self.around.replica.tasks.spawn(async move {
            let _guard = guard;
            task.await;
        });
    }
}

/// Marks its slot as lost when it is dropped by a panic.
pub(crate) struct PanicGuard(Arc<Slot>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lose("a task of the slot ended in a panic");
        }
    }
}

impl Slot {
    /// Returns the guard of a step that was begun in the slot's memory, to be held until the step has ended.
    pub(crate) fn lost_on_panic(self: &Arc<Self>) -> PanicGuard {
        PanicGuard(Arc::clone(self))
    }
}
