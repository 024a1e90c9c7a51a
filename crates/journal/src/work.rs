//! Pieces of work for the committer, and the channels for their answers.

use tokio::sync::oneshot;

use super::{JournalError, Txn};
use angarium_core::durability::Durability;

/// A piece of work for a committer, with the type of its answer hidden.
pub trait Work: Send {
    /// Returns the durability that the outcome needs before the caller is answered.
    fn durability(&self) -> Durability;

    /// Runs the work and keeps its answer. A second call loses the answer.
    fn run(&mut self, txn: &mut Txn<'_>);

    /// Sends the answer, or the error of `outcome`, to the caller.
    fn settle(self: Box<Self>, outcome: Result<(), JournalError>);
}

/// The receiver that a caller waits on.
pub(super) type WorkReceiver<T> = oneshot::Receiver<Result<T, JournalError>>;

struct TypedWork<F, T> {
    durability: Durability,
    work: Option<F>,
    answer: Option<T>,
    reply: oneshot::Sender<Result<T, JournalError>>,
}

/// Creates a piece of work and the receiver of its answer.
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
        // The caller may have stopped waiting. Its writes stay written.
        let _ = self.reply.send(answer);
    }
}
