//! Queues: create, look up, change, delete; their migrations, redrives and quotas.

use uuid::Uuid;

use angarium_catalogue::Act;
use angarium_core::error::Error;
use angarium_core::limits::Limits;
use angarium_core::move_task::{MoveRate, MoveTask};
use angarium_core::names::{ProjectId, QueueRef};
use angarium_core::patch::Change;
use angarium_core::queue::{CreateResult, Metadata, QueueStats};

use crate::broker::Broker;
use crate::migration::begin::{Destination, MigrationView};
use crate::queues::describe::QueueDescription;
use crate::queues::list::{QueueFilter, QueuePage};
use crate::quotas::counting::QuotaView;
use crate::redrive::tasks::MoveRefusal;

impl Broker {
    /// What a project may hold and does hold, in the slots of all replicas.
    pub async fn quota(&self, project: &ProjectId) -> Result<QuotaView, Error> {
        self.0.quotas.quota(project).await
    }

    /// Creates a queue in a pool of its flavor. One that exists stays as it is, its metadata too.
    pub async fn queue_create(&self, at: &QueueRef, metadata: Metadata) -> Result<CreateResult, Error> {
        self.0.open_queues.queue_create(at, metadata).await
    }

    /// Removes every message that was posted before, claimed or not. Zaqar spares the claimed ones, whatever it
    /// states. Nothing happens when there is no such queue.
    pub async fn queue_purge(&self, at: &QueueRef) -> Result<(), Error> {
        self.0.messages.queue_purge(at).await
    }

    /// Begins to move a queue to another pool; it is used on meanwhile. What follows happens by itself, no matter which
    /// caller serves the queue by then. One that moves already, or is in that pool, is a conflict.
    pub async fn queue_migrate(&self, at: &QueueRef, to: Destination) -> Result<MigrationView, Error> {
        self.0.migrations.queue_migrate(at, to).await
    }

    /// How far the migration of a queue is.
    pub async fn migration_get(&self, at: &QueueRef) -> Result<MigrationView, Error> {
        self.0.migrations.migration_get(at).await
    }

    /// Turns a migration round: what is new moves to the pool again that the queue came from, and so does what went
    /// over. One that was canceled already continues. While that pool does not have the queue's flavor it is a
    /// conflict.
    pub async fn migration_cancel(&self, at: &QueueRef) -> Result<MigrationView, Error> {
        self.0.migrations.migration_cancel(at).await
    }

    /// Deletes a queue with all its messages and claims. One that does not exist is deleted already.
    pub async fn queue_delete(&self, at: &QueueRef) -> Result<(), Error> {
        self.0.queues.queue_delete(at).await
    }

    /// Changes the metadata of a queue, and returns what it is then. All changes are durable when this returns, or
    /// none is made. One of another flavor than that of its pool begins to move to a pool of that flavor.
    pub async fn queue_patch(&self, at: &QueueRef, changes: Vec<Change>) -> Result<Metadata, Error> {
        self.0.queues.queue_patch(at, changes).await
    }

    /// As [`Broker::queue_patch`], for a caller with bounds of its own for what is set.
    pub async fn queue_patch_within(
        &self,
        at: &QueueRef,
        changes: Vec<Change>,
        limits: Limits,
    ) -> Result<Metadata, Error> {
        self.0.queues.queue_patch_within(at, changes, limits).await
    }

    /// Notes that something is about to be done to a queue, durable when this returns. False when it was done less than
    /// [`limits::SQS_PAUSE_SECONDS`] ago, and then nothing is noted.
    pub async fn act_begin(&self, at: &QueueRef, act: Act) -> Result<bool, Error> {
        self.0.queues.act_begin(at, act).await
    }

    /// Whether something was done to a queue less than [`limits::SQS_PAUSE_SECONDS`] ago, by those who note it.
    pub async fn is_recent(&self, at: &QueueRef, act: Act) -> Result<bool, Error> {
        self.0.queues.is_recent(at, act).await
    }

    /// A page of the queues of a project, no matter which caller owns their slots: the tree has them all, and shows
    /// every change that was answered before the request came.
    pub async fn queues_list(&self, project: &ProjectId, filter: &QueueFilter) -> Result<QueuePage, Error> {
        self.0.queues.queues_list(project, filter).await
    }

    /// The metadata of a queue, or none when there is no such queue. That of one that another replica serves is read out of the
    /// tree, which shows every change that was answered before.
    pub async fn queue_metadata(&self, at: &QueueRef) -> Result<Option<Metadata>, Error> {
        self.0.queues.queue_metadata(at).await
    }

    /// As [`Broker::queue_metadata`], of a queue that may be served by another replica: as the tree has it, with every change
    /// that was answered before this was asked.
    pub async fn queue_metadata_anywhere(&self, at: &QueueRef) -> Result<Option<Metadata>, Error> {
        self.0.queues.queue_metadata_anywhere(at).await
    }

    /// A queue with its figures, or none when there is no such queue.
    pub async fn queue_describe(&self, at: &QueueRef) -> Result<Option<QueueDescription>, Error> {
        self.0.queues.queue_describe(at).await
    }

    /// What is in a queue; nothing when there is no such queue.
    pub async fn queue_stats(&self, at: &QueueRef) -> Result<QueueStats, Error> {
        self.0.queues.queue_stats(at).await
    }

    /// Begins to move the messages of a queue for dead letters to `target`, or each to where it came from. The task is
    /// recorded when this returns its id, and continues whatever becomes of this process.
    pub async fn move_task_start(
        &self,
        at: &QueueRef,
        target: Option<QueueRef>,
        rate: Option<MoveRate>,
    ) -> Result<Result<Uuid, MoveRefusal>, Error> {
        self.0.redrive.move_task_start(at, target, rate).await
    }

    /// The latest tasks of a queue, the newest first; none when there is no such queue.
    pub async fn move_tasks_list(&self, at: &QueueRef) -> Result<Option<Vec<MoveTask>>, Error> {
        self.0.redrive.move_tasks_list(at).await
    }

    /// Tells a task to stop: it moves nothing that it has not begun to move. Returns how many messages it has moved;
    /// none when the queue has no such task, or it has ended.
    pub async fn move_task_cancel(&self, at: &QueueRef, task: Uuid) -> Result<Option<u64>, Error> {
        self.0.redrive.move_task_cancel(at, task).await
    }
}
