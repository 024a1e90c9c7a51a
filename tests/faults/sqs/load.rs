//! Owns the load of SQS clients that runs while faults strike: producers and consumers of standard and FIFO queues that write
//! what they did into the history. A receive is written as a grant of each of its messages, whose claim is the handle.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::client::{ReceivedMessage, Sqs, received, sent_ids};
use crate::faults::history::{
    DOUBT, Delete, Grant, History, LostGrant, Moment, Outcome, Post, Release, ShownMessage, Span, Tag,
};
use crate::support::client::Reply;
use crate::support::pauses::Stopper;

/// The first has one producer, so that its order can be judged; the last is in order of groups.
pub const QUEUES: [&str; 3] = ["letters", "chores", FIFO];
pub const FIFO: &str = "ledger.fifo";
const PRODUCER_QUEUES: [usize; 5] = [0, 1, 1, 2, 2];
const CONSUMERS: u32 = 4;
/// Groups of a producer.
const GROUPS: u64 = 3;
/// Keeps the final drain short: above it producers pause.
const BACKLOG: i64 = 500;
/// For how long a receive hides its messages, in seconds: within a round many receives have ended before their messages
/// are deleted.
const VISIBILITY: std::ops::Range<u64> = 4..9;
/// How long after that a late consumer deletes: longer than a take-over puts the end of a claim off.
const LATE: Duration = Duration::from_secs(4);
/// The pause after a request that was not answered.
const PAUSE: Duration = Duration::from_millis(20);

/// What all clients share.
pub struct Load<'a> {
    base: &'a str,
    history: &'a History,
    backlog: [AtomicI64; QUEUES.len()],
    over: AtomicBool,
}

impl<'a> Load<'a> {
    pub fn new(base: &'a str, history: &'a History) -> Self {
        Self { base, history, backlog: Default::default(), over: AtomicBool::new(false) }
    }

    /// Runs all clients until `faults` has returned.
    pub fn run_while(&self, dice: &mut StdRng, faults: impl FnOnce()) {
        thread::scope(|scope| {
            let stopper = Stopper(&self.over);
            for (id, queue) in (0..).zip(PRODUCER_QUEUES) {
                let (client, dice) = (Sqs::new(self.base), StdRng::from_rng(dice));
                scope.spawn(move || Producer { load: self, client, id, queue, next: 0 }.run(dice));
            }
            for id in 0..CONSUMERS {
                let (client, dice) = (Sqs::new(self.base), StdRng::from_rng(dice));
                scope.spawn(move || Consumer { load: self, client, id, late: VecDeque::new() }.run(dice));
            }
            faults();
            drop(stopper);
        });
    }

    fn continues(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }
}

/// The group of a message: those of one producer in one of its groups are in the order of their numbers.
pub fn group(tag: Tag) -> (u32, u64) {
    (tag.producer, tag.number % GROUPS)
}

struct Producer<'a> {
    load: &'a Load<'a>,
    client: Sqs,
    id: u32,
    queue: usize,
    next: u64,
}

impl Producer<'_> {
    fn run(&mut self, mut dice: StdRng) {
        while self.load.continues() {
            if self.load.backlog[self.queue].load(Ordering::Relaxed) > BACKLOG {
                thread::sleep(Duration::from_millis(5));
            } else {
                let count = if dice.random_bool(0.5) { 1 } else { dice.random_range(2..=10) };
                self.send(count);
            }
        }
    }

    /// Sends new messages. In a FIFO queue it repeats what has no certain outcome: that must not make a second message.
    fn send(&mut self, count: u64) {
        let (queue, producer) = (QUEUES[self.queue], self.id);
        let tags: Vec<Tag> = (self.next..self.next + count).map(|number| Tag { producer, number }).collect();
        self.next += count;
        let entries: Vec<Value> = tags.iter().map(|tag| entry(queue, *tag)).collect();
        let start = self.load.history.now();
        loop {
            let reply = self.client.send(queue, entries.clone());
            let outcome = Outcome::of(&reply);
            assert_ne!(outcome, Outcome::Refused, "a send is refused: {reply:?}");
            if outcome == Outcome::Unknown && queue == FIFO && self.load.continues() {
                thread::sleep(PAUSE);
                continue;
            }
            let ids = match &reply {
                Ok(answer) if outcome == Outcome::Acked => sent_ids(answer),
                Ok(_) | Err(_) => Vec::new(),
            };
            self.load.backlog[self.queue].fetch_add(ids.len().cast_signed() as i64, Ordering::Relaxed);
            let span = self.load.history.span_from(start);
            self.load.history.note(|record| record.posts.push(Post { queue, tags, span, outcome, ids }));
            if outcome == Outcome::Unknown {
                thread::sleep(PAUSE);
            }
            return;
        }
    }
}

