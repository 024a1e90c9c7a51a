//! Queues: create, look up, change, delete; their migrations, redrives and quotas.

use uuid::Uuid;

use angarium_catalogue::Act;
use angarium_core::error::Error;
use angarium_core::group::GroupName;
use angarium_core::hold::Hold;
use angarium_core::limits::Limits;
use angarium_core::move_task::{MoveRate, MoveTask, TaskRequest};
use angarium_core::names::{ProjectId, QueueRef};
use angarium_core::patch::Change;
use angarium_core::queue::{CreateResult, Metadata, QueueStats};

use crate::broker::Broker;
use crate::holds::terms::HoldTerms;
use crate::migration::begin::{Destination, MigrationView};
use crate::queues::delete::Forwards;
use crate::queues::describe::{QueueDescription, TopicFigures};
use crate::queues::list::{QueueFilter, QueuePage};
use crate::quotas::counting::QuotaView;
use crate::redrive::dry_run::SelectionCount;
use crate::redrive::tasks::MoveRefusal;

impl Broker {
    /// Returns the quota of a project and the amounts that it holds in the slots of all replicas.
    pub async fn quota(&self, project: &ProjectId) -> Result<QuotaView, Error> {
        self.0.quotas.quota(project).await
    }

    /// Creates a queue in a pool of its flavor. An existing queue stays as it is, with its metadata.
    pub async fn queue_create(&self, at: &QueueRef, metadata: Metadata) -> Result<CreateResult, Error> {
        self.0.open_queues.queue_create(at, metadata).await
    }

    /// Removes every message that was posted before, claimed or not. Zaqar keeps claimed messages, against its own
    /// documentation. Nothing happens when there is no such queue.
    pub async fn queue_purge(&self, at: &QueueRef) -> Result<(), Error> {
        self.0.messages.queue_purge(at).await
    }

    /// Holds a queue, in place of an earlier hold. When this returns, no claim that begins later gets a message, or no
    /// post that begins later is stored. Claims that exist continue.
    pub async fn queue_hold(&self, at: &QueueRef, terms: HoldTerms) -> Result<Hold, Error> {
        self.0.queues.queue_hold(at, terms).await
    }

    /// Returns the hold of a queue; not found when it is not held.
    pub async fn queue_hold_get(&self, at: &QueueRef) -> Result<Hold, Error> {
        self.0.queues.queue_hold_get(at).await
    }

    /// Ends the hold of a queue, for the caller with this name. It is no error when there is no hold.
    pub async fn queue_release(&self, at: &QueueRef, by: Option<String>) -> Result<(), Error> {
        self.0.queues.queue_release(at, by).await
    }

    /// Holds a group of a queue, in place of an earlier hold of the group. When this returns, no claim that begins later
    /// gets a message of the group, or no post to it that begins later is stored. Claims that exist continue.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when there is no such queue; [`Error::Invalid`] when it would have ended already;
    /// [`Error::TooMany`] when the queue has as many held groups as it may.
    pub async fn group_hold(
        &self,
        at: &QueueRef,
        group: &GroupName,
        terms: HoldTerms,
    ) -> Result<Hold, Error> {
        self.0.queues.group_hold(at, group, terms).await
    }

    /// Returns the hold of a group.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when there is no such queue, or the group is not held.
    pub async fn group_hold_get(&self, at: &QueueRef, group: &GroupName) -> Result<Hold, Error> {
        self.0.queues.group_hold_get(at, group).await
    }

    /// Ends the hold of a group, for the caller with this name. Posts to it are stored when this returns, and its messages
    /// can be claimed, the withheld ones soon after. It is no error when there is no hold.
    pub async fn group_release(
        &self,
        at: &QueueRef,
        group: &GroupName,
        by: Option<String>,
    ) -> Result<(), Error> {
        self.0.queues.group_release(at, group, by).await
    }

    /// Returns the hold because of which a claim of a queue got no message: of the queue, a pool or the project, or else
    /// of a group with messages that no claim has. While no group is held it costs a look at memory, and else up to a read
    /// of the pool for each held group. If the pool does not answer in a second, no group is named.
    pub async fn hold_of_claims(&self, at: &QueueRef) -> Option<Hold> {
        self.0.queues.hold_of_claims(at).await
    }

    /// Begins to migrate a queue to another pool. Clients use it meanwhile. The migration continues by itself, also
    /// with a later owner of the queue. A queue that is being migrated already, or that is in that pool, is a conflict.
    pub async fn queue_migrate(&self, at: &QueueRef, to: Destination) -> Result<MigrationView, Error> {
        self.0.migrations.queue_migrate(at, to).await
    }

    /// Returns the progress of the migration of a queue.
    pub async fn migration_get(&self, at: &QueueRef) -> Result<MigrationView, Error> {
        self.0.migrations.migration_get(at).await
    }

    /// Reverses a migration: new messages go to the former pool again, and the copied ones return to it. A migration
    /// that was canceled already continues. While the former pool does not have the queue's flavor it is a conflict.
    pub async fn migration_cancel(&self, at: &QueueRef) -> Result<MigrationView, Error> {
        self.0.migrations.migration_cancel(at).await
    }

    /// Deletes a queue with all its messages and claims, once the messages that its settles have forwarded or moved have
    /// left; unavailable, with nothing changed, when they cannot leave. It is no error when the queue does not exist.
    pub async fn queue_delete(&self, at: &QueueRef) -> Result<(), Error> {
        self.0.queues.queue_delete(at, Forwards::Awaited).await
    }

