//! Tasks that move the messages of a queue for dead letters to where they came from, or to another queue. Source: SQS.
//!
//! ```text
//! running ──all moved──▶ completed
//!    │ └──a message cannot be moved──▶ failed
//!    └─cancel, or after 36 hours─▶ cancelling ──what was under way has ended──▶ cancelled
//! ```

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, InvalidPart};
use crate::limits;
use crate::names::{QueueRef, address};
use crate::time::Timestamp;

/// How many messages a task moves in a second at most (SQS: 1 to 500).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MoveRate(u32);

impl MoveRate {
    /// Checks a rate; `field` is what the caller calls it.
    pub fn new(per_second: i64, field: &str) -> Result<Self, Error> {
        let (least, most) = limits::MOVE_TASK_RATE;
        match u32::try_from(per_second) {
            Ok(rate) if (least..=most).contains(&rate) => Ok(Self(rate)),
            _ => {
                let why = format!("{per_second} is not between {least} and {most} messages a second");
                Err(Error::invalid(InvalidPart::Limit, field, why))
            }
        }
    }

    /// Messages a second.
    pub const fn per_second(self) -> u32 {
        self.0
    }
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveStatus {
    /// It moves messages.
    Running,
    /// It was told to stop, and brings what it has begun to its end.
    Cancelling,
    /// It was stopped. What it had moved stays moved.
    Cancelled,
    /// It has moved what was to be moved, and all of it has arrived.
    Completed,
    /// A message could not be moved. What it had moved stays moved.
    Failed(MoveFailure),
}

/// Why a task came to no good end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveFailure {
    /// A message is no dead letter, so it is unknown where it came from, and the task names no queue.
    NoOrigin,
    /// The queue that messages were to go to does not exist any more.
    NoTarget,
}

/// A task that moves the messages of a queue, as it is stored and listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveTask {
    /// Names the task to the client that stops it.
    pub id: Uuid,
    /// Where the messages go; each to where it came from when absent.
    pub target: Option<MoveTarget>,
    /// How fast; as fast as possible when absent.
    pub rate: Option<MoveRate>,
    /// How far it is.
    pub status: MoveStatus,
    /// How many messages have arrived. After the process was killed it may be less than there were.
    pub moved: u64,
    /// How many there were to move when it began. It moves no more than that: messages that arrive meanwhile stay.
    pub to_move: u64,
    /// When it began, in milliseconds since the Unix epoch.
    pub started: u64,
}

/// Where a task moves messages to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveTarget {
    /// A queue of the same service.
    #[serde(flatten, with = "address")]
    pub at: QueueRef,
}

impl MoveTask {
    /// A task that begins now.
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

    /// Whether it has taken as long as a task may.
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        now >= Timestamp::from_millis(self.started).plus_seconds(limits::MOVE_TASK_SECONDS)
    }

    /// Whether it has something to do still.
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
