//! Queues: create, look up, count.

use std::sync::Arc;

use super::Broker;
use super::copy_phase;
use super::pool_table::OpenPool;
use super::queue_contents::RecordOrigin;
use super::queue_store::QueueStore;
use super::slot::Slot;
use angarium_catalogue::{FlavorEntry, QueueRecord, Schema};
use angarium_core::attributes::{self, Attributes};
use angarium_core::error::{Error, InvalidPart, Part};
use angarium_core::ids::QueueId;
use angarium_core::message::Header;
use angarium_core::names::{FlavorName, QueueRef};
use angarium_core::queue::{CreateResult, Metadata, Milestone, QueueStats};
use angarium_core::quota::Quota;
use angarium_core::time::Timestamp;
use angarium_engine::placement::Candidate;
use angarium_storage::{Direction, Order};

/// A queue as SQS describes it.
#[derive(Clone, Debug)]
pub struct QueueDescription {
    /// Its metadata.
    pub metadata: Metadata,
    /// When it was created.
    pub created: Timestamp,
    /// When its metadata was last changed.
    pub modified: Timestamp,
    /// Messages that can be claimed.
    pub ready: u64,
    /// Messages under a live claim.
    pub claimed: u64,
    /// Messages whose time has not come.
    pub delayed: u64,
}

/// How often a creation looks again when the pool it chose changed under it.
const CREATE_TRIES: usize = 8;

impl Broker {
    /// Creates a queue in a pool of its flavor. One that exists stays as it is, its metadata too.
    pub async fn queue_create(&self, at: &QueueRef, metadata: Metadata) -> Result<CreateResult, Error> {
        metadata.attributes().check_for(&at.name)?;
        let quota = self.counted_quota(&self.account_of(&at.project)).await?;
        self.create_within(at, metadata, quota).await
    }

    /// As [`Broker::queue_create`], if `quota` allows one more queue. It is counted what the project holds.
    async fn create_within(
        &self,
        at: &QueueRef,
        metadata: Metadata,
        quota: Quota,
    ) -> Result<CreateResult, Error> {
        let (broker, at) = (self.clone(), at.clone());
        let create = async move {
            let slot = broker.slot(&at).await?;
            let _gate = slot.queue_gates.hold(&at).await;
            match broker.create_gated(&slot, &at, &metadata, &quota).await? {
                CreateResult::New => Ok(CreateResult::New),
                CreateResult::Existed => broker.check_ours(&slot).map(|()| CreateResult::Existed),
            }
        };
        self.carry_out(create).await
    }

    /// The metadata of a queue, or none when there is no such queue. That of one that another replica serves is read out of the
    /// tree, which shows every change that was answered before.
    pub async fn queue_metadata(&self, at: &QueueRef) -> Result<Option<Metadata>, Error> {
        let slot = match self.slot(at).await {
            Err(Error::Moved(_)) => {
                self.0.catalogue.catch_up().await?;
                let record = self.0.catalogue.queue_records(std::slice::from_ref(at)).await?.pop().flatten();
                return record.map(|record| Metadata::stored(record.metadata)).transpose();
            }
            slot => slot?,
        };
        let record = self.0.catalogue.queue(&slot.owned, at).await;
        let record = self.confirm(&slot, record)?;
        record.map(|record| Metadata::stored(record.metadata)).transpose()
    }

    /// As [`Broker::queue_metadata`], of a queue that may be served by another replica: as the tree has it, with every change
    /// that was answered before this was asked.
    pub async fn queue_metadata_anywhere(&self, at: &QueueRef) -> Result<Option<Metadata>, Error> {
        self.0.catalogue.catch_up().await?;
        let record = self.0.catalogue.queue_records(std::slice::from_ref(at)).await?.pop().flatten();
        record.map(|record| Metadata::stored(record.metadata)).transpose()
    }

    /// A queue with its figures, or none when there is no such queue.
    pub async fn queue_describe(&self, at: &QueueRef) -> Result<Option<QueueDescription>, Error> {
        let slot = self.slot(at).await?;
        let described = self.described(&slot, at).await;
        self.confirm(&slot, described)
    }

