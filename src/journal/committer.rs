//! Group commit: one thread that takes all work that gathered while it synced the last group.
//!
//! There is no timer. An idle committer starts at once on the first piece of work; a busy one finds more
//! waiting the longer a sync takes. Nobody is answered before the sync that covers what he wrote and saw.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tracing::error;

use super::{JournalError, Store, Txn};
use crate::clock::Clock;
use crate::domain::limits;

/// The write side of a journal.
pub(super) struct Committer {
    /// Bounded; taken when the journal closes, which ends the thread after it wrote what waits.
    queue: Option<SyncSender<Box<dyn Work>>>,
    thread: Option<JoinHandle<()>>,
    /// Why nothing is written any more. Set by the committer's thread before it settles a failed group.
    failure: Arc<Mutex<Option<Arc<str>>>>,
}

/// A piece of work with the type of its answer hidden.
trait Work: Send {
    fn run(&mut self, txn: &mut Txn<'_>);
    fn settle(self: Box<Self>, outcome: Result<(), JournalError>);
}

struct Typed<F, T> {
    work: Option<F>,
    answer: Option<T>,
    reply: oneshot::Sender<Result<T, JournalError>>,
}

impl<F, T> Work for Typed<F, T>
where
    F: FnOnce(&mut Txn<'_>) -> T + Send,
    T: Send,
{
    fn run(&mut self, txn: &mut Txn<'_>) {
        self.answer = self.work.take().map(|work| work(txn));
    }

    fn settle(self: Box<Self>, outcome: Result<(), JournalError>) {
        let answer = match (outcome, self.answer) {
            (Ok(()), Some(answer)) => Ok(answer),
            (Ok(()), None) => Err(JournalError::Unknown("the work did not run".into())),
            (Err(error), _) => Err(error),
        };
        // Nobody may be waiting any more; what was written stays written.
        let _ = self.reply.send(answer);
    }
}

impl Committer {
    pub(super) fn start(store: Arc<Store>, clock: Clock) -> Self {
        let (queue, work) = sync_channel(limits::JOURNAL_QUEUE);
        let failure = Arc::new(Mutex::new(None));
        let thread = {
            let failure = Arc::clone(&failure);
            std::thread::Builder::new()
                .name("committer".into())
                .spawn(move || run(&store, &clock, &work, &failure))
                .expect("the process can start a thread while it starts")
        };
        Self { queue: Some(queue), thread: Some(thread), failure }
    }

    pub(super) fn check_open(&self) -> Result<(), JournalError> {
        match &*self.failure.lock() {
            Some(cause) => Err(JournalError::Closed(Arc::clone(cause))),
            None => Ok(()),
        }
    }

    /// Queues work. An error means that it never runs.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Txn<'_>) -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, JournalError>>, JournalError> {
        self.check_open()?;
        let (reply, answer) = oneshot::channel();
        let Some(queue) = &self.queue else { return Err(JournalError::Closed("shutdown".into())) };
        match queue.try_send(Box::new(Typed { work: Some(work), answer: None, reply })) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => Err(JournalError::Busy),
            Err(TrySendError::Disconnected(_)) => {
                self.lost();
                self.check_open().and(Err(JournalError::Busy))
            }
        }
    }

    /// What became of work whose answer never came: its thread ended, which closes the journal.
    pub(super) fn lost(&self) -> JournalError {
        let cause: Arc<str> = "a panic of its thread".into();
        self.failure.lock().get_or_insert_with(|| Arc::clone(&cause));
        JournalError::Unknown(cause)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!("the committer's thread ended by a panic");
        }
    }
}

fn run(store: &Store, clock: &Clock, work: &Receiver<Box<dyn Work>>, failure: &Mutex<Option<Arc<str>>>) {
    while let Ok(first) = work.recv() {
        let mut group = vec![first];
        group.extend(work.try_iter().take(limits::JOURNAL_GROUP - 1));
        let outcome = commit(store, clock, &mut group, failure);
        for piece in group {
            piece.settle(outcome.clone());
        }
    }
}

fn commit(
    store: &Store,
    clock: &Clock,
    group: &mut [Box<dyn Work>],
    failure: &Mutex<Option<Arc<str>>>,
) -> Result<(), JournalError> {
    if let Some(cause) = &*failure.lock() {
        return Err(JournalError::Closed(Arc::clone(cause)));
    }
    let mut txn = Txn::new(store, clock.now());
    for piece in group {
        piece.run(&mut txn);
    }
    txn.commit().map_err(|cause| {
        error!(%cause, "a commit failed; the journal accepts no more writes until the service is restarted");
        let cause: Arc<str> = cause.to_string().into();
        *failure.lock() = Some(Arc::clone(&cause));
        JournalError::Unknown(cause)
    })
}
