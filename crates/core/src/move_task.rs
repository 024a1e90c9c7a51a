//! Move tasks: each transfers the messages of a dead letter queue to the queues from which they were dead letters, or
//! to one other queue. Source: SQS.
//!
//! ```text
//! running ──all moved──▶ completed
//!    │ └──a message cannot be moved──▶ failed
//!    └─cancel, or after 36 hours─▶ cancelling ──all begun transfers have ended──▶ cancelled
//! ```

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, InvalidPart};
use crate::limits;
use crate::names::{QueueRef, address};
use crate::time::Timestamp;

/// Max messages that a task moves in a second (SQS: 1 to 500).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MoveRate(u32);

impl MoveRate {
    /// Checks a rate; `field` is the client's name for it.
    pub fn new(per_second: i64, field: &str) -> Result<Self, Error> {
        let (min, max) = limits::MOVE_TASK_RATE;
        match u32::try_from(per_second) {
            Ok(rate) if (min..=max).contains(&rate) => Ok(Self(rate)),
            _ => {
                let why = format!("{per_second} is not between {min} and {max} messages a second");
                Err(Error::invalid(InvalidPart::Limit, field, why))
            }
        }
    }

    /// Messages a second.
    pub const fn per_second(self) -> u32 {
        self.0
    }
}

/// State of a move task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveStatus {
    /// It moves messages.
    Running,
    /// A client has cancelled it, and it finishes the transfers that it has begun.
    Cancelling,
    /// It was stopped. Messages that it moved stay moved.
    Cancelled,
    /// It has moved all its messages, and all have arrived.
    Completed,
    /// A message could not be moved. Messages that it moved before stay moved.
    Failed(MoveFailure),
}

/// Reason why a task failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveFailure {
    /// A message is no dead letter, so its origin is unknown, and the task names no target.
    NoOrigin,
    /// The target queue does not exist any more.
    NoTarget,
}

/// A move task, as it is stored and listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveTask {
    /// The id by which a client cancels the task.
    pub id: Uuid,
    /// The target; absent: the queue from which each message was a dead letter.
    pub target: Option<MoveTarget>,
    /// Max messages a second; absent: as fast as possible.
    pub rate: Option<MoveRate>,
    /// State of the task.
    pub status: MoveStatus,
    /// Number of messages that have arrived. After the process was killed it may be too small.
    pub moved: u64,
    /// Number of messages in the queue when the task began. It moves no more than that: messages that arrive later
    /// stay.
    pub to_move: u64,
    /// When the task began, in milliseconds since the Unix epoch.
    pub started: u64,
}

/// The target of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveTarget {
    /// A queue of the same service.
    #[serde(flatten, with = "address")]
    pub at: QueueRef,
}

impl MoveTask {
    /// Returns a task that begins at `now`.
    pub fn begin(
        id: Uuid,
        target: Option<QueueRef>,
        rate: Option<MoveRate>,
        to_move: u64,
        now: Timestamp,
    ) -> Self {
        let target = target.map(|at| MoveTarget { at });
        Self { id, target, rate, status: MoveStatus::Running, moved: 0, to_move, started: now.as_millis() }
    }

    /// Whether it has run longer than a task may.
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        now >= Timestamp::from_millis(self.started).plus_seconds(limits::MOVE_TASK_SECONDS)
    }

    /// Whether it still has something to do.
    pub fn is_active(&self) -> bool {
        match self.status {
            MoveStatus::Running | MoveStatus::Cancelling => true,
            MoveStatus::Cancelled | MoveStatus::Completed | MoveStatus::Failed(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{ProjectId, QueueName};

    #[test]
    fn a_task_is_read_as_it_was_stored() {
        let at = QueueRef { project: ProjectId::new("p").unwrap(), name: QueueName::new("q").unwrap() };
        let rate = MoveRate::new(500, "").unwrap();
        let mut task = MoveTask::begin(Uuid::nil(), Some(at), Some(rate), 3, Timestamp::from_millis(5));
        task.status = MoveStatus::Failed(MoveFailure::NoTarget);
        let stored = serde_json::to_string(&task).unwrap();
        assert_eq!(
            stored,
            r#"{"id":"00000000-0000-0000-0000-000000000000","target":{"project":"p","name":"q"},"rate":500,"status":{"failed":"no_target"},"moved":0,"to_move":3,"started":5}"#
        );
        assert_eq!(serde_json::from_str::<MoveTask>(&stored).unwrap(), task);
    }

    #[test]
    fn rates_have_the_bounds_of_sqs() {
        assert!(MoveRate::new(1, "r").is_ok());
        assert!([0, 501, -1].iter().all(|rate| MoveRate::new(*rate, "r").is_err()));
    }
}
