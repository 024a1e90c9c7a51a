//! Fairness between the groups of a queue that is not ordered: a group that keeps the consumers busy is served after
//! the others. Source: the fair queues of SQS.
//!
//! ```text
//! quiet ──more than a tenth of the messages under claims, and 30 at least, or
//!   ▲     more than a tenth of the recent time under claims──────▶ noisy
//!   │                                                              │
//!   └──no message of it waits, or none was sent for five minutes───┘
//! ```
//!
//! Messages of quiet groups, and messages without a group, are served first, in their order. Only when none of them
//! waits, messages of noisy groups are served: first those of the group with the fewest messages under claims. No
//! message is held back, and the order costs nothing while all groups are quiet.

use std::collections::{BTreeMap, BTreeSet};

use super::queue::QueueEngine;
use super::ready_cache::ReadyMessage;
use crate::limits;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::message::Header;
use angarium_core::time::Timestamp;

/// The order of the messages in the ready cache. Empty while all groups are quiet.
#[derive(Debug, Default)]
pub(super) struct FairOrder {
    /// Messages of quiet groups, and messages without a group.
    quiet: BTreeSet<MessageId>,
    noisy: BTreeMap<GroupName, NoisyGroup>,
}

#[derive(Debug)]
struct NoisyGroup {
    /// Its messages in the ready cache.
    waiting: BTreeSet<MessageId>,
    /// When a message of it was last sent, or when it became noisy.
    sent: Timestamp,
}

impl NoisyGroup {
    /// Whether it is not noisy any more; `is_whole` as for [`FairOrder::settle`].
    fn is_quiet(&self, is_whole: bool, now: Timestamp) -> bool {
        (is_whole && self.waiting.is_empty()) || now >= self.sent.plus_seconds(limits::NOISY_SECONDS)
    }
}

impl FairOrder {
    /// Whether some group is noisy.
    pub(super) fn has_noisy(&self) -> bool {
        !self.noisy.is_empty()
    }

    /// The groups that a claim at this time would find noisy, in order of name; `is_whole` as for
    /// [`FairOrder::settle`].
    pub(super) fn noisy_groups(&self, is_whole: bool, now: Timestamp) -> impl Iterator<Item = &GroupName> {
        let noisy = self.noisy.iter().filter(move |(_, noisy)| !noisy.is_quiet(is_whole, now));
        noisy.map(|(group, _)| group)
    }

    /// Whether this group is noisy.
    pub(super) fn is_noisy(&self, group: Option<&GroupName>) -> bool {
        group.is_some_and(|group| self.noisy.contains_key(group))
    }

    /// Adds a message of the ready cache.
    pub(super) fn add(&mut self, header: &Header) {
        if self.has_noisy() {
            let noisy = header.group.as_ref().and_then(|group| self.noisy.get_mut(group));
            noisy.map_or(&mut self.quiet, |noisy| &mut noisy.waiting).insert(header.id);
        }
    }

    /// Removes a message that left the ready cache.
    pub(super) fn remove(&mut self, header: &Header) {
        if self.has_noisy() {
            let noisy = header.group.as_ref().and_then(|group| self.noisy.get_mut(group));
            noisy.map_or(&mut self.quiet, |noisy| &mut noisy.waiting).remove(&header.id);
        }
    }

    /// Makes a group noisy; `ready_cache` are the messages of the ready cache.
    pub(super) fn make_noisy<'a>(
        &mut self,
        group: &GroupName,
        now: Timestamp,
        ready_cache: impl Iterator<Item = &'a Header>,
    ) {
        let is_first = !self.has_noisy();
        self.noisy.insert(group.clone(), NoisyGroup { waiting: BTreeSet::new(), sent: now });
        for header in ready_cache.filter(|header| is_first || header.group.as_ref() == Some(group)) {
            self.quiet.remove(&header.id);
            self.add(header);
        }
    }

    /// Records that a message of the group was sent.
    pub(super) fn note_sent(&mut self, group: Option<&GroupName>, now: Timestamp) {
        if let Some(noisy) = group.and_then(|group| self.noisy.get_mut(group)) {
            noisy.sent = now.max(noisy.sent);
        }
    }

    /// Makes groups quiet that are not noisy any more; `is_whole` states that no ready message is outside of the ready
    /// cache. Returns whether a group became quiet.
    pub(super) fn settle(&mut self, is_whole: bool, now: Timestamp) -> bool {
        let before = self.noisy.len();
        let quiet = &mut self.quiet;
        self.noisy.retain(|_, noisy| {
            let stays = !noisy.is_quiet(is_whole, now);
            if !stays {
                quiet.append(&mut noisy.waiting);
            }
            stays
        });
        if !self.has_noisy() {
            self.quiet.clear();
        }
        self.noisy.len() < before
    }

    fn has_room(&self) -> bool {
        self.noisy.len() < limits::NOISY_GROUPS
    }

    /// The first message of quiet groups, or without a group.
    pub(super) fn first_quiet(&self) -> Option<MessageId> {
        self.quiet.first().copied()
    }

    /// The first message of the noisy group with the fewest messages under claims; of several such groups the oldest
    /// message.
    fn first_noisy(&self, claimed: impl Fn(&GroupName) -> usize) -> Option<MessageId> {
        let waiting = self.noisy.iter().filter_map(|(group, noisy)| Some((group, *noisy.waiting.first()?)));
        waiting.min_by_key(|(group, first)| (claimed(group), *first)).map(|(_, first)| first)
    }
}

impl QueueEngine {
    /// Takes the next ready message in the fair order.
    pub(super) fn take_next(&mut self, now: Timestamp) -> Option<ReadyMessage> {
        if self.ready_cache.fair_order().has_noisy() && self.ready_cache.settle_order(now) {
            self.hidden.ahead.clear();
        }
        loop {
            let is_fair = self.ready_cache.fair_order().has_noisy();
            let next = if is_fair { self.ready_cache.first_quiet() } else { self.ready_cache.oldest() };
            let Some(next) = next.or_else(|| self.hidden.ahead.first()) else { break };
            let id = next.id;
            match next.group.clone().filter(|group| self.is_too_much(group)) {
                Some(group) => {
                    self.ready_cache.make_noisy(&group, now);
                    self.hidden.ahead.forget_group(&group);
                }
                None if !is_fair => return self.ready_cache.pop_first(),
                None => return self.ready_cache.remove(id).or_else(|| self.hidden.ahead.take(id)),
            }
        }
        let first = self.ready_cache.fair_order().first_noisy(|group| self.hidden.of_group(group))?;
        self.ready_cache.remove(first)
    }

    /// Whether a group has more than its fair share under claims.
    fn is_too_much(&self, group: &GroupName) -> bool {
        let (own, all) = (self.hidden.of_group(group), self.hidden.len());
        let has_many = own >= limits::NOISY_MESSAGES && own * limits::NOISY_SHARE > all;
        (has_many || self.hidden.busy.exceeds_share(group)) && self.ready_cache.fair_order().has_room()
    }
}
