//! An engine in a small world: a pool, a slot writer with at most one pending batch, the records of claims, and the
//! naive queue. It acts as the broker does, one half of a change at a time, and compares the engine with the naive
//! queue. It never accesses the inner state of the engine.

mod checks;
mod claims;
mod dedup;
mod driver;
mod ordered;
mod receipts;
mod removals;
mod schedule;
mod slot_writer;
mod transfers;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use angarium_core::claim::ClaimTerms;
use angarium_core::dedup::DedupKey;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId, QueueId, Slot};
use angarium_core::message::{Header, Life, Message, Peer, Retention, State};
use angarium_core::time::Timestamp;
use angarium_engine::{
    ClaimSelection, EndedHeaders, EngineSettings, LookupResult, QueueEngine, Refill, Release, Removal,
    StoredTotals, WaitLines,
};
use angarium_engine::{GroupBounds, GroupRead, Heads, LinePosition as Turn, prepared};
use angarium_storage::{Changes, Direction, Note, Page, Position, QueueChanges, RemoveHint};

pub use driver::Driver;
use ordered::GroupPage;
use receipts::PendingSplit;

use super::step::{Deleter, Step, Target};
use super::truth::{MessageState, Truth, Verdict, returned};
use angarium_testbed::naive::NaiveQueue;

/// Sizes of bodies: three of the largest fill the ready cache.
pub const SIZES: [usize; 3] = [2, 70_000, 400_000];
static BODY: [u8; 400_000] = [b'0'; 400_000];
/// Max claims of a message before it is dead.
const MAX_CLAIMS: u32 = 2;
/// Far more rounds than a drain needs.
const ROUNDS: usize = 10_000;

#[derive(Clone, Debug)]
enum Change {
    /// With the notes of their deduplication ids.
    Post(Vec<Message>, Vec<(DedupKey, Note)>),
    Forget(Vec<DedupKey>),
    Return(ClaimId, Vec<Header>),
    Wake(Vec<Header>),
    MarkInTransfer(Vec<Header>),
    Prepare(Vec<Message>),
    /// With the entries as the engine knows them.
    Remove(Vec<MessageId>, Vec<RemoveHint>),
    /// A message in transfer leaves.
    Depart(MessageId),
}

/// Progress of a wake.
enum Waking {
    /// The next page begins after this position.
    Begun(Option<Position>),
    /// A page after this position was read, and is not woken yet.
    Read(Option<Position>, Page),
    /// Due messages are being written; the next one is due at this time.
    Done(Option<Timestamp>),
}

/// A batch that was sent.
struct Flight {
    pending: Vec<Change>,
    queue: QueueChanges,
    is_durable: bool,
}

/// Taken messages whose claim is not granted yet.
struct Granting {
    id: ClaimId,
    ids: Vec<MessageId>,
    /// When the claim expires, once its record is durable.
    recorded: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Pending,
    HeadersDurable,
    Unrecorded,
}

/// Number of times that a history met the condition of an earlier bug.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// A message was deleted under a claim while the pool stored it as scheduled: a release with a delay had not ended
    /// the claim.
    pub stored_otherwise: u32,
    /// A message was removed between the read of the page that showed it as due and its wake.
    pub gone_while_due: u32,
    /// One batch forgot a deduplication id and posted a message with the same id.
    pub forgotten_and_noted: u32,
    /// The record of a claim was deleted, and its owner did not learn it.
    pub records_lost: u32,
    /// A sweep removed a message from a live claim.
    pub swept_claimed: u32,
}

impl std::ops::Add for Met {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            stored_otherwise: self.stored_otherwise + more.stored_otherwise,
            gone_while_due: self.gone_while_due + more.gone_while_due,
            forgotten_and_noted: self.forgotten_and_noted + more.forgotten_and_noted,
            records_lost: self.records_lost + more.records_lost,
            swept_claimed: self.swept_claimed + more.swept_claimed,
        }
    }
}

struct Record {
    terms: ClaimTerms,
    expires: Timestamp,
    messages: Vec<(MessageId, u32)>,
}

pub struct World {
    pub engine: QueueEngine,
    pub truth: Truth,
    pub met: Met,
    /// A real pool that gets the same batches.
    driver: Option<Driver>,
    queue: QueueId,
    pool: NaiveQueue,
    /// The pool's hint of the first id of the queue.
    low: MessageId,
    last_id: MessageId,
    tree: BTreeMap<ClaimId, Record>,
    waiting: VecDeque<Change>,
    flight: Option<Flight>,
    granting: Vec<Granting>,
    ending: Vec<(ClaimId, Stage)>,
    splits: Vec<PendingSplit>,
    spent: Vec<ClaimId>,
    /// Live claims whose records may be deleted, because the outcome of their deletion was lost.
    unrecorded: BTreeSet<ClaimId>,
    refill: Option<(Refill, Option<Page>)>,
    /// For an ordered queue: the bounds of its memory, and the reads in progress.
    bounds: Option<GroupBounds>,
    reads: VecDeque<(GroupRead, Option<GroupPage>)>,
    waking: Option<Waking>,
    /// The pool's answer to a sweep.
    sweep: Option<Vec<Header>>,
    departing: BTreeSet<MessageId>,
    /// Waiting claims, each with its limit, and their positions.
    line: WaitLines<(), usize>,
    turns: Vec<Turn>,
    /// Number of messages that were transferred from another queue.
    arrived: u64,
    gone: Vec<MessageId>,
    retention: Retention,
    now: Timestamp,
    /// Number of ids given so far.
    count: u64,
    claims: SmallRng,
}

pub fn id(rank: u64) -> MessageId {
    MessageId::from_bytes((u128::from(rank) << 64).to_be_bytes())
}

