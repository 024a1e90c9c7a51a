//! Settles of messages, as the slot begins and ends them. The procedure of several durable steps is in
//! [`crate::claims::settle`].

use angarium_catalogue::Placement;
use angarium_core::error::{Error, Part};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::{Header, Message, State};
use angarium_core::names::PoolName;
use angarium_core::settle::{SettleEntry, Settled};
use angarium_core::time::Timestamp;
use angarium_engine::{ClaimRest, HeldMessage, ReturnsEnd, SettleStart};

use crate::ledger::quota_ledger::Reservation;
use crate::slot::commit::count;
use crate::slot::deadlines::Deadline;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::settle_plan::{SettlePlan, SettleTerms};
use crate::slot::state::{OpenQueue, SlotState};
use crate::slot::subscriptions::{FanOut, NewInSource, PostCopies};
use crate::writer::change::Change;
use crate::writer::notes::{SETTLE_KIND, SettleKey, before_settle_note, read_settle_note};
use crate::writer::pending::WriteOutcome;
use crate::writer::purpose::PoolRoute;

/// A settle whose batch was submitted.
pub(crate) struct SubmittedSettle {
    pub(crate) settled: Settled,
    pub(crate) outcome: WriteOutcome,
    /// The queues of subscriptions whose oldest copies must be removed once it is durable.
    pub(crate) beyond: Vec<QueueHandle>,
}

/// The parameters of a settle beside its message.
pub(crate) struct SettleRequest {
    pub(crate) claim: ClaimId,
    pub(crate) entry: SettleEntry,
    /// The pool that has the message.
    pub(crate) pool: PoolName,
    /// Room for the forwarded messages, and for the copies of the ones to the queue itself.
    pub(crate) room: Reservation,
    /// The subscriptions that get copies of these. None without such messages.
    pub(crate) fan_out: Option<FanOut>,
}

/// The effects of a durable settle.
pub(crate) struct SettleEffects {
    /// Claims without any message left.
    pub(crate) ended: Vec<ClaimId>,
    /// Whether messages are in transfer now.
    pub(crate) moves: bool,
}

impl OpenQueue {
    /// Tells the engine that the batch of a settle is durable.
    pub(crate) fn apply_settle(
        &mut self,
        appends: Vec<Message>,
        updates: Vec<Header>,
        removes: &[MessageId],
    ) -> SettleEffects {
        self.count_settled(&appends, &updates, removes);
        let mut ended = Vec::new();
        let mut moves = false;
        for id in removes {
            ended.extend(self.engine.settle_gone(*id, None));
        }
        for header in updates {
            match &header.state {
                State::Ready | State::Scheduled => self.engine.settle_returned(header),
                state => {
                    moves |= state.is_in_transfer();
                    ended.extend(self.engine.settle_gone(header.id, Some(state)));
                }
            }
        }
        self.pace.count_removed(count(removes));
        let (leaving, own): (Vec<Message>, Vec<Message>) =
            appends.into_iter().partition(|message| message.header.state.is_in_transfer());
        if !leaving.is_empty() {
            let ids: Vec<MessageId> = leaving.iter().map(|message| message.header.id).collect();
            self.engine.expect_in_transfer(&ids);
            moves = true;
        }
        if !own.is_empty() {
            self.counters.sent.inc_by(count(&own));
            self.pace.count_posted(count(&own));
            self.engine.posted(own);
        }
        self.count_removals();
        SettleEffects { ended, moves }
    }

    /// Tells the engine that the batch of a settle was certainly not written.
    pub(crate) fn undo_settle(&mut self, updates: &[Header], removes: &[MessageId]) {
        let ids = updates.iter().map(|header| header.id).chain(removes.iter().copied());
        ids.for_each(|id| self.engine.settle_failed(id));
    }
}

/// Returns the route to one pool of a queue; none if the queue is not there.
pub(in crate::slot) fn route_to(placement: &Placement, pool: &PoolName) -> Option<PoolRoute> {
    match placement {
        Placement { pool: newer, .. } if newer == pool => Some(PoolRoute::Newer),
        Placement { older: Some(older), .. } if older == pool => Some(PoolRoute::Older),
        Placement { .. } => None,
    }
}

impl QueueHandle {
    /// Begins to settle a message for the holder of a claim. Returns none when the queue is closed.
    pub(crate) fn begin_settle(&self, id: MessageId, claim: ClaimId, now: Timestamp) -> Option<SettleStart> {
        self.decide(|engine| engine.begin_settle(id, claim, now))
    }

    /// Leaves a message under its claim, because its settle was refused.
    pub(crate) fn refuse_settle(&self, id: MessageId) {
        self.decide(|engine| engine.settle_failed(id));
    }

    /// Returns the pool that has a message: during a migration it may be the older one.
    pub(crate) async fn pool_of(&self, id: MessageId) -> Result<PoolName, Error> {
        let placement = self.lock_queue(|queue| queue.placement.clone()).ok_or_else(|| self.closed())?;
        let Placement { pool, older } = placement;
        let Some(older) = older else { return Ok(pool) };
        let store = self.slot.around.stores.pool(&older)?.store()?;
        let found = store.get(self.id, &[id]).await.map_err(|error| store.failed(error))?;
        Ok(if found.is_empty() { pool } else { older })
    }

