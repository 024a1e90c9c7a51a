//! Fairness between groups, compared with the rule itself. With more messages than memory has, the order may be late,
//! but no message may be lost or doubled.

use std::collections::{BTreeMap, BTreeSet};

use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Life, Message, State};
use angarium_core::time::Timestamp;
use angarium_engine::{QueueEngine, Refill, StoredTotals};
use bytes::Bytes;
use proptest::prelude::*;

use super::dice;

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// Posts this many messages of a group, or without a group when it is 0.
    Post(u8, u16),
    /// Takes this many.
    Take(usize),
    /// Deletes every n-th taken message.
    Delete(usize),
    /// Releases every n-th taken message.
    Return(usize),
    /// Lets seconds pass.
    Wait(u32),
    /// Delivers a page that was read.
    Arrive,
}

fn group(number: u8) -> Option<GroupName> {
    (number > 0).then(|| GroupName::new(&format!("g{number}"), "").unwrap())
}

fn message(number: u128, group: Option<GroupName>, now: Timestamp) -> Message {
    let header = Header {
        id: MessageId::from_bytes(number.to_be_bytes()),
        created: now,
        ready: now,
        life: Life::Own { ttl: 1_209_600, expires: now.plus_seconds(1_209_600) },
        attempts: 0,
        client: None,
        size: 1,
        state: State::Ready,
        group,
        first_claimed: None,
        extras: None,
    };
    Message { header, body: Bytes::from_static(b"1") }
}

/// A queue, its pool, and the state of a client.
struct World {
    engine: QueueEngine,
    pool: BTreeMap<MessageId, Message>,
    /// Taken messages.
    held: BTreeMap<MessageId, Option<GroupName>>,
    noisy: BTreeMap<GroupName, Timestamp>,
    looks: Vec<TakeRecord>,
    looked: Option<Timestamp>,
    now: Timestamp,
    posted: u128,
    /// Pages that were read and are not delivered yet.
    pages: Vec<(Refill, Vec<Message>, bool, Page)>,
}

/// Messages that were held before a take, for `passed` milliseconds.
struct TakeRecord {
    /// Number of its span of 150 seconds.
    span: u64,
    passed: u64,
    held: Vec<Option<GroupName>>,
}

#[derive(Clone, Copy)]
enum Page {
    Refill,
    Ahead,
}

impl World {
    fn new() -> Self {
        let found =
            StoredTotals { tail: MessageId::ZERO, has_ready: false, is_scheduled: false, has_aside: false };
        Self {
            engine: QueueEngine::open(found),
            pool: BTreeMap::new(),
            held: BTreeMap::new(),
            noisy: BTreeMap::new(),
            looks: Vec::new(),
            looked: None,
            now: Timestamp::from_millis(1_000_000),
            posted: 0,
            pages: Vec::new(),
        }
    }

    fn post(&mut self, of: u8, count: u16) {
        let mut messages = Vec::new();
        for _ in 0..count {
            self.posted += 1;
            messages.push(message(self.posted, group(of), self.now));
        }
        self.pool.extend(messages.iter().map(|message| (message.header.id, message.clone())));
        if let Some(sent) = group(of).filter(|_| count > 0).and_then(|group| self.noisy.get_mut(&group)) {
            *sent = self.now;
        }
        self.engine.posted(messages);
    }

    fn take(&mut self, limit: usize) -> Vec<MessageId> {
        let taken = self.engine.take(limit, self.now).messages;
        let mut ids = Vec::new();
        for (header, _) in taken {
            assert!(self.pool.contains_key(&header.id), "it was deleted");
            assert_eq!(self.held.insert(header.id, header.group.clone()), None, "it is taken already");
            ids.push(header.id);
        }
        self.read();
        ids
    }

    /// Does the reads that the engine asks for now; their pages are delivered later.
    fn read(&mut self) {
        let refill = self.engine.begin_refill().map(|refill| (refill, Page::Refill));
        let ahead = self.engine.begin_lookahead().map(|refill| (refill, Page::Ahead));
        for (refill, kind) in refill.into_iter().chain(ahead) {
            let behind =
                self.pool.range((std::ops::Bound::Excluded(refill.after), std::ops::Bound::Unbounded));
            let page: Vec<Message> = behind.map(|(_, message)| message.clone()).take(1_024).collect();
            let is_last = page.len() < 1_024;
            self.pages.push((refill, page, is_last, kind));
        }
    }

