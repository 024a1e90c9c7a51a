//! Settles: the holder of a claim decides what becomes of its messages.
//!
//! Each entry is one batch in the pool of its message: the new header or the removal, the forwarded messages in transfer,
//! and a note of the outcome. The transfers do the rest. A message that returns is shown, and the request is answered,
//! once the record of the claim does not name it any more (P7).

use std::time::Duration;

use bytes::Bytes;
use tracing::{info, warn};

use angarium_catalogue::{ClaimRecord, ClaimedMessage, Schema};
use angarium_core::error::{Error, Part, Resource};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::names::QueueRef;
use angarium_core::outcome::Holder;
use angarium_core::quota::Amount;
use angarium_core::settle::{MessageState, SettleEntry, Settled};
use angarium_engine::{ClaimRest, HeldMessage, SettleStart};

use crate::claims::Claims;
use crate::claims::change_wait::ChangeWait;
use crate::ledger::quota_ledger::Reservation;
use crate::limits;
use crate::slot::claims::retry_at;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::settle::{SettleRequest, SubmittedSettle};
use crate::slot::subscriptions::FanOut;
use crate::writer::notes::SettleKey;
use crate::writer::pending::settled as durable;

/// The result of each entry, in order.
type Results = Vec<Result<Settled, Error>>;

/// An entry whose settle has begun.
enum BegunSettle {
    /// Its batch was submitted.
    Submitted(SubmittedSettle),
    /// It was settled before by the same claim, and its message has left the claim.
    Repeated(Settled),
    /// It was settled before by the same claim, and its message returns now.
    Resumed(Settled),
    Refused(Error),
}

impl Claims {
    /// Settles messages for the holder of their claim, each with its own outcome.
    pub(crate) async fn messages_settle(
        &self,
        at: &QueueRef,
        claim: ClaimId,
        entries: Vec<SettleEntry>,
    ) -> Result<Results, Error> {
        self.0.replica.catalogue.schema_reach(Schema::OUTCOMES).await?;
        let queue = self.0.slots.queue(at).await?;
        let Some(open) = self.0.open_queues.open(&queue).await? else {
            self.0.slots.check_ours(queue.slot())?;
            return Ok(entries.iter().map(|entry| Err(not_held(entry.id))).collect());
        };
        let claims = self.clone();
        let settle = async move {
            let _guard = open.slot().lost_on_panic();
            let results = claims.settle(&open, claim, entries).await;
            open.check_expiry_after_settle(claim);
            open.slot().changed.notify_waiters();
            // A refusal because of the state in memory wrote nothing, so it needs a lease (P8).
            let confirm = |result| claims.0.slots.confirm_refusal(open.slot(), result);
            Ok(results.into_iter().map(confirm).collect())
        };
        self.0.replica.carry_out(settle).await
    }

    async fn settle(&self, queue: &QueueHandle, claim: ClaimId, entries: Vec<SettleEntry>) -> Results {
        let ids: Vec<MessageId> = entries.iter().map(|entry| entry.id).collect();
        // In the order of ids: two settles of the same messages never wait for each other.
        let mut in_order: Vec<(usize, SettleEntry)> = entries.into_iter().enumerate().collect();
        in_order.sort_by_key(|(_, entry)| entry.id);
        let mut all_begun = Vec::with_capacity(ids.len());
        for (at, entry) in in_order {
            let begun = self.begin_entry(queue, claim, entry).await.unwrap_or_else(BegunSettle::Refused);
            all_begun.push((at, begun));
        }
        all_begun.sort_by_key(|(at, _)| *at);
        // From here on the slot is handed over only after the record of the claim is changed.
        let _use = queue.hold_use();
        let (mut results, mut returning) = (Results::with_capacity(ids.len()), Vec::new());
        for (id, (_, begun)) in ids.iter().zip(all_begun) {
            let result = match begun {
                BegunSettle::Submitted(SubmittedSettle { settled, outcome, beyond }) => {
                    let result = durable(outcome).await.map(|()| settled);
                    beyond.into_iter().for_each(QueueHandle::drop_oldest_later);
                    let returns = result.as_ref().is_ok_and(returns);
                    returning.extend(returns.then_some(*id));
                    result
                }
                BegunSettle::Resumed(settled) => {
                    returning.push(*id);
                    Ok(settled)
                }
                BegunSettle::Repeated(settled) => Ok(settled),
                BegunSettle::Refused(error) => Err(error),
            };
            results.push(result);
        }
        if !returning.is_empty() {
            let returned = self.return_messages(queue, claim, &returning).await;
            if let Err(error) = returned {
                let detail = error.detail();
                for (id, result) in ids.iter().zip(&mut results) {
                    if returning.contains(id) {
                        // Its header and its forwards are durable.
                        *result = Err(Error::unknown(Part::Coordination, detail.clone()));
                    }
                }
            }
        }
        results
    }

