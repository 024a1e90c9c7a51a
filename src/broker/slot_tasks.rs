//! Tasks that have begun something in the memory of a slot, which nobody else can end: a slot writer, a reader of a page.
//!
//! One that ends in a panic would leave it begun for ever. So the slot is lost then, and reacquired with a memory of its own.

use std::sync::Arc;

use super::Broker;
use super::slot::Slot;

/// Loses its slot when it is dropped by a panic.
pub(super) struct LostOnPanic(Arc<Slot>);

impl Drop for LostOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lose("a task of the slot ended in a panic");
        }
    }
}

impl Slot {
    /// Held by whoever has begun something in the slot's memory, until it is ended.
    pub(super) fn lost_on_panic(self: &Arc<Self>) -> LostOnPanic {
        LostOnPanic(Arc::clone(self))
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
}
