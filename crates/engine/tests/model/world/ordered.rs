//! The ordered queue: the messages that may be taken of each group, and the pages that are read of groups.

use angarium_core::limits;

use super::*;
use crate::truth::{KnownMessage, PoolRead};

/// A page that was read of groups.
pub enum GroupPage {
    Group(Page),
    /// First messages of groups, and whether there are no more.
    Heads(Heads, bool),
}

/// Number of groups.
pub(super) const GROUPS: u64 = 5;
/// Number of messages of a queue without an order that have groups: so few that no group is noisy.
const GROUPED: u64 = 3 * GROUPS;

impl World {
    /// An ordered queue with these bounds of memory.
    pub fn ordered(bounds: GroupBounds) -> Self {
        let mut world = Self { bounds: Some(bounds), ..Self::new() };
        world.engine = world.opened(StoredTotals {
            tail: MessageId::ZERO,
            has_ready: false,
            is_scheduled: false,
            has_aside: false,
        });
        world
    }

    pub(super) fn opened(&self, found: StoredTotals) -> QueueEngine {
        let mut engine = match self.bounds {
            Some(bounds) => QueueEngine::open_ordered(found, bounds),
            None => QueueEngine::open(found),
        };
        engine.follow(self.settings());
        engine
    }

    pub(super) fn settings(&self) -> EngineSettings {
        EngineSettings { retention: self.retention, max_claims: Some(MAX_CLAIMS) }
    }

    /// The group of the message of this rank.
    pub(super) fn group_of(&self, rank: u64) -> Option<GroupName> {
        match self.bounds {
            Some(_) => Some(group(rank.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(20) % GROUPS)),
            None => (rank <= GROUPED).then(|| group(rank % GROUPS)),
        }
    }

    /// The messages of each group that can block it, in order. Of a held group there are none before its hold.
    fn lists(&self) -> BTreeMap<GroupName, Vec<&KnownMessage>> {
        let mut lists: BTreeMap<GroupName, Vec<&KnownMessage>> = BTreeMap::new();
        for known in self.truth.messages.values().filter(|known| can_block(known)) {
            if let Some(group) = known.header.group.clone() {
                let is_held = self.hold_of(Some(&group)).is_some();
                let list = lists.entry(group).or_default();
                list.extend((!is_held).then_some(known));
            }
        }
        lists
    }

    /// The messages of each group that may be taken: those before the first one that is not free. A message that is
    /// being removed need not block: it may not be in memory.
    fn free(&self) -> BTreeMap<GroupName, Vec<Header>> {
        let is_free = |known: &&&KnownMessage| known.state == MessageState::Ready && known.removals == 0;
        let free =
            |list: Vec<&KnownMessage>| list.iter().take_while(is_free).map(|k| k.header.clone()).collect();
        self.lists().into_iter().map(|(group, list)| (group, free(list))).collect()
    }

    fn free_past_removals(&self) -> BTreeMap<GroupName, Vec<Header>> {
        let free = |list: Vec<&KnownMessage>| {
            let left = list.into_iter().filter(|known| known.removals == 0);
            left.take_while(|known| known.state == MessageState::Ready).map(|k| k.header.clone()).collect()
        };
        self.lists().into_iter().map(|(group, list)| (group, free(list))).collect()
    }

    pub(super) fn is_any_free(&self) -> bool {
        self.free().values().any(|free| !free.is_empty())
    }

    /// Takes messages, and checks that those of each group are its first free ones, and as many as allowed.
    pub(super) fn take_of_groups(&mut self, limit: usize) -> ClaimSelection {
        let (strict, free) = (self.free(), self.free_past_removals());
        let taken = self.engine.take(limit, self.now);
        assert!(taken.messages.len() <= limit, "more than was asked for");
        let order: Vec<GroupName> =
            taken.messages.iter().filter_map(|(header, _)| header.group.clone()).collect();
        let mut runs = order.clone();
        runs.dedup();
        let groups: BTreeSet<&GroupName> = runs.iter().collect();
        assert_eq!(groups.len(), runs.len(), "a group has its turn once: {order:?}");
        let is_full = taken.messages.len() == limit;
        for (group, free) in &free {
            let count = self.check_taken(group, free, &taken);
            let rest = free
                .get(count)
                .filter(|rest| rest.attempts < MAX_CLAIMS || rest.is_expired(self.now, self.retention));
            let is_behind_dead = taken.dead.iter().any(|header| header.group.as_ref() == Some(group));
            // Expired messages took places of the reads that the others needed.
            let has_expired = free[..count].iter().any(|header| header.is_expired(self.now, self.retention));
            let is_all = is_full
                || has_expired
                || is_behind_dead
                || self.engine.has_more()
                || strict[group].len() <= count;
            assert!(rest.is_none() || is_all, "{count} of {group} taken, and more is free");
        }
        for (header, body) in &taken.messages {
            let stored = &self.pool.entries.get(&header.id).expect("the pool has what is taken").body;
            assert!(body.as_ref().is_none_or(|body| body == stored), "the body of another message");
        }
        self.hide_taken(&taken);
        taken
    }