    /// Begins the settle of one message, as soon as no other caller is changing its claim.
    async fn begin_entry(
        &self,
        queue: &QueueHandle,
        claim: ClaimId,
        entry: SettleEntry,
    ) -> Result<BegunSettle, Error> {
        let key = SettleKey { claim, message: entry.id };
        let wait = ChangeWait::begin();
        let held = loop {
            let changed = queue.slot().claim_changed();
            let start = queue.begin_settle(entry.id, claim, self.0.slots.claim_time());
            match start.ok_or_else(|| queue.closed())? {
                SettleStart::Begun(held) => break held,
                SettleStart::Recalled => return Err(Error::Gone(entry.id)),
                SettleStart::NotHeld => {
                    let before = queue.settled_before(key, Some(self.0.replica.clock.now())).await?;
                    return before.map(BegunSettle::Repeated).ok_or_else(|| not_held(entry.id));
                }
                SettleStart::Busy => {}
            }
            wait.next(changed).await?;
        };
        let id = entry.id;
        let begun = self.submit_entry(queue, key, held, entry).await;
        if begun.is_err() {
            queue.refuse_settle(id);
        }
        begun
    }

    async fn submit_entry(
        &self,
        queue: &QueueHandle,
        key: SettleKey,
        held: HeldMessage,
        entry: SettleEntry,
    ) -> Result<BegunSettle, Error> {
        if held.may_be_settled
            && let Some(settled) = queue.settled_before(key, None).await?
            && let Some(stored) = queue.stored_header(entry.id).await?
        {
            queue.resume_return(stored);
            return Ok(BegunSettle::Resumed(settled));
        }
        self.check_targets(queue, &entry).await?;
        let pool = queue.pool_of(entry.id).await?;
        let fan_out = self.fan_out(queue, &entry).await?;
        let room = if entry.forwards.is_empty() {
            Reservation::none()
        } else {
            let bytes = entry.forwards.iter().map(|forward| forward.body.len() as u64).sum();
            let more = Amount { messages: entry.forwards.len() as u64, bytes };
            let copies = fan_out.as_ref().map(FanOut::room).unwrap_or_default();
            self.0.quotas.reserve(&queue.at().project, more.plus(copies)).await?
        };
        let request = SettleRequest { claim: key.claim, entry, pool, room, fan_out };
        queue.submit_settle(held, request).map(BegunSettle::Submitted)
    }

    /// Returns the subscriptions that get copies of the messages which a settle forwards to the queue itself, with their
    /// queues open. None when it forwards none.
    async fn fan_out(&self, queue: &QueueHandle, entry: &SettleEntry) -> Result<Option<FanOut>, Error> {
        let own = entry.forwards.iter().filter(|forward| forward.target == queue.at().name);
        let bodies: Vec<Bytes> = own.map(|forward| forward.body.clone()).collect();
        if bodies.is_empty() {
            return Ok(None);
        }
        let now = self.0.replica.clock.now();
        let mut fan_out = queue.fan_out(&bodies, now).await.ok_or_else(|| queue.closed())?;
        fan_out.share_bodies(&self.0.replica);
        self.0.open_queues.open_subscriptions(queue, &fan_out.fanned).await?;
        queue.weigh(&mut fan_out);
        fan_out.check_bounds()?;
        Ok(Some(fan_out))
    }

