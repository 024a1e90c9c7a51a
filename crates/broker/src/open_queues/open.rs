//! Opening a queue: its record, its pools, its claims, its oldest messages (P4).

use tokio_util::task::TaskTracker;

use angarium_catalogue::{AttemptRecord, ClaimRecord, QueueRecord, Schema};
use angarium_core::claim::ClaimTerms;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId, QueueId};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::outcome::Holder;
use angarium_core::queue::Metadata;
use angarium_core::time::Timestamp;
use angarium_engine::{EngineSettings, QueueEngine};

use crate::open_queues::OpenQueues;
use crate::open_queues::pools_of_queue::OpenedPools;
use crate::open_queues::subscriptions::{OpenedSubscription, known};
use crate::slot::opening::{OpenedQueue, OpeningState, RestoredClaims};
use crate::slot::queue_handle::QueueHandle;
use crate::slot::retention::RetentionWatch;
use crate::slot::settle_notes::SettleNotes;
use crate::slot::slot_queue::SlotQueue;
use crate::stores::queue_contents::RecordOrigin;
use crate::stores::queue_store::QueueStore;

impl OpenQueues {
    /// Opens a queue for a request, unless it is open. Returns none when there is no such queue.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when a topic has the name of the queue, or a queue that of the topic.
    pub(crate) async fn open(&self, queue: &SlotQueue) -> Result<Option<QueueHandle>, Error> {
        match self.open_if_there(queue).await? {
            Some(open) => Ok(Some(open)),
            None => self.check_missing(queue).await.map(|()| None),
        }
    }

    /// Opens a queue, unless it is open. Returns none when there is no such queue. An opening that has begun is completed even
    /// when the caller is canceled: it writes to the pools, and the next caller may have no more time for it.
    pub(crate) async fn open_if_there(&self, queue: &SlotQueue) -> Result<Option<QueueHandle>, Error> {
        if let Some(open) = queue.handle() {
            return Ok(Some(open));
        }
        let gate = queue.hold_gate().await;
        if let Some(open) = queue.handle().filter(|_| !is_on(Mutation::OpenQueueTwice)) {
            return Ok(Some(open));
        }
        let placement = queue.hold_placement().await;
        let Some(record) = queue.record().await? else { return Ok(None) };
        // A request that waits for a gate of a pool stops waiting when it is canceled, so at most one opening per pool
        // outlives its request.
        let pools = queue.slot().pool_gates.hold_all(&record.placement()?).await;
        let (open_queues, queue) = (self.clone(), queue.clone());
        let open = async move {
            let _held = (gate, placement, pools);
            open_queues.open_behind_gates(&queue, &record, RecordOrigin::Stored).await
        };
        self.0.replica.carry_out(open).await.map(Some)
    }

    /// As `open`, for a caller that holds the gate of the queue.
    pub(crate) async fn open_gated(&self, queue: &SlotQueue) -> Result<Option<QueueHandle>, Error> {
        if let Some(open) = queue.handle() {
            return Ok(Some(open));
        }
        let _placement = queue.hold_placement().await;
        match queue.record().await? {
            Some(record) => self.open_record(queue, &record, RecordOrigin::Stored).await.map(Some),
            None => Ok(None),
        }
    }

    /// Opens the queue of a record: fences its pools, then reads its state, then restores its claims. The caller holds
    /// the gate of the queue.
    pub(crate) async fn open_record(
        &self,
        queue: &SlotQueue,
        record: &QueueRecord,
        origin: RecordOrigin,
    ) -> Result<QueueHandle, Error> {
        let _pools = queue.slot().pool_gates.hold_all(&record.placement()?).await;
        self.open_behind_gates(queue, record, origin).await
    }

