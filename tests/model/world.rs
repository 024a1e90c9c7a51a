//! Owns an engine with a small world around it: a pool, a lane to it with one batch out at a time, the records
//! of claims, and the naive queue. It does what the broker does, one half of a change at a time, and holds the
//! engine against the naive queue. It never reaches into the engine.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use angarium::domain::claim::ClaimTerms;
use angarium::domain::ids::{ClaimId, MessageId, QueueId, Slot};
use angarium::domain::message::{Header, Message};
use angarium::domain::time::Timestamp;
use angarium::engine::{Counts, QueueEngine, Refill, Removal, Taken};
use angarium::error::Error;
use angarium::storage::{Direction, Page, QueueChanges};

use super::step::{Named, Step, Target};
use super::truth::{Place, Truth, Verdict};
use crate::conformance::storage::naive::NaiveQueue;

/// Bytes of bodies: three of the largest fill the window.
pub const SIZES: [usize; 3] = [2, 70_000, 400_000];
static BODY: [u8; 400_000] = [b'0'; 400_000];
/// Far more rounds than a drain needs.
const ROUNDS: usize = 10_000;

#[derive(Clone, Debug)]
enum Change {
    Post(Vec<Message>),
    Return(ClaimId, Vec<Header>),
    Remove(Vec<MessageId>),
}

/// A batch that is out.
struct Flight {
    works: Vec<Change>,
    changes: QueueChanges,
    is_durable: bool,
}

/// Taken messages on their way to a claim.
struct Granting {
    id: ClaimId,
    ids: Vec<MessageId>,
    /// When it ends, once its record is durable.
    recorded: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    InLane,
    HeadersDurable,
    Unrecorded,
}

struct Record {
    expires: Timestamp,
    messages: Vec<(MessageId, u32)>,
}

pub struct World {
    pub engine: QueueEngine,
    pub truth: Truth,
    pool: NaiveQueue,
    /// The pool's hint of where the queue begins.
    low: MessageId,
    last_id: MessageId,
    tree: BTreeMap<ClaimId, Record>,
    waiting: VecDeque<Change>,
    flight: Option<Flight>,
    granting: Vec<Granting>,
    ending: Vec<(ClaimId, Stage)>,
    spent: Vec<ClaimId>,
    refill: Option<(Refill, Option<Page>)>,
    gone: Vec<MessageId>,
    now: Timestamp,
    /// Ids given so far.
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
        Self {
            engine: QueueEngine::open(MessageId::ZERO),
            truth: Truth::default(),
            pool: NaiveQueue::default(),
            low: MessageId::ZERO,
            last_id: MessageId::ZERO,
            tree: BTreeMap::new(),
            waiting: VecDeque::new(),
            flight: None,
            granting: Vec::new(),
            ending: Vec::new(),
            spent: Vec::new(),
            refill: None,
            gone: Vec::new(),
            now: Timestamp::from_millis(1_000_000),
            count: 0,
            claims: SmallRng::seed_from_u64(1),
        }
    }

    pub fn take_step(&mut self, step: &Step) {
        match step {
            Step::Post(sizes, is_short) => self.post(sizes, *is_short),
            Step::Send => self.send(),
            Step::Apply => self.apply(),
            Step::Settle => self.settle(),
            Step::Take(limit) => drop(self.take(usize::from(*limit))),
            Step::Record(number) => drop(nth(&self.granting, *number).map(|at| self.record(at))),
            Step::Grant(number) => drop(nth(&self.granting, *number).map(|at| self.grant(at))),
            Step::PutBack(number) => drop(nth(&self.granting, *number).map(|at| self.put_back(at))),
            Step::End(number, counts) => self.end(*number, *counts),
            Step::Unrecord(number) => drop(nth(&self.ending, *number).map(|at| self.unrecord(at))),
            Step::FinishEnd(number) => drop(nth(&self.ending, *number).map(|at| self.finish_end(at))),
            Step::FailEnd(number) => drop(nth(&self.ending, *number).map(|at| self.fail_end(at))),
            Step::ClearSpent => self.clear_spent(),
            Step::Remove(target, named) => self.remove(*target, *named),
            Step::BeginRefill => self.begin_refill(),
            Step::ReadPage(limit) => self.read_page(usize::from(*limit)),
            Step::FinishRefill => self.finish_refill(),
            Step::FailRefill => self.fail_refill(),
            Step::Advance(seconds) => self.now = self.now.plus_seconds(u32::from(*seconds)),
            Step::Flush => self.flush(),
            Step::Crash => self.crash(),
        }
    }
}

