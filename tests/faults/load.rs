//! Owns the load that runs while a fault strikes: producers and consumers, each on connections of its
//! own, that write what they did into the history. It never repeats an operation, because a repeat would
//! blur what is unknown; and it never judges, but stops the test where a well-formed request is refused.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::history::{History, Moment, Outcome, SettledMessage, Tag};
use crate::support::client::{Answer, Claim, Client, Reply};
use crate::support::pauses::Stopper;

/// The first two have one producer each, so that their order can be judged.
pub const QUEUES: [&str; 4] = ["orders", "letters", "chores", "scraps"];
const PRODUCER_QUEUES: [usize; 6] = [0, 1, 2, 2, 3, 3];
/// From this one on some messages are posted with a delay.
const DELAYED: usize = 2;
/// This one is purged now and then: of a purge without an answer no process can say what it took along.
const PURGED: usize = 3;
const CONSUMERS: u32 = 3;
/// The producer of all messages that consumers forward. Their targets are queues whose order is not judged.
const FORWARDER: u32 = 100;
/// Keeps the final drain short: above it producers pause.
const BACKLOG: i64 = 2000;
/// Deletes on their way whose answers the consumers do not wait for.
const UNAWAITED: usize = 64;

/// All clients. They keep their identity, and producers their place, from round to round.
pub struct Load {
    /// What they do when a connection breaks.
    breaks: Breaks,
    producers: Vec<Producer>,
    backlog: [AtomicI64; QUEUES.len()],
    /// Seconds that claims last.
    claim_ttl: RangeInclusive<u64>,
    purges: bool,
    settles: bool,
    /// Number of forwarded messages so far.
    forwarded: AtomicU64,
    /// Claims whose release has no certain outcome. Held for a push or a pop.
    doubtful: Mutex<Vec<(&'static str, Claim)>>,
}

/// What a client does when no answer arrives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Breaks {
    /// It ends: its server is gone.
    End,
    /// It continues: another server answers at the same address.
    GoOn,
}

struct Producer {
    id: u32,
    queue: usize,
    next: u64,
}

/// What the threads of one round share.
struct Round<'a> {
    base: &'a str,
    breaks: Breaks,
    history: &'a History,
    backlog: &'a [AtomicI64; QUEUES.len()],
    claim_ttl: RangeInclusive<u64>,
    purges: bool,
    settles: bool,
    forwarded: &'a AtomicU64,
    doubtful: &'a Mutex<Vec<(&'static str, Claim)>>,
    over: AtomicBool,
}

/// A message to be deleted by its claim.
struct Doomed {
    queue: &'static str,
    id: String,
    claim: String,
}

impl Load {
    /// Clients of one server.
    pub fn new() -> Self {
        Self::of(Breaks::End)
    }

    /// Clients of a load balancer: they go on where a request was lost.
    pub fn balanced() -> Self {
        Self::of(Breaks::GoOn)
    }

    fn of(breaks: Breaks) -> Self {
        let producers = (0..).zip(PRODUCER_QUEUES).map(|(id, queue)| Producer { id, queue, next: 0 });
        let (producers, backlog) = (producers.collect(), Default::default());
        Self {
            breaks,
            producers,
            backlog,
            claim_ttl: 60..=300,
            purges: true,
            settles: true,
            forwarded: AtomicU64::default(),
            doubtful: Mutex::default(),
        }
    }

    /// The same, with claims that last so many seconds: shorter ones end while the load runs.
    pub fn with_claims_of(self, claim_ttl: RangeInclusive<u64>) -> Self {
        Self { claim_ttl, ..self }
    }

    /// The same without purges, which an earlier program may not do wholly, and without settles, which it does not know.
    pub fn of_earlier_programs(self) -> Self {
        Self { purges: false, settles: false, ..self }
    }

    /// Runs all clients against the server at `base` until `fault` has returned and each of them has
    /// noticed.
    pub fn run_while(&mut self, base: &str, history: &History, dice: &mut StdRng, fault: impl FnOnce()) {
        let (breaks, over) = (self.breaks, AtomicBool::new(false));
        let (backlog, claim_ttl, doubtful) = (&self.backlog, self.claim_ttl.clone(), &self.doubtful);
        let (purges, settles, forwarded) = (self.purges, self.settles, &self.forwarded);
        let round =
            &Round { base, breaks, history, backlog, claim_ttl, purges, settles, forwarded, doubtful, over };
        thread::scope(|scope| {
            let stopper = Stopper(&round.over);
            for producer in &mut self.producers {
                let dice = StdRng::from_rng(dice);
                scope.spawn(move || producer.run(round, dice));
            }
            let (doomed, deletes) = sync_channel(UNAWAITED);
            scope.spawn(move || delete_all(round, &deletes));
            for id in 0..CONSUMERS {
                let consumer = Consumer { id, round, client: Client::new(base), doomed: doomed.clone() };
                let dice = StdRng::from_rng(dice);
                scope.spawn(move || consumer.run(dice));
            }
            drop(doomed);
            fault();
            drop(stopper);
        });
    }
}

