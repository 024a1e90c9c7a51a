//! Claims: create and release. How claims end is in [`super::release`].

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tracing::{debug, error};

use super::Broker;
use super::changes::Change;
use super::deadlines::Deadline;
use super::messages::MessageView;
use super::queue_store::QueueStore;
use super::read_failure::ReadFailure;
use super::release::ReleaseCause;
use super::slot::{OpenQueue, Slot, SlotState};
use super::transfer_watch::{self, ArrivalReceiver};
use super::waiters::{ChoiceAttempt, ChosenMessages, ClaimChoice};
use angarium_catalogue::{AttemptRecord, ClaimRecord, ClaimedMessage};
use angarium_cluster::peer_client::{UNHELD, UndeliveredClaim};
use angarium_core::claim::{ClaimLimit, ClaimTerms, ClaimWait, Claimer};
use angarium_core::error::{Error, Part};
use angarium_core::ids::{ClaimId, ClientId, MessageId, QueueId};
use angarium_core::limits;
use angarium_core::message::Header;
use angarium_core::names::QueueRef;
use angarium_core::receipt::Attempt;
use angarium_core::time::Timestamp;
use angarium_engine::{ClaimSelection, Refill, Release};
use angarium_storage::{Direction, Order, Page, Position};

/// How often bodies are read that the pool did not show, before it is believed that it has none.
const BODY_READS: usize = 2;

/// A claim as its holder sees it.
#[derive(Clone, Debug)]
pub struct ClaimView {
    /// Its id.
    pub id: ClaimId,
    /// Its messages, oldest first.
    pub messages: Vec<MessageView>,
    /// When it was made, or was last given new terms.
    pub received: Timestamp,
}

/// A claim on its way to its holder. Dropped before [`DeliveryGuard::done`], the holder never had it: it is released
/// at once and does not count as an attempt (P7).
pub struct DeliveryGuard {
    broker: Broker,
    at: QueueRef,
    /// None once it is handed over.
    claim: Option<ClaimId>,
    /// Where the replica is reached that has granted it; none if this one has.
    from: Option<String>,
}

impl DeliveryGuard {
    /// The answer is on its way: from here on the holder may have the claim.
    pub fn done(&mut self) {
        self.claim = None;
    }

    /// The claim that is handed over, and its queue; none once that is done.
    pub fn claim(&self) -> Option<(&QueueRef, ClaimId)> {
        self.claim.map(|claim| (&self.at, claim))
    }
}

impl Drop for DeliveryGuard {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take() else { return };
        let (broker, at, from) = (self.broker.clone(), self.at.clone(), self.from.take());
        self.broker.0.tasks.spawn(async move {
            let ended = match from {
                None => broker.claim_unheld(at, claim).await,
                Some(from) => broker.report_undelivered(&from, &at, claim).await,
            };
            if let Err(error) = ended {
                debug!(error = %error.detail(), "unheld claim not released");
            }
        });
    }
}

impl Broker {
    /// Claims the oldest ready messages. The claim is durable when this returns it; none when there is nothing
    /// to claim.
    pub async fn claim_create(
        &self,
        at: &QueueRef,
        terms: ClaimTerms,
        limit: ClaimLimit,
    ) -> Result<Option<(ClaimView, DeliveryGuard)>, Error> {
        self.claim_wait(at, terms, limit, ClaimWait::default(), Claimer::default()).await
    }

    /// As [`Broker::claim_create`]. When there is nothing to claim it waits for it, also for a queue that does not exist
    /// yet; those who wait for one queue are served in order.
    pub async fn claim_wait(
        &self,
        at: &QueueRef,
        terms: ClaimTerms,
        limit: ClaimLimit,
        wait: ClaimWait,
        claimer: Claimer,
    ) -> Result<Option<(ClaimView, DeliveryGuard)>, Error> {
        let start = Instant::now();
        let ClaimChoice { chosen, arrivals } = self.choose_or_wait(at, limit, wait).await?;
        if wait != ClaimWait::default() {
            self.0.meter.note_claim_wait(start.elapsed().as_secs_f64());
        }
        let granted = match chosen {
            Some((slot, chosen)) => {
                let (broker, at) = (self.clone(), at.clone());
                let claim = async move {
                    let _guard = slot.lost_on_panic();
                    let view = broker.grant(&slot, &at, (terms, claimer), chosen).await?;
                    let delivery_guard = DeliveryGuard { broker, at, claim: Some(view.id), from: None };
                    Ok((view, delivery_guard))
                };
                Some(self.carry_out(claim).await?)
            }
            None => None,
        };
        transfer_watch::wait(arrivals, limits::ARRIVAL_WAIT).await;
        Ok(granted)
    }