    fn arrive(&mut self) {
        if self.pages.is_empty() {
            return;
        }
        let (refill, page, is_last, kind) = self.pages.remove(0);
        match kind {
            Page::Refill => self.engine.finish_refill(refill, page, is_last),
            Page::Ahead => self.engine.finish_lookahead(refill, page, is_last),
        }
    }

    fn some_held(&self, every: usize) -> Vec<MessageId> {
        self.held.keys().copied().step_by(every).collect()
    }

    fn delete(&mut self, every: usize) {
        let ids = self.some_held(every);
        self.engine.begin_remove_taken(&ids);
        self.engine.removed(&ids);
        for id in ids {
            self.held.remove(&id);
            self.pool.remove(&id);
        }
    }

    fn give_back(&mut self, every: usize) {
        let ids = self.some_held(every);
        self.engine.put_back(&ids);
        ids.iter().for_each(|id| drop(self.held.remove(id)));
    }

    fn held_of(&self, group: &GroupName) -> usize {
        self.held.values().filter(|held| held.as_ref() == Some(group)).count()
    }

    /// Records for how long messages were held since the last record.
    fn look(&mut self) {
        let now = self.now.as_millis();
        let passed = now - self.looked.get_or_insert(self.now).as_millis();
        if passed >= 1_000 {
            let held = self.held.values().cloned().collect();
            self.looks.push(TakeRecord { span: now / 150_000, passed: passed.min(150_000), held });
            self.looked = Some(self.now);
        }
    }

    /// Whether a group was held for long, and for more than a tenth of all time, in the last two spans.
    fn takes_long(&self, group: &GroupName) -> bool {
        let Some(running) = self.looks.last().map(|look| look.span) else { return false };
        let recent = self.looks.iter().filter(|look| look.span + 1 >= running);
        let (mut own, mut all) = (0, 0);
        for TakeRecord { passed, held, .. } in recent {
            let count = held.iter().filter(|held| held.as_ref() == Some(group)).count() as u64;
            all += held.len() as u64 * passed;
            // Groups with less than a hundredth of the held messages are left out.
            own += if count * 100 >= held.len() as u64 { count * passed } else { 0 };
        }
        own >= 1_800_000 && own * 10 > all
    }

    /// The next message to be taken by the rule, in a queue that is completely in memory.
    fn next_by_rule(&mut self) -> Option<MessageId> {
        self.look();
        let is_ready = |id: &MessageId| !self.held.contains_key(id);
        let ready: Vec<&Header> =
            self.pool.values().map(|message| &message.header).filter(|header| is_ready(&header.id)).collect();
        let waits = |group: &GroupName| ready.iter().any(|header| header.group.as_ref() == Some(group));
        let now = self.now;
        let mut noisy = self.noisy.clone();
        noisy.retain(|group, sent| waits(group) && now < sent.plus_seconds(300));
        let mut next = None;
        for header in &ready {
            let Some(group) = &header.group else {
                next = Some(header.id);
                break;
            };
            let own = self.held_of(group);
            if noisy.contains_key(group) {
                continue;
            }
            if (own >= 30 && own * 10 > self.held.len()) || self.takes_long(group) {
                noisy.insert(group.clone(), now);
                continue;
            }
            next = Some(header.id);
            break;
        }
        let fewest = || {
            let first = |group: &GroupName| ready.iter().find(|header| header.group.as_ref() == Some(group));
            let waiting = noisy.keys().filter_map(|group| Some((self.held_of(group), first(group)?.id)));
            waiting.min().map(|(_, first)| first)
        };
        let next = next.or_else(fewest);
        self.noisy = noisy;
        next
    }
}

fn steps(post: impl Strategy<Value = u16> + Clone, count: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0_u8..4, post).prop_map(|(group, count)| Step::Post(group, count)),
        4 => (1_usize..12).prop_map(Step::Take),
        2 => (1_usize..5).prop_map(Step::Delete),
        1 => (1_usize..5).prop_map(Step::Return),
        1 => (1_u32..200).prop_map(Step::Wait),
        3 => Just(Step::Arrive),
    ];
    prop::collection::vec(step, 1..count)
}