    /// Submits the batch of a settle.
    pub(crate) fn submit_settle(
        &self,
        held: HeldMessage,
        request: SettleRequest,
    ) -> Result<SubmittedSettle, Error> {
        let SettleRequest { claim, entry, pool, room, fan_out } = request;
        let now = self.slot.around.replica.clock.now();
        let mut locked = self.slot.lock();
        let state: &mut SlotState = &mut locked;
        let SlotState { queues, ids, .. } = state;
        let queue = queues.get(&self.at).filter(|queue| queue.id == self.id).ok_or_else(|| self.closed())?;
        if fan_out.as_ref().is_some_and(|fan_out| !fan_out.is_prepared(queue, queues)) {
            return Err(Error::unavailable(Part::Server, "the subscriptions of the queue have changed"));
        }
        let queue = queues.get_mut(&self.at).ok_or_else(|| self.closed())?;
        // A migration may have begun or been canceled since the pool was found; the message stays in that pool.
        let route = route_to(&queue.placement, &pool).ok_or_else(|| self.closed())?;
        if queue.refuses_settles {
            return Err(self.closed());
        }
        if held.may_be_settled {
            queue.settle_notes.forget(&SettleKey { claim, message: entry.id }, now);
        }
        let mut random = self.slot.around.replica.random.clone();
        let terms = SettleTerms {
            at: &self.at,
            attributes: &queue.attributes,
            retention: queue.engine.retention(),
            is_ordered: queue.engine.is_ordered(),
            limits: &self.slot.around.replica.limits,
            claim,
            now,
            chance: rand::Rng::random(&mut random),
        };
        let SettlePlan { changes, settled } = terms.plan(held, entry, &mut || ids.next(now, &mut random))?;
        if changes.needs_room() {
            state.writers.get(&pool).ok_or_else(|| self.closed())?.check_open()?;
        }
        let mut copies = PostCopies::default();
        if let Some(fan_out) = fan_out {
            let own = changes.appends.iter().filter(|message| !message.header.state.is_in_transfer());
            let numbered: Vec<(usize, &Message)> = own.enumerate().collect();
            fan_out.check_refusal(&numbered, queues)?;
            let new = NewInSource { messages: &numbered, arrived: None };
            copies = fan_out.copies(self, &new, queues, now, &mut || ids.next(now, &mut random));
        }
        let PostCopies { writes, beyond } = copies;
        let outcome = locked.submit_with_copies(&self.at, Change::settle(route, changes), writes, room)?;
        Ok(SubmittedSettle { settled, outcome, beyond })
    }

    /// Takes up an earlier settle whose message returns: an earlier owner ended before it changed the record of the
    /// claim.
    pub(crate) fn resume_return(&self, stored: Header) {
        self.decide(|engine| engine.settle_returned(stored));
    }

    /// Begins to take messages that return out of the record of their claim. None while another caller is changing the
    /// claim.
    ///
    /// # Errors
    ///
    /// When the queue is closed: no change of the claim is waited for then.
    pub(crate) fn begin_returns(
        &self,
        claim: ClaimId,
        ids: &[MessageId],
    ) -> Result<Option<ClaimRest>, Error> {
        self.decide(|engine| engine.begin_returns(claim, ids)).ok_or_else(|| self.closed())
    }

    /// Shows messages that returned: the record of their claim does not name them any more, or was deleted if it named
    /// no other.
    pub(crate) fn finish_returns(&self, claim: ClaimId, ids: &[MessageId], rest: &ClaimRest) {
        let mut state = self.slot.lock();
        let Some(queue) = state.queue_mut(&self.at, self.id) else { return };
        let end = queue.engine.finish_returns(claim, ids);
        match (end, rest.messages.is_empty()) {
            (ReturnsEnd::Claim, true) => state.live_claims = state.live_claims.saturating_sub(1),
            (ReturnsEnd::Claim, false) => state.spend(vec![claim]),
            (ReturnsEnd::Messages, _) => self.await_expiry(&mut state, claim, rest.expires),
        }
        state.note_wake(&self.at);
        state.serve(&self.at);
    }

    /// Leaves messages under their claim, as the pool has them now: its record was certainly not changed.
    pub(crate) fn returns_failed(&self, claim: ClaimId, ids: &[MessageId], again: Timestamp) {
        let mut state = self.slot.lock();
        if let Some(queue) = state.queue_mut(&self.at, self.id) {
            queue.engine.returns_failed(claim, ids);
            self.await_expiry(&mut state, claim, again);
        }
    }

    /// Has the expiry of a claim checked again: its deadline may have passed without effect during a settle.
    pub(crate) fn check_expiry_after_settle(&self, claim: ClaimId) {
        let mut state = self.slot.lock();
        let expires = state.queue(&self.at, self.id).and_then(|queue| queue.engine.expires(claim));
        if let Some(expires) = expires
            && expires <= self.slot.around.replica.clock.now()
        {
            self.await_expiry(&mut state, claim, expires);
        }
    }

    fn await_expiry(&self, state: &mut SlotState, claim: ClaimId, at: Timestamp) {
        state.note_deadline(Deadline { at, claim, queue: self.at.clone() });
    }

    /// Returns the outcome of an earlier settle of a message by the same claim, if its note exists and has not expired by
    /// `now`; with none, also if it has.
    pub(crate) async fn settled_before(
        &self,
        key: SettleKey,
        now: Option<Timestamp>,
    ) -> Result<Option<Settled>, Error> {
        let store = self.store()?;
        let found = store.notes(self.id, SETTLE_KIND, Some(before_settle_note(&key)), 1).await?;
        let note = found.into_iter().next().filter(|note| now.is_none_or(|now| now < note.expires));
        let read = note.and_then(|note| read_settle_note(&note));
        Ok(read.filter(|(noted, _)| *noted == key).map(|(_, settled)| settled))
    }

    /// Returns the header of a message in the pool.
    pub(crate) async fn stored_header(&self, id: MessageId) -> Result<Option<Header>, Error> {
        let store = self.store()?;
        let found = store.get(self.id, &[id]).await?;
        Ok(found.into_iter().next().map(|message| message.header))
    }
}
