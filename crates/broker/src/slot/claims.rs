//! The claims of a slot at its owner: grants, renewals, splits and releases, each step under the lock. The procedures
//! of several durable steps are in [`crate::claims`].

use std::sync::Arc;

use tokio::sync::futures::OwnedNotified;

use angarium_core::claim::ClaimTerms;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, ClientId, MessageId};
use angarium_core::message::{Header, Retention};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::outcome::Holder;
use angarium_core::receipt::Attempt;
use angarium_core::time::Timestamp;
use angarium_engine::{ClaimSplit, EndedHeaders, Release, ReleaseUpdates, Renewal};

use crate::limits;
use crate::slot::deadlines::Deadline;
use crate::slot::locked::LockedSlot;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::release::{BegunRelease, ClaimKey, ReleaseCause};
use crate::slot::state::Slot;
use crate::writer::change::Change;

/// A claim whose record is durable.
pub(crate) struct NewClaim {
    pub(crate) id: ClaimId,
    pub(crate) terms: ClaimTerms,
    pub(crate) client: Option<ClientId>,
    pub(crate) attempt: Option<Attempt>,
    /// The name that the holder gave itself.
    pub(crate) by: Option<Holder>,
    pub(crate) expires: Timestamp,
}

/// A granted claim.
pub(crate) struct GrantedClaim {
    pub(crate) headers: Vec<Header>,
    /// The retention of the queue.
    pub(crate) retention: Retention,
}

/// A renewal that has begun, with the data for the new record.
pub(crate) struct BegunRenewal {
    pub(crate) messages: Vec<(MessageId, u32)>,
    pub(crate) client: Option<ClientId>,
    pub(crate) by: Option<Holder>,
}

/// The first step of a change of a claim.
pub(crate) enum ClaimStep<T> {
    Begun(T),
    Ended,
    /// Another caller is changing the claim. The notice resolves when a claim of the slot was changed.
    Busy(OwnedNotified),
}

/// A claim that was split in two; both records are durable.
pub(crate) struct SplitClaims<'a> {
    pub(crate) old: ClaimId,
    pub(crate) new: ClaimId,
    pub(crate) parted: &'a [(MessageId, u32)],
    pub(crate) terms: ClaimTerms,
    /// When the new claim expires.
    pub(crate) expires: Timestamp,
    /// When the old claim expires.
    pub(crate) rest_expires: Timestamp,
}

impl QueueHandle {
    /// Grants a claim on chosen messages. Returns none when the queue was closed meanwhile: then the claim's record is
    /// to be removed.
    pub(crate) fn grant(&self, claim: NewClaim, ids: &[MessageId]) -> Option<GrantedClaim> {
        let NewClaim { id, terms, client, attempt, by, expires } = claim;
        let mut state = self.slot.lock();
        state.buckets |= 1 << id.bucket();
        if state.queue(&self.at, self.id).is_none() {
            state.note_orphan(id);
            return None;
        }
        state.live_claims += 1;
        state.note_deadline(Deadline { at: expires, claim: id, queue: self.at.clone() });
        let queue = state.queue_mut(&self.at, self.id)?;
        let headers = queue.engine.grant(id, terms, expires, ids);
        queue.engine.note_client(id, client);
        queue.engine.note_attempt(id, attempt);
        queue.engine.note_holder(id, by);
        queue.counters.claimed.inc_by(u64::try_from(headers.len()).unwrap_or_default());
        Some(GrantedClaim { headers, retention: queue.engine.retention() })
    }

    /// Enters a claim in doubt: its record may exist or not. Its deadline is now, so expiry removes the record, if
    /// there is one, before the messages are ready again.
    pub(crate) fn grant_in_doubt(&self, id: ClaimId, terms: ClaimTerms, ids: &[MessageId], now: Timestamp) {
        let mut state = self.slot.lock();
        let Some(queue) = state.queue_mut(&self.at, self.id) else {
            return state.note_orphan(id);
        };
        // It holds them from now on, for no time.
        queue.engine.grant(id, ClaimTerms::stored(0, terms.grace()), now, ids);
        state.live_claims += 1;
        state.note_deadline(Deadline { at: now, claim: id, queue: self.at.clone() });
    }

