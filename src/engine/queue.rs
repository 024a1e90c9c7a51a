//! One queue: ready messages, hidden ones, and the rules of moving between the two.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use bytes::Bytes;

use super::claims::{Claim, Claims};
use super::window::{Ready, Window};
use crate::domain::claim::ClaimTerms;
use crate::domain::ids::{ClaimId, MessageId};
use crate::domain::limits;
use crate::domain::message::{Header, Message};
use crate::domain::time::Timestamp;
use crate::error::Error;

/// Why a message is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Chosen for a claim that is not durable yet.
    Taking,
    /// Under a claim.
    Claimed(ClaimId),
    /// Its claim ended; what that changed is not durable yet.
    Returning(ClaimId),
    /// Being removed; the claim that holds it, if one does.
    Removing(Option<ClaimId>),
}

/// A hidden message. One that is removed by its id alone may not be known here at all.
#[derive(Clone, Debug)]
pub(super) struct Hidden {
    pub(super) header: Option<Header>,
    pub(super) why: Why,
    /// Removals under way: two clients may delete one message at the same time.
    pub(super) removals: u32,
}

impl Hidden {
    pub(super) fn new(header: Header, why: Why) -> Self {
        Self { header: Some(header), why, removals: 0 }
    }
}

/// The state of one queue.
#[derive(Debug)]
pub struct QueueEngine {
    pub(super) window: Window,
    pub(super) hidden: BTreeMap<MessageId, Hidden>,
    pub(super) claims: Claims,
    /// How many messages are under claims or about to be.
    pub(super) claimed: u64,
    refill: Option<RefillState>,
}

#[derive(Debug)]
struct RefillState {
    /// What was removed while the pool was read: its page may still show it.
    removed: HashSet<MessageId>,
    /// Whether the page can no longer be trusted at all.
    is_void: bool,
    /// What was posted meanwhile, so that a queue that is posted to all the time can become whole again. None
    /// when there was too much of it.
    posted: Option<Vec<Message>>,
}

/// What a claim may have.
#[derive(Debug, Default)]
pub struct Taken {
    /// Messages in order, now hidden. A body that is absent must be read from the pool.
    pub messages: Vec<(Header, Option<Bytes>)>,
    /// Messages whose life was over, now hidden: they must be removed.
    pub expired: Vec<MessageId>,
}

/// What has to be done to remove a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is hidden now: remove it from the pool, whether it is there or not.
    Begun,
    /// A claim was named for a message that is not in memory. If the pool has it, it is not claimed.
    AskPool,
}

/// Whether a claim that ends counts as an attempt to handle its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Its holder had them.
    Yes,
    /// Nobody was told of it.
    No,
}

/// A claim that is being ended.
#[derive(Debug)]
pub struct Ended {
    /// What to write to the pool before the claim's record may go.
    pub headers: Vec<Header>,
}

/// A page to read from the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// Read behind this id.
    pub after: MessageId,
    /// And no further than this one.
    pub until: MessageId,
}

impl QueueEngine {
    /// A queue as its new owner finds it: its ids are at most `tail`, and nothing is in memory.
    pub fn open(tail: MessageId) -> Self {
        Self {
            window: Window::before(tail),
            hidden: BTreeMap::new(),
            claims: Claims::default(),
            claimed: 0,
            refill: None,
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
            if let Some(Hidden { header: Some(other), why: Why::Claimed(holder), .. }) =
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
            terms.extend(&mut header, expires);
            claim.messages.insert(header.id);
            self.claimed += 1;
            self.hidden.insert(header.id, Hidden::new(header, Why::Claimed(id)));
        }
        if claim.messages.is_empty() {
            over.push(id);
        } else {
            self.claims.insert(id, claim);
        }
        over
    }

    /// The messages of a post are durable: they are ready, in order of id.
    pub fn posted(&mut self, messages: Vec<Message>) {
        if let Some(refill) = &mut self.refill {
            refill.keep(&messages);
        }
        for message in messages {
            match self.hidden.get_mut(&message.header.id) {
                None => self.window.append(message),
                // Somebody saw it in the pool and removes it already.
                Some(hidden) => {
                    self.window.pass(message.header.id);
                    hidden.header = Some(message.header);
                }
            }
        }
    }