    /// As [`Broker::queue_delete`], but forwarded messages that have not left are deleted with the queue; those whose
    /// transfer is in progress may still arrive.
    pub async fn queue_delete_forced(&self, at: &QueueRef) -> Result<(), Error> {
        self.0.queues.queue_delete(at, Forwards::Discarded).await
    }

    /// Changes the metadata of a queue, and returns the result. All changes are durable when this returns, or none is
    /// made. With a new flavor that its pool does not have, the queue begins to migrate to a pool of that flavor.
    pub async fn queue_patch(&self, at: &QueueRef, changes: Vec<Change>) -> Result<Metadata, Error> {
        self.0.queues.queue_patch(at, changes).await
    }

    /// As [`Broker::queue_patch`], for a caller with bounds of its own for the new values.
    pub async fn queue_patch_within(
        &self,
        at: &QueueRef,
        changes: Vec<Change>,
        limits: Limits,
    ) -> Result<Metadata, Error> {
        self.0.queues.queue_patch_within(at, changes, limits).await
    }

    /// Notes that an act on a queue is about to begin; the note is durable when this returns. Returns false, and notes
    /// nothing, when the same act was noted less than [`limits::SQS_PAUSE_SECONDS`] ago.
    pub async fn act_begin(&self, at: &QueueRef, act: Act) -> Result<bool, Error> {
        self.0.queues.act_begin(at, act).await
    }

    /// Whether this act on a queue was noted less than [`limits::SQS_PAUSE_SECONDS`] ago.
    pub async fn is_recent(&self, at: &QueueRef, act: Act) -> Result<bool, Error> {
        self.0.queues.is_recent(at, act).await
    }

    /// Returns a page of the queues of a project, for any owners of their slots. It is read from the tree, which shows
    /// every change that was answered before the request arrived.
    pub async fn queues_list(&self, project: &ProjectId, filter: &QueueFilter) -> Result<QueuePage, Error> {
        self.0.queues.queues_list(project, filter).await
    }

    /// Returns the metadata of a queue; none when there is no such queue. For a queue that another replica serves it is
    /// read from the tree, which shows every change that was answered before.
    pub async fn queue_metadata(&self, at: &QueueRef) -> Result<Option<Metadata>, Error> {
        self.0.queues.queue_metadata(at).await
    }

    /// As [`Broker::queue_metadata`], of a queue that another replica may serve: read from the tree, with every change
    /// that was answered before this call.
    pub async fn queue_metadata_anywhere(&self, at: &QueueRef) -> Result<Option<Metadata>, Error> {
        self.0.queues.queue_metadata_anywhere(at).await
    }

    /// Returns a queue with its figures; none when there is no such queue.
    pub async fn queue_describe(&self, at: &QueueRef) -> Result<Option<QueueDescription>, Error> {
        self.0.queues.queue_describe(at).await
    }

    /// Returns the numbers of messages in a queue; zeros when there is no such queue.
    pub async fn queue_stats(&self, at: &QueueRef) -> Result<QueueStats, Error> {
        self.0.queues.queue_stats(at).await
    }

    /// Returns the figures of a topic.
    ///
    /// # Errors
    ///
    /// [`angarium_core::error::Error::NotFound`] when there is no such topic.
    pub async fn topic_stats(&self, at: &QueueRef) -> Result<TopicFigures, Error> {
        self.0.queues.topic_stats(at).await
    }

    /// Begins to move the messages of a dead letter queue to `target`, or each to its source queue. The task is
    /// recorded when this returns its id, and continues after a crash of this process.
    pub async fn move_task_start(
        &self,
        at: &QueueRef,
        target: Option<QueueRef>,
        rate: Option<MoveRate>,
    ) -> Result<Result<Uuid, MoveRefusal>, Error> {
        self.0.redrive.move_task_start(at, target, rate).await
    }

    /// Begins a task that moves, requeues or deletes the messages that a filter selects. The task is recorded when this
    /// returns its id, and continues after a crash of this process.
    pub async fn task_start(
        &self,
        at: &QueueRef,
        request: TaskRequest,
    ) -> Result<Result<Uuid, MoveRefusal>, Error> {
        self.0.redrive.task_start(at, request).await
    }

    /// Counts the messages that a task would change, and shows some of them, or tells why it cannot begin. Other tasks do
    /// not count. A large queue is not read to its end.
    pub async fn task_dry_run(
        &self,
        at: &QueueRef,
        request: &TaskRequest,
    ) -> Result<Result<SelectionCount, MoveRefusal>, Error> {
        self.0.redrive.task_dry_run(at, request).await
    }

    /// Returns a task of a queue, active or ended.
    pub async fn task_get(&self, at: &QueueRef, id: Uuid) -> Result<MoveTask, Error> {
        self.0.redrive.task_get(at, id).await
    }

    /// Tells a task to stop: it begins no further changes. It is no error if it has ended.
    pub async fn task_cancel(&self, at: &QueueRef, id: Uuid) -> Result<(), Error> {
        self.0.redrive.task_cancel(at, id).await
    }

    /// Returns the latest tasks of a queue, the newest first; none when there is no such queue.
    pub async fn move_tasks_list(&self, at: &QueueRef) -> Result<Option<Vec<MoveTask>>, Error> {
        self.0.redrive.move_tasks_list(at).await
    }

    /// Tells a task to stop: it begins no further moves. Returns how many messages it has moved; none when the queue
    /// has no such task, or the task has ended.
    pub async fn move_task_cancel(&self, at: &QueueRef, task: Uuid) -> Result<Option<u64>, Error> {
        self.0.redrive.move_task_cancel(at, task).await
    }
}