    /// Messages for a claim, with the slot that they were chosen in. One that is recovered meanwhile is waited for, and
    /// the wait continues there.
    async fn choose_or_wait(
        &self,
        at: &QueueRef,
        limit: ClaimLimit,
        wait: ClaimWait,
    ) -> Result<ClaimChoice<(Arc<Slot>, ChosenMessages)>, Error> {
        let start = Instant::now();
        loop {
            let slot = self.slot(at).await?;
            self.open(&slot, at).await?;
            let left = wait.duration().saturating_sub(start.elapsed());
            match self.choose(&slot, at, limit, left).await {
                Ok(ClaimChoice { chosen: Some(chosen), arrivals }) => {
                    return Ok(ClaimChoice { chosen: Some((slot, chosen)), arrivals });
                }
                // Cut off from the tree, no caller can say that there is nothing: it may be another's by now (P8).
                Ok(ClaimChoice { chosen: None, arrivals }) => {
                    return self.check_ours(&slot).map(|()| ClaimChoice { chosen: None, arrivals });
                }
                Err(_) if slot.closed.is_cancelled() && start.elapsed() < wait.duration() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A claim of another replica that moves to its holder through this one.
    pub fn handover_from(&self, address: String, at: QueueRef, claim: ClaimId) -> DeliveryGuard {
        DeliveryGuard { broker: self.clone(), at, claim: Some(claim), from: Some(address) }
    }

    /// Tells the replica that has granted a claim that its holder never got it.
    async fn report_undelivered(&self, address: &str, at: &QueueRef, claim: ClaimId) -> Result<(), Error> {
        let unheld = UndeliveredClaim { queue: at.into(), claim };
        self.peer_client()?.ask(address, UNHELD, &unheld).await
    }

    /// Ends a claim that its holder never got, uncounted. One that has ended is ended already.
    pub async fn claim_unheld(&self, at: QueueRef, claim: ClaimId) -> Result<(), Error> {
        let slot = self.slot(&at).await?;
        // The slot may have been recovered since the claim was made.
        self.open(&slot, &at).await?;
        self.release_claims(&slot, vec![(at, claim)], Release::UNCOUNTED, ReleaseCause::NeverHeld).await
    }

    /// Looks for messages in the ready cache, and hides them. What it meets on the way that no claim may have is
    /// removed or marked in transfer, and when the ready cache runs low more is read. Of what is marked in transfer for
    /// a queue that is served here the arrival is added to `arrivals`.
    pub(super) fn look(
        &self,
        slot: &Arc<Slot>,
        state: &mut SlotState,
        at: &QueueRef,
        limit: ClaimLimit,
        arrivals: &mut Vec<ArrivalReceiver>,
    ) -> Result<ChoiceAttempt, Error> {
        if slot.closed.is_cancelled() {
            return Err(Error::unavailable(Part::Coordination, "the slot is being recovered"));
        }
        if state.live_claims >= limits::SLOT_CLAIMS {
            return Err(Error::TooMany { what: "live claims in one slot", bound: limits::SLOT_CLAIMS });
        }
        loop {
            let now = self.0.clock.now();
            let Some(queue) = state.queues.get_mut(at) else { return Ok(ChoiceAttempt::Nothing) };
            queue.is_claimed_from = true;
            let dead_letters = queue.dead_letters(at);
            let most = dead_letters.as_ref().map(|(_, most)| *most);
            let taken = queue.engine.take(limit.get(), most, now);
            let (id, in_use) = (queue.id, queue.uses.token());
            self.start_refill(slot, at, queue);
            self.start_wake(slot, at, queue, now);
            if taken.is_empty() {
                let is_pending =
                    queue.engine.has_more() || queue.engine.is_waking(now) || queue.engine.waits_for_copies();
                return match (is_pending, std::mem::take(&mut queue.pool_failed)) {
                    (false, _) => Ok(ChoiceAttempt::Nothing),
                    (true, Some(failure)) => Err(failure.error()),
                    (true, None) => Ok(ChoiceAttempt::Pending),
                };
            }
            if queue.shown.make_due() {
                state.figures.note_due(at);
            }
            let ClaimSelection { messages, expired, dead } = taken;
            if !expired.is_empty() {
                // No caller waits for this: an expired message is hidden until it is gone.
                drop(self.submit(slot, state, at, Change::Remove(expired)));
            }
            if let Some((target, _)) = dead_letters.filter(|_| !dead.is_empty()) {
                let watched = state.queues.get_mut(at).filter(|_| self.elsewhere(&target).is_none());
                let ids = dead.iter().map(|header| header.id).collect();
                arrivals.extend(watched.and_then(|queue| queue.transfers.watch(ids)));
                self.mark_in_transfer(slot, state, at, dead, target);
            }
            if !messages.is_empty() {
                return Ok(ChoiceAttempt::Chosen((id, in_use, messages)));
            }
        }
    }

    /// Begins to read the next page when the ready cache runs low.
    pub(super) fn start_refill(&self, slot: &Arc<Slot>, at: &QueueRef, queue: &mut OpenQueue) {
        if queue.engine.is_ordered() {
            return self.start_group_reads(slot, at, queue);
        }
        if let Some(refill) = queue.engine.begin_refill() {
            let (broker, slot, at, id) = (self.clone(), Arc::clone(slot), at.clone(), queue.id);
            let store = self.store_of(queue);
            self.spawn_in(&Arc::clone(&slot), async move {
                let page = read_page(store, id, refill).await;
                broker.finish_refill(&slot, &at, id, refill, page);
            });
        }
        if let Some(refill) = queue.engine.begin_lookahead() {
            let (broker, slot, at, id) = (self.clone(), Arc::clone(slot), at.clone(), queue.id);
            let store = self.store_of(queue);
            self.spawn_in(&Arc::clone(&slot), async move {
                let page = read_page(store, id, refill).await;
                broker.finish_lookahead(&slot, &at, id, refill, page);
            });
        }
    }

    /// No caller waits for what is ahead: there is something else to claim.
    fn finish_lookahead(
        &self,
        slot: &Slot,
        at: &QueueRef,
        id: QueueId,
        refill: Refill,
        page: Result<Page, Error>,
    ) {
        let mut state = slot.state.lock();
        let Some(queue) = state.queue_mut(at, id) else { return };
        match page {
            Ok(page) => queue.engine.finish_lookahead(refill, page.messages, page.is_last),
            Err(cause) => {
                queue.engine.lookahead_failed();
                self.task_failed("look for quiet groups", format_args!("queue {}", at.name), &cause);
            }
        }
    }

    fn finish_refill(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        id: QueueId,
        refill: Refill,
        page: Result<Page, Error>,
    ) {
        let mut state = slot.state.lock();
        let Some(queue) = state.queue_mut(at, id) else { return };
        let failure = match page {
            Ok(page) => {
                queue.pool_failed = None;
                queue.engine.finish_refill(refill, page.messages, page.is_last);
                None
            }
            Err(cause) => {
                queue.pool_failed = Some(ReadFailure::of(&cause));
                queue.engine.refill_failed();
                Some(cause)
            }
        };
        self.serve(slot, &mut state, at);
        drop(state);
        if let Some(cause) = failure {
            self.task_failed("read waiting messages", format_args!("queue {}", at.name), &cause);
        }
    }

    /// Makes a claim on chosen messages durable. When that certainly failed they are ready again.
    async fn grant(
        &self,
        slot: &Slot,
        at: &QueueRef,
        (terms, Claimer { client, attempt }): (ClaimTerms, Claimer),
        mut chosen: ChosenMessages,
    ) -> Result<ClaimView, Error> {
        let id = ClaimId::new(&mut rand::rng());
        let now = self.0.clock.now();
        let expires = now.plus_seconds(terms.ttl());
        let messages = chosen.messages.len();
        let attempt = attempt.map(|id| Attempt { id, received: now, messages });
        let recorded =
            self.record(slot, at, id, (terms, client, attempt.as_ref()), &chosen, (now, expires)).await;
        let bodies = match recorded {
            Ok(bodies) => bodies,
            // What was chosen moves to the next one who waits.
            Err(error) if error.nothing_written() => return Err(error),
            Err(error) => {
                self.expire_in_doubt(slot, at, id, terms, &chosen);
                chosen.used();
                return Err(error);
            }
        };
        let ids = chosen.ids();
        chosen.used();
        let mut state = slot.state.lock();
        state.buckets |= 1 << id.bucket();
        if state.queue_mut(at, chosen.queue).is_none() {
            state.note_orphan(id);
            return Err(closed());
        }
        state.live_claims += 1;
        state.note_deadline(Deadline { at: expires, claim: id, queue: at.clone() });
        let queue = state.queue_mut(at, chosen.queue).ok_or_else(closed)?;
        let headers = queue.engine.grant(id, terms, expires, &ids);
        queue.engine.note_client(id, client);
        queue.engine.note_attempt(id, attempt);
        queue.counters.claimed.inc_by(u64::try_from(headers.len()).unwrap_or_default());
        let retention = queue.engine.retention();
        let view = |header: Header| {
            let (_, body) = bodies.iter().find(|(message, _)| *message == header.id)?;
            Some(MessageView::claimed(&header, id, body.clone(), (now, retention)))
        };
        Ok(ClaimView { id, messages: headers.into_iter().filter_map(view).collect(), received: now })
    }

    /// It is unknown whether a claim is recorded. It is taken for a claim whose time has ended: ending it removes the
    /// record, if there is one, before the messages are ready.
    fn expire_in_doubt(
        &self,
        slot: &Slot,
        at: &QueueRef,
        id: ClaimId,
        terms: ClaimTerms,
        chosen: &ChosenMessages,
    ) {
        let mut state = slot.state.lock();
        let Some(queue) = state.queue_mut(at, chosen.queue) else {
            return state.note_orphan(id);
        };
        let now = self.0.clock.now();
        queue.engine.grant(id, terms, now, &chosen.ids());
        state.live_claims += 1;
        state.note_deadline(Deadline { at: now, claim: id, queue: at.clone() });
    }

    /// Reads what bodies are missing, then writes the claim's record.
    async fn record(
        &self,
        slot: &Slot,
        at: &QueueRef,
        id: ClaimId,
        (terms, client, attempt): (ClaimTerms, Option<ClientId>, Option<&Attempt>),
        chosen: &ChosenMessages,
        (created, expires): (Timestamp, Timestamp),
    ) -> Result<Vec<(MessageId, Bytes)>, Error> {
        let bodies = self.bodies(slot, at, chosen).await?;
        let claimed =
            |(header, _): &(Header, _)| ClaimedMessage { id: header.id, attempt: header.attempts + 1 };
        let record = ClaimRecord {
            at: at.clone(),
            queue: chosen.queue,
            messages: chosen.messages.iter().map(claimed).collect(),
            ttl: terms.ttl(),
            grace: terms.grace(),
            created: created.as_millis(),
            expires: expires.as_millis(),
            client,
            attempt: attempt.map(AttemptRecord::from),
        };
        let is_new_bucket = slot.state.lock().buckets >> id.bucket() & 1 == 0;
        self.0.catalogue.claim_create(&slot.owned, id, &record, is_new_bucket).await?;
        Ok(bodies)
    }

    /// The bodies of chosen messages, from memory or from the pool.
    pub(super) async fn bodies(
        &self,
        slot: &Slot,
        at: &QueueRef,
        chosen: &ChosenMessages,
    ) -> Result<Vec<(MessageId, Bytes)>, Error> {
        let mut bodies = Vec::with_capacity(chosen.messages.len());
        let mut absent = Vec::new();
        for (header, body) in &chosen.messages {
            match body {
                Some(body) => bodies.push((header.id, body.clone())),
                None => absent.push(header.id),
            }
        }
        for _ in 0..BODY_READS {
            if absent.is_empty() {
                return Ok(bodies);
            }
            let gone = || Error::unavailable(Part::Server, "the queue was closed");
            let store = self.store_of(slot.state.lock().queues.get(at).ok_or_else(gone)?)?;
            let found = store.get(chosen.queue, &absent).await?;
            absent.retain(|id| found.iter().all(|message| message.header.id != *id));
            bodies.extend(found.into_iter().map(|message| (message.header.id, message.body)));
        }
        if absent.is_empty() { Ok(bodies) } else { Err(self.forget_missing(slot, at, chosen.queue, &absent)) }
    }

    /// Forgets messages that memory has and the pool has not, so that the next claim does not meet them, and loses the slot:
    /// what else memory has may be wrong too, and under a new epoch it is read again.
    fn forget_missing(&self, slot: &Slot, at: &QueueRef, queue: QueueId, missing: &[MessageId]) -> Error {
        if let Some(queue) = slot.state.lock().queue_mut(at, queue) {
            self.0.meter.note_missing(queue.engine.forget_missing(missing));
        }
        error!(
            queue = %at.name, slot = slot.owned.slot.0, messages = missing.len(), first = %missing[0],
            "messages missing in pool",
        );
        slot.lose("memory had messages that the pool has not");
        Error::unavailable(Part::Storage, "the pool has lost the body of a message")
    }
}

fn closed() -> Error {
    Error::unknown(Part::Server, "the queue was closed")
}

/// A page of the ready messages of a queue.
async fn read_page(store: Result<QueueStore, Error>, id: QueueId, refill: Refill) -> Result<Page, Error> {
    let after = Some(refill.after).filter(|after| *after > MessageId::ZERO).map(Position::id);
    let most = (limits::REFILL_MESSAGES, limits::READY_CACHE_BYTES);
    store?.scan(id, Order::Ready, Direction::Up, after, most).await
}