fn entry(queue: &str, tag: Tag) -> Value {
    let mut entry = json!({"MessageBody": tag.body().to_string()});
    if queue == FIFO {
        let (producer, group) = group(tag);
        entry["MessageGroupId"] = json!(format!("{producer}-{group}"));
        entry["MessageDeduplicationId"] = json!(format!("{}-{}", tag.producer, tag.number));
    }
    entry
}

/// A message to be deleted by its handle.
struct Doomed {
    queue: &'static str,
    id: String,
    handle: String,
}

struct Consumer<'a> {
    load: &'a Load<'a>,
    client: Sqs,
    id: u32,
    /// What it deletes when its receives are long over, with the time for that.
    late: VecDeque<(Moment, Doomed)>,
}

impl Consumer<'_> {
    fn run(mut self, mut dice: StdRng) {
        while self.load.continues() {
            while self.late.front().is_some_and(|(due, _)| *due < self.load.history.now()) {
                if let Some((_, doomed)) = self.late.pop_front() {
                    delete(&self.client, self.load.history, &doomed);
                }
            }
            self.receive(dice.random_range(0..QUEUES.len()), &mut dice);
        }
    }

    fn receive(&mut self, queue: usize, dice: &mut StdRng) {
        let visibility = dice.random_range(VISIBILITY);
        let (most, wait) = (dice.random_range(1..=10), dice.random_range(0..=1));
        let history = self.load.history;
        let start = history.now();
        let reply = self.client.receive(QUEUES[queue], most, visibility, wait);
        let messages = note_receive(history, QUEUES[queue], self.id, visibility, start, &reply);
        if reply.is_err() {
            thread::sleep(PAUSE);
        }
        let taken = i64::try_from(messages.len()).unwrap_or_default();
        self.load.backlog[queue].fetch_sub(taken, Ordering::Relaxed);
        let due = start + Duration::from_secs(visibility) + LATE;
        self.use_up(QUEUES[queue], messages, due, dice);
    }

    /// Does with the messages of a receive what consumers do: most delete them all, one after the other.
    fn use_up(
        &mut self,
        queue: &'static str,
        messages: Vec<ReceivedMessage>,
        due: Moment,
        dice: &mut StdRng,
    ) {
        let way = dice.random_range(0..10);
        for (place, message) in messages.into_iter().enumerate() {
            let doomed = Doomed { queue, id: message.id, handle: message.handle };
            match way {
                0 => return, // abandoned
                1 => self.late.push_back((due, doomed)),
                2 if place == 0 => self.show(&doomed),
                3 if place > 2 => return, // it dies in between
                _ => delete(&self.client, self.load.history, &doomed),
            }
        }
    }

    fn show(&self, shown: &Doomed) {
        let history = self.load.history;
        let start = history.now();
        let outcome = Outcome::of(&self.client.show(shown.queue, &shown.handle));
        let release = Release { claim: shown.handle.clone(), span: history.span_from(start), outcome };
        history.note(|record| record.releases.push(release));
    }
}

/// Writes a receive down, and returns its messages.
pub fn note_receive(
    history: &History,
    queue: &'static str,
    consumer: u32,
    visibility: u64,
    start: Moment,
    reply: &Reply,
) -> Vec<ReceivedMessage> {
    let (span, ttl) = (history.span_from(start), Duration::from_secs(visibility));
    match reply {
        Ok(answer) if answer.status.is_success() => {
            let messages = received(answer);
            let grant = |message: &ReceivedMessage| Grant {
                queue,
                consumer,
                claim: message.handle.clone(),
                ttl,
                span,
                messages: vec![ShownMessage { id: message.id.clone(), tag: Tag::of(&message.body) }],
            };
            history.note(|record| record.grants.extend(messages.iter().map(grant)));
            messages
        }
        Ok(answer) => {
            assert!(answer.status.is_server_error(), "a receive is refused: {answer:?}");
            note_lost(history, queue, span);
            Vec::new()
        }
        Err(_) => {
            note_lost(history, queue, span);
            Vec::new()
        }
    }
}

fn note_lost(history: &History, queue: &'static str, span: Span) {
    let latest = span.end + DOUBT;
    history.note(|record| record.lost_grants.push(LostGrant { queue, span, latest }));
}

fn delete(client: &Sqs, history: &History, doomed: &Doomed) {
    let start = history.now();
    let reply = client.delete(doomed.queue, &doomed.handle);
    note_delete(history, &doomed.id, &doomed.handle, start, &reply);
    if reply.is_err() {
        thread::sleep(PAUSE);
    }
}

/// Writes a delete down.
pub fn note_delete(history: &History, id: &str, handle: &str, start: Moment, reply: &Reply) {
    let (span, outcome) = (history.span_from(start), Outcome::of(reply));
    let delete = Delete { id: id.to_owned(), claim: handle.to_owned(), span, outcome };
    history.note(|record| record.deletes.push(delete));
}
