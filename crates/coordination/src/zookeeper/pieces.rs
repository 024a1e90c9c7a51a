//! Commits of callers on their way into multis: the bounded queue, and the choice of commits for the next multi.
//!
//! A piece is taken before it is sent, and put back when it was certainly not applied. So when a caller's wait times
//! out, the state of its piece tells whether the commit may still happen.
//!
//! ```text
//! waiting ──take──▶ taken ──answered──▶ (answer sent)
//!    │  ◀──put back──┘
//!    └──the caller gives up──▶ given up: never sent
//! ```

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::limits;
use super::{CommitResult, Fence, Op, TreeError, path};
use angarium_core::limits as core_limits;

/// Max fences of the pieces of a multi. Pieces usually share them, and a check costs next to nothing.
const FENCES: usize = 2 * core_limits::TREE_BATCH_OPS;

const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const GIVEN_UP: u8 = 2;

type PieceOutcome = Result<CommitResult, TreeError>;

/// One caller's commit.
pub(super) struct Piece {
    pub(super) fences: Vec<Fence>,
    pub(super) ops: Vec<Op>,
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
        (Self { fences: fences.to_vec(), ops: ops.to_vec(), state, reply }, ticket)
    }

    /// Sends the outcome to the caller. The outcome does not change if the caller no longer waits.
    pub(super) fn answer(self, outcome: PieceOutcome) {
        let _ = self.reply.send(outcome);
    }

    /// Takes the piece for sending. Returns false when its caller no longer waits: then it is never sent.
    fn take(&self) -> bool {
        let taken = self.state.compare_exchange(WAITING, TAKEN, Ordering::SeqCst, Ordering::SeqCst);
        taken.is_ok() && !self.reply.is_closed()
    }

    fn bytes(&self) -> usize {
        super::size(&self.fences, &self.ops)
    }
}

impl Ticket {
    /// Waits for the outcome, and after `max_wait` returns an error that tells whether the commit may still happen.
    pub(super) async fn outcome(self, max_wait: Duration) -> PieceOutcome {
        let Self { state, answer } = self;
        let late = match tokio::time::timeout(max_wait, answer).await {
            Ok(Ok(outcome)) => return outcome,
            Ok(Err(_)) => "the session with ZooKeeper has ended",
            Err(_) => "ZooKeeper did not answer in time",
        };
        match state.compare_exchange(WAITING, GIVEN_UP, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Err(TreeError::NotSent(late.into())),
            Err(_) => Err(TreeError::Unknown(late.into())),
        }
    }
}

/// Waiting pieces, in the order of their calls.
pub(super) struct PendingPieces {
    /// Bounded, so that callers are refused when too many pieces wait.
    queue: mpsc::Receiver<Piece>,
    /// Pieces that were put back or already received, at most those of one multi.
    front: VecDeque<Piece>,
}

impl PendingPieces {
    pub(super) fn bounded() -> (mpsc::Sender<Piece>, Self) {
        let (sender, queue) = mpsc::channel(limits::TREE_QUEUE);
        (sender, Self { queue, front: VecDeque::new() })
    }

    /// Waits until there is a piece. Returns false when no more pieces can arrive. Cancel safe.
    pub(super) async fn any(&mut self) -> bool {
        if !self.front.is_empty() {
            return true;
        }
        let piece = self.queue.recv().await;
        self.front.extend(piece);
        !self.front.is_empty()
    }

    /// Takes the pieces of the next multi: as many as fit and do not touch each other's nodes.
    pub(super) fn take(&mut self) -> Vec<Piece> {
        let (mut group, mut sum) = (Vec::new(), Sum::default());
        loop {
            if self.front.is_empty() {
                self.front.extend(self.queue.try_recv());
            }
            let Some(piece) = self.front.pop_front() else { break };
            if !group.is_empty() && !sum.admits(&piece) {
                self.front.push_front(piece);
                break;
            }
            if piece.take() {
                sum.add(&piece);
                group.push(piece);
            }
        }
        group
    }

    /// Puts back pieces that were certainly not applied, before all others.
    pub(super) fn put_back(&mut self, pieces: Vec<Piece>) {
        for piece in pieces.into_iter().rev() {
            piece.state.store(WAITING, Ordering::SeqCst);
            self.front.push_front(piece);
        }
    }
}

/// The combined size and effect of the pieces of a multi.
///
/// No piece depends on a node that an earlier piece of the same multi changes. So each piece has the same outcome alone
/// as in the multi, and a refused piece can be answered at once, because no other piece depends on it.
#[derive(Default)]
struct Sum {
    ops: usize,
    fences: usize,
    bytes: usize,
    /// Nodes that the pieces create, set or delete.
    changed: HashSet<String>,
    /// Directories that the pieces create nodes in or delete nodes from.
    resized: HashSet<String>,
}

impl Sum {
    fn admits(&self, piece: &Piece) -> bool {
        self.ops + piece.ops.len() <= core_limits::TREE_BATCH_OPS
            && self.fences + piece.fences.len() <= FENCES
            && self.bytes + piece.bytes() <= core_limits::TREE_BATCH_BYTES
            && !self.touches(piece)
    }

    fn touches(&self, piece: &Piece) -> bool {
        piece.fences.iter().any(|fence| self.changed.contains(&fence.path))
            || piece.ops.iter().any(|op| {
                self.changed.contains(op.path())
                    || match op {
                        Op::Create { path, .. } => {
                            path::parent(path).is_some_and(|parent| self.changed.contains(parent))
                        }
                        Op::Delete { path } => self.resized.contains(path),
                        Op::Set { .. } => false,
                    }
            })
    }

    fn add(&mut self, piece: &Piece) {
        self.ops += piece.ops.len();
        self.fences += piece.fences.len();
        self.bytes += piece.bytes();
        for op in &piece.ops {
            self.changed.insert(op.path().to_owned());
            if let Op::Create { path, .. } | Op::Delete { path } = op
                && let Some(parent) = path::parent(path)
            {
                self.resized.insert(parent.to_owned());
            }
        }
    }
}
