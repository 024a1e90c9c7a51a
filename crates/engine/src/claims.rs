//! The claims of one queue: the messages of each, and its deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::hidden::HiddenReason;
use super::queue::QueueEngine;
use super::release::Release;
use angarium_core::claim::ClaimTerms;
use angarium_core::group::AttemptId;
use angarium_core::ids::{ClaimId, ClientId, MessageId};
use angarium_core::maps::HashMap;
use angarium_core::outcome::Holder;
use angarium_core::receipt::Attempt;
use angarium_core::time::Timestamp;

/// A claim in the memory of its queue's owner.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Its ttl and grace.
    pub terms: ClaimTerms,
    /// When it expires.
    pub expires: Timestamp,
    /// Its messages that are not deleted yet.
    pub(super) messages: BTreeSet<MessageId>,
    /// Set while it is being ended: its messages are returning, and clients cannot use it any more.
    pub(super) ending: Option<Release>,
    /// Whether new terms are being written: meanwhile it neither ends nor is renewed again.
    pub(super) is_renewing: bool,
    /// Whether it has had new terms: a later answer than the one that made it has named it to its holder.
    pub(super) was_renewed: bool,
    /// The settles of its messages.
    pub(super) settles: Settles,
    /// The name that its holder gave itself.
    pub(super) by: Option<Holder>,
    /// The `Client-ID` of the request that made it.
    client: Option<ClientId>,
    /// The receive that made it, while a client may repeat that.
    attempt: Option<Attempt>,
}

impl Claim {
    pub(super) fn new(terms: ClaimTerms, expires: Timestamp, messages: BTreeSet<MessageId>) -> Self {
        let settles = Settles::default();
        let (ending, is_renewing, was_renewed) = (None, false, false);
        let (by, client, attempt) = (None, None, None);
        Self { terms, expires, messages, ending, is_renewing, was_renewed, settles, by, client, attempt }
    }

    /// When it was made, or given its last terms.
    pub(super) fn since(&self) -> Timestamp {
        self.expires.minus_seconds(self.terms.ttl())
    }

    /// The `Client-ID` of the request that made it.
    pub(super) fn client(&self) -> Option<ClientId> {
        self.client
    }

    /// Seconds at `now` since it was made, or given its last terms.
    pub(super) fn seconds_held(&self, now: Timestamp) -> u32 {
        u32::try_from(now.seconds_since(self.since())).unwrap_or(u32::MAX)
    }

    /// Whether no change of it is in progress.
    pub(super) fn is_settled(&self) -> bool {
        self.ending.is_none() && !self.is_renewing && self.settles.count == 0
    }

    /// Whether its holder may still use it.
    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        self.ending.is_none() && self.is_shown(now)
    }

    /// Whether readers see it. A release shows it until it is durable: after a crash before that the claim is there. A
    /// claim whose messages are all gone is not there after a crash.
    pub(super) fn is_shown(&self, now: Timestamp) -> bool {
        now < self.expires && !self.messages.is_empty()
    }
}

/// The settles of a claim's messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settles {
    /// Messages that are being settled: meanwhile the claim does not end, and gets no new terms.
    pub(super) count: usize,
    /// Whether the pool may have notes of settles whose messages the claim still holds: an earlier owner may have ended
    /// between the settle and the change of the claim's record.
    pub(super) are_unread: bool,
}

/// A claim that has not ended, in a listing.
#[derive(Clone, Debug)]
pub struct VisibleClaim {
    /// The id of the claim.
    pub id: ClaimId,
    /// Its ttl and grace.
    pub terms: ClaimTerms,
    /// When it expires.
    pub expires: Timestamp,
    /// Number of its messages that are not deleted yet.
    pub messages: usize,
}

#[derive(Debug, Default)]
pub(super) struct Claims {
    /// In order of id, so that a page costs as much as it shows.
    claims: BTreeMap<ClaimId, Claim>,
    /// Claims of receives that may be repeated.
    attempts: HashMap<AttemptId, ClaimId>,
}

