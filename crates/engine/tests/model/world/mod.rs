//! An engine in a small world: a pool, a slot writer with at most one pending batch, the records of claims, and the
//! naive queue. It acts as the broker does, one half of a change at a time, and compares the engine with the naive
//! queue. It never accesses the inner state of the engine.

mod checks;
mod claims;
mod dedup;
mod driver;
mod holds;
mod met;
mod ordered;
mod receipts;
mod removals;
mod requeues;
mod schedule;
mod settles;
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
use angarium_core::group::GroupName;
use angarium_core::ids::{ClaimId, MessageId, QueueId, Slot};
use angarium_core::message::{Header, Life, Message, Peer, Retention, State};
use angarium_core::outcome::EventKind;
use angarium_core::time::Timestamp;
use angarium_engine::{
    ClaimSelection, EndedHeaders, EngineSettings, KeptPage, LookupResult, QueueEngine, Refill, Release,
    ReleaseEvent, Removal, StoredTotals, WaitLines,
};
use angarium_engine::{GroupBounds, GroupRead, Heads, LinePosition as Turn, prepared};
use angarium_storage::{Changes, Direction, Note, Page, Position, QueueChanges, RemoveHint};

pub use driver::Driver;
use holds::GroupHold;
pub use met::Met;
use ordered::GroupPage;
use receipts::PendingSplit;
use requeues::PendingRequeue;
use settles::{PendingReturns, PendingSettle};

use super::step::{Deleter, Step, Target};
use super::truth::{MessageState, Truth, Verdict, holder};
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
    Forget(Vec<(DedupKey, MessageId)>),
    Return(ClaimId, Vec<Header>),
    Wake(Vec<Header>),
    MarkInTransfer(Vec<Header>),
    Prepare(Vec<Message>),
    /// With the entries as the engine knows them.
    Remove(Vec<MessageId>, Vec<RemoveHint>),
    /// A message in transfer leaves.
    Depart(MessageId),
    Settle(PendingSettle),
    Requeue(Header),
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
    returns: Vec<PendingReturns>,
    requeues: Vec<PendingRequeue>,
    /// Kept messages that were read for their purge.
    kept_page: Option<(KeptPage, Vec<MessageId>)>,
    /// Notes of durable settles whose messages return.
    settle_notes: BTreeSet<(ClaimId, MessageId)>,
    spent: Vec<ClaimId>,
    /// Live claims whose records may be deleted, because the outcome of their deletion was lost.
    unrecorded: BTreeSet<ClaimId>,
    refill: Option<(Refill, Option<Page>)>,
    /// For an ordered queue: the bounds of its memory, and the reads in progress.
    bounds: Option<GroupBounds>,
    reads: VecDeque<(GroupRead, Option<GroupPage>)>,
    /// The holds of groups, and the number of all that were made.
    holds: BTreeMap<GroupName, GroupHold>,
    holds_made: u128,
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
            returns: Vec::new(),
            requeues: Vec::new(),
            kept_page: None,
            settle_notes: BTreeSet::new(),
            spent: Vec::new(),
            unrecorded: BTreeSet::new(),
            refill: None,
            bounds: None,
            reads: VecDeque::new(),
            holds: BTreeMap::new(),
            holds_made: 0,
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
            Step::Post(sizes, is_short) => self.post_lasting(sizes, if *is_short { 60 } else { 3_600 }),
            Step::Delayed(sizes, seconds) => self.post_delayed(sizes, u32::from(*seconds)),
            Step::PostRetained(sizes) => self.post(sizes, Life::Retained { since: self.now }, 0),
            Step::Retain(number) => self.retain([40, 60, 600, 3_600][usize::from(*number) % 4]),
            Step::BeginWake => self.begin_wake(),
            Step::ReadDue => self.read_due(),
            Step::Wake => self.wake_page(),
            Step::PostOnce(number) => self.post_once(*number),
            Step::ForgetOld => self.forget_old(),
            Step::ForgetAll => self.forget_all(),
            Step::Purge => self.purge(),
            Step::RemoveAll(which) => self.remove_all(*which),
            Step::FinishWake => self.finish_wake(),
            Step::PutOff(number, seconds) => self.end_later(*number, u32::from(*seconds)),
            Step::BeginSweep => self.begin_sweep(),
            Step::FinishSweep => self.finish_sweep(),
            Step::Arrive(number, delay) => self.arrive(*number, u32::from(*delay)),
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
            Step::End(number, true) => self.end_counted(*number),
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
            Step::BeginSettle(claim, message, kind, forward) => {
                self.begin_settle(*claim, *message, *kind, *forward);
            }
            Step::BeginReturns(claim, which) => self.begin_returns(*claim, *which),
            Step::RecordReturns(n) => drop(nth(&self.returns, *n).map(|at| self.record_returns(at))),
            Step::FinishReturns(n) => drop(nth(&self.returns, *n).map(|at| self.finish_returns(at))),
            Step::FailReturns(n) => drop(nth(&self.returns, *n).map(|at| self.fail_returns(at))),
            Step::Requeue(target, delay) => self.requeue(*target, u32::from(*delay)),
            Step::ReadRequeued(n) => drop(nth(&self.requeues, *n).map(|at| self.read_requeued(at))),
            Step::Recall(target) => self.recall(*target),
            Step::Hold(number) => self.hold_group(*number),
            Step::ReleaseGroup(number) => self.release_group(*number),
            Step::ReadWithheld(number) => self.read_withheld(*number),
            Step::MakeReady(number) => self.make_ready(*number),
            Step::ReadKept => self.read_kept(),
            Step::PurgeKept => self.purge_kept(),
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

    fn post_lasting(&mut self, sizes: &[u8], seconds: u32) {
        self.post(sizes, Life::lasting(seconds, self.now), 0);
    }

    fn post_delayed(&mut self, sizes: &[u8], delay: u32) {
        self.post(sizes, Life::lasting(60, self.now.plus_seconds(delay)), delay);
    }

    fn retain(&mut self, seconds: u32) {
        self.retention = Retention::new(seconds);
        self.engine.follow(self.settings());
    }

    fn end_later(&mut self, number: u8, seconds: u32) {
        let ready = Some(self.now.plus_seconds(seconds));
        self.end(number, Release { ready, ..Release::COUNTED });
    }

    /// Ends a claim by a release that counts. Every other one is in the history of its messages.
    fn end_counted(&mut self, number: u8) {
        let event = ReleaseEvent { what: EventKind::Released, at: self.now };
        let event = Some(event).filter(|_| number % 2 == 1);
        self.end(number, Release { event, ..Release::COUNTED });
    }
}
