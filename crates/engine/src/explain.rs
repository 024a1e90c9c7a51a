//! Facts about a queue and about single messages, for an explanation of what a claim would get. They are read from memory
//! alone and change nothing: no turn of a group, no noisy group, no page that is read.

use super::hidden::HiddenReason;
use super::queue::{ClaimedCounts, QueueEngine};
use crate::limits;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::message::Header;
use angarium_core::outcome::Holder;
use angarium_core::time::Timestamp;

/// What a claim would find, as far as memory knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Availability {
    /// A message.
    Message,
    /// No message.
    Nothing,
    /// Only the pool knows.
    #[default]
    Unknown,
}

/// Facts about a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueFacts {
    /// What a claim would find.
    pub available: Availability,
    /// Messages under claims.
    pub claimed: ClaimedCounts,
    /// Number of claims that are not ending.
    pub claims: usize,
    /// Names of their holders, in order; at most [`limits::EXPLAINED_NAMES`].
    pub holders: Vec<Holder>,
    /// Whether some of these holders have no name.
    pub has_unnamed: bool,
    /// When the next of them expires. None when there are none, or more than [`limits::EXPLAINED_CLAIMS`].
    pub next_expiry: Option<Timestamp>,
    /// Groups of an ordered queue with a message for which any later ones of the group wait.
    pub groups_blocked: usize,
    /// Number of noisy groups.
    pub noisy: usize,
    /// Their names, in order; at most [`limits::EXPLAINED_NAMES`].
    pub noisy_groups: Vec<GroupName>,
    /// Ready messages that have expired and are not removed yet. None where only the pool knows.
    pub expired: Option<u64>,
    /// Ready messages that were claimed as often as the queue allows: the next claim makes them dead letters. None where
    /// only the pool knows.
    pub used_up: Option<u64>,
    /// Whether a migration copies the messages that a claim would get next.
    pub waits_for_copies: bool,
}

/// The message that a message of an ordered queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBlocker {
    /// It is claimed.
    Claimed(MessageId),
    /// It is delayed.
    Delayed(MessageId),
    /// It is in transfer to another queue.
    InTransfer(MessageId),
    /// A change of it is in progress.
    Changing(MessageId),
}

impl GroupBlocker {
    /// The id of the message.
    pub fn id(self) -> MessageId {
        match self {
            Self::Claimed(id) | Self::Delayed(id) | Self::InTransfer(id) | Self::Changing(id) => id,
        }
    }
}

/// Facts about a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageFacts {
    /// Whether a change of it is in progress that is not durable yet.
    pub is_changing: bool,
    /// The name of the holder of its claim.
    pub holder: Option<Holder>,
    /// When its claim was made, or given its last terms.
    pub claimed_since: Option<Timestamp>,
    /// When its claim expires.
    pub claim_expires: Option<Timestamp>,
    /// The message of its group that it waits for, in an ordered queue.
    pub blocker: Option<GroupBlocker>,
    /// Whether memory knows the first messages of its group, or the queue is not ordered. If not, there may be another
    /// blocker.
    pub is_order_known: bool,
    /// Whether messages of other groups are served before those of its group.
    pub is_noisy: bool,
    /// Whether its group is held.
    pub is_group_held: bool,
    /// Claims after which a message is a dead letter.
    pub max_claims: Option<u32>,
}

impl QueueEngine {
    /// Facts about the queue at `now`. Costs a look at the ready messages in memory or at the open groups, and at
    /// [`limits::EXPLAINED_CLAIMS`] claims at most.
    pub fn facts(&self, now: Timestamp) -> QueueFacts {
        let mut facts = QueueFacts {
            claimed: self.claimed_counts(),
            waits_for_copies: self.waits_for_copies(),
            ..QueueFacts::default()
        };
        self.add_claims(&mut facts);
        self.add_outlook(&mut facts, now);
        let is_whole = self.ready_cache.is_whole();
        for group in self.ready_cache.fair_order().noisy_groups(is_whole, now) {
            facts.noisy += 1;
            if facts.noisy_groups.len() < limits::EXPLAINED_NAMES {
                facts.noisy_groups.push(group.clone());
            }
        }
        facts
    }

    fn add_claims(&self, facts: &mut QueueFacts) {
        let mut ending = 0;
        let mut next: Option<Timestamp> = None;
        for claim in self.claims.values().take(limits::EXPLAINED_CLAIMS) {
            if claim.ending.is_some() {
                ending += 1;
                continue;
            }
            next = Some(next.map_or(claim.expires, |next| next.min(claim.expires)));
            facts.has_unnamed |= claim.by.is_none();
            if let Some(holder) = &claim.by
                && facts.holders.len() < limits::EXPLAINED_NAMES
                && !facts.holders.contains(holder)
            {
                facts.holders.push(holder.clone());
            }
        }
        facts.holders.sort_by_cached_key(ToString::to_string);
        facts.claims = self.claims.len() - ending;
        facts.next_expiry = next.filter(|_| self.claims.len() <= limits::EXPLAINED_CLAIMS);
    }