/// Posts and the lane.
impl World {
    fn post(&mut self, sizes: &[u8], is_short: bool) {
        let ttl = if is_short { 60 } else { 3_600 };
        let mut messages = Vec::new();
        for size in sizes {
            self.count += 1;
            let body = Bytes::from_static(&BODY[..SIZES[usize::from(*size)]]);
            let size = u32::try_from(body.len()).expect("bodies are small");
            let (created, expires) = (self.now, self.now.plus_seconds(ttl));
            let header =
                Header { id: id(self.count), created, ttl, expires, attempts: 0, client: None, size };
            messages.push(Message { header, body });
        }
        self.waiting.push_back(Change::Post(messages));
    }

    fn send(&mut self) {
        if self.flight.is_some() || self.waiting.is_empty() {
            return;
        }
        let works: Vec<Change> = self.waiting.drain(..).collect();
        let mut changes = QueueChanges::of(QueueId::new(Slot(0), &mut self.claims), self.engine.low());
        for work in &works {
            match work {
                Change::Post(messages) => changes.appends.extend_from_slice(messages),
                Change::Return(_, headers) => changes.updates.extend_from_slice(headers),
                Change::Remove(ids) => changes.removes.extend_from_slice(ids),
            }
        }
        self.flight = Some(Flight { works, changes, is_durable: false });
    }

    fn apply(&mut self) {
        let Some(flight) = self.flight.as_mut().filter(|flight| !flight.is_durable) else { return };
        flight.is_durable = true;
        self.low = self.low.max(flight.changes.low);
        for message in &flight.changes.appends {
            self.low = self.low.min(message.header.id);
            self.last_id = self.last_id.max(message.header.id);
        }
        self.pool.apply(&flight.changes);
    }

    /// A batch that did not become durable before is one that failed.
    fn settle(&mut self) {
        let Some(Flight { works, is_durable, .. }) = self.flight.take() else { return };
        for work in works {
            match work {
                Change::Post(messages) if is_durable => self.posted(messages),
                Change::Post(_) => {}
                Change::Return(claim, _) if is_durable => self.set_stage(claim, Stage::HeadersDurable),
                Change::Return(claim, _) => self.end_failed(claim),
                Change::Remove(ids) if is_durable => self.removed(&ids),
                Change::Remove(ids) => {
                    self.engine.remove_failed(&ids);
                    ids.iter().for_each(|id| self.truth.remove_failed(*id));
                }
            }
        }
    }

    fn posted(&mut self, messages: Vec<Message>) {
        messages.iter().for_each(|message| self.truth.posted(message.header.clone()));
        self.engine.posted(messages);
    }

    fn removed(&mut self, ids: &[MessageId]) {
        let expected: Vec<ClaimId> = ids.iter().filter_map(|id| self.truth.removed(*id)).collect();
        let over = self.engine.removed(ids);
        assert_eq!(over, expected, "claims that are over");
        self.spent.extend(over);
        self.gone.extend_from_slice(ids);
    }

    fn clear_spent(&mut self) {
        for claim in self.spent.drain(..) {
            self.tree.remove(&claim);
        }
    }
}