    /// Hides the oldest ready messages for a claim, at most `limit`.
    pub fn take(&mut self, limit: usize, now: Timestamp) -> Taken {
        let mut taken = Taken::default();
        while taken.messages.len() < limit && taken.expired.len() < limits::REFILL_MESSAGES {
            let Some(Ready { header, body }) = self.window.pop_first() else { break };
            let id = header.id;
            if header.is_expired(now) {
                self.hide_expired(header);
                taken.expired.push(id);
            } else {
                self.hidden.insert(id, Hidden::new(header.clone(), Why::Taking));
                self.claimed += 1;
                taken.messages.push((header, body));
            }
        }
        taken
    }

    /// The claim on taken messages certainly does not exist: they are ready as before.
    pub fn put_back(&mut self, ids: &[MessageId]) {
        for id in ids {
            if self.hidden.get(id).is_none_or(|hidden| hidden.why != Why::Taking) {
                continue;
            }
            if let Some(header) = self.hidden.remove(id).and_then(|hidden| hidden.header) {
                self.claimed -= 1;
                self.show(header);
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
            if let Some(Hidden { header: Some(header), why, .. }) = self.hidden.get_mut(message) {
                *why = Why::Claimed(id);
                header.attempts += 1;
                terms.extend(header, expires);
                headers.push(header.clone());
            }
        }
        let messages = headers.iter().map(|header| header.id).collect();
        self.claims.insert(id, Claim::new(terms, expires, messages));
        headers
    }

    /// Begins to end a claim. None when there is no such claim, or somebody changes it already. Messages that are
    /// being removed stay with the removal.
    pub fn begin_end(&mut self, id: ClaimId, counts: Counts) -> Option<Ended> {
        let claim = self.claims.get_mut(id).filter(|claim| claim.is_settled())?;
        claim.ending = Some(counts);
        let mut headers = Vec::with_capacity(claim.messages.len());
        for message in &claim.messages {
            if let Some(Hidden { header: Some(header), why, .. }) = self.hidden.get_mut(message) {
                if *why == Why::Claimed(id) {
                    *why = Why::Returning(id);
                }
                if counts == Counts::No {
                    header.attempts = header.attempts.saturating_sub(1);
                }
                // Of those being removed too: their removal may fail, and then the claim's record is gone.
                headers.push(header.clone());
            }
        }
        Some(Ended { headers })
    }

    /// The end of a claim is durable: its messages are ready, but for those being removed.
    pub fn ended(&mut self, id: ClaimId) {
        let Some(claim) = self.claims.remove(id) else { return };
        for message in claim.messages {
            match self.hidden.get_mut(&message) {
                Some(Hidden { why: why @ Why::Removing(_), .. }) => *why = Why::Removing(None),
                // It is claimed still when it was being removed as the end began, and the removal failed.
                Some(Hidden { why: Why::Returning(_) | Why::Claimed(_), .. }) => {
                    let hidden = self.hidden.remove(&message);
                    if let Some(header) = hidden.and_then(|hidden| hidden.header) {
                        self.show(header);
                    }
                }
                Some(Hidden { why: Why::Taking, .. }) | None => continue,
            }
            self.claimed -= 1;
        }
    }

    /// The end of a claim certainly did not happen: it may be tried again.
    pub fn end_failed(&mut self, id: ClaimId) {
        let Some(claim) = self.claims.get_mut(id) else { return };
        let taken_back = u32::from(claim.ending.take() == Some(Counts::No));
        for message in &claim.messages {
            if let Some(Hidden { header: Some(header), why, .. }) = self.hidden.get_mut(message) {
                if *why == Why::Returning(id) {
                    *why = Why::Claimed(id);
                }
                header.attempts += taken_back;
            }
        }
    }

    /// Begins to remove a message for somebody who names `claim`, by Zaqar's table of answers.
    pub fn begin_remove(
        &mut self,
        id: MessageId,
        claim: Option<ClaimId>,
        now: Timestamp,
    ) -> Result<Removal, Error> {
        let holder = match self.hidden.get(&id).map(|hidden| hidden.why) {
            Some(Why::Claimed(holder)) => holder,
            // Its claim is not known to anybody yet, or not any more.
            Some(Why::Taking | Why::Returning(_)) => return Err(self.wrong_claim(id, claim, now)),
            Some(Why::Removing(_)) => {
                self.begin_remove_absent(id);
                return Ok(Removal::Begun);
            }
            None => return self.begin_remove_free(id, claim),
        };
        if claim != Some(holder) || self.claims.get(holder).is_none_or(|claim| !claim.is_live(now)) {
            return Err(self.wrong_claim(id, claim, now));
        }
        if let Some(hidden) = self.hidden.get_mut(&id) {
            hidden.why = Why::Removing(Some(holder));
            hidden.removals = 1;
        }
        Ok(Removal::Begun)
    }

    fn begin_remove_free(&mut self, id: MessageId, claim: Option<ClaimId>) -> Result<Removal, Error> {
        if claim.is_some() {
            let is_free = self.window.contains(id);
            return if is_free { Err(Error::NotClaimed(id)) } else { Ok(Removal::AskPool) };
        }
        self.begin_remove_absent(id);
        Ok(Removal::Begun)
    }

    /// Begins to remove a message that is under no claim, or that the pool does not have: the removal is what
    /// proves that this engine still owns the queue.
    pub fn begin_remove_absent(&mut self, id: MessageId) {
        let header = self.window.remove(id).map(|ready| ready.header);
        let absent = Hidden { header, why: Why::Removing(None), removals: 0 };
        self.hidden.entry(id).or_insert(absent).removals += 1;
    }

    fn wrong_claim(&self, id: MessageId, claim: Option<ClaimId>, now: Timestamp) -> Error {
        match claim {
            None => Error::Claimed(id),
            Some(claim) if self.claims.get(claim).is_some_and(|claim| claim.is_live(now)) => {
                Error::Claimed(id)
            }
            Some(claim) => Error::ClaimEnded(claim.to_string()),
        }
    }

    /// Removals are durable. Returns the claims that have no message left.
    pub fn removed(&mut self, ids: &[MessageId]) -> Vec<ClaimId> {
        let mut over = Vec::new();
        for id in ids {
            if let Some(refill) = &mut self.refill {
                refill.removed.insert(*id);
            }
            let Some(hidden) = self.hidden.remove(id) else { continue };
            if let Why::Removing(Some(claim)) = hidden.why {
                self.claimed -= 1;
                if self.claims.forget(claim, *id) {
                    over.push(claim);
                }
            }
        }
        over
    }

    /// Removals certainly did not happen: what was known here is as before.
    pub fn remove_failed(&mut self, ids: &[MessageId]) {
        for id in ids {
            let Some(hidden) = self.hidden.get_mut(id) else { continue };
            hidden.removals = hidden.removals.saturating_sub(1);
            match hidden.why {
                Why::Removing(_) if hidden.removals > 0 => {}
                Why::Removing(Some(claim)) => hidden.why = Why::Claimed(claim),
                Why::Removing(None) => {
                    let header = self.hidden.remove(id).and_then(|hidden| hidden.header);
                    self.show_or_reread(*id, header);
                }
                Why::Taking | Why::Claimed(_) | Why::Returning(_) => {}
            }
        }
    }

    fn show_or_reread(&mut self, id: MessageId, header: Option<Header>) {
        if let Some(header) = header {
            return self.show(header);
        }
        // A page may have been read around it while it was hidden.
        if let Some(refill) = &mut self.refill {
            refill.is_void = true;
        }
        self.window.end_before(id);
    }

    /// A hidden message is ready again.
    fn show(&mut self, header: Header) {
        if let Some(refill) = &mut self.refill
            && header.id > self.window.cursor()
        {
            // The page under way may show an older header, or may have passed by while it was hidden.
            refill.is_void = true;
        }
        self.window.put_back(Ready { header, body: None });
    }

    /// The page to read when the window runs low and the pool has more; none while one is read already.
    pub fn begin_refill(&mut self) -> Option<Refill> {
        if self.refill.is_some() || self.window.is_whole() || !self.window.is_low() {
            return None;
        }
        let state = RefillState { removed: HashSet::new(), is_void: false, posted: Some(Vec::new()) };
        self.refill = Some(state);
        // Beyond the tail the pool may have posts whose outcome is not known here yet.
        Some(Refill { after: self.window.cursor(), until: self.window.tail() })
    }

    /// The page has been read: entries behind `refill.after`, in order, `is_last` when there are no more.
    pub fn finish_refill(&mut self, refill: Refill, page: Vec<Message>, is_last: bool) {
        let Some(state) = self.refill.take() else { return };
        // What came back meanwhile may have pulled the cursor down: then the page does not begin behind it.
        if state.is_void || self.window.cursor() != refill.after {
            return;
        }
        let reaches = match page.last() {
            Some(last) if !is_last => last.header.id,
            _ => refill.until,
        };
        let posted = state.posted.filter(|_| reaches >= refill.until);
        let end = if posted.is_some() { self.window.tail() } else { reaches.min(refill.until) };
        let known = page.into_iter().filter(|message| message.header.id <= refill.until);
        let hidden = &self.hidden;
        let is_ready =
            |m: &Message| !hidden.contains_key(&m.header.id) && !state.removed.contains(&m.header.id);
        self.window.extend(known.chain(posted.into_iter().flatten()).filter(is_ready), end);
    }

    /// The page could not be read.
    pub fn refill_failed(&mut self) {
        self.refill = None;
    }

    /// Whether ready messages may lie beyond the window.
    pub fn has_more(&self) -> bool {
        !self.window.is_whole()
    }

    /// The live claim that holds a message, and the message's header under it.
    pub fn hold(&self, id: MessageId) -> Option<(ClaimId, Header)> {
        let hidden = self.hidden.get(&id)?;
        match (hidden.why, &hidden.header) {
            (Why::Claimed(claim) | Why::Removing(Some(claim)), Some(header)) => Some((claim, header.clone())),
            _ => None,
        }
    }

    /// How many messages are claimed.
    pub fn claimed(&self) -> u64 {
        self.claimed
    }

    /// Whether there is such a claim, ending or not.
    pub fn has_claim(&self, id: ClaimId) -> bool {
        self.claims.get(id).is_some()
    }

    /// Whether a claim is over by `now` and waits to be ended.
    pub fn is_due(&self, id: ClaimId, now: Timestamp) -> bool {
        self.claims.get(id).is_some_and(|claim| claim.is_settled() && claim.expires <= now)
    }

    /// The oldest and the newest message, as far as memory can tell: none of the first where only the pool has
    /// messages, none of the second where the pool has newer ones.
    pub fn ends(&self) -> (Option<&Header>, Option<&Header>) {
        let hidden = || self.hidden.values().filter_map(|hidden| hidden.header.as_ref());
        let oldest =
            [self.window.oldest(), hidden().next()].into_iter().flatten().min_by_key(|header| header.id);
        let newest = [self.window.newest(), hidden().next_back()].into_iter().flatten();
        let newest = newest.max_by_key(|header| header.id).filter(|_| self.window.is_whole());
        (oldest, newest)
    }

    /// No message below this id is in the queue.
    pub fn low(&self) -> MessageId {
        let candidates = [self.window.first(), self.hidden.keys().next().copied()];
        candidates.into_iter().flatten().fold(self.window.cursor(), MessageId::min)
    }
}

impl RefillState {
    /// Remembers what is posted, up to a window's worth.
    fn keep(&mut self, messages: &[Message]) {
        let Some(posted) = &mut self.posted else { return };
        if posted.len() + messages.len() > limits::WINDOW_MESSAGES {
            self.posted = None;
        } else {
            posted.extend_from_slice(messages);
        }
    }
}