    async fn described(&self, slot: &Arc<Slot>, at: &QueueRef) -> Result<Option<QueueDescription>, Error> {
        let Some(record) = self.0.catalogue.queue(&slot.owned, at).await? else { return Ok(None) };
        if !self.open(slot, at).await? {
            return Ok(None);
        }
        let migration = slot.state.lock().queues.get(at).and_then(|queue| queue.migration.clone());
        let _still = copy_phase::still(migration.as_deref()).await;
        let (id, store, claimed) = {
            let state = slot.state.lock();
            let Some(queue) = state.queues.get(at) else { return Ok(None) };
            (queue.id, self.store_of(queue)?, queue.engine.claimed())
        };
        let totals = store.totals(id).await?;
        Ok(Some(QueueDescription {
            metadata: Metadata::stored(record.metadata)?,
            created: Timestamp::from_millis(record.created),
            modified: Timestamp::from_millis(record.modified.unwrap_or(record.created)),
            ready: totals.ready().saturating_sub(claimed),
            claimed: claimed.min(totals.ready()),
            delayed: totals.scheduled,
        }))
    }

    /// What is in a queue; nothing when there is no such queue.
    pub async fn queue_stats(&self, at: &QueueRef) -> Result<QueueStats, Error> {
        let slot = self.slot(at).await?;
        let stats = self.stats(&slot, at).await;
        self.confirm(&slot, stats)
    }

    async fn stats(&self, slot: &Arc<Slot>, at: &QueueRef) -> Result<QueueStats, Error> {
        if !self.open(slot, at).await? {
            return Ok(QueueStats::default());
        }
        let migration = slot.state.lock().queues.get(at).and_then(|queue| queue.migration.clone());
        let _still = copy_phase::still(migration.as_deref()).await;
        let (id, store, claimed, oldest, newest) = {
            let state = slot.state.lock();
            let Some(queue) = state.queues.get(at) else { return Ok(QueueStats::default()) };
            let (oldest, newest) = queue.engine.ends();
            let store = self.store_of(queue)?;
            (queue.id, store, queue.engine.claimed(), oldest.cloned(), newest.cloned())
        };
        let totals = store.totals(id).await?;
        if totals.messages == 0 {
            return Ok(QueueStats { exists: true, ..QueueStats::default() });
        }
        let claimed = claimed.min(totals.ready());
        let oldest = self.milestone(&store, id, oldest, Direction::Up).await?;
        let newest = self.milestone(&store, id, newest, Direction::Down).await?;
        let free = totals.messages - claimed;
        let (delayed, in_transfer) = (totals.scheduled, totals.in_transfer);
        Ok(QueueStats { exists: true, claimed, free, delayed, in_transfer, oldest, newest })
    }

    /// One end of a queue: as memory has it, or else as the pool has it.
    pub(super) async fn milestone(
        &self,
        store: &QueueStore,
        queue: QueueId,
        known: Option<Header>,
        direction: Direction,
    ) -> Result<Option<Milestone>, Error> {
        let header = match known {
            Some(header) => Some(header),
            None => {
                let page = store.scan(queue, Order::Ready, direction, None, (1, 0)).await?;
                page.messages.into_iter().next().map(|message| message.header)
            }
        };
        let now = self.0.clock.now();
        let milestone = |header: Header| {
            let age = now.seconds_since(header.created);
            Milestone { id: header.id, created: header.created, age }
        };
        Ok(header.map(milestone))
    }

    /// Opens a queue, and creates it when there is none: Zaqar's queues exist from their first message on.
    pub(super) async fn open_or_create(&self, slot: &Arc<Slot>, at: &QueueRef) -> Result<(), Error> {
        if slot.state.lock().is_open(at) {
            return Ok(());
        }
        if at.name.check_creatable().is_err() && self.open(slot, at).await? {
            return Ok(());
        }
        at.name.check_creatable()?;
        let metadata = Metadata::empty().with_message_bytes(self.limits().rest_message_bytes());
        self.queue_create(at, metadata).await.map(|_| ())
    }

    /// As [`Broker::open_or_create`], whatever the quota: messages that move were let in before.
    pub(super) async fn open_or_make_target(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        metadata: Metadata,
    ) -> Result<(), Error> {
        if slot.state.lock().is_open(at) {
            return Ok(());
        }
        self.create_within(at, metadata, Quota::NONE).await.map(|_| ())
    }