/// Claims.
impl World {
    /// What is taken must be the oldest of what is ready, without a hole.
    fn take(&mut self, limit: usize) -> Taken {
        let ready: Vec<Header> = self.truth.ready().into_iter().cloned().collect();
        let taken = self.engine.take(limit, self.now);
        let (mut messages, mut expired) = (taken.messages.iter(), taken.expired.iter());
        let count = messages.len() + expired.len();
        assert!(count <= ready.len(), "{count} taken of {} that are ready", ready.len());
        for header in &ready[..count] {
            if header.is_expired(self.now) {
                assert_eq!(expired.next(), Some(&header.id));
                continue;
            }
            let (found, body) = messages.next().expect("no hole among the taken");
            assert_eq!(found, header);
            let stored = &self.pool.entries.get(&header.id).expect("the pool has what is taken").body;
            assert!(body.as_ref().is_none_or(|body| body == stored), "the body of another message");
        }
        let is_all = count == ready.len() || self.engine.has_more() || taken.messages.len() == limit;
        assert!(is_all, "{count} taken of {}, and the window says it is all", ready.len());
        let ids: Vec<MessageId> = taken.messages.iter().map(|(header, _)| header.id).collect();
        ids.iter().for_each(|id| self.truth.move_to(*id, Place::Taking));
        if !ids.is_empty() {
            let id = ClaimId::new(&mut self.claims);
            self.granting.push(Granting { id, ids, recorded: None });
        }
        if !taken.expired.is_empty() {
            taken.expired.iter().for_each(|id| self.truth.begin_remove(*id));
            self.waiting.push_back(Change::Remove(taken.expired.clone()));
        }
        taken
    }

    fn record(&mut self, at: usize) {
        let granting = &mut self.granting[at];
        if granting.recorded.is_some() {
            return;
        }
        let expires = self.now.plus_seconds(terms().ttl());
        granting.recorded = Some(expires);
        let attempt = |id: &MessageId| (*id, self.truth.header(*id).attempts + 1);
        let messages = granting.ids.iter().map(attempt).collect();
        self.tree.insert(granting.id, Record { expires, messages });
    }

    fn grant(&mut self, at: usize) {
        self.record(at);
        let Granting { id, ids, recorded } = self.granting.swap_remove(at);
        let expires = recorded.expect("it was recorded");
        let headers = self.engine.grant(id, terms(), expires, &ids);
        self.truth.grant(id, terms(), expires, &ids);
        let expected: Vec<&Header> = ids.iter().map(|id| self.truth.header(*id)).collect();
        assert_eq!(headers.iter().collect::<Vec<_>>(), expected, "what the claim's holder is told");
    }

    fn put_back(&mut self, at: usize) {
        if self.granting[at].recorded.is_some() {
            return;
        }
        let Granting { ids, .. } = self.granting.swap_remove(at);
        self.engine.put_back(&ids);
        ids.iter().for_each(|id| self.truth.move_to(*id, Place::Ready));
    }

    fn end(&mut self, number: u8, is_counted: bool) {
        let counts = if is_counted { Counts::Yes } else { Counts::No };
        let claims: Vec<ClaimId> = self.truth.claims.keys().copied().collect();
        let Some(at) = nth(&claims, number) else { return };
        let claim = claims[at];
        let Some(ended) = self.engine.begin_end(claim, counts) else {
            return assert!(self.truth.claims[&claim].is_ending, "a live claim can be ended");
        };
        assert!(!self.truth.claims[&claim].is_ending, "a claim is ended by one");
        self.truth.begin_end(claim, counts);
        for header in &ended.headers {
            assert_eq!(header, self.truth.header(header.id), "what is written of a returning message");
        }
        if ended.headers.is_empty() {
            return self.ending.push((claim, Stage::HeadersDurable));
        }
        self.ending.push((claim, Stage::InLane));
        self.waiting.push_back(Change::Return(claim, ended.headers));
    }

    fn set_stage(&mut self, claim: ClaimId, to: Stage) {
        for (_, stage) in self.ending.iter_mut().filter(|(ending, _)| *ending == claim) {
            *stage = to;
        }
    }

    fn unrecord(&mut self, at: usize) {
        let (claim, stage) = self.ending[at];
        if stage == Stage::HeadersDurable {
            self.tree.remove(&claim);
            self.set_stage(claim, Stage::Unrecorded);
        }
    }

    fn finish_end(&mut self, at: usize) {
        self.unrecord(at);
        if self.ending[at].1 == Stage::Unrecorded {
            let (claim, _) = self.ending.swap_remove(at);
            self.engine.ended(claim);
            self.truth.ended(claim);
        }
    }

    fn fail_end(&mut self, at: usize) {
        if self.ending[at].1 == Stage::HeadersDurable {
            self.end_failed(self.ending[at].0);
        }
    }

