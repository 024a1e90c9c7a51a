//! One queue: its state in memory, how it is opened, and how its messages get into a claim.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::bulk::Purges;
use super::claims::{Claim, Claims};
use super::dedup::Dedup;
use super::expiry::SweptPools;
use super::groups::Groups;
use super::held_groups::HeldGroups;
use super::hidden::{HiddenMessage, HiddenMessages, HiddenReason};
use super::kept::KeptMessages;
use super::ready_cache::{ReadyCache, ReadyMessage};
use super::recall::Recalls;
use super::refill::RefillState;
use super::removal::RemovalTally;
use super::schedule::Schedule;
use super::settings::EngineSettings;
use super::transfers::TransferEntries;
use angarium_core::claim::ClaimTerms;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits;
use angarium_core::message::{Header, Message, State};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::time::Timestamp;

/// The state of one queue.
#[derive(Debug)]
pub struct QueueEngine {
    /// Ready messages of a queue that is not ordered.
    pub(super) ready_cache: ReadyCache,
    /// Ready messages of an ordered queue; none in other queues.
    pub(super) groups: Option<Groups>,
    /// The settings that follow from the attributes of the queue.
    pub(super) settings: EngineSettings,
    pub(super) hidden: HiddenMessages,
    pub(super) claims: Claims,
    /// Number of messages that are under claims or taken for one.
    pub(super) claimed: u64,
    pub(super) refill: Option<RefillState>,
    pub(super) schedule: Schedule,
    pub(super) sweeps: SweptPools,
    pub(super) in_transfer: TransferEntries,
    pub(super) dedup: Dedup,
    /// Messages that a migration is copying to another pool, in order. Some may have been removed since the copy began.
    pub(super) copying: Vec<MessageId>,
    /// Removals that the broker has not counted yet.
    pub(super) tally: RemovalTally,
    pub(super) purges: Purges,
    pub(super) recalls: Recalls,
    pub(super) kept: KeptMessages,
    pub(super) held: HeldGroups,
}

/// Facts about a queue from the totals of its pool, when it is opened.
#[derive(Clone, Copy, Debug)]
pub struct StoredTotals {
    /// Upper bound of the ids of its messages.
    pub tail: MessageId,
    /// Whether there are ready messages, claimed ones included.
    pub has_ready: bool,
    /// Whether there are scheduled messages.
    pub is_scheduled: bool,
    /// Whether there are prepared or moving messages, or some without a target.
    pub has_aside: bool,
}

/// Numbers of messages that are under claims or taken for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimedCounts {
    /// All of them.
    pub all: u64,
    /// Claimed messages that the pool counts as scheduled instead of ready, because a release with a delay was cut
    /// short.
    pub scheduled: u64,
}

/// The messages that the engine selects for a claim.
#[derive(Debug, Default)]
pub struct ClaimSelection {
    /// Messages in order, now hidden. An absent body must be read from the pool.
    pub messages: Vec<(Header, Option<Bytes>)>,
    /// Expired messages, now hidden: they must be removed.
    pub expired: Vec<MessageId>,
    /// Messages that were claimed the max number of times, now hidden: they must be marked in transfer.
    pub dead: Vec<Header>,
    /// Messages of held groups, now hidden, with the headers that put them aside: these must be written.
    pub withheld: Vec<Header>,
}

impl ClaimSelection {
    /// Whether the selection found no message at all.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
            && self.expired.is_empty()
            && self.dead.is_empty()
            && self.withheld.is_empty()
    }
}

/// Bounds of one selection.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakeBounds {
    /// Max messages for the claim.
    limit: usize,
    /// Messages that were claimed this often are dead.
    max_claims: Option<u32>,
    /// Max messages that are hidden without being for the claim.
    dead: usize,
    /// Whether messages of held groups are put aside.
    is_barred: bool,
}

impl TakeBounds {
    pub(super) fn can_continue(&self, taken: &ClaimSelection) -> bool {
        taken.messages.len() < self.limit
            && taken.expired.len() + taken.dead.len() + taken.withheld.len() < self.dead
    }

    /// Number of messages that may still be taken.
    pub(super) fn left(&self, taken: &ClaimSelection) -> usize {
        self.limit - taken.messages.len()
    }