    /// Begins a renewal, unless another caller is changing the claim.
    pub(crate) fn begin_renew(&self, id: ClaimId, now: Timestamp) -> Result<ClaimStep<BegunRenewal>, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        Ok(match queue.engine.begin_renew(id, now) {
            Renewal::Begun(messages) => {
                let (client, by) = (queue.engine.client_of(id), queue.engine.holder_of(id));
                ClaimStep::Begun(BegunRenewal { messages, client, by })
            }
            Renewal::Ended => ClaimStep::Ended,
            Renewal::Busy => ClaimStep::Busy(self.slot.claim_changed()),
        })
    }

    /// Gives a claim new terms that are durable. Returns none when the queue is closed.
    pub(crate) fn renewed(&self, claim: NewClaim) -> Option<()> {
        let NewClaim { id, terms, attempt, expires, .. } = claim;
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id)?;
        queue.engine.renewed(id, terms, expires);
        queue.engine.note_attempt(id, attempt);
        state.note_deadline(Deadline { at: expires, claim: id, queue: self.at.clone() });
        Some(())
    }

    /// Leaves a claim as it was before a renewal or a split. Its deadline may have passed without effect during that
    /// change, so the claim is checked again at `again`. Returns none when the queue is closed.
    pub(crate) fn renew_failed(&self, id: ClaimId, again: Timestamp) -> Option<()> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id)?;
        queue.engine.renew_failed(id);
        state.note_deadline(Deadline { at: again, claim: id, queue: self.at.clone() });
        Some(())
    }

    /// Begins to split messages off a claim, unless another caller is changing the claim.
    pub(crate) fn begin_split(
        &self,
        claim: ClaimId,
        messages: &[MessageId],
        now: Timestamp,
    ) -> Result<ClaimStep<ClaimSplit>, Error> {
        let mut state = self.slot.lock();
        let queue = state.queue_mut(&self.at, self.id).ok_or_else(|| self.closed())?;
        Ok(match queue.engine.begin_split(claim, messages, now) {
            ClaimSplit::Busy => ClaimStep::Busy(self.slot.claim_changed()),
            split => ClaimStep::Begun(split),
        })
    }

    /// Splits a claim of which both records are durable. Returns none when the queue was closed meanwhile: its deletion
    /// removes the new claim too, and after a deletion without effect the claim is read again with the slot.
    pub(crate) fn finish_split(&self, split: &SplitClaims<'_>) -> Option<()> {
        let mut state = self.slot.lock();
        if state.queue(&self.at, self.id).is_none() {
            state.note_orphan_of(self.id, split.new);
        }
        let queue = state.queue_mut(&self.at, self.id)?;
        let over = queue.engine.finish_split(split.old, split.new, split.terms, split.expires, split.parted);
        state.spend(over);
        state.buckets |= 1 << split.new.bucket();
        state.live_claims += 1;
        state.note_deadline(Deadline { at: split.expires, claim: split.new, queue: self.at.clone() });
        state.note_deadline(Deadline { at: split.rest_expires, claim: split.old, queue: self.at.clone() });
        Some(())
    }

    /// Whether the claim is no longer in the memory of the slot. None when the queue is closed.
    pub(crate) fn has_ended(&self, claim: ClaimId) -> Option<bool> {
        self.lock_queue(|queue| !queue.engine.has_claim(claim))
    }
}

impl Slot {
    /// A notice that resolves when a claim of the slot is changed after this call.
    pub(crate) fn claim_changed(self: &Arc<Self>) -> OwnedNotified {
        Arc::clone(&self.changed).notified_owned()
    }