    fn end_failed(&mut self, claim: ClaimId) {
        self.ending.retain(|(ending, _)| *ending != claim);
        self.engine.end_failed(claim);
        self.truth.end_failed(claim);
    }
}

/// Removals.
impl World {
    fn remove(&mut self, target: Target, named: Named) {
        let Some(id) = self.target(target) else { return };
        let claim = self.named(id, named);
        let verdict = self.truth.judge(id, claim, self.now);
        let answer = self.engine.begin_remove(id, claim, self.now);
        let is_right = match (&answer, verdict) {
            (Ok(Removal::Begun), verdict) => verdict == Verdict::Begun,
            (Ok(Removal::AskPool), Verdict::AskPool | Verdict::Free) => true,
            (Err(Error::NotClaimed(of)), Verdict::Free) => *of == id,
            (Err(Error::Claimed(of)), Verdict::Claimed) => *of == id,
            (Err(Error::ClaimEnded(_)), Verdict::ClaimEnded) => true,
            (Ok(Removal::AskPool) | Err(_), _) => false,
        };
        assert!(is_right, "{answer:?} for {id}, and not {verdict:?}");
        match answer {
            Ok(Removal::Begun) => {}
            Ok(Removal::AskPool) if self.pool.entries.contains_key(&id) => return,
            Ok(Removal::AskPool) => self.engine.begin_remove_absent(id),
            Err(_) => return,
        }
        self.truth.begin_remove(id);
        self.waiting.push_back(Change::Remove(vec![id]));
    }

    fn target(&self, target: Target) -> Option<MessageId> {
        match target {
            Target::Known(number) => {
                let known: Vec<MessageId> = self.truth.messages.keys().copied().collect();
                nth(&known, number).map(|at| known[at])
            }
            Target::Unanswered(number) => {
                let is_unanswered = |id: &&MessageId| !self.truth.messages.contains_key(id);
                let listed: Vec<&MessageId> = self.pool.entries.keys().filter(is_unanswered).collect();
                nth(&listed, number).map(|at| *listed[at])
            }
            Target::Gone(number) => nth(&self.gone, number).map(|at| self.gone[at]),
            Target::Never => Some(MessageId::from_bytes([1; 16])),
        }
    }

    fn named(&mut self, id: MessageId, named: Named) -> Option<ClaimId> {
        match named {
            Named::Nobody => None,
            Named::Holder => match self.truth.messages.get(&id)?.place {
                Place::Claimed(claim) | Place::Returning(claim) => Some(claim),
                Place::Ready | Place::Taking => None,
            },
            Named::Other(number) => {
                let claims: Vec<ClaimId> = self.truth.claims.keys().copied().collect();
                nth(&claims, number).map(|at| claims[at])
            }
            Named::Stranger => Some(ClaimId::new(&mut self.claims)),
        }
    }
}

/// Refills.
impl World {
    fn begin_refill(&mut self) {
        if let Some(refill) = self.engine.begin_refill() {
            assert!(self.refill.is_none(), "two pages are read at once");
            self.refill = Some((refill, None));
        }
    }

    fn read_page(&mut self, limit: usize) {
        if let Some((refill, page @ None)) = &mut self.refill {
            let after = Some(refill.after).filter(|after| *after > MessageId::ZERO);
            *page = Some(self.pool.scan(Direction::Up, after, limit, 1 << 20));
        }
    }

    fn finish_refill(&mut self) {
        self.read_page(1_024);
        if let Some((refill, Some(page))) = self.refill.take() {
            self.engine.finish_refill(refill, page.messages, page.is_last);
        }
    }

    fn fail_refill(&mut self) {
        if self.refill.take().is_some() {
            self.engine.refill_failed();
        }
    }
}

