//! One queue: what is in memory of it, how it is opened, and the way of its messages into a claim.

use std::collections::{BTreeSet, HashSet};

use bytes::Bytes;

use super::bulk::Purges;
use super::claims::{Claim, Claims};
use super::dedup::Dedup;
use super::groups::Groups;
use super::hidden::{HiddenMessage, HiddenMessages, HiddenReason};
use super::ready_cache::{ReadyCache, ReadyMessage};
use super::refill::RefillState;
use super::removal::RemovalTally;
use super::schedule::Schedule;
use super::transfers::TransferEntries;
use angarium_core::claim::ClaimTerms;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits;
use angarium_core::message::{Header, Message, Retention, State};
use angarium_core::time::Timestamp;

/// The state of one queue.
#[derive(Debug)]
pub struct QueueEngine {
    /// Ready messages, but of a queue in order of groups.
    pub(super) ready_cache: ReadyCache,
    /// Those of a queue in order of groups; absent in others.
    pub(super) groups: Option<Groups>,
    /// How long those messages are kept that live by it.
    pub(super) retention: Retention,
    pub(super) hidden: HiddenMessages,
    pub(super) claims: Claims,
    /// How many messages are under claims or about to be.
    pub(super) claimed: u64,
    pub(super) refill: Option<RefillState>,
    pub(super) schedule: Schedule,
    /// While a sweep reads the pool: what became ready since it began.
    pub(super) sweep: Option<HashSet<MessageId>>,
    pub(super) in_transfer: TransferEntries,
    pub(super) dedup: Dedup,
    /// The messages that are going over to another pool, or were when that began, in order.
    pub(super) copying: Vec<MessageId>,
    /// Removals that no caller has asked for yet.
    pub(super) tally: RemovalTally,
    pub(super) purges: Purges,
}

/// What the totals of a queue's pool say of it when it is opened.
#[derive(Clone, Copy, Debug)]
pub struct StoredTotals {
    /// No message has a greater id.
    pub tail: MessageId,
    /// Whether messages are ready, claimed ones too.
    pub has_ready: bool,
    /// Whether messages are scheduled.
    pub is_scheduled: bool,
    /// Whether messages are prepared, moving or failed.
    pub has_aside: bool,
}

/// What a claim may have.
#[derive(Debug, Default)]
pub struct ClaimSelection {
    /// Messages in order, now hidden. A body that is absent must be read from the pool.
    pub messages: Vec<(Header, Option<Bytes>)>,
    /// Messages whose life had ended, now hidden: they must be removed.
    pub expired: Vec<MessageId>,
    /// Messages that were claimed as often as they may be, now hidden: they must be marked in transfer.
    pub dead: Vec<Header>,
}

impl ClaimSelection {
    /// Whether the ready cache had nothing at all.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.expired.is_empty() && self.dead.is_empty()
    }
}

/// How much may be hidden at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakeBounds {
    /// At most this many messages for a claim.
    limit: usize,
    /// Those that were claimed so often are dead.
    most: Option<u32>,
    /// At most this many that no claim may have.
    dead: usize,
}

impl TakeBounds {
    pub(super) fn can_continue(&self, taken: &ClaimSelection) -> bool {
        taken.messages.len() < self.limit && taken.expired.len() + taken.dead.len() < self.dead
    }

    /// How many more may be taken.
    pub(super) fn left(&self, taken: &ClaimSelection) -> usize {
        self.limit - taken.messages.len()
    }

    pub(super) fn is_dead(&self, header: &Header) -> bool {
        self.most.is_some_and(|most| header.attempts >= most)
    }
}

impl QueueEngine {
    /// A queue as its new owner finds it: nothing is in memory.
    pub fn open(found: StoredTotals) -> Self {
        // The ready cache of a queue without ready messages is whole: what is posted to it leaves there.
        let tail = if found.has_ready { found.tail } else { MessageId::ZERO };
        Self {
            ready_cache: ReadyCache::before(tail),
            groups: None,
            retention: Retention::LONGEST,
            hidden: HiddenMessages::default(),
            claims: Claims::default(),
            claimed: 0,
            refill: None,
            schedule: Schedule::found(found.is_scheduled),
            sweep: None,
            in_transfer: TransferEntries::found(found.has_aside),
            dedup: Dedup::default(),
            copying: Vec::new(),
            tally: RemovalTally::default(),
            purges: Purges::default(),
        }
    }

    /// A claim from before the take-over with those of its messages that exist, each header as stored and
    /// the attempt this claim is. If two claims name a message, the one with the higher attempt has it. Returns
    /// the claims that have no message left.
    pub fn restore_claim(
        &mut self,
        id: ClaimId,
        terms: ClaimTerms,
        expires: Timestamp,
        messages: Vec<(Header, u32)>,
    ) -> Vec<ClaimId> {
        let mut over = Vec::new();
        let mut claim = Claim::new(terms, expires, BTreeSet::new());
        for (mut header, attempt) in messages {
            if let Some(HiddenMessage { header: Some(other), why: HiddenReason::Claimed(holder), .. }) =
                self.hidden.get(&header.id)
            {
                if other.attempts >= attempt {
                    continue;
                }
                let holder = *holder;
                if self.claims.forget(holder, header.id) {
                    over.push(holder);
                }
                self.claimed -= 1;
            }
            header.attempts = header.attempts.max(attempt);
            note_claim(&mut header, terms, expires);
            terms.extend(&mut header, expires);
            claim.messages.insert(header.id);
            self.claimed += 1;
            let (message, mut hidden) = (header.id, HiddenMessage::new(header, HiddenReason::Claimed(id)));
            // An end that was cut short may have put it off already: so the pool stores it until the claim ends.
            if let Some(header) = &mut hidden.header {
                header.state = State::Ready;
            }
            self.hidden.insert(message, hidden);
        }
        if claim.messages.is_empty() {
            over.push(id);
        } else {
            self.claims.insert(id, claim);
        }
        over
    }

