//! Tasks over the messages of a queue. One without a filter transfers the messages of a dead letter queue to the queues
//! from which they were dead letters, or to one other queue (SQS). One with a filter moves, requeues or deletes the
//! messages that it selects.
//!
//! ```text
//! running ──all done──▶ completed
//!    │ └──a message cannot be moved──▶ failed
//!    └─cancel, or after 36 hours─▶ cancelling ──all begun transfers have ended──▶ cancelled
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, InvalidPart};
use crate::ids::MessageId;
use crate::limits;
use crate::names::{QueueRef, address};
use crate::peek_position::PeekPosition;
use crate::selection::MessageSelection;
use crate::settle::MessageState;
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
    /// A message could not be moved; of a task with a filter, its target is gone. Messages that it moved before stay
    /// moved.
    Failed(MoveFailure),
}

/// Reason why a task could not move a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveFailure {
    /// A message is no dead letter, so its origin is unknown, and the task names no target.
    NoOrigin,
    /// The target queue does not exist any more.
    NoTarget,
}

impl MoveFailure {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoOrigin => "no_origin",
            Self::NoTarget => "no_target",
        }
    }
}

/// What a task does with each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskVerb {
    /// Moves it to another queue.
    Move,
    /// Makes it available again in its queue.
    Requeue,
    /// Deletes it.
    Delete,
}

impl TaskVerb {
    /// All verbs.
    pub const ALL: [Self; 3] = [Self::Move, Self::Requeue, Self::Delete];

    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Move => "move",
            Self::Requeue => "requeue",
            Self::Delete => "delete",
        }
    }
}

/// The filter of a task, and how far the task has read its queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectedTask {
    /// What it does.
    pub verb: TaskVerb,
    /// The messages that it changes, as far as they are free.
    pub selection: MessageSelection,
    /// Max messages that it changes.
    pub max: Option<u64>,
    /// The newest message of the queue when the task began: later ones stay.
    pub last: MessageId,
    /// Where it continues; absent: it has read the whole queue.
    pub position: Option<PeekPosition>,
    /// Messages whose change had begun when the process was killed: they count for `max`.
    #[serde(default)]
    pub in_doubt: u64,
    /// Messages that fulfil the conditions, and that a claim, a transfer or another request held.
    pub skipped: u64,
    /// Messages that could not be moved, by reason.
    pub failed: BTreeMap<MoveFailure, u64>,
    /// Messages that were compared with the conditions.
    pub looked_at: u64,
}

/// The parameters of a task with a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRequest {
    /// What it does.
    pub verb: TaskVerb,
    /// The messages that it changes.
    pub selection: MessageSelection,
    /// The target of a move; absent: the queue from which each message was a dead letter.
    pub target: Option<QueueRef>,
    /// Max messages a second; absent: as fast as possible.
    pub rate: Option<MoveRate>,
    /// Max messages in all.
    pub max: Option<u64>,
}

/// A task, as it is stored and listed.
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
    /// Number of messages that have arrived, or that were requeued or deleted. After the process was killed it may be too
    /// small.
    pub moved: u64,
    /// Number of messages in the queue when the task began. Without a filter it moves no more than that: messages that
    /// arrive later stay.
    pub to_move: u64,
    /// When the task began, in milliseconds since the Unix epoch.
    pub started: u64,
    /// When it ended, in milliseconds since the Unix epoch; absent while it is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Its filter; absent: it moves what a claim would get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected: Option<Box<SelectedTask>>,
}

/// The target of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveTarget {
    /// A queue of the same service.
    #[serde(flatten, with = "address")]
    pub at: QueueRef,
}

impl TaskRequest {
    /// Checks the request, and names the states of the messages where it names none: a move takes the ready ones, a
    /// requeue the failed ones. A deletion must be narrowed by the client.
    pub fn checked(mut self) -> Result<Self, Error> {
        let refuse = |field: &str, why: &str| Err(Error::invalid(InvalidPart::Limit, field, why));
        let states = &mut self.selection.states;
        match self.verb {
            TaskVerb::Move if states.contains(&MessageState::Done) => {
                return refuse("filter.state", "done messages are not moved: requeue them first");
            }
            TaskVerb::Move if states.is_empty() => states.push(MessageState::Ready),
            TaskVerb::Requeue if states.is_empty() => states.push(MessageState::Failed),
            TaskVerb::Delete if !self.selection.is_narrow() => {
                return refuse(
                    "filter",
                    "a deletion has a condition that some message can fail; to empty the queue, purge it",
                );
            }
            TaskVerb::Move | TaskVerb::Requeue | TaskVerb::Delete => {}
        }
        if self.max == Some(0) {
            return refuse("max", "it is at least 1");
        }
        Ok(self)
    }
}

