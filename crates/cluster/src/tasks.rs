//! Tasks of a replica as a handle that is passed in, so that a simulation can pause all of them, end them at once, or
//! change their order.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::task::TaskTracker;

/// Decides when the tasks of a replica run.
pub trait TaskControl: fmt::Debug + Send + Sync + 'static {
    /// Returns a number for a new task, which no other task has.
    fn number(&self) -> u64;

    /// Takes note of a task that was started.
    fn add(&self, task: AbortHandle);

    /// Returns whether a task may take its next step now. If not, the control wakes it when it may.
    fn may_run(&self, task: u64, waker: &Waker) -> bool;
}

/// The tasks of a replica. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    control: Option<Arc<dyn TaskControl>>,
}

impl Tasks {
    /// Creates the handle of a replica whose tasks run when `control` lets them.
    pub fn controlled(control: Arc<dyn TaskControl>) -> Self {
        Self { tracker: TaskTracker::new(), control: Some(control) }
    }

    /// Starts a task.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        // Without its own type: else tokio's code for tasks would be compiled again for each task of the product.
        let task: Pin<Box<dyn Future<Output = F::Output> + Send>> = Box::pin(task);
        let Some(control) = &self.control else { return self.tracker.spawn(task) };
        let (number, control) = (control.number(), Arc::clone(control));
        let started = self.tracker.spawn(ControlledTask { task, number, control: Arc::clone(&control) });
        control.add(started.abort_handle());
        started
    }

    /// Waits until every task has ended. Tasks may start others meanwhile.
    pub async fn finish(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// A task that asks its control before each step.
struct ControlledTask<T> {
    task: Pin<Box<dyn Future<Output = T> + Send>>,
    number: u64,
    control: Arc<dyn TaskControl>,
}

impl<T> Future for ControlledTask<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if self.control.may_run(self.number, context.waker()) {
            self.task.as_mut().poll(context)
        } else {
            Poll::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use parking_lot::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Gate {
        is_open: AtomicBool,
        waiting: Mutex<Vec<Waker>>,
        tasks: Mutex<Vec<AbortHandle>>,
    }

    impl TaskControl for Gate {
        fn number(&self) -> u64 {
            0
        }

        fn add(&self, task: AbortHandle) {
            self.tasks.lock().push(task);
        }

        fn may_run(&self, _: u64, waker: &Waker) -> bool {
            let may = self.is_open.load(Ordering::Relaxed);
            if !may {
                self.waiting.lock().push(waker.clone());
            }
            may
        }
    }

    #[tokio::test]
    async fn control_pauses_and_ends_tasks() {
        let gate = Arc::new(Gate::default());
        let tasks = Tasks::controlled(gate.clone());
        let (ends, hangs) = (tasks.spawn(async { 7 }), tasks.spawn(std::future::pending::<()>()));
        tokio::task::yield_now().await;
        assert!(!ends.is_finished());
        gate.is_open.store(true, Ordering::Relaxed);
        gate.waiting.lock().drain(..).for_each(Waker::wake);
        assert_eq!(ends.await.unwrap(), 7);
        gate.tasks.lock().iter().for_each(AbortHandle::abort);
        assert!(hangs.await.unwrap_err().is_cancelled());
        tasks.finish().await;
    }

    #[tokio::test]
    async fn task_without_control_runs() {
        let tasks = Tasks::default();
        assert_eq!(tasks.spawn(async { 7 }).await.unwrap(), 7);
        tasks.finish().await;
    }
}
