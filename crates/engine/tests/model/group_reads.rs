//! Counts the reads of the pool by receives of an ordered queue: they must not grow with the number of waiting
//! messages.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use angarium_core::claim::ClaimTerms;
use angarium_core::group::GroupName;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits;
use angarium_core::message::{Header, Life, Message, State};
use angarium_core::time::Timestamp;
use angarium_engine::{GroupBounds, GroupRead, QueueEngine, StoredTotals};
use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// Messages of one receive.
const RECEIVE: usize = 10;
/// Receives whose messages are not deleted yet.
const IN_FLIGHT: usize = 64;
/// Receives before the count begins, and receives that are counted.
const WARM_UP: usize = 400;
const COUNTED: usize = 1_000;
static BODY: [u8; 256] = [b'0'; 256];

/// Number of reads of the pool.
#[derive(Clone, Copy, Debug, Default)]
struct Reads {
    reads: usize,
    messages: usize,
    /// Pages of the list of groups.
    lists: usize,
    /// Reads of a group from its beginning, which pass all messages that were removed from it.
    whole: usize,
}

/// A queue and its pool, which has messages by group.
struct World {
    engine: QueueEngine,
    pool: BTreeMap<GroupName, BTreeMap<MessageId, Message>>,
    posted: u64,
    ids: SmallRng,
    reads: Reads,
}

fn group(number: u64) -> GroupName {
    GroupName::new(&format!("g{number}"), "group").unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_millis(1_000_000)
}

impl World {
    /// Opens a queue with `each` messages in each of `groups` groups.
    fn with(groups: u64, each: u64) -> Self {
        let mut pool = BTreeMap::<GroupName, BTreeMap<MessageId, Message>>::new();
        for rank in 0..groups * each {
            let message = message(rank + 1, group(rank % groups));
            pool.entry(group(rank % groups)).or_default().insert(message.header.id, message);
        }
        let posted = groups * each;
        let found =
            StoredTotals { tail: id(posted), has_ready: posted > 0, is_scheduled: false, has_aside: false };
        let engine = QueueEngine::open_ordered(found, GroupBounds::default());
        Self { engine, pool, posted, ids: SmallRng::seed_from_u64(1), reads: Reads::default() }
    }

    fn post(&mut self, group: GroupName) {
        self.posted += 1;
        let message = message(self.posted, group.clone());
        self.pool.entry(group).or_default().insert(message.header.id, message.clone());
        self.engine.posted(vec![message]);
    }

    /// Takes messages for a claim, after the reads that it needs.
    fn receive(&mut self, limit: usize) -> Vec<MessageId> {
        for round in 0.. {
            assert!(round < 50, "messages that were read are not taken: {:?}", self.reads);
            let taken = self.engine.take(limit, now());
            let has_more = self.engine.has_more();
            self.read();
            if !taken.is_empty() {
                let ids: Vec<MessageId> = taken.messages.iter().map(|(header, _)| header.id).collect();
                let claim = ClaimId::new(&mut self.ids);
                self.engine.grant(claim, ClaimTerms::stored(60, 60), now().plus_seconds(60), &ids);
                return ids;
            }
            assert!(has_more, "something waits");
        }
        unreachable!()
    }

    fn delete(&mut self, ids: &[MessageId]) {
        for id in ids {
            let (claim, header) = self.engine.hold(*id).expect("it is claimed");
            self.engine.begin_remove(*id, Some(claim), now()).expect("its holder removes it");
            let group = header.group.expect("it has a group");
            self.pool.get_mut(&group).expect("the pool has it").remove(id);
        }
        self.engine.removed(ids);
    }

    /// Does the reads of the pool that the engine asks for.
    fn read(&mut self) {
        while let Some(read) = self.engine.begin_group_read() {
            self.reads.reads += 1;
            match &read {
                GroupRead::Group { name, after, most, .. } => {
                    self.reads.whole += usize::from(*after == MessageId::ZERO);
                    let behind = self.pool[name].range(after.next()..).map(|(_, message)| message.clone());
                    let page: Vec<Message> = behind.take(*most).collect();
                    self.reads.messages += page.len();
                    let is_last = page.len() < *most;
                    self.engine.finish_group_read(&read, page, is_last);
                }
                GroupRead::Heads { after, .. } => {
                    let waiting = self.pool.iter().filter(|(_, waiting)| !waiting.is_empty());
                    let behind = waiting.filter(|(name, _)| after.as_ref().is_none_or(|after| *name > after));
                    let first = behind.take(limits::GROUPS_PAGE);
                    let heads: Vec<(Message, bool)> = first
                        .map(|(_, waiting)| (waiting.values().next().unwrap().clone(), waiting.len() == 1))
                        .collect();
                    self.reads.messages += heads.len();
                    self.reads.lists += 1;
                    let is_end = heads.len() < limits::GROUPS_PAGE;
                    self.engine.finish_heads_read(&read, heads, is_end);
                }
            }
        }
    }