impl Claims {
    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.claims.len()
    }

    /// All claims, also those that are ending, in order of id.
    pub(super) fn values(&self) -> impl Iterator<Item = &Claim> {
        self.claims.values()
    }

    pub(super) fn get(&self, id: ClaimId) -> Option<&Claim> {
        self.claims.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ClaimId) -> Option<&mut Claim> {
        self.claims.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: ClaimId, claim: Claim) {
        self.claims.insert(id, claim);
    }

    pub(super) fn remove(&mut self, id: ClaimId) -> Option<Claim> {
        self.set_attempt(id, None);
        self.claims.remove(&id)
    }

    /// Records the receive that made a claim; none: it cannot be repeated any more.
    pub(super) fn set_attempt(&mut self, id: ClaimId, attempt: Option<Attempt>) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        let before = std::mem::replace(&mut claim.attempt, attempt.clone());
        if let Some(before) = before.filter(|before| self.attempts.get(&before.id) == Some(&id)) {
            self.attempts.remove(&before.id);
        }
        if let Some(attempt) = attempt {
            self.attempts.insert(attempt.id, id);
        }
    }

    /// The claim of a receive that may be repeated, by its age and its number of messages.
    fn of_attempt(&self, id: &AttemptId, now: Timestamp) -> Option<(ClaimId, &Claim, &Attempt)> {
        let claim_id = *self.attempts.get(id)?;
        let claim = self.claims.get(&claim_id).filter(|claim| claim.is_live(now) && claim.is_settled())?;
        let attempt = claim.attempt.as_ref().filter(|attempt| attempt.is_fresh(now))?;
        (claim.messages.len() == attempt.messages).then_some((claim_id, claim, attempt))
    }

    /// Removes a deleted message from the claim. Returns true when it was the last one: then the claim has ended.
    pub(super) fn forget(&mut self, id: ClaimId, message: MessageId) -> bool {
        let Some(claim) = self.claims.get_mut(&id) else { return false };
        claim.messages.remove(&message);
        let has_ended = claim.messages.is_empty() && claim.ending.is_none();
        if has_ended {
            self.remove(id);
        }
        has_ended
    }
}

impl QueueEngine {
    /// The claims whose records may be in the tree, also claims that are ending.
    pub fn claim_ids(&self) -> impl Iterator<Item = ClaimId> {
        self.claims.claims.keys().copied()
    }

    /// The claims after `after` that have not expired, in order of id, at most `limit`. Also those whose release is not
    /// durable yet.
    pub fn visible_claims(&self, after: Option<ClaimId>, limit: usize, now: Timestamp) -> Vec<VisibleClaim> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let following = self.claims.claims.range((from, Bound::Unbounded));
        let live = following.filter(|(_, claim)| claim.is_shown(now)).map(|(id, claim)| VisibleClaim {
            id: *id,
            terms: claim.terms,
            expires: claim.expires,
            messages: claim.messages.len(),
        });
        live.take(limit).collect()
    }

    /// Records the `Client-ID` of the request that made a claim.
    pub fn note_client(&mut self, id: ClaimId, client: Option<ClientId>) {
        if let Some(claim) = self.claims.get_mut(id) {
            claim.client = client;
        }
    }

    /// The `Client-ID` of the request that made a claim; none if the claim has ended.
    pub fn client_of(&self, id: ClaimId) -> Option<ClientId> {
        self.claims.get(id)?.client
    }

    /// Records the name that the holder of a claim gave itself.
    pub fn note_holder(&mut self, id: ClaimId, by: Option<Holder>) {
        if let Some(claim) = self.claims.get_mut(id) {
            claim.by = by;
        }
    }

    /// Whether a message is being settled.
    pub fn has_settles(&self) -> bool {
        self.claims.claims.values().any(|claim| claim.settles.count > 0)
    }

    /// The name that the holder of a claim gave itself; none if the claim has ended.
    pub fn holder_of(&self, id: ClaimId) -> Option<Holder> {
        self.claims.get(id)?.by.clone()
    }

    /// Records the receive that made a claim, so that it can be repeated; none: it cannot be any more.
    pub fn note_attempt(&mut self, id: ClaimId, attempt: Option<Attempt>) {
        self.claims.set_attempt(id, attempt);
    }

    /// Records that a claim had new terms before it was restored.
    pub fn note_renewed(&mut self, id: ClaimId) {
        if let Some(claim) = self.claims.get_mut(id) {
            claim.was_renewed = true;
        }
    }

    /// Whether a claim has had new terms since it was made. They may be those of a renewal without an answer.
    pub fn was_renewed(&self, id: ClaimId) -> bool {
        self.claims.get(id).is_some_and(|claim| claim.was_renewed)
    }

    /// The claim of a receive that its client repeats, if all its messages are unchanged (SQS: none was deleted, and
    /// the visibility of none was changed).
    pub fn attempt(&self, id: &AttemptId, now: Timestamp) -> Option<(ClaimId, Attempt)> {
        let (claim_id, claim, attempt) = self.claims.of_attempt(id, now)?;
        let is_held = |message: &MessageId| {
            self.hidden.get(message).is_some_and(|hidden| hidden.why == HiddenReason::Claimed(claim_id))
        };
        claim.messages.iter().all(is_held).then(|| (claim_id, attempt.clone()))
    }

    /// Whether new terms of the claim of a receive are being written: whether it can be repeated is known after that.
    pub fn is_renewing(&self, id: &AttemptId) -> bool {
        let claim = self.claims.attempts.get(id).and_then(|claim| self.claims.get(*claim));
        claim.is_some_and(|claim| claim.is_renewing)
    }
}
