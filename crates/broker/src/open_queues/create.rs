//! Creation of a queue in a pool of its flavor.

use angarium_catalogue::{QueueRecord, Schema};
use angarium_core::attributes;
use angarium_core::error::{Error, Part};
use angarium_core::ids::QueueId;
use angarium_core::names::QueueRef;
use angarium_core::queue::{CreateResult, Metadata};
use angarium_core::quota::Quota;

use crate::open_queues::OpenQueues;
use crate::open_queues::lookup::no_queue;
use crate::open_queues::namesake::hold_name;
use crate::slot::queue_handle::{QueueHandle, closed};
use crate::slot::slot_queue::SlotQueue;
use crate::stores::queue_contents::RecordOrigin;

/// Whether a queue that a transfer creates needs room in the quota of its project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaCheck {
    /// Forwarded and moved messages wait until there is room.
    Project,
    /// Dead letters move whatever the quota.
    Exempt,
}

impl OpenQueues {
    /// Creates a queue in a pool of its flavor. An existing queue stays as it is, with its metadata.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] when there is a topic of the queue's name, or a queue of the topic's.
    pub async fn queue_create(&self, at: &QueueRef, metadata: Metadata) -> Result<CreateResult, Error> {
        metadata.attributes().check_for(&at.name)?;
        self.check_dead_letters(&at.project, metadata.attributes(), attributes::DEAD_LETTER_QUEUE).await?;
        let metadata = metadata.for_new(&at.name)?;
        let quota = self.0.quotas.counted_quota(&self.0.ledger.account_of(&at.project)).await?;
        self.create_within(at, metadata, quota).await
    }

    /// As `queue_create`, if `quota` allows one more queue. The caller has counted the holdings of the project.
    async fn create_within(
        &self,
        at: &QueueRef,
        metadata: Metadata,
        quota: Quota,
    ) -> Result<CreateResult, Error> {
        let (open_queues, at) = (self.clone(), at.clone());
        let create = async move {
            let queue = open_queues.0.slots.queue(&at).await?;
            let _name = hold_name(&queue).await;
            let _gate = queue.hold_gate().await;
            match open_queues.create_gated(&queue, &metadata, &quota).await? {
                CreateResult::New => Ok(CreateResult::New),
                CreateResult::Existed => {
                    open_queues.0.slots.check_ours(queue.slot()).map(|()| CreateResult::Existed)
                }
            }
        };
        self.0.replica.carry_out(create).await
    }

    /// Opens a queue for a post, and creates it when there is none: Zaqar's queues exist from their first message on. A
    /// post to a held project creates none. A topic must exist: posts to one with a mistyped name would all be dropped.
    pub(crate) async fn open_or_create(&self, queue: &SlotQueue) -> Result<QueueHandle, Error> {
        if let Some(open) = queue.handle() {
            return Ok(open);
        }
        let at = queue.at();
        if at.name.is_topic() {
            return self.open(queue).await?.ok_or_else(|| no_queue(at));
        }
        if at.name.check_creatable().is_err()
            && let Some(open) = self.open(queue).await?
        {
            return Ok(open);
        }
        at.name.check_creatable()?;
        queue.slot().check_post(at)?;
        let metadata = Metadata::empty().with_message_bytes(self.0.replica.limits().rest_message_bytes());
        self.queue_create(at, metadata).await?;
        queue.handle().ok_or_else(|| closed(at))
    }

    /// As `open_or_create`, for the target of a transfer.
    pub(crate) async fn open_or_make_target(
        &self,
        queue: &SlotQueue,
        metadata: Metadata,
        check: QuotaCheck,
    ) -> Result<QueueHandle, Error> {
        if let Some(open) = queue.handle() {
            return Ok(open);
        }
        let at = queue.at();
        let quota = match check {
            QuotaCheck::Project => {
                self.0.quotas.counted_quota(&self.0.ledger.account_of(&at.project)).await?
            }
            QuotaCheck::Exempt => Quota::NONE,
        };
        self.create_within(at, metadata.for_new(&at.name)?, quota).await?;
        queue.handle().ok_or_else(|| closed(at))
    }

    async fn create_gated(
        &self,
        queue: &SlotQueue,
        metadata: &Metadata,
        quota: &Quota,
    ) -> Result<CreateResult, Error> {
        let (slot, at) = (queue.slot(), queue.at());
        for _ in 0..CREATE_TRIES {
            if self.open_gated(queue).await?.is_some() {
                return Ok(CreateResult::Existed);
            }
            self.check_name_free(queue).await?;
            if at.name.is_topic() {
                self.0.replica.catalogue.schema_reach(Schema::SUBSCRIPTIONS).await?;
            }
            if metadata.attributes().is_fifo {
                self.0.replica.catalogue.schema_reach(Schema::GROUPS).await?;
            }
            let flavor = self.0.pools.flavor_of(metadata).await?;
            let name = flavor.as_ref().map(|flavor| &flavor.name);
            let attributes = metadata.attributes();
            let pool = self.0.pools.place_again(at, name, attributes).await?;
            let id = QueueId::new(slot.owned.slot, &mut self.0.replica.random.clone());
            let record = QueueRecord::new(id, &pool.entry.name, metadata, self.0.replica.clock.now());
            let roll = slot.roll.lock().await;
            self.0.ledger.add_queue(&self.0.ledger.account_of(&at.project), quota, id, slot.epoch)?;
            self.0.quotas.note_project(slot, &at.project);
            let recorded = self
                .0
                .replica
                .catalogue
                .queue_create(&slot.owned, at, &record, &pool.entry, flavor.as_ref())
                .await;
            self.enter_creation(&queue.with_id(id), &recorded);
            drop(roll);
            if recorded? {
                return match self.open_record(queue, &record, RecordOrigin::Created).await {
                    Ok(_) => Ok(CreateResult::New),
                    // A hand-over or a recovery of the slot: the queue exists, and its next owner opens it.
                    Err(_) if slot.check_served().is_err() => Ok(CreateResult::New),
                    Err(error) => Err(error.into_unknown()),
                };
            }
            self.0.pools.reload_pools().await?;
        }
        Err(Error::unavailable(Part::Coordination, "the chosen pool changed each time"))
    }

    /// Enters the outcome of a creation in the ledger.
    fn enter_creation(&self, queue: &QueueHandle, recorded: &Result<bool, Error>) {
        let (slot, at) = (queue.slot(), queue.at());
        match recorded {
            Ok(true) => slot.note_created(at),
            Ok(false) => self.0.ledger.remove_queue(queue.id()),
            Err(error) if error.nothing_written() => self.0.ledger.remove_queue(queue.id()),
            // The queue counts until a read shows that it does not exist.
            Err(_) => {
                self.0.ledger.make_stale(&self.0.ledger.account_of(&at.project), slot.owned.slot);
                slot.relist();
            }
        }
    }
}

/// Attempts of a creation when the pool it chose changes meanwhile.
const CREATE_TRIES: usize = 8;