fn terms() -> ClaimTerms {
    ClaimTerms::stored(60, 60)
}

fn nth<T>(of: &[T], number: u8) -> Option<usize> {
    (!of.is_empty()).then(|| usize::from(number) % of.len())
}

impl World {
    pub fn new() -> Self {
        let mut claims = SmallRng::seed_from_u64(1);
        let mut world = Self {
            met: Met::default(),
            driver: None,
            queue: QueueId::new(Slot(0), &mut claims),
            engine: QueueEngine::open(StoredTotals {
                tail: MessageId::ZERO,
                has_ready: false,
                is_scheduled: false,
                has_aside: false,
            }),
            truth: Truth::default(),
            pool: NaiveQueue::default(),
            low: MessageId::ZERO,
            last_id: MessageId::ZERO,
            tree: BTreeMap::new(),
            waiting: VecDeque::new(),
            flight: None,
            granting: Vec::new(),
            ending: Vec::new(),
            splits: Vec::new(),
            spent: Vec::new(),
            unrecorded: BTreeSet::new(),
            refill: None,
            bounds: None,
            reads: VecDeque::new(),
            waking: None,
            sweep: None,
            departing: BTreeSet::new(),
            line: WaitLines::default(),
            turns: Vec::new(),
            arrived: 0,
            gone: Vec::new(),
            retention: Retention::LONGEST,
            now: Timestamp::from_millis(1_000_000),
            count: 0,
            claims,
        };
        world.engine.follow(world.settings());
        world
    }

    pub fn take_step(&mut self, step: &Step) {
        match step {
            Step::Post(sizes, is_short) => {
                let life = Life::lasting(if *is_short { 60 } else { 3_600 }, self.now);
                self.post(sizes, life, 0);
            }
            Step::Delayed(sizes, seconds) => {
                let delay = u32::from(*seconds);
                self.post(sizes, Life::lasting(60, self.now.plus_seconds(delay)), delay);
            }
            Step::PostRetained(sizes) => self.post(sizes, Life::Retained { since: self.now }, 0),
            Step::Retain(number) => {
                self.retention = Retention::new([40, 60, 600, 3_600][usize::from(*number) % 4]);
                self.engine.follow(self.settings());
            }
            Step::BeginWake => self.begin_wake(),
            Step::ReadDue => self.read_due(),
            Step::Wake => self.wake_page(),
            Step::PostOnce(number) => self.post_once(*number),
            Step::ForgetOld => self.forget_old(),
            Step::ForgetAll => self.forget_all(),
            Step::Purge => self.purge(),
            Step::RemoveAll(which) => self.remove_all(*which),
            Step::FinishWake => self.finish_wake(),
            Step::PutOff(number, seconds) => {
                let ready = Some(self.now.plus_seconds(u32::from(*seconds)));
                self.end(*number, Release { ready, ..Release::COUNTED });
            }
            Step::BeginSweep => self.begin_sweep(),
            Step::FinishSweep => self.finish_sweep(),
            Step::Arrive(number) => self.arrive(*number),
            Step::Publish(number) => self.publish(*number),
            Step::Depart(number) => self.depart(*number),
            Step::Join(limit) => self.turns.push(self.line.join(&(), usize::from(*limit))),
            Step::Leave(number) => self.leave(*number),
            Step::Send => self.send(),
            Step::Apply => self.apply(),
            Step::Settle => self.settle(),
            // A new claim does not overtake waiting ones.
            Step::Take(limit) if self.line.is_empty() => drop(self.take(usize::from(*limit))),
            Step::Take(limit) => self.turns.push(self.line.join(&(), usize::from(*limit))),
            Step::Record(number) => drop(nth(&self.granting, *number).map(|at| self.record(at))),
            Step::Grant(number) => drop(nth(&self.granting, *number).map(|at| self.grant(at))),
            Step::PutBack(number) => drop(nth(&self.granting, *number).map(|at| self.put_back(at))),
            Step::End(number, true) => self.end(*number, Release::COUNTED),
            Step::End(number, false) => self.end(*number, Release::UNCOUNTED),
            Step::Unrecord(number) => drop(nth(&self.ending, *number).map(|at| self.unrecord(at))),
            Step::FinishEnd(number) => drop(nth(&self.ending, *number).map(|at| self.finish_end(at))),
            Step::FailEnd(number) => drop(nth(&self.ending, *number).map(|at| self.fail_end(at))),
            Step::LoseEnd(number) => drop(nth(&self.ending, *number).map(|at| self.lose_end(at))),
            Step::Split(number, which) => self.split(*number, *which),
            Step::RecordSplit(n) => drop(nth(&self.splits, *n).map(|at| self.record_split(at))),
            Step::FinishSplit(n) => drop(nth(&self.splits, *n).map(|at| self.finish_split_model(at))),
            Step::FailSplit(n) => drop(nth(&self.splits, *n).map(|at| self.fail_split(at))),
            Step::RemoveReceived(target) => self.remove_received(*target),
            Step::ClearSpent => self.clear_spent(),
            Step::Remove(target, named) => self.remove(*target, *named),
            Step::BeginRefill => self.begin_refill(),
            Step::ReadPage(limit) => self.read_page(usize::from(*limit)),
            Step::FinishRefill => self.finish_refill(),
            Step::FailRefill => self.fail_refill(),
            Step::LeaveReady => self.engine.evict_ready(),
            Step::Advance(seconds) => self.now = self.now.plus_seconds(u32::from(*seconds)),
            Step::Flush => self.flush(),
            Step::Crash => self.crash(),
        }
        self.serve();
    }
}