    pub(super) fn is_dead(&self, header: &Header) -> bool {
        self.max_claims.is_some_and(|max_claims| header.attempts >= max_claims)
    }
}

impl QueueEngine {
    /// Opens a queue at its new owner, with nothing in memory.
    pub fn open(found: StoredTotals) -> Self {
        // The ready cache of a queue without ready messages is whole, so it takes new messages at once.
        let tail = if found.has_ready { found.tail } else { MessageId::ZERO };
        Self {
            ready_cache: ReadyCache::before(tail),
            groups: None,
            settings: EngineSettings::UNSET,
            hidden: HiddenMessages::default(),
            claims: Claims::default(),
            claimed: 0,
            refill: None,
            schedule: Schedule::found(found.is_scheduled),
            sweeps: SweptPools::default(),
            in_transfer: TransferEntries::found(found.has_aside),
            dedup: Dedup::default(),
            copying: Vec::new(),
            tally: RemovalTally::default(),
            purges: Purges::default(),
            recalls: Recalls::default(),
            kept: KeptMessages::default(),
            held: HeldGroups::default(),
        }
    }

    /// Restores a claim from before a recovery, with those of its messages that exist: for each the stored header and
    /// the number of this claim among its claims. If two claims name a message, the one with the higher number gets it.
    /// Messages that are kept or in transfer have left the claim, as have those with a stored number greater than that of
    /// the claim. Returns the claims that have no message left.
    pub fn restore_claim(
        &mut self,
        id: ClaimId,
        terms: ClaimTerms,
        expires: Timestamp,
        messages: Vec<(Header, u32)>,
    ) -> Vec<ClaimId> {
        let mut ended = Vec::new();
        let mut claim = Claim::new(terms, expires, BTreeSet::new());
        for (mut header, attempt) in messages {
            // A settle took it out of the claim. If it is available again, its claims have greater numbers.
            let is_kept = header.state.is_kept() && !is_on(Mutation::ClaimKeptMessage);
            let has_left = is_kept || header.state.is_in_transfer();
            if has_left || header.grant() > attempt {
                continue;
            }
            if let Some(HiddenMessage { header: Some(other), why: HiddenReason::Claimed(holder), .. }) =
                self.hidden.get(&header.id)
            {
                if other.grant() >= attempt {
                    continue;
                }
                let holder = *holder;
                if self.claims.forget(holder, header.id) {
                    ended.push(holder);
                }
                self.claimed -= 1;
            }
            header.set_grant(attempt);
            note_claim(&mut header, terms, expires);
            terms.extend(&mut header, expires);
            claim.messages.insert(header.id);
            self.claimed += 1;
            let (message, is_put_off) = (header.id, header.state == State::Scheduled);
            let mut hidden = HiddenMessage::new(header, HiddenReason::Claimed(id));
            // An interrupted end of the claim may have stored the message as scheduled already; under the claim it
            // counts as ready.
            if let Some(header) = &mut hidden.header {
                header.state = State::Ready;
            }
            self.hidden.insert(message, hidden);
            if is_put_off {
                self.hidden.note_put_off(message);
            }
        }
        claim.settles.are_unread = true;
        if claim.messages.is_empty() {
            ended.push(id);
        } else {
            self.claims.insert(id, claim);
        }
        ended
    }

    /// The messages of a post are durable: they become ready in order of id, or scheduled. During a migration a batch of
    /// the older pool may become durable after later posts in the newer one.
    pub fn posted(&mut self, messages: Vec<Message>) {
        let tail = self.ready_cache.tail();
        let (late, messages): (Vec<_>, Vec<_>) =
            messages.into_iter().partition(|message| message.header.id <= tail);
        for Message { header, body } in late {
            if self.hidden.contains_key(&header.id) {
                self.hidden.learn(header);
            } else {
                self.show(header, Some(body));
            }
        }
        if let Some(refill) = &mut self.refill {
            refill.keep(&messages);
        }
        for message in messages {
            let id = message.header.id;
            if self.hidden.contains_key(&id) {
                // A client read it from the pool and is already removing it.
                self.ready_cache.pass(id);
                self.hidden.learn(message.header);
            } else {
                self.append(message);
            }
        }
    }

