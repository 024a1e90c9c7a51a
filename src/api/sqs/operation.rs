//! The operations of SQS, by the names that both protocols give them.

use super::decode::Arguments;
use super::encode::Answer;
use super::endpoint::Context;
use super::fault::{Fault, Kind};
use super::{delete, queue_attributes, queues, receive, redrive, send, tags, visibility};

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

    /// Carries it out.
    pub async fn run(self, context: &Context<'_>, arguments: Arguments) -> Result<Answer, Fault> {
        match self {
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
            Self::SendMessage => send::one(context, arguments.read()?).await,
            Self::SendMessageBatch => send::batch(context, arguments.read()?).await,
            Self::SetQueueAttributes => queue_attributes::set(context, arguments.read()?).await,
            Self::TagQueue => tags::add(context, arguments.read()?).await,
            Self::UntagQueue => tags::remove(context, arguments.read()?).await,
            Self::AddPermission
            | Self::CancelMessageMoveTask
            | Self::ListMessageMoveTasks
            | Self::RemovePermission
            | Self::StartMessageMoveTask => {
                Err(Fault::new(Kind::UnsupportedOperation, format!("{} is not available yet", self.name())))
            }
        }
    }
}