    fn add_outlook(&self, facts: &mut QueueFacts, now: Timestamp) {
        let is_expired = |header: &Header| header.is_expired(now, self.settings.retention);
        let is_used_up =
            |header: &Header| self.settings.max_claims.is_some_and(|most| header.attempts >= most);
        let is_barred = |header: &Header| self.held.of(header.group.as_ref()).is_some();
        let is_fit = |header: &Header| !is_expired(header) && !is_used_up(header) && !is_barred(header);
        if let (Some(groups), Some(blocking)) = (&self.groups, self.hidden.blockers()) {
            // Held groups are explained by their holds.
            facts.groups_blocked = groups.blocked(blocking) - self.held.len();
            facts.available = groups.first_fit(blocking, is_fit);
            return;
        }
        let (mut expired, mut used_up, mut fit) = (0, 0, false);
        for header in self.ready_cache.headers() {
            if is_expired(header) {
                expired += 1;
            } else if is_barred(header) {
                // It waits for the release.
            } else if is_used_up(header) {
                used_up += 1;
            } else {
                fit = true;
            }
        }
        let is_whole = self.ready_cache.is_whole();
        facts.expired = is_whole.then_some(expired);
        facts.used_up = is_whole.then_some(used_up);
        facts.available = match (fit, is_whole) {
            (true, _) => Availability::Message,
            (false, true) => Availability::Nothing,
            (false, false) => Availability::Unknown,
        };
    }

    /// Facts about a message of the queue, of this group if it has one.
    pub fn message_facts(&self, id: MessageId, group: Option<&GroupName>, now: Timestamp) -> MessageFacts {
        let why = self.hidden.get(&id).map(|hidden| hidden.why);
        let claim = why.and_then(HiddenReason::claim).and_then(|claim| self.claims.get(claim));
        let is_whole = self.ready_cache.is_whole();
        let is_noisy =
            |group| self.ready_cache.fair_order().noisy_groups(is_whole, now).any(|noisy| noisy == group);
        MessageFacts {
            is_changing: why.is_some_and(|why| !matches!(why, HiddenReason::Claimed(_))),
            holder: claim.and_then(|claim| claim.by.clone()),
            claimed_since: claim.map(super::claims::Claim::since),
            claim_expires: claim.map(|claim| claim.expires),
            blocker: group.and_then(|group| self.blocker(id, group)),
            is_order_known: group.zip(self.groups.as_ref()).is_none_or(|(group, groups)| groups.knows(group)),
            is_noisy: group.is_some_and(is_noisy),
            is_group_held: self.held.of(group).is_some(),
            max_claims: self.settings.max_claims,
        }
    }

    /// The message that blocks a message of its group.
    fn blocker(&self, id: MessageId, group: &GroupName) -> Option<GroupBlocker> {
        let (groups, blocking) = (self.groups.as_ref()?, self.hidden.blockers()?);
        let first = [groups.blocked_at(group, blocking), blocking.first(group)].into_iter().flatten().min();
        // A held group is blocked before its first message.
        let first = first.filter(|first| *first < id && *first > MessageId::ZERO)?;
        Some(match self.hidden.get(&first).map(|hidden| hidden.why) {
            Some(HiddenReason::Claimed(_)) => GroupBlocker::Claimed(first),
            Some(_) => GroupBlocker::Changing(first),
            None if blocking.is_in_transfer(first) => GroupBlocker::InTransfer(first),
            None => GroupBlocker::Delayed(first),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoredTotals;
    use angarium_core::message::{Life, Message, State};

    /// A message that lives for `ttl` seconds and was claimed `attempts` times.
    fn message(number: u8, ttl: u32, attempts: u32) -> Message {
        let created = Timestamp::from_millis(0);
        let header = Header {
            id: MessageId::from_bytes([number; 16]),
            created,
            ready: created,
            life: Life::lasting(ttl, created),
            attempts,
            client: None,
            size: 1,
            state: State::Ready,
            group: None,
            first_claimed: None,
            extras: None,
        };
        Message { header, body: "1".into() }
    }

    fn engine(max_claims: Option<u32>, messages: Vec<Message>) -> QueueEngine {
        let tail = MessageId::ZERO;
        let found = StoredTotals { tail, has_ready: false, is_scheduled: false, has_aside: false };
        let mut engine = QueueEngine::open(found);
        engine.settings.max_claims = max_claims;
        engine.posted(messages);
        engine
    }

    #[test]
    fn expired_and_used_up_messages_are_not_available() {
        let engine = engine(Some(2), vec![message(1, 60, 0), message(2, 600, 2), message(3, 90, 1)]);
        let facts = |seconds: u64| engine.facts(Timestamp::from_millis(seconds * 1_000));
        let counts = |facts: QueueFacts| (facts.available, facts.expired, facts.used_up);
        assert_eq!(counts(facts(0)), (Availability::Message, Some(0), Some(1)));
        assert_eq!(counts(facts(60)), (Availability::Message, Some(1), Some(1)));
        assert_eq!(counts(facts(90)), (Availability::Nothing, Some(2), Some(1)));
        assert_eq!(counts(facts(600)), (Availability::Nothing, Some(3), Some(0)));
    }

    #[test]
    fn unread_queue_is_unknown() {
        let tail = MessageId::from_bytes([9; 16]);
        let found = StoredTotals { tail, has_ready: true, is_scheduled: false, has_aside: false };
        let facts = QueueEngine::open(found).facts(Timestamp::from_millis(0));
        assert_eq!((facts.available, facts.expired, facts.used_up), (Availability::Unknown, None, None));
    }
}