    /// Hides the oldest ready messages for a claim, at most `limit`. Messages that were claimed as often as the settings
    /// allow are dead: they are never claimed again.
    pub fn take(&mut self, limit: usize, now: Timestamp) -> ClaimSelection {
        let max_claims = self.settings.max_claims;
        let dead = limits::REFILL_MESSAGES;
        self.take_some(TakeBounds { limit, max_claims, dead, is_barred: true }, now)
    }

    /// Hides the oldest ready messages for a transfer out of the queue, however often they were claimed: at most
    /// `limit`, all in `dead`.
    pub fn take_to_leave(&mut self, limit: usize, now: Timestamp) -> ClaimSelection {
        let dead = limit.min(limits::REFILL_MESSAGES);
        self.take_some(TakeBounds { limit, max_claims: Some(0), dead, is_barred: false }, now)
    }

    fn take_some(&mut self, taking: TakeBounds, now: Timestamp) -> ClaimSelection {
        if self.is_ordered() {
            return self.take_of_groups(taking, now);
        }
        self.hidden.measure_load(now);
        let mut taken = ClaimSelection::default();
        let first_copying = self.first_copying();
        while taking.can_continue(&taken) {
            if first_copying
                .is_some_and(|copying| self.ready_cache.first().is_some_and(|first| copying < first))
            {
                break;
            }
            let Some(ReadyMessage { header, body }) = self.take_next(now) else { break };
            let id = header.id;
            if header.is_expired(now, self.settings.retention) {
                self.hide_expired(header);
                taken.expired.push(id);
            } else if let Some(hold) = self.held.of(header.group.as_ref()).filter(|_| taking.is_barred) {
                self.hidden.insert(id, HiddenMessage::new(header.clone(), HiddenReason::Requeuing));
                let attempts = header.attempts + u32::from(is_on(Mutation::CountWithheld));
                taken.withheld.push(Header { attempts, ..header.withhold(hold) });
            } else if taking.is_dead(&header) {
                self.hidden.insert(id, HiddenMessage::new(header.clone(), HiddenReason::Leaving));
                taken.dead.push(header);
            } else {
                self.hidden.insert(id, HiddenMessage::new(header.clone(), HiddenReason::Taking));
                self.claimed += 1;
                taken.messages.push((header, body));
            }
        }
        taken
    }

    /// Shows messages again as ready: their claim certainly does not exist, or the dead ones were certainly not marked
    /// in transfer.
    pub fn put_back(&mut self, ids: &[MessageId]) {
        for id in ids {
            let why = self.hidden.get(id).map(|hidden| hidden.why);
            if !matches!(why, Some(HiddenReason::Taking | HiddenReason::Leaving)) {
                continue;
            }
            self.claimed -=
                u64::from(why == Some(HiddenReason::Taking) && !is_on(Mutation::CountAfterPutBack));
            if let Some(header) = self.hidden.remove(id).and_then(|hidden| hidden.header) {
                self.show(header, None);
            }
        }
    }

    /// The claim on taken messages is durable. Returns their headers under the claim.
    pub fn grant(
        &mut self,
        id: ClaimId,
        terms: ClaimTerms,
        expires: Timestamp,
        ids: &[MessageId],
    ) -> Vec<Header> {
        let mut headers = Vec::with_capacity(ids.len());
        for message in ids {
            if let Some(HiddenMessage { header: Some(header), why, .. }) = self.hidden.get_mut(message) {
                *why = HiddenReason::Claimed(id);
                header.attempts += 1;
                note_claim(header, terms, expires);
                terms.extend(header, expires);
                headers.push(header.clone());
            }
        }
        let messages = headers.iter().map(|header| header.id).collect();
        self.claims.insert(id, Claim::new(terms, expires, messages));
        headers
    }