    /// Checks that the taken messages of a group are the first free ones. Returns their number.
    fn check_taken(&self, group: &GroupName, free: &[Header], taken: &ClaimSelection) -> usize {
        let is_of = |header: &&Header| header.group.as_ref() == Some(group);
        let messages: Vec<&Header> = taken.messages.iter().map(|(header, _)| header).filter(is_of).collect();
        let dead: Vec<&Header> = taken.dead.iter().filter(is_of).collect();
        let expired = free.iter().filter(|header| taken.expired.contains(&header.id)).count();
        let count = messages.len() + dead.len() + expired;
        assert!(count <= free.len(), "{count} taken of {group}, which has {free:?}");
        let (mut live, mut over) = (Vec::new(), Vec::new());
        for header in &free[..count] {
            match (header.is_expired(self.now, self.retention), header.attempts >= MAX_CLAIMS) {
                (true, _) => assert!(taken.expired.contains(&header.id), "{} is over", header.id),
                (false, true) => over.push(header),
                (false, false) => {
                    assert!(over.is_empty(), "{} is taken, and a dead one before it", header.id);
                    live.push(header);
                }
            }
        }
        assert_eq!((messages, dead), (live, over), "of {group}");
        count
    }

    /// Takes and acknowledges messages until none is free.
    pub(super) fn drain_groups(&mut self) {
        let mut last: BTreeMap<GroupName, MessageId> = BTreeMap::new();
        for _ in 0..ROUNDS {
            let taken = self.take_of_groups(3);
            for (header, _) in &taken.messages {
                let group = header.group.clone().expect("it has a group");
                let before = last.insert(group, header.id);
                assert!(before.is_none_or(|before| before < header.id), "{} is late", header.id);
            }
            if taken.is_empty() && !self.engine.has_more() {
                assert!(!self.is_any_free(), "a free message is never taken");
                return self.check_swept();
            }
            self.begin_refill();
            assert!(!taken.is_empty() || !self.reads.is_empty(), "nothing is read");
            self.finish_refill();
            self.flush();
            let ids: Vec<MessageId> = taken.messages.iter().map(|(header, _)| header.id).collect();
            for id in ids {
                let holder = match self.truth.messages[&id].state {
                    MessageState::Claimed(claim) => Some(claim),
                    _ => None,
                };
                self.engine.begin_remove(id, holder, self.now).expect("its holder removes it");
                self.truth.begin_remove(id);
                self.submit_removal(vec![id]);
            }
            for header in &taken.dead {
                self.depart_one(header.id);
            }
            self.flush();
            self.check();
        }
        panic!("the groups are never drained");
    }

    pub(super) fn read_groups(&mut self, limit: usize) {
        let Some((read, page @ None)) = self.reads.iter_mut().find(|(_, page)| page.is_none()) else {
            return;
        };
        *page = Some(match read {
            GroupRead::Group { name, after, .. } => {
                let after = Some(*after).filter(|after| *after > MessageId::ZERO);
                GroupPage::Group(self.pool.group(name, after, limit, limits::GROUP_BYTES))
            }
            GroupRead::Heads { after, .. } => {
                // The engine lists groups only while there is room for a page.
                let room = self.bounds.map_or(1, |bounds| bounds.known - bounds.open);
                let limit = limit.min(room);
                let heads = self.pool.groups(after.as_ref(), limit);
                let is_end = heads.len() < limit;
                GroupPage::Heads(heads.into_iter().map(|head| (head.message, head.is_only)).collect(), is_end)
            }
        });
    }

    pub(super) fn finish_groups(&mut self) {
        let Some((read, Some(page))) = self.reads.pop_front() else { return };
        match page {
            GroupPage::Group(page) => self.engine.finish_group_read(&read, page.messages, page.is_last),
            GroupPage::Heads(heads, is_end) => self.engine.finish_heads_read(&read, heads, is_end),
        }
    }
}

/// A group.
pub(super) fn group(number: u64) -> GroupName {
    GroupName::new(&format!("g{number}"), "group").expect("a lawful group")
}

/// Whether a message can block its group. A prepared one does not, unless it is being published, or its publication
/// failed during its removal: then it is hidden until the removal is settled. A kept one does not, until its requeue has
/// read it.
fn can_block(known: &KnownMessage) -> bool {
    if known.header.state.is_kept() {
        return known.state == MessageState::Requeuing(PoolRead::Done);
    }
    let is_here = !matches!(known.header.state, State::Prepared(_) | State::NoTarget);
    is_here || known.state == MessageState::Waking || known.removals > 0
}
