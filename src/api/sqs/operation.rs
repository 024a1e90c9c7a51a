//! The operations of SQS, by the names that both protocols give them.

use super::context::Context;
use super::decode::Arguments;
use super::encode::Answer;
use super::fault::{Fault, Kind};
use super::{delete, permissions, queue_attributes, queues, receive, redrive, send, tags, visibility};

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    AddPermission,
    CancelMessageMoveTask,
    ChangeMessageVisibility,
    ChangeMessageVisibilityBatch,
    CreateQueue,
    DeleteMessage,
    DeleteMessageBatch,
    DeleteQueue,
    GetQueueAttributes,
    GetQueueUrl,
    ListDeadLetterSourceQueues,
    ListMessageMoveTasks,
    ListQueueTags,
    ListQueues,
    PurgeQueue,
    ReceiveMessage,
    RemovePermission,
    SendMessage,
    SendMessageBatch,
    SetQueueAttributes,
    StartMessageMoveTask,
    TagQueue,
    UntagQueue,
}

/// All of them, in the order of their names.
pub const ALL: [Operation; 23] = {
    use Operation::*;
    [
        AddPermission,
        CancelMessageMoveTask,
        ChangeMessageVisibility,
        ChangeMessageVisibilityBatch,
        CreateQueue,
        DeleteMessage,
        DeleteMessageBatch,
        DeleteQueue,
        GetQueueAttributes,
        GetQueueUrl,
        ListDeadLetterSourceQueues,
        ListMessageMoveTasks,
        ListQueueTags,
        ListQueues,
        PurgeQueue,
        ReceiveMessage,
        RemovePermission,
        SendMessage,
        SendMessageBatch,
        SetQueueAttributes,
        StartMessageMoveTask,
        TagQueue,
        UntagQueue,
    ]
};

impl Operation {
    /// The operation of this name.
    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|operation| operation.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::AddPermission => "AddPermission",
            Self::CancelMessageMoveTask => "CancelMessageMoveTask",
            Self::ChangeMessageVisibility => "ChangeMessageVisibility",
            Self::ChangeMessageVisibilityBatch => "ChangeMessageVisibilityBatch",
            Self::CreateQueue => "CreateQueue",
            Self::DeleteMessage => "DeleteMessage",
            Self::DeleteMessageBatch => "DeleteMessageBatch",
            Self::DeleteQueue => "DeleteQueue",
            Self::GetQueueAttributes => "GetQueueAttributes",
            Self::GetQueueUrl => "GetQueueUrl",
            Self::ListDeadLetterSourceQueues => "ListDeadLetterSourceQueues",
            Self::ListMessageMoveTasks => "ListMessageMoveTasks",
            Self::ListQueueTags => "ListQueueTags",
            Self::ListQueues => "ListQueues",
            Self::PurgeQueue => "PurgeQueue",
            Self::ReceiveMessage => "ReceiveMessage",
            Self::RemovePermission => "RemovePermission",
            Self::SendMessage => "SendMessage",
            Self::SendMessageBatch => "SendMessageBatch",
            Self::SetQueueAttributes => "SetQueueAttributes",
            Self::StartMessageMoveTask => "StartMessageMoveTask",
            Self::TagQueue => "TagQueue",
            Self::UntagQueue => "UntagQueue",
        }
    }

    /// Whether doing it twice is as doing it once.
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

    /// Carries it out.
    pub async fn run(self, context: &Context<'_>, arguments: Arguments) -> Result<Answer, Fault> {
        match self {
            Self::AddPermission => permissions::add(context, arguments.read()?).await,
            Self::ChangeMessageVisibility => visibility::change(context, arguments.read()?).await,
            Self::ChangeMessageVisibilityBatch => visibility::change_batch(context, arguments.read()?).await,
            Self::CreateQueue => queues::create(context, arguments.read()?).await,
            Self::DeleteMessage => delete::one(context, arguments.read()?).await,
            Self::DeleteMessageBatch => delete::batch(context, arguments.read()?).await,
            Self::DeleteQueue => queues::delete(context, arguments.read()?).await,
            Self::GetQueueAttributes => queue_attributes::get(context, arguments.read()?).await,
            Self::GetQueueUrl => queues::url(context, arguments.read()?).await,
            Self::ListDeadLetterSourceQueues => redrive::sources(context, arguments.read()?).await,
            Self::ListQueueTags => tags::list(context, arguments.read()?).await,
            Self::ListQueues => queues::list(context, arguments.read()?).await,
            Self::PurgeQueue => queues::purge(context, arguments.read()?).await,
            Self::ReceiveMessage => receive::receive(context, arguments.read()?).await,
            Self::RemovePermission => permissions::remove(context, arguments.read()?).await,
            Self::SendMessage => send::one(context, arguments.read()?).await,
            Self::SendMessageBatch => send::batch(context, arguments.read()?).await,
            Self::SetQueueAttributes => queue_attributes::set(context, arguments.read()?).await,
            Self::TagQueue => tags::add(context, arguments.read()?).await,
            Self::UntagQueue => tags::remove(context, arguments.read()?).await,
            Self::CancelMessageMoveTask | Self::ListMessageMoveTasks | Self::StartMessageMoveTask => {
                Err(Fault::new(Kind::UnsupportedOperation, format!("{} is not available yet", self.name())))
            }
        }
    }
}