    /// Whether the record of a claim would be the first one in its directory.
    pub(crate) fn is_new_bucket(self: &Arc<Self>, claim: ClaimId) -> bool {
        self.lock().buckets >> claim.bucket() & 1 == 0
    }

    /// Hides the messages of claims for good and submits their headers. Skips claims that have ended or that another
    /// caller is ending. For [`ReleaseCause::NeverHeld`] it also skips claims that have had new terms.
    pub(crate) fn begin_releases(
        self: &Arc<Self>,
        claims: Vec<ClaimKey>,
        ending: Release,
        cause: ReleaseCause,
        again: Timestamp,
    ) -> Vec<BegunRelease> {
        let mut begun = Vec::with_capacity(claims.len());
        let mut state = self.lock();
        for key in claims {
            let Some(queue) = state.queues.get_mut(&key.queue) else { continue };
            // The notice is of the first answer. The holder may have a later one, of a receive that it has repeated.
            if cause == ReleaseCause::NeverHeld && queue.engine.was_renewed(key.claim) {
                continue;
            }
            let updates = queue.engine.begin_release(key.claim, ending);
            let Some(ReleaseUpdates { headers }) = updates else { continue };
            let in_use = queue.uses.token();
            if headers.is_empty() {
                begun.push(BegunRelease { claim: key, headers: None, in_use });
                continue;
            }
            match state.submit(&key.queue, Change::update(headers)) {
                Ok(outcome) => begun.push(BegunRelease { claim: key, headers: Some(outcome), in_use }),
                Err(_) => state.release_failed(&[key], EndedHeaders::Unwritten, again),
            }
        }
        begun
    }

    /// Restores claims that were not released, or of which it is unknown: their records may still exist. An expired one
    /// is released again at `again`; releasing a claim twice does no harm.
    pub(crate) fn release_failed(
        self: &Arc<Self>,
        claims: &[ClaimKey],
        headers: EndedHeaders,
        again: Timestamp,
    ) {
        self.lock().release_failed(claims, headers, again);
    }

    /// Shows the messages of claims whose records were removed, and serves the waiting claims.
    pub(crate) fn finish_releases(self: &Arc<Self>, claims: Vec<ClaimKey>, cause: ReleaseCause) {
        let mut state = self.lock();
        state.live_claims = state.live_claims.saturating_sub(claims.len());
        for ClaimKey { queue: at, claim } in claims {
            if let Some(queue) = state.queues.get_mut(&at) {
                let given_back = queue.engine.finish_release(claim);
                queue.count_released(cause, given_back);
                state.note_wake(&at);
                state.serve(&at);
            }
        }
    }

    /// Removes the records of the claims whose messages were all removed.
    pub(crate) async fn clear_spent_claims(self: &Arc<Self>) -> Result<(), Error> {
        let spent = std::mem::take(&mut self.lock().spent);
        if spent.is_empty() {
            return Ok(());
        }
        let outcome = self.around.replica.catalogue.claims_delete(&self.owned, &spent).await;
        let mut state = self.lock();
        if outcome.is_ok() {
            state.live_claims = state.live_claims.saturating_sub(spent.len());
        } else {
            // Some records may still exist. At the next tick, a record that is gone already does no harm.
            state.spent.extend(spent);
        }
        outcome
    }
}

impl LockedSlot<'_> {
    fn release_failed(&mut self, claims: &[ClaimKey], headers: EndedHeaders, again: Timestamp) {
        for ClaimKey { queue, claim } in claims {
            if let Some(open) = self.state.queues.get_mut(queue) {
                open.engine.release_failed(*claim, headers);
            }
            if !is_on(Mutation::LoseExpiryRetry) {
                self.state.note_deadline(Deadline { at: again, claim: *claim, queue: queue.clone() });
            }
        }
    }
}

/// When to try again to release a claim.
pub(crate) fn retry_at(now: Timestamp) -> Timestamp {
    now.plus_seconds(limits::RETRY_SECONDS)
}
