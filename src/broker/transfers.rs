//! The transfers out of one queue that are under way, and what a pass over them came to.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

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
    pub(super) tasks: HashMap<QueueRef, JoinHandle<Result<(), Error>>>,
    /// Whether one of them has ended well since somebody asked.
    pub(super) has_moved: bool,
}

impl Transfers {
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