#[test]
fn groups_have_their_turns_by_the_rule() {
    dice::check("fair histories", 150, &steps(1_u16..25, 150), |steps| {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Post(group, count) => world.post(group, count),
                Step::Delete(every) => world.delete(every),
                Step::Return(every) => world.give_back(every),
                Step::Wait(seconds) => world.now = world.now.plus_seconds(seconds),
                Step::Arrive => assert!(world.pages.is_empty(), "all of it is in memory"),
                Step::Take(limit) => {
                    for _ in 0..limit {
                        let next = world.next_by_rule();
                        assert_eq!(world.take(1), Vec::from_iter(next));
                    }
                }
            }
        }
    });
}

/// Regression: a group with so few messages in flight was quiet for ever, and all consumers worked for it.
#[test]
fn slow_small_group_is_noisy() {
    for (seconds, first) in [(10, 1), (150, 2)] {
        let mut world = World::new();
        world.post(1, 40);
        assert_eq!(world.take(20).len(), 20);
        world.post(2, 1);
        world.now = world.now.plus_seconds(seconds);
        let ids = world.take(1);
        assert_eq!(world.held[&ids[0]], group(first), "after {seconds} s");
    }
}

/// The recorded time of a group is forgotten after a while.
#[test]
fn once_slow_group_is_quiet_later() {
    let mut world = World::new();
    world.post(1, 20);
    assert_eq!(world.take(20).len(), 20);
    world.now = world.now.plus_seconds(150);
    assert!(world.take(1).is_empty());
    world.delete(1);
    world.now = world.now.plus_seconds(600);
    assert!(world.take(1).is_empty());
    world.post(1, 1);
    world.post(2, 1);
    assert_eq!(world.take(1).len(), 1);
    assert_eq!(world.held.values().next(), Some(&group(1)), "its message is the older one");
}

#[test]
fn with_more_than_memory_holds_nothing_is_lost_or_doubled() {
    let post = prop_oneof![5 => 1_u16..40, 1 => 3_000_u16..6_000];
    dice::check("deep fair histories", 15, &steps(post, 60), |steps| {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Post(group, count) => world.post(group, count),
                Step::Take(limit) => drop(world.take(limit * 4)),
                Step::Delete(every) => world.delete(every),
                Step::Return(every) => world.give_back(every),
                Step::Wait(seconds) => world.now = world.now.plus_seconds(seconds),
                Step::Arrive => world.arrive(),
            }
        }
        let mut idle = 0;
        while !world.pool.is_empty() {
            let taken = world.take(500);
            world.arrive();
            world.delete(1);
            idle = if taken.is_empty() { idle + 1 } else { 0 };
            assert!(idle < 50, "{} are never taken", world.pool.len());
        }
    });
}

#[test]
fn quiet_messages_behind_noisy_backlog_are_served_soon() {
    let mut world = World::new();
    world.post(1, 20_000);
    let held: BTreeSet<MessageId> = world.take(40).into_iter().collect();
    assert_eq!(held.len(), 40, "it gets all while no other group waits");
    world.post(2, 5);
    world.post(0, 5);
    let mut quiet = 0;
    for receive in 0_u32.. {
        assert!(receive < 40, "{quiet} of 10 were taken");
        let ids = world.take(10);
        let of_others = |id: &&MessageId| world.held[*id] != group(1);
        quiet += ids.iter().filter(of_others).count();
        if quiet == 10 {
            break;
        }
        world.arrive();
    }
}

/// Regression: the page shows a message that is claimed when the page is requested, and deleted before it is delivered.
/// The engine took it for ready, so no claim could get its body, and all later messages waited.
#[test]
fn late_lookahead_page_restores_no_deleted_message() {
    let mut world = World::new();
    world.post(1, 20_000);
    assert_eq!(world.take(40).len(), 40);
    world.post(0, 5);
    let quiet = world.take(5);
    assert!(quiet.iter().all(|id| world.held[id].is_none()), "they have their turns at once");
    let shows = |page: &[Message]| page.iter().any(|message| quiet.contains(&message.header.id));
    while !world.pages.iter().any(|(_, page, ..)| shows(page)) {
        world.arrive();
        assert_eq!(world.take(1).len(), 1);
        assert!(!world.pages.is_empty(), "the pool is looked through to its end");
    }
    world.delete(1);
    while !world.pages.is_empty() {
        world.arrive();
        assert_eq!(world.take(10).len(), 10);
    }
}