    /// The messages of a post are durable: they are ready in order of id, or scheduled.
    pub fn posted(&mut self, messages: Vec<Message>) {
        if let Some(refill) = &mut self.refill {
            refill.keep(&messages);
        }
        for message in messages {
            let id = message.header.id;
            if self.hidden.contains_key(&id) {
                // A caller saw it in the pool and removes it already.
                self.ready_cache.pass(id);
                self.hidden.learn(message.header);
            } else {
                self.append(message);
            }
        }
    }

    /// Hides the oldest ready messages for a claim, at most `limit`. Those that were claimed `most` times before are
    /// dead: no claim has them any more.
    pub fn take(&mut self, limit: usize, most: Option<u32>, now: Timestamp) -> ClaimSelection {
        self.take_some(TakeBounds { limit, most, dead: limits::REFILL_MESSAGES }, now)
    }

    /// Hides the oldest ready messages so that they leave the queue, however often they were claimed: at most `limit`, all
    /// among the dead.
    pub fn take_to_leave(&mut self, limit: usize, now: Timestamp) -> ClaimSelection {
        self.take_some(TakeBounds { limit, most: Some(0), dead: limit.min(limits::REFILL_MESSAGES) }, now)
    }

    fn take_some(&mut self, taking: TakeBounds, now: Timestamp) -> ClaimSelection {
        if self.is_ordered() {
            return self.take_of_groups(taking, now);
        }
        self.hidden.look_at_time(now);
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
            if header.is_expired(now, self.retention) {
                self.hide_expired(header);
                taken.expired.push(id);
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

    /// The claim on taken messages certainly does not exist, or dead ones are not marked in transfer: they are ready as
    /// before.
    pub fn put_back(&mut self, ids: &[MessageId]) {
        for id in ids {
            let why = self.hidden.get(id).map(|hidden| hidden.why);
            if !matches!(why, Some(HiddenReason::Taking | HiddenReason::Leaving)) {
                continue;
            }
            self.claimed -= u64::from(why == Some(HiddenReason::Taking));
            if let Some(header) = self.hidden.remove(id).and_then(|hidden| hidden.header) {
                self.show(header, None);
            }
        }
    }

    /// The claim on taken messages is durable. Returns their headers as they now are.
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

    /// A message that was hidden is what its header states: ready, scheduled, or aside.
    pub(super) fn show(&mut self, header: Header, body: Option<Bytes>) {
        self.schedule.note_change(header.id);
        self.purges.note_shown(header.id);
        match header.state {
            State::Ready => {
                if let Some(sweep) = &mut self.sweep {
                    sweep.insert(header.id);
                }
                let ready = ReadyMessage { header, body };
                if self.is_ordered() {
                    return self.show_in_group(ready);
                }
                if let Some(refill) = &mut self.refill
                    && ready.header.id > self.ready_cache.cursor()
                {
                    refill.change(ready.clone());
                }
                self.show_ahead(&ready.header);
                let cursor = self.ready_cache.cursor();
                self.ready_cache.put_back(ready);
                if self.ready_cache.cursor() < cursor {
                    // What left the ready cache is not looked at beyond it.
                    self.hidden.ahead.clear();
                }
            }
            State::Scheduled => {
                // A page under way may show it as it was.
                if let Some(refill) = &mut self.refill {
                    refill.remove(header.id);
                }
                self.schedule.expect(header.ready);
                self.put_off_in_group(header);
            }
            State::Prepared(_) | State::Moving(_) | State::Failed => {}
        }
    }

    /// The live claim that holds a message, and the message's header under it.
    pub fn hold(&self, id: MessageId) -> Option<(ClaimId, Header)> {
        let hidden = self.hidden.get(&id)?;
        match (hidden.why, &hidden.header) {
            (HiddenReason::Claimed(claim) | HiddenReason::Removing(Some(claim)), Some(header)) => {
                Some((claim, header.clone()))
            }
            _ => None,
        }
    }

    /// How many messages are under claims or about to be.
    pub fn claimed(&self) -> u64 {
        self.claimed
    }

    /// The oldest and the newest message, as far as memory can tell: none of the first where only the pool has
    /// messages, none of the second where the pool has newer ones.
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

    /// No ready message below this id is in the queue.
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

/// Notes in a header that a claim with these terms has its message, which may be the first one.
fn note_claim(header: &mut Header, terms: ClaimTerms, expires: Timestamp) {
    let began = expires.minus_seconds(terms.ttl()).max(header.created);
    header.first_claimed.get_or_insert(began);
}
