//! Commits of callers on their way to the leader. When a caller's wait times out, the state of its piece tells whether
//! the commit may still happen.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use angarium_coordination::{CommitResult, Fence, Op, TreeError};
use angarium_core::limits;
use tokio::sync::oneshot;

use super::DEADLINE;
use super::leader::Changes;

const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const GIVEN_UP: u8 = 2;

type PieceOutcome = Result<CommitResult, TreeError>;

/// One caller's commit.
pub(super) struct Piece {
    pub(super) changes: Changes,
    state: Arc<AtomicU8>,
    reply: oneshot::Sender<PieceOutcome>,
}

/// The caller's side of a piece.
pub(super) struct Ticket {
    state: Arc<AtomicU8>,
    answer: oneshot::Receiver<PieceOutcome>,
}

impl Piece {
    pub(super) fn new(fences: &[Fence], ops: &[Op]) -> (Self, Ticket) {
        let (reply, answer) = oneshot::channel();
        let state = Arc::new(AtomicU8::new(WAITING));
        let ticket = Ticket { state: Arc::clone(&state), answer };
        (Self { changes: (fences.to_vec(), ops.to_vec()), state, reply }, ticket)
    }

    /// Sends the outcome to the caller, who may have left.
    pub(super) fn answer(self, outcome: PieceOutcome) {
        let _ = self.reply.send(outcome);
    }

    /// Takes the piece for sending. Returns false when its caller no longer waits: then it is never sent.
    fn take(&self) -> bool {
        let taken = self.state.compare_exchange(WAITING, TAKEN, Ordering::SeqCst, Ordering::SeqCst);
        taken.is_ok() && !self.reply.is_closed()
    }
}

impl Ticket {
    /// Waits for the outcome, and after the deadline returns an error that tells whether the commit may still happen.
    pub(super) async fn outcome(self) -> PieceOutcome {
        let late = match tokio::time::timeout(DEADLINE, self.answer).await {
            Ok(Ok(outcome)) => return outcome,
            Ok(Err(_)) => "the tree is closed",
            Err(_) => "the tree did not answer in time",
        };
        match self.state.compare_exchange(WAITING, GIVEN_UP, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Err(TreeError::NotSent(late.into())),
            Err(_) => Err(TreeError::Unknown(late.into())),
        }
    }
}

/// Takes the pieces of the next request from the front of the queue, as many as fit.
pub(super) fn take(queue: &mut VecDeque<Piece>) -> Vec<Piece> {
    let (mut pieces, mut sum) = (Vec::new(), 0);
    while let Some(piece) = queue.pop_front() {
        let ops = piece.changes.1.len();
        if !pieces.is_empty() && sum + ops > limits::TREE_BATCH_OPS {
            queue.push_front(piece);
            break;
        }
        if piece.take() {
            sum += ops;
            pieces.push(piece);
        }
    }
    pieces
}