    /// Takes messages out of the record of their claim, then shows them.
    async fn return_messages(
        &self,
        queue: &QueueHandle,
        claim: ClaimId,
        ids: &[MessageId],
    ) -> Result<(), Error> {
        let rest = loop {
            let changed = queue.slot().claim_changed();
            if let Some(rest) = queue.begin_returns(claim, ids)? {
                break rest;
            }
            // Others may return messages of the claim before this one, so each change begins a new time.
            if let Err(late) = ChangeWait::begin().next(changed).await {
                queue.slot().lose("a settle cannot change the record of its claim");
                return Err(late);
            }
        };
        let change = RecordChange { claim, ids: ids.to_vec(), rest };
        match self.write_rest(queue, &change).await {
            Ok(()) => {
                queue.finish_returns(claim, ids, &change.rest);
                Ok(())
            }
            Err(error) if error.nothing_written() => {
                queue.returns_failed(claim, ids, retry_at(self.0.replica.clock.now()));
                Err(error)
            }
            Err(error) => {
                let (claims, queue) = (self.clone(), queue.clone());
                queue.slot().clone().spawn(async move { claims.resolve_returns(&queue, change).await });
                Err(error)
            }
        }
    }

    /// Repeats the change of a record with an unknown outcome until the outcome is known, the slot is recovered or served
    /// elsewhere, or the service stops. Meanwhile the claim stays as it is, and the messages stay hidden.
    async fn resolve_returns(&self, queue: &QueueHandle, change: RecordChange) {
        let slot = queue.slot();
        warn!(slot = slot.owned.slot.0, claim = %change.claim, "claim settle in doubt");
        let pause = Duration::from_secs(limits::RETRY_SECONDS.into());
        while self.0.replica.sleep_tick(pause).await && slot.check_served().is_ok() {
            match self.write_rest(queue, &change).await {
                Ok(()) => queue.finish_returns(change.claim, &change.ids, &change.rest),
                Err(Error::Unavailable { .. } | Error::Unknown { .. }) => continue,
                Err(_) => {
                    let again = retry_at(self.0.replica.clock.now());
                    queue.returns_failed(change.claim, &change.ids, again);
                }
            }
            slot.changed.notify_waiters();
            info!(slot = slot.owned.slot.0, claim = %change.claim, "claim settle resolved");
            return;
        }
    }

    async fn write_rest(&self, queue: &QueueHandle, change: &RecordChange) -> Result<(), Error> {
        let (catalogue, owned) = (&self.0.replica.catalogue, &queue.slot().owned);
        let ClaimRest { terms, expires, client, by, messages } = &change.rest;
        if messages.is_empty() {
            return catalogue.claims_delete(owned, &[change.claim]).await;
        }
        let record = ClaimRecord {
            at: queue.at().clone(),
            queue: queue.id(),
            messages: messages
                .iter()
                .map(|(id, attempt)| ClaimedMessage { id: *id, attempt: *attempt })
                .collect(),
            ttl: terms.ttl(),
            grace: terms.grace(),
            created: expires.minus_seconds(terms.ttl()).as_millis(),
            expires: expires.as_millis(),
            client: *client,
            attempt: None,
            by: by.as_ref().map(Holder::to_string),
        };
        // A record that does not exist any more names no message.
        catalogue.claim_update(owned, change.claim, &record).await.map(drop)
    }
}

/// A change of the record of a claim from which messages return.
struct RecordChange {
    claim: ClaimId,
    ids: Vec<MessageId>,
    rest: ClaimRest,
}

/// Whether the message of a settle becomes available again in its queue.
fn returns(settled: &Settled) -> bool {
    matches!(settled.state, MessageState::Ready | MessageState::Delayed | MessageState::Held)
}

fn not_held(id: MessageId) -> Error {
    Error::NotFound { resource: Resource::ClaimedMessage, name: id.to_string() }
}
