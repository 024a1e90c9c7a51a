//! Pieces of work for the committer, and the way their answers take back.

use tokio::sync::oneshot;

use super::{JournalError, Txn};
use angarium_core::durability::Durability;

/// A piece of work with the type of its answer hidden.
pub(super) trait Work: Send {
    /// How durable its outcome must be before it is told.
    fn durability(&self) -> Durability;

    /// Does it, and keeps the answer.
    fn run(&mut self, txn: &mut Txn<'_>);

    /// Tells its caller what became of it.
    fn settle(self: Box<Self>, outcome: Result<(), JournalError>);
}

/// What a caller waits on.
pub(super) type WorkReceiver<T> = oneshot::Receiver<Result<T, JournalError>>;

struct TypedWork<F, T> {
    durability: Durability,
    work: Option<F>,
    answer: Option<T>,
    reply: oneshot::Sender<Result<T, JournalError>>,
}

/// Work, and where its answer arrives.
pub(super) fn new<T: Send + 'static>(
    durability: Durability,
    work: impl FnOnce(&mut Txn<'_>) -> T + Send + 'static,
) -> (Box<dyn Work>, WorkReceiver<T>) {
    let (reply, answer) = oneshot::channel();
    (Box::new(TypedWork { durability, work: Some(work), answer: None, reply }), answer)
}

impl<F, T> Work for TypedWork<F, T>
where
    F: FnOnce(&mut Txn<'_>) -> T + Send,
    T: Send,
{
    fn durability(&self) -> Durability {
        self.durability
    }

    fn run(&mut self, txn: &mut Txn<'_>) {
        self.answer = self.work.take().map(|work| work(txn));
    }

    fn settle(self: Box<Self>, outcome: Result<(), JournalError>) {
        let answer = match (outcome, self.answer) {
            (Ok(()), Some(answer)) => Ok(answer),
            (Ok(()), None) => Err(JournalError::Unknown("the work did not run".into())),
            (Err(error), _) => Err(error),
        };
        // No process may be waiting any more; what was written stays written.
        let _ = self.reply.send(answer);
    }
}