    /// As `open_record`, for a caller that holds the gates of the pools too.
    async fn open_behind_gates(
        &self,
        queue: &SlotQueue,
        record: &QueueRecord,
        origin: RecordOrigin,
    ) -> Result<QueueHandle, Error> {
        let OpenedPools { placement, migration } = self.open_pools(queue, record).await?;
        let metadata = Metadata::stored(record.metadata.clone())?;
        self.0.ignored.log(queue.at(), &metadata);
        let attributes = metadata.attributes().clone();
        let readers = TaskTracker::new();
        let store = self.0.stores.store_at(&placement, readers.token())?;
        let looks = self.0.ledger.looks(record.id);
        let totals = store.totals(record.id).await?;
        let OpeningState { tail, claims } = queue.slot().opening_state(record.id)?;
        let found = store.presence(origin, record.id, &totals, tail).await?;
        let mut engine = if attributes.is_fifo {
            self.open_ordered(record.id, found, &store).await?
        } else {
            QueueEngine::open(found)
        };
        if totals.kept > 0 {
            engine.expect_kept();
        }
        engine.follow(EngineSettings::of(&attributes, &queue.at().name, &self.0.replica.limits));
        let is_empty = !found.has_ready && !found.is_scheduled && !found.has_aside;
        let retained = if is_empty { RetentionWatch::default() } else { RetentionWatch::unknown() };
        let may_have_notes =
            origin == RecordOrigin::Stored && self.0.replica.catalogue.is_in_force(Schema::OUTCOMES);
        let settle_notes = if may_have_notes { SettleNotes::unread() } else { SettleNotes::default() };
        let no_sooner = queue.slot().no_expiry_before;
        let restored = restore_claims(&mut engine, record.id, claims, &store, no_sooner).await?;
        let subscriptions = if record.has_subscriptions {
            let catalogue = &self.0.replica.catalogue;
            known(queue.at(), catalogue.subscriptions(&queue.slot().owned, queue.at(), record.id).await?)?
        } else {
            Vec::new()
        };
        let OpenedSubscription { source, backlog, fill, delivery_pace } =
            OpenedSubscription::read(queue.at(), record, &totals, &store).await?;
        let opened = OpenedQueue {
            id: record.id,
            placement,
            migration,
            readers,
            engine,
            attributes,
            retained,
            settle_notes,
            totals,
            looks,
            restored,
            subscriptions,
            source,
            fill,
            backlog,
            delivery_pace,
        };
        let account = self.0.ledger.account_of(&queue.at().project);
        Ok(queue.slot().enter_queue(queue.at(), opened, &account))
    }
}

/// Restores the claims of a queue that is being opened. None ends before `no_sooner`, since the restart itself may have
/// kept a holder from renewing its claim (P3).
async fn restore_claims(
    engine: &mut QueueEngine,
    queue: QueueId,
    claims: Vec<(ClaimId, ClaimRecord)>,
    store: &QueueStore,
    no_sooner: Timestamp,
) -> Result<RestoredClaims, Error> {
    let mut restored = RestoredClaims::default();
    for (id, claim) in claims.into_iter().filter(|_| !is_on(Mutation::ForgetClaimsAtOpen)) {
        let expires = Timestamp::from_millis(claim.expires).max(no_sooner);
        let ids: Vec<MessageId> = claim.messages.iter().map(|message| message.id).collect();
        let found = store.get(queue, &ids).await?;
        let attempt = |id| claim.messages.iter().find(|message| message.id == id).map_or(0, |m| m.attempt);
        let headers = found.into_iter().map(|m| (m.header.clone(), attempt(m.header.id))).collect();
        let terms = ClaimTerms::stored(claim.ttl, claim.grace);
        restored.spent.extend(engine.restore_claim(id, terms, expires, headers));
        engine.note_client(id, claim.client);
        engine.note_attempt(id, claim.attempt.as_ref().and_then(AttemptRecord::read));
        if claim.is_repeated() {
            engine.note_renewed(id);
        }
        engine.note_holder(id, claim.by.as_deref().and_then(Holder::cut));
        restored.ends.push((expires, id));
    }
    Ok(restored)
}