    /// Shows a message that was hidden, by the state in its header: ready, scheduled, or in transfer or failed.
    pub(super) fn show(&mut self, header: Header, body: Option<Bytes>) {
        self.schedule.note_change(header.id);
        self.purges.note_shown(header.id);
        self.sweeps.note_change(header.id);
        match header.state {
            State::Ready => {
                let ready = ReadyMessage { header, body };
                if self.is_ordered() {
                    return self.show_in_group(ready);
                }
                if let Some(refill) = &mut self.refill
                    && ready.header.id > self.ready_cache.cursor()
                    && !is_on(Mutation::MissWakeInRefill)
                {
                    refill.change(ready.clone());
                }
                self.show_ahead(&ready.header);
                let cursor = self.ready_cache.cursor();
                self.ready_cache.put_back(ready);
                if self.ready_cache.cursor() < cursor {
                    // The look-ahead ignores messages that left the ready cache, so it begins again.
                    self.hidden.ahead.clear();
                }
            }
            State::Scheduled => {
                // A page that is being read may show it as ready.
                if let Some(refill) = &mut self.refill {
                    refill.remove(header.id);
                }
                self.schedule.expect(header.ready);
                self.put_off_in_group(header);
            }
            State::Prepared(_) | State::Moving(_) | State::NoTarget | State::Done | State::Failed => {}
        }
    }

    /// The claim that holds a message, and the header of the message under the claim. A message that returns is held until
    /// its return is durable.
    pub fn hold(&self, id: MessageId) -> Option<(ClaimId, Header)> {
        let hidden = self.hidden.get(&id)?;
        match (hidden.why, &hidden.header) {
            (
                HiddenReason::Claimed(claim)
                | HiddenReason::Returning(claim)
                | HiddenReason::Removing(Some(claim))
                | HiddenReason::Settling(claim),
                Some(header),
            ) => Some((claim, header.clone())),
            _ => None,
        }
    }

    /// Whether a change in progress may have made the life of a message longer than its pool knows: its claim is being
    /// made, or it is made available again.
    pub fn may_live_longer(&self, id: MessageId) -> bool {
        self.hidden.get(&id).is_some_and(|hidden| match hidden.why {
            HiddenReason::Taking | HiddenReason::Requeuing => true,
            HiddenReason::Claimed(_)
            | HiddenReason::Returning(_)
            | HiddenReason::Removing(_)
            | HiddenReason::Waking
            | HiddenReason::Publishing
            | HiddenReason::Leaving
            | HiddenReason::Copying
            | HiddenReason::Settling(_) => false,
        })
    }

    /// Number of messages that are under claims or taken for one.
    pub fn claimed(&self) -> u64 {
        self.claimed
    }

    /// Numbers of claimed messages, by their stored state.
    pub fn claimed_counts(&self) -> ClaimedCounts {
        ClaimedCounts { all: self.claimed, scheduled: self.hidden.put_off() as u64 }
    }

    /// The oldest and the newest message, as far as memory knows: no oldest if only the pool has messages, no newest if
    /// the pool may have newer ones.
    pub fn ends(&self) -> (Option<&Header>, Option<&Header>) {
        let hidden = || self.hidden.values().filter_map(|hidden| hidden.header.as_ref());
        let ([first, last], is_whole) = match &self.groups {
            Some(groups) if groups.is_whole() => (groups.ends(), true),
            Some(_) => return (None, None),
            None => ([self.ready_cache.oldest(), self.ready_cache.newest()], self.ready_cache.is_whole()),
        };
        let oldest = [first, hidden().next()].into_iter().flatten().min_by_key(|header| header.id);
        let newest = [last, hidden().next_back()].into_iter().flatten();
        (oldest, newest.max_by_key(|header| header.id).filter(|_| is_whole))
    }

    /// Lower bound of the ids of all ready messages.
    pub fn low(&self) -> MessageId {
        let (first, end) = match &self.groups {
            Some(groups) if groups.is_whole() => {
                (groups.ends()[0].map(|header| header.id), self.ready_cache.tail())
            }
            Some(_) => return MessageId::ZERO,
            None => (self.ready_cache.first(), self.ready_cache.cursor()),
        };
        [first, self.hidden.first()].into_iter().flatten().fold(end, MessageId::min)
    }
}

/// Sets the first claim time of a header, if this claim is the first.
fn note_claim(header: &mut Header, terms: ClaimTerms, expires: Timestamp) {
    let began = expires.minus_seconds(terms.ttl()).max(header.created);
    header.first_claimed.get_or_insert(began);
}
