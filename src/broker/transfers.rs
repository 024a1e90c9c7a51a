//! The transfers out of one queue: one task for each target, so that one that hangs holds up no other, and what waits behind it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::domain::ids::MessageId;
use crate::domain::message::{Header, State};
use crate::domain::names::QueueRef;
use crate::error::{Error, Part};

/// How long a pass waits for the transfers that it began.
const TRANSFER_WAIT: Duration = Duration::from_secs(1);

/// What one pass over the entries aside came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pass {
    /// None of them is on its way.
    Idle,
    /// Some were brought to their end.
    Moved,
    /// Some wait for somebody else.
    Waits,
}

/// The transfers out of one queue that are under way, by target.
#[derive(Default)]
pub(super) struct Transfers {
    tasks: HashMap<QueueRef, JoinHandle<Result<(), Error>>>,
    /// Messages that wait behind a transfer to their target: they are not read again before it has ended. Of those that memory
    /// knows to be aside, and no others.
    behind: HashMap<MessageId, QueueRef>,
    /// Whether one of them has ended well since somebody asked.
    has_moved: bool,
}

impl Transfers {
    /// Whether a transfer to this target is under way.
    pub(super) fn is_running(&self, target: &QueueRef) -> bool {
        self.tasks.get(target).is_some_and(|transfer| !transfer.is_finished())
    }

    /// Those of the messages aside that a pass has to look at: all but those behind a transfer that goes on.
    pub(super) fn due(&mut self, known: Vec<MessageId>) -> Vec<MessageId> {
        let mut behind = std::mem::take(&mut self.behind);
        let is_aside: HashSet<&MessageId> = known.iter().collect();
        behind.retain(|id, target| is_aside.contains(id) && self.is_running(target));
        self.behind = behind;
        known.into_iter().filter(|id| !self.behind.contains_key(id)).collect()
    }

    /// Notes which of these messages wait behind a transfer.
    pub(super) fn note_behind(&mut self, headers: &[Header]) {
        for header in headers {
            if let State::Moving(peer) = &header.state
                && self.is_running(&peer.at)
            {
                self.behind.insert(header.id, peer.at.clone());
            }
        }
    }

    /// Notes a transfer to a target that has none.
    pub(super) fn begin(&mut self, target: QueueRef, transfer: JoinHandle<Result<(), Error>>) {
        self.tasks.insert(target, transfer);
    }

    /// Whether one of them has ended well since the last call.
    pub(super) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_moved)
    }

    /// Waits for those that were just begun, a while. Those that take longer, and those before them, go on beside the next pass.
    pub(super) async fn finish(&mut self, begun: Vec<QueueRef>) -> Result<Pass, Error> {
        let (end, mut pass) = (Instant::now() + TRANSFER_WAIT, Ok(Pass::Idle));
        for target in begun {
            let Some(transfer) = self.tasks.get_mut(&target) else { continue };
            let Ok(ended) = timeout_at(end, transfer).await else { continue };
            self.tasks.remove(&target);
            let unknown = |_| Err(Error::unknown(Part::Server, "a task ended without an answer"));
            let ended = ended.unwrap_or_else(unknown);
            self.has_moved |= ended.is_ok();
            pass = worse(pass, ended.map(|()| Pass::Moved));
        }
        self.tasks.retain(|_, transfer| !transfer.is_finished());
        if self.tasks.is_empty() { pass } else { worse(pass, Ok(Pass::Waits)) }
    }
}

/// Of two parts of a pass the one that needs more: an error, or the greater.
pub(super) fn worse(one: Result<Pass, Error>, other: Result<Pass, Error>) -> Result<Pass, Error> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok(one.max(other)),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}
