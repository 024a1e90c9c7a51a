//! The operations of SQS, with the names that both dialects use.

use std::borrow::Cow;

use super::context::Context;
use super::decode::Arguments;
use super::encode::OperationResult;
use super::fault::Fault;
use super::{
    delete, move_tasks, permissions, queue_attributes, queues, receive, redrive, send, tags, visibility,
};
use crate::api::pipeline::admission::PlaceKind;
use crate::api::pipeline::deadline::{RequestDeadline, longest_wait};
use angarium_core::limits;

macro_rules! operations {
    ($($name:ident)*) => {
        /// An operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Operation {
            $($name),*
        }

        /// All operations, ordered by name.
        pub const ALL: &[Operation] = &[$(Operation::$name),*];

        impl Operation {
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name)),*
                }
            }
        }
    };
}

operations! {
    AddPermission
    CancelMessageMoveTask
    ChangeMessageVisibility
    ChangeMessageVisibilityBatch
    CreateQueue
    DeleteMessage
    DeleteMessageBatch
    DeleteQueue
    GetQueueAttributes
    GetQueueUrl
    ListDeadLetterSourceQueues
    ListMessageMoveTasks
    ListQueueTags
    ListQueues
    PurgeQueue
    ReceiveMessage
    RemovePermission
    SendMessage
    SendMessageBatch
    SetQueueAttributes
    StartMessageMoveTask
    TagQueue
    UntagQueue
}

impl Operation {
    /// Returns the operation with this name.
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().copied().find(|operation| operation.name() == name)
    }

    /// Returns the operation as the list of actions that a policy must permit.
    pub fn as_action(self) -> &'static [Self] {
        std::slice::from_ref(&ALL[self as usize])
    }

    /// Whether the operation may be done twice with the same effect as once.
    pub fn may_be_done_twice(self) -> bool {
        matches!(
            self,
            Self::DeleteMessage
                | Self::DeleteMessageBatch
                | Self::GetQueueAttributes
                | Self::GetQueueUrl
                | Self::ListDeadLetterSourceQueues
                | Self::ListMessageMoveTasks
                | Self::ListQueueTags
                | Self::ListQueues
        )
    }

    /// Whether the operation changes anything. A receive does: it hides the messages that it returns.
    pub fn is_change(self) -> bool {
        !matches!(
            self,
            Self::GetQueueAttributes
                | Self::GetQueueUrl
                | Self::ListDeadLetterSourceQueues
                | Self::ListMessageMoveTasks
                | Self::ListQueueTags
                | Self::ListQueues
        )
    }

    /// Returns the max bytes of a request body.
    pub fn most_bytes(self) -> usize {
        match self {
            Self::SendMessage | Self::SendMessageBatch => limits::SQS_REQUEST_BYTES,
            Self::ReceiveMessage => limits::SQS_RECEIVE_BYTES,
            _ => limits::SQS_CONTROL_BYTES,
        }
    }

    /// Returns the kind of a request for admission control. Every receive is a long poll, because the queue may have a
    /// default wait.
    pub fn place_kind(self) -> PlaceKind {
        if self == Self::ReceiveMessage { PlaceKind::LongPoll } else { PlaceKind::Request }
    }

    /// Returns the deadline of a request.
    pub fn deadline(self) -> RequestDeadline {
        let time = match self {
            Self::ReceiveMessage => longest_wait(),
            Self::PurgeQueue => limits::PURGE_DEADLINE,
            _ => limits::REQUEST_DEADLINE,
        };
        RequestDeadline { time, is_read: !self.is_change() }
    }

    /// Runs the operation with these arguments.
    pub async fn run(
        self,
        context: &Context<'_>,
        arguments: Cow<'_, Arguments>,
    ) -> Result<OperationResult, Fault> {
        match self {
            Self::AddPermission => permissions::add(context, arguments.read()?).await,
            Self::CancelMessageMoveTask => move_tasks::cancel(context, arguments.read()?).await,
            Self::ChangeMessageVisibility => visibility::change(context, arguments.read()?).await,
            Self::ChangeMessageVisibilityBatch => visibility::change_batch(context, arguments.read()?).await,
            Self::CreateQueue => queues::create(context, arguments.read()?).await,
            Self::DeleteMessage => delete::one(context, arguments.read()?).await,
            Self::DeleteMessageBatch => delete::batch(context, arguments.read()?).await,
            Self::DeleteQueue => queues::delete(context).await,
            Self::GetQueueAttributes => queue_attributes::get(context, arguments.read()?).await,
            Self::GetQueueUrl => queues::url(context).await,
            Self::ListDeadLetterSourceQueues => redrive::sources(context, arguments.read()?).await,
            Self::ListMessageMoveTasks => move_tasks::list(context, arguments.read()?).await,
            Self::ListQueueTags => tags::list(context).await,
            Self::ListQueues => queues::list(context, arguments.read()?).await,
            Self::PurgeQueue => queues::purge(context).await,
            Self::ReceiveMessage => {
                let asked = arguments.read()?;
                // A receive may wait long and no longer needs its body.
                drop(arguments);
                receive::receive(context, asked).await
            }
            Self::RemovePermission => permissions::remove(context, arguments.read()?).await,
            Self::SendMessage => send::one(context, arguments.read()?).await,
            Self::SendMessageBatch => send::batch(context, arguments.read()?).await,
            Self::SetQueueAttributes => queue_attributes::set(context, arguments.read()?).await,
            Self::StartMessageMoveTask => move_tasks::start(context, arguments.read()?).await,
            Self::TagQueue => tags::add(context, arguments.read()?).await,
            Self::UntagQueue => tags::remove(context, arguments.read()?).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_has_its_own_deadline() {
        let of = |operation: Operation| {
            let deadline = operation.deadline();
            (deadline.time.as_secs(), deadline.is_read)
        };
        assert_eq!(of(Operation::ReceiveMessage), (65, false));
        assert_eq!(of(Operation::PurgeQueue), (600, false));
        assert_eq!(of(Operation::SendMessage), (45, false));
        assert_eq!(of(Operation::ListQueues), (45, true));
    }
}
