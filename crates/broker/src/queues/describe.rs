//! Reading a queue: metadata, description, numbers of messages.

use angarium_catalogue::QueueRecord;
use angarium_core::error::Error;
use angarium_core::names::QueueRef;
use angarium_core::queue::{Metadata, QueueStats};
use angarium_core::time::Timestamp;
use angarium_storage::Direction;

use crate::open_queues::lookup::no_queue;
use crate::queues::Queues;
use crate::slot::figure_sums::Contents;
use crate::slot::migration::still;
use crate::slot::queue_handle::EngineReading;
use crate::slot::slot_queue::SlotQueue;

/// A queue as SQS describes it.
#[derive(Clone, Debug)]
pub struct QueueDescription {
    /// Its metadata.
    pub metadata: Metadata,
    /// When it was created.
    pub created: Timestamp,
    /// When its metadata was last changed.
    pub modified: Timestamp,
    /// Number of messages that can be claimed.
    pub ready: u64,
    /// Number of messages under a live claim.
    pub claimed: u64,
    /// Number of messages whose delay has not ended.
    pub delayed: u64,
}

/// A topic in figures.
#[derive(Clone, Debug)]
pub struct TopicFigures {
    /// The subscriptions whose life has not ended.
    pub subscriptions: usize,
    /// The figures of the messages that it keeps, which are none.
    pub figures: QueueStats,
}

impl Queues {
    /// Returns the figures of a topic.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub(crate) async fn topic_stats(&self, at: &QueueRef) -> Result<TopicFigures, Error> {
        let queue = self.0.slots.queue(at).await?;
        let found = self.topic_figures(&queue).await;
        self.0.slots.confirm(queue.slot(), found)
    }

    async fn topic_figures(&self, queue: &SlotQueue) -> Result<TopicFigures, Error> {
        let open = self.0.open_queues.open(queue).await?.ok_or_else(|| no_queue(queue.at()))?;
        let now = self.0.replica.clock.now();
        let subscriptions = open.live_subscriptions(now).ok_or_else(|| open.closed())?;
        Ok(TopicFigures { subscriptions, figures: QueueStats { exists: true, ..QueueStats::default() } })
    }

    /// Returns the metadata of a queue; none when there is no such queue. For a queue that another replica serves it is
    /// read from the tree, which shows every change that was answered before.
    pub async fn queue_metadata(&self, at: &QueueRef) -> Result<Option<Metadata>, Error> {
        let queue = match self.0.slots.queue(at).await {
            Err(Error::Moved(_)) => {
                let record = self.0.replica.catalogue.queue_record_now(at).await?;
                return record.map(|record| Metadata::stored(record.metadata)).transpose();
            }
            queue => queue?,
        };
        let record = self.found_record(&queue).await;
        let record = self.0.slots.confirm(queue.slot(), record)?;
        record.map(|record| Metadata::stored(record.metadata)).transpose()
    }

    /// Returns the record of a queue; none when there is neither such a queue nor its namesake.
    async fn found_record(&self, queue: &SlotQueue) -> Result<Option<QueueRecord>, Error> {
        match queue.record().await? {
            Some(record) => Ok(Some(record)),
            None => self.0.open_queues.check_missing(queue).await.map(|()| None),
        }
    }

    /// As `queue_metadata`, of a queue that another replica may serve: read from the tree, with every change that was
    /// answered before this call.
    pub async fn queue_metadata_anywhere(&self, at: &QueueRef) -> Result<Option<Metadata>, Error> {
        let record = self.0.replica.catalogue.queue_record_now(at).await?;
        record.map(|record| Metadata::stored(record.metadata)).transpose()
    }

    /// Returns a queue with its figures; none when there is no such queue.
    pub async fn queue_describe(&self, at: &QueueRef) -> Result<Option<QueueDescription>, Error> {
        let queue = self.0.slots.queue(at).await?;
        let described = self.described(&queue).await;
        self.0.slots.confirm(queue.slot(), described)
    }

    pub(crate) async fn described(&self, queue: &SlotQueue) -> Result<Option<QueueDescription>, Error> {
        let Some(record) = self.found_record(queue).await? else { return Ok(None) };
        let Some(queue) = self.0.open_queues.open(queue).await? else { return Ok(None) };
        let migration = queue.migration();
        let _still = still(migration.as_deref()).await;
        let EngineReading { store, shown: claimed } = queue.read(|engine| engine.claimed_counts())?;
        let totals = store.totals(queue.id()).await?;
        let Contents { ready, claimed, delayed, .. } = Contents::of(&totals, claimed);
        Ok(Some(QueueDescription {
            metadata: Metadata::stored(record.metadata)?,
            created: Timestamp::from_millis(record.created),
            modified: Timestamp::from_millis(record.modified.unwrap_or(record.created)),
            ready,
            claimed,
            delayed,
        }))
    }

    /// Returns the numbers of messages in a queue; zeros when there is no such queue.
    pub async fn queue_stats(&self, at: &QueueRef) -> Result<QueueStats, Error> {
        let queue = self.0.slots.queue(at).await?;
        let stats = self.stats(&queue).await;
        self.0.slots.confirm(queue.slot(), stats)
    }

    async fn stats(&self, queue: &SlotQueue) -> Result<QueueStats, Error> {
        let Some(queue) = self.0.open_queues.open(queue).await? else { return Ok(QueueStats::default()) };
        let migration = queue.migration();
        let _still = still(migration.as_deref()).await;
        let EngineReading { store, shown: (claimed, oldest, newest) } = queue.read(|engine| {
            let (oldest, newest) = engine.ends();
            (engine.claimed_counts(), oldest.cloned(), newest.cloned())
        })?;
        let id = queue.id();
        let totals = store.totals(id).await?;
        if totals.messages == 0 {
            return Ok(QueueStats { exists: true, ..QueueStats::default() });
        }
        let Contents { claimed, delayed, in_transfer, kept, .. } = Contents::of(&totals, claimed);
        let oldest = store.milestone(id, oldest, Direction::Up, &self.0.replica.clock).await?;
        let newest = store.milestone(id, newest, Direction::Down, &self.0.replica.clock).await?;
        let free = totals.messages.saturating_sub(claimed + kept + in_transfer);
        Ok(QueueStats { exists: true, claimed, free, delayed, in_transfer, kept, oldest, newest })
    }
}