impl Round<'_> {
    fn continues(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// Writes down a claim that failed or got no answer.
    fn note_lost(&self, queue: &'static str, start: Moment) {
        match self.breaks {
            Breaks::End => self.history.grant_lost(queue, start),
            Breaks::GoOn => self.history.grant_in_doubt(queue, start),
        }
    }

    /// Whether a client continues after this reply. It pauses after one that did not come.
    fn is_there(&self, reply: &Reply) -> bool {
        if reply.is_err() && self.breaks == Breaks::GoOn {
            thread::sleep(Duration::from_millis(20));
            return true;
        }
        reply.is_ok()
    }
}

impl Producer {
    fn run(&mut self, round: &Round, mut dice: StdRng) {
        let client = Client::new(round.base);
        while round.continues() {
            if round.backlog[self.queue].load(Ordering::Relaxed) > BACKLOG {
                thread::sleep(Duration::from_millis(2));
                continue;
            }
            let count = if dice.random_bool(0.6) { 1 } else { dice.random_range(2..=10) };
            let is_delayed = self.queue >= DELAYED && dice.random_bool(0.2);
            let delay = is_delayed.then(|| dice.random_range(1..=3));
            let Some(posted) = self.post(round, &client, count, delay) else { return };
            // By its id alone, whether a process has claimed it meanwhile or not.
            if let Some(id) = posted.choose(&mut dice).filter(|_| dice.random_bool(0.1))
                && !delete(round, &client, QUEUES[self.queue], id, None)
            {
                return;
            }
        }
    }

    /// The ids of what it certainly posted; none when the server is not there any more.
    fn post(
        &mut self,
        round: &Round,
        client: &Client,
        count: u64,
        delay: Option<u64>,
    ) -> Option<Vec<String>> {
        let queue = QUEUES[self.queue];
        let tags: Vec<_> =
            (self.next..self.next + count).map(|number| Tag { producer: self.id, number }).collect();
        self.next += count;
        let bodies: Vec<_> = tags.iter().map(|tag| tag.body()).collect();
        let start = round.history.now();
        let reply = match delay {
            Some(delay) => client.post_delayed(queue, &bodies, delay),
            None => client.post_messages(queue, &bodies),
        };
        let mut posted = Vec::new();
        match round.history.posted(queue, tags, start, &reply) {
            Outcome::Acked => {
                round.backlog[self.queue].fetch_add(count.cast_signed(), Ordering::Relaxed);
                posted = reply.as_ref().map(Answer::posted_ids).unwrap_or_default();
            }
            Outcome::Refused => panic!("a post is refused: {reply:?}"),
            Outcome::Unknown => thread::sleep(Duration::from_millis(5)),
        }
        round.is_there(&reply).then_some(posted)
    }
}

struct Consumer<'a> {
    id: u32,
    round: &'a Round<'a>,
    client: Client,
    doomed: SyncSender<Doomed>,
}