    /// Counts the reads while equally many messages are posted to `groups` as are received and deleted.
    fn turns(&mut self, groups: Range<u64>) -> Reads {
        let count = groups.end - groups.start;
        let mut in_flight = VecDeque::new();
        for number in 0..WARM_UP + COUNTED {
            if number == WARM_UP {
                self.reads = Reads::default();
            }
            let ids = self.receive(RECEIVE);
            assert_eq!(ids.len(), RECEIVE);
            in_flight.push_back(ids);
            if in_flight.len() > IN_FLIGHT {
                let ids = in_flight.pop_front().expect("there is one");
                self.delete(&ids);
            }
            let number = u64::try_from(number * RECEIVE).unwrap();
            (number..number + 10).for_each(|number| self.post(group(groups.start + number % count)));
        }
        if usize::try_from(count).is_ok_and(|count| count < angarium_engine::limits::GROUPS_KNOWN) {
            let Reads { lists, whole, .. } = self.reads;
            assert_eq!((lists, whole), (0, 0), "all groups are known: {:?}", self.reads);
        }
        self.reads
    }
}

fn id(rank: u64) -> MessageId {
    MessageId::from_bytes((u128::from(rank) << 64).to_be_bytes())
}

fn message(rank: u64, group: GroupName) -> Message {
    let header = Header {
        id: id(rank),
        created: now(),
        ready: now(),
        life: Life::Own { ttl: 3_600, expires: now().plus_seconds(3_600) },
        attempts: 0,
        client: None,
        size: 256,
        state: State::Ready,
        group: Some(group),
        first_claimed: None,
        extras: None,
    };
    Message { header, body: Bytes::from_static(&BODY) }
}

/// Regression: the engine read far more of each group than its turn took, and evicted it before the next turn, so a
/// receive of ten messages read five hundred.
#[test]
fn receive_of_deep_groups_reads_each_message_once() {
    for each in [100, 1_000, 5_000] {
        let reads = World::with(100, each).turns(0..100);
        assert!(reads.messages <= COUNTED * RECEIVE * 11 / 10, "{each} in each group: {reads:?}");
        assert!(reads.reads <= COUNTED * 7 / 10, "{each} in each group: {reads:?}");
    }
}

#[test]
fn groups_beyond_memory_cost_one_read_per_receive() {
    let reads = World::with(3_000, 40).turns(0..3_000);
    assert!(reads.messages <= COUNTED * RECEIVE * 13 / 10, "{reads:?}");
    assert!(reads.reads <= COUNTED * 12 / 10, "{reads:?}");
}

/// Thirty deep groups are blocked by a message in flight, next to a hundred groups that are served.
#[test]
fn blocked_deep_groups_take_no_memory_of_served_ones() {
    for each in [30, 3_000] {
        let mut world = World::with(30, each);
        (0..30).for_each(|_| assert_eq!(world.receive(1).len(), 1));
        (0..100).for_each(|number| (0..100).for_each(|_| world.post(group(100 + number))));
        let reads = world.turns(100..200);
        assert!(reads.messages <= COUNTED * RECEIVE * 15 / 10, "{each} in each blocked group: {reads:?}");
        assert!(reads.reads <= COUNTED * 8 / 10, "{each} in each blocked group: {reads:?}");
        assert!(
            world.engine.ready_bytes() <= 2 * limits::READY_CACHE_BYTES,
            "{}",
            world.engine.ready_bytes()
        );
    }
}

/// Regression: a list with changes meanwhile was ignored and begun again, for ever if each list took longer than a
/// change.
#[test]
fn a_list_of_groups_ends_however_much_happens_meanwhile() {
    let mut world = World::with(20, 3);
    let list = world.engine.begin_group_read().expect("the groups were not listed yet");
    let heads =
        world.pool.values().map(|waiting| (waiting.values().next().unwrap().clone(), false)).collect();
    (0..5_000).for_each(|number| world.post(group(100 + number)));
    world.engine.finish_heads_read(&list, heads, true);
    world.read();
    assert_eq!(world.reads.lists, 0, "{:?}", world.reads);
    let mut taken = Vec::new();
    while taken.len() < 60 {
        let ids = world.receive(RECEIVE);
        taken.extend(ids.iter().copied().filter(|taken| *taken <= id(60)));
        world.delete(&ids);
    }
}

/// Regression: such groups were forgotten to make room, and read from their beginning when they were freed, past all
/// messages that had been removed from them.
#[test]
fn long_blocked_groups_are_read_from_their_position() {
    let mut world = World::with(0, 0);
    (0..2_000).for_each(|number| world.post(group(number % 100)));
    let stuck: Vec<Vec<MessageId>> = (0..50).map(|_| world.receive(RECEIVE)).collect();
    for number in 0..3_000 {
        let ids = world.receive(RECEIVE);
        world.delete(&ids);
        (0..10).for_each(|_| world.post(group(50 + number % 50)));
        world.post(group(number % 50));
    }
    stuck.iter().for_each(|ids| world.delete(ids));
    world.reads = Reads::default();
    for _ in 0..100 {
        let ids = world.receive(RECEIVE);
        world.delete(&ids);
    }
    assert_eq!((world.reads.lists, world.reads.whole), (0, 0), "{:?}", world.reads);
}