    async fn create_gated(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        metadata: &Metadata,
        quota: &Quota,
    ) -> Result<CreateResult, Error> {
        for _ in 0..CREATE_TRIES {
            if self.open_gated(slot, at).await? {
                return Ok(CreateResult::Existed);
            }
            if metadata.attributes().is_fifo {
                self.0.catalogue.schema_reach(Schema::GROUPS).await?;
            }
            let flavor = self.flavor_of(metadata).await?;
            let name = flavor.as_ref().map(|flavor| &flavor.name);
            let attributes = metadata.attributes();
            let pool = self.place_again(at, name, attributes).await?;
            let id = QueueId::new(slot.owned.slot, &mut rand::rng());
            let record = QueueRecord::new(id, &pool.entry.name, metadata, self.0.clock.now());
            let roll = slot.roll.lock().await;
            self.0.ledger.add_queue(&self.account_of(&at.project), quota, id, slot.epoch)?;
            self.note_project(slot, &at.project);
            let recorded =
                self.0.catalogue.queue_create(&slot.owned, at, &record, &pool.entry, flavor.as_ref()).await;
            self.enter_creation(slot, at, id, &recorded);
            drop(roll);
            if recorded? {
                // The queue is there, whatever becomes of opening it.
                let opened = self.open_record(slot, at, &record, RecordOrigin::Created).await;
                return opened.map(|()| CreateResult::New).map_err(Error::into_unknown);
            }
            self.reload_pools().await?;
        }
        Err(Error::unavailable(Part::Coordination, "the chosen pool changed each time"))
    }

    /// Keeps the books true to what became of a creation.
    fn enter_creation(&self, slot: &Slot, at: &QueueRef, queue: QueueId, recorded: &Result<bool, Error>) {
        match recorded {
            Ok(true) => slot.state.lock().figures.progress.created(at),
            Ok(false) => self.0.ledger.remove_queue(queue),
            Err(error) if error.nothing_written() => self.0.ledger.remove_queue(queue),
            // It counts until it is known that it is not there.
            Err(_) => {
                self.0.ledger.make_stale(&self.account_of(&at.project), queue.slot());
                slot.state.lock().figures.progress.relist();
            }
        }
    }

    /// The flavor that the metadata of a queue is to name.
    pub(super) async fn flavor_of(&self, metadata: &Metadata) -> Result<Option<FlavorEntry>, Error> {
        let Some(name) = &metadata.attributes().flavor else { return Ok(None) };
        let unknown = || {
            let why = format!("flavor {name} does not exist");
            Error::invalid(InvalidPart::Limit, attributes::FLAVOR, why)
        };
        if let Some(known) = self.0.catalogue.flavor(name).await? {
            return Ok(Some(known));
        }
        // Another replica may have just made it.
        self.0.catalogue.catch_up().await?;
        self.0.catalogue.flavor(name).await?.map(Some).ok_or_else(unknown)
    }

    /// As [`Broker::place`]; when there is no pool the records are read again.
    pub(super) async fn place_again(
        &self,
        at: &QueueRef,
        flavor: Option<&FlavorName>,
        attributes: &Attributes,
    ) -> Result<Arc<OpenPool>, Error> {
        match self.place(at, flavor, attributes) {
            // Another caller may have added one.
            Err(Error::NoPool) => {
                self.reload_pools().await?;
                self.place(at, flavor, attributes)
            }
            placed => placed,
        }
    }

    /// Chooses the pool of a new queue among those of its flavor, or without one among those that have none. Pools
    /// that accept no writes now are left out, and those that are not as durable as the queue asks for. One without room
    /// for messages is taken when there is no other.
    pub(super) fn place(
        &self,
        at: &QueueRef,
        flavor: Option<&FlavorName>,
        attributes: &Attributes,
    ) -> Result<Arc<OpenPool>, Error> {
        let mut pools = self.0.pools.all();
        pools.retain(|pool| pool.entry.pool.takes(flavor));
        if pools.is_empty() {
            return Err(Error::NoPool);
        }
        let writable = |pool: &Arc<OpenPool>| {
            pool.store().and_then(|store| store.check_open().map_err(|error| store.failed(error)))
        };
        let refusal = pools.iter().find_map(|pool| writable(pool).err());
        pools.retain(|pool| writable(pool).is_ok());
        let is_writable = !pools.is_empty();
        pools.retain(|pool| pool.store().is_ok_and(|store| attributes.allow(store.reach())));
        // One that does not answer may be durable enough.
        if is_writable && pools.is_empty() && refusal.is_none() {
            let why = "no pool that takes the queue is as durable";
            return Err(Error::invalid(InvalidPart::Limit, attributes::DURABILITY, why));
        }
        if pools.iter().any(|pool| pool.is_writable()) {
            pools.retain(|pool| pool.is_writable());
        }
        let candidates: Vec<Candidate<'_>> = pools.iter().map(|pool| pool.candidate()).collect();
        let key = [at.project.as_str().as_bytes(), &[0], at.name.as_str().as_bytes()].concat();
        let choice = self.0.pools.placement.choose(&candidates, &key, &mut rand::rng());
        choice.map(|choice| Arc::clone(&pools[choice])).ok_or_else(|| refusal.unwrap_or(Error::NoPool))
    }
}