impl Consumer<'_> {
    fn run(&self, mut dice: StdRng) {
        while self.round.continues() {
            if !self.delete_doubtful() {
                return;
            }
            let queue = dice.random_range(0..QUEUES.len());
            let is_purge = queue == PURGED && self.round.purges && dice.random_bool(0.03);
            let goes_on = if is_purge { self.purge(queue) } else { self.claim(queue, &mut dice) };
            if !goes_on {
                return;
            }
        }
    }

    /// Whether the server is still there.
    fn claim(&self, queue: usize, dice: &mut StdRng) -> bool {
        let (limit, ttl) = (dice.random_range(1..=10), dice.random_range(self.round.claim_ttl.clone()));
        let history = self.round.history;
        let start = history.now();
        let reply = self.client.claim(QUEUES[queue], limit, ttl);
        let Ok(answer) = &reply else {
            self.round.note_lost(QUEUES[queue], start);
            return self.round.is_there(&reply);
        };
        assert!(!answer.status.is_client_error(), "a claim is refused: {answer:?}");
        if answer.status.is_server_error() {
            self.round.note_lost(QUEUES[queue], start);
            return true;
        }
        let Some(claim) = answer.granted() else {
            thread::sleep(Duration::from_millis(dice.random_range(1..5)));
            return true;
        };
        history.granted(QUEUES[queue], self.id, ttl, start, &claim);
        let taken = i64::try_from(claim.messages.len()).unwrap_or_default();
        self.round.backlog[queue].fetch_sub(taken, Ordering::Relaxed);
        self.use_up(QUEUES[queue], &claim, dice)
    }

    /// Whether the server is still there.
    fn purge(&self, queue: usize) -> bool {
        let start = self.round.history.now();
        let reply = self.client.purge(QUEUES[queue]);
        let outcome = self.round.history.purged(QUEUES[queue], start, &reply);
        assert!(outcome != Outcome::Refused, "a purge is refused: {reply:?}");
        self.round.backlog[queue].store(0, Ordering::Relaxed);
        self.round.is_there(&reply)
    }

    /// Deletes all messages of a claim in one request. Whether the server is still there.
    fn delete_all(&self, queue: &'static str, claim: &Claim) -> bool {
        let ids: Vec<&str> = claim.messages.iter().map(|message| message.id.as_str()).collect();
        let start = self.round.history.now();
        let reply = self.client.delete_messages(queue, &ids, &claim.id);
        for id in ids {
            self.round.history.deleted(id, &claim.id, start, &reply);
        }
        self.round.is_there(&reply)
    }

    /// Deletes the messages of a claim whose release may have come half-way: if the claim lives still, they are gone for
    /// good. Whether the server is still there.
    fn delete_doubtful(&self) -> bool {
        let Some((queue, claim)) = self.round.doubtful.lock().pop() else { return true };
        let holder = Some(claim.id.as_str());
        claim.messages.iter().all(|message| delete(self.round, &self.client, queue, &message.id, holder))
    }

    /// Settles each message of a claim as done, with one forward. Whether the server is still there.
    fn settle(&self, queue: &'static str, claim: &Claim, dice: &mut StdRng) -> bool {
        claim.messages.iter().all(|message| {
            let number = self.round.forwarded.fetch_add(1, Ordering::Relaxed);
            let forward = Tag { producer: FORWARDER, number };
            let target = dice.random_range(DELAYED..QUEUES.len());
            let settled =
                SettledMessage { id: &message.id, claim: &claim.id, target: QUEUES[target], forward };
            let start = self.round.history.now();
            let body = forward.body();
            let reply = self.client.settle_forwarding(queue, &claim.id, &message.id, QUEUES[target], &body);
            if self.round.history.settled(&settled, start, &reply) == Outcome::Acked {
                self.round.backlog[target].fetch_add(1, Ordering::Relaxed);
            }
            self.round.is_there(&reply)
        })
    }

    /// Works on a claim in one of six ways. Whether the server is still there.
    fn use_up(&self, queue: &'static str, claim: &Claim, dice: &mut StdRng) -> bool {
        match dice.random_range(0..10) {
            0 => true, // abandoned
            1 | 2 => {
                let start = self.round.history.now();
                let reply = match dice.random_range(0..3) {
                    0 => self.client.release_claim(queue, &claim.id),
                    delay => self.client.put_off_claim(queue, &claim.id, delay),
                };
                self.round.history.released(&claim.id, start, &reply);
                if Outcome::of(&reply) == Outcome::Unknown {
                    self.round.doubtful.lock().push((queue, claim.clone()));
                }
                self.round.is_there(&reply)
            }
            3..5 => claim.messages.iter().all(|message| {
                self.doomed.send(Doomed { queue, id: message.id.clone(), claim: claim.id.clone() }).is_ok()
            }),
            5 => self.delete_all(queue, claim),
            6 if self.round.settles => self.settle(queue, claim, dice),
            6 => self.delete_all(queue, claim),
            _ => claim
                .messages
                .iter()
                .all(|message| delete(self.round, &self.client, queue, &message.id, Some(&claim.id))),
        }
    }
}

/// Deletes what consumers do not wait for, until they have ended or the server has.
fn delete_all(round: &Round, deletes: &Receiver<Doomed>) {
    let client = Client::new(round.base);
    while let Ok(doomed) = deletes.recv() {
        if !delete(round, &client, doomed.queue, &doomed.id, Some(&doomed.claim)) {
            return;
        }
    }
}

/// Whether the server is still there.
fn delete(round: &Round, client: &Client, queue: &str, id: &str, claim: Option<&str>) -> bool {
    let start = round.history.now();
    let reply = client.delete_message(queue, id, claim);
    round.history.deleted(id, claim.unwrap_or_default(), start, &reply);
    round.is_there(&reply)
}