/// Crashes, and what holds always.
impl World {
    /// Builds the engine again from the pool and the records, as the broker does when it opens a queue.
    fn crash(&mut self) {
        (self.flight, self.refill) = (None, None);
        self.waiting.clear();
        self.granting.clear();
        self.ending.clear();
        self.spent.clear();
        self.engine = QueueEngine::open(self.last_id);
        self.truth = Truth::default();
        for message in self.pool.entries.values() {
            self.truth.posted(message.header.clone());
        }
        for (claim, record) in &self.tree {
            let ids: Vec<MessageId> = record.messages.iter().map(|(id, _)| *id).collect();
            let found: Vec<Header> = self.pool.get(&ids).into_iter().map(|message| message.header).collect();
            if found.is_empty() {
                self.spent.push(*claim);
                continue;
            }
            let ids: Vec<MessageId> = found.iter().map(|header| header.id).collect();
            self.truth.grant(*claim, terms(), record.expires, &ids);
            let mut headers = Vec::new();
            for header in found {
                let attempt = record.messages.iter().find(|(id, _)| *id == header.id).map_or(0, |(_, n)| *n);
                let known = self.truth.messages.get_mut(&header.id).expect("the pool has it");
                known.header.attempts = header.attempts.max(attempt);
                headers.push((header, attempt));
            }
            self.engine.restore_claim(*claim, terms(), record.expires, headers);
        }
    }

    /// What holds after each step.
    pub fn check(&self) {
        let hidden = |place| !matches!(place, Place::Ready);
        let claimed = self.truth.messages.values().filter(|known| hidden(known.place)).count();
        assert_eq!(self.engine.claimed(), claimed as u64, "claimed");
        if let Some(oldest) = self.pool.entries.keys().next() {
            assert!(self.engine.low() <= *oldest, "{} is above {oldest}", self.engine.low());
            assert!(self.low <= *oldest, "the pool's hint {} is above {oldest}", self.low);
        }
        for (claim, lease) in &self.truth.claims {
            let is_due = !lease.is_ending && lease.expires <= self.now;
            assert_eq!(self.engine.is_due(*claim, self.now), is_due, "whether the claim is due");
        }
        for (id, known) in &self.truth.messages {
            let expected = match known.place {
                Place::Claimed(claim) => Some((claim, known.header.clone())),
                Place::Ready | Place::Taking | Place::Returning(_) => None,
            };
            assert_eq!(self.engine.hold(*id), expected, "who holds {id}");
            if known.removals == 0 {
                self.check_durable(&known.header, known.place);
            }
        }
    }

    /// A crash now would lose nothing that anybody was told.
    fn check_durable(&self, header: &Header, place: Place) {
        let entry = self.pool.entries.get(&header.id).expect("the pool has what nobody removes");
        let named =
            |record: &Record| record.messages.iter().find(|(id, _)| *id == header.id).map(|(_, n)| *n);
        match place {
            Place::Ready => {
                assert_eq!(&entry.header, header, "the stored header of a ready message");
                assert!(!self.tree.values().any(|r| named(r).is_some()), "a ready message is under a record");
            }
            Place::Claimed(claim) if !self.truth.claims[&claim].is_ending => {
                assert_eq!(self.tree.get(&claim).and_then(named), Some(header.attempts), "its record");
            }
            Place::Taking | Place::Claimed(_) | Place::Returning(_) => {}
        }
    }

    /// Lets everything under way come to its end, then takes all there is: exactly what is ready, in order.
    pub fn drain(&mut self) {
        self.finish_refill();
        self.flush();
        let now = self.now;
        let ready = self.truth.ready().into_iter().filter(|header| !header.is_expired(now));
        let expected: Vec<MessageId> = ready.map(|header| header.id).collect();
        let mut drained = Vec::new();
        for _ in 0..ROUNDS {
            let taken = self.take(3);
            drained.extend(taken.messages.iter().map(|(header, _)| header.id));
            let is_empty = taken.messages.is_empty() && taken.expired.is_empty();
            if is_empty && !self.engine.has_more() {
                assert_eq!(drained, expected);
                return;
            }
            self.begin_refill();
            assert!(!is_empty || self.refill.is_some(), "an empty window is not filled");
            self.finish_refill();
            self.flush();
            self.check();
        }
        panic!("the queue is never whole");
    }

    fn flush(&mut self) {
        while self.flight.is_some() || !self.waiting.is_empty() {
            self.send();
            self.apply();
            self.settle();
        }
        while !self.granting.is_empty() {
            self.grant(0);
        }
        while !self.ending.is_empty() {
            self.finish_end(0);
        }
        self.clear_spent();
    }
}