impl MoveTask {
    /// Returns the queue to which it moves all messages, if it names one.
    pub fn named_target(&self) -> Option<&QueueRef> {
        self.target.as_ref().map(|target| &target.at)
    }

    /// Returns a task that begins at `now`.
    pub fn begin(
        id: Uuid,
        target: Option<QueueRef>,
        rate: Option<MoveRate>,
        to_move: u64,
        now: Timestamp,
    ) -> Self {
        let target = target.map(|at| MoveTarget { at });
        let (status, started) = (MoveStatus::Running, now.as_millis());
        Self { id, target, rate, status, moved: 0, to_move, started, ended: None, selected: None }
    }

    /// Returns the task with a filter. `last` is the newest message of the queue.
    pub fn with_selection(
        self,
        verb: TaskVerb,
        selection: MessageSelection,
        max: Option<u64>,
        last: MessageId,
    ) -> Self {
        let selected = SelectedTask {
            verb,
            selection,
            max,
            last,
            position: Some(PeekPosition::FIRST),
            in_doubt: 0,
            skipped: 0,
            failed: BTreeMap::new(),
            looked_at: 0,
        };
        Self { selected: Some(Box::new(selected)), ..self }
    }

    /// What it does.
    pub fn verb(&self) -> TaskVerb {
        self.selected.as_ref().map_or(TaskVerb::Move, |selected| selected.verb)
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
    fn task_with_filter_is_read_as_it_was_stored() {
        let selection = MessageSelection { tag: Some("eu".to_owned()), ..MessageSelection::default() };
        let last = MessageId::from_bytes([7; 16]);
        let mut task = MoveTask::begin(Uuid::nil(), None, None, 0, Timestamp::from_millis(5)).with_selection(
            TaskVerb::Requeue,
            selection,
            Some(10),
            last,
        );
        let selected = task.selected.as_mut().unwrap();
        selected.position = Some(PeekPosition::Open(last));
        selected.failed.insert(MoveFailure::NoOrigin, 2);
        let stored = serde_json::to_string(&task).unwrap();
        assert_eq!(serde_json::from_str::<MoveTask>(&stored).unwrap(), task);
        assert!(stored.contains(r#""verb":"requeue","selection":{"tag":"eu"}"#), "{stored}");
        assert!(stored.contains(r#""failed":{"no_origin":2}"#), "{stored}");
    }

    #[test]
    fn request_gets_states_of_its_verb_and_deletion_needs_a_filter() {
        let request = |verb, selection| TaskRequest { verb, selection, target: None, rate: None, max: None };
        let checked = |verb| request(verb, MessageSelection::default()).checked();
        assert_eq!(checked(TaskVerb::Move).unwrap().selection.states, [MessageState::Ready]);
        assert_eq!(checked(TaskVerb::Requeue).unwrap().selection.states, [MessageState::Failed]);
        assert!(checked(TaskVerb::Delete).is_err());
        let tagged = || MessageSelection { tag: Some("eu".to_owned()), ..MessageSelection::default() };
        assert!(request(TaskVerb::Delete, tagged()).checked().unwrap().selection.states.is_empty());
        let done = MessageSelection { states: vec![MessageState::Done], ..tagged() };
        assert!(request(TaskVerb::Move, done.clone()).checked().is_err());
        assert!(request(TaskVerb::Requeue, done).checked().is_ok());
        let none = TaskRequest { max: Some(0), ..request(TaskVerb::Move, tagged()) };
        assert!(none.checked().is_err());
    }

    #[test]
    fn rates_have_the_bounds_of_sqs() {
        assert!(MoveRate::new(1, "r").is_ok());
        assert!([0, 501, -1].iter().all(|rate| MoveRate::new(*rate, "r").is_err()));
    }
}
