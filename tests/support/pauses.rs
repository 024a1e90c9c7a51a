//! Owns clients that use a service all the time while a test changes it, and their longest times without a success. It
//! never judges a single request.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;

use super::client::{Answer, Client, Reply};
use angarium_testbed::settings;

/// Max pause of a hand-over, in seconds, on a machine that is busy with other tests. On a quiet one 4 are kept.
const HAND_OVER: u64 = 20;
/// What such a machine may add to the pause of a change, beside that of a hand-over in the same test, in seconds. On a quiet one
/// 3 are kept.
const NOISE: u64 = 15;

/// Returns the max pause of a hand-over.
pub fn max_hand_over() -> Duration {
    Duration::from_secs(settings::number("ANGARIUM_HAND_OVER", HAND_OVER))
}

/// Returns what may be added to the pause of a change, beside that of a hand-over in the same test.
pub fn noise() -> Duration {
    Duration::from_secs(settings::number("ANGARIUM_HAND_OVER_NOISE", NOISE))
}

/// Time between two cycles of a client: it leaves the machine to others.
const REST: Duration = Duration::from_millis(10);
/// Timeout of a request: longer than any pause that a test allows.
const ATTEMPT: Duration = Duration::from_secs(60);
/// Seconds that a claim lasts: longer than a test.
const CLAIM: u64 = 3_600;
/// Failures that are kept of each client.
const KEPT: usize = 5;

/// The way of a client to the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Over a load balancer at this URL.
    Balancer(String),
    /// To the replica at this URL. While it does not answer, a load balancer would ask others: that is no pause.
    Replica(String),
}

/// The longest time without a success so far.
#[derive(Debug)]
pub struct Pause {
    /// The last success; none while the server is away.
    last: Option<Instant>,
    longest: Duration,
}

impl Pause {
    /// Begins now, as after a success.
    pub fn begin() -> Self {
        Self { last: Some(Instant::now()), longest: Duration::ZERO }
    }

    /// Notes a success.
    pub fn succeed(&mut self) {
        self.wait();
        self.last = Some(Instant::now());
    }

    /// Counts the time up to now.
    fn wait(&mut self) {
        let waited = self.last.map_or(Duration::ZERO, |last| last.elapsed());
        self.longest = self.longest.max(waited);
    }

    /// Counts the time up to now, and none from now on until the next success.
    fn depart(&mut self) {
        self.wait();
        self.last = None;
    }

    /// Returns the longest time up to now.
    pub fn longest(mut self) -> Duration {
        self.wait();
        self.longest
    }
}

/// What the clients of a change have met.
#[derive(Debug, Default)]
pub struct Traffic {
    /// The longest time of a client without a success of a post, of a claim, and of a deletion.
    pub pauses: [Duration; 3],
    pub requests: usize,
    /// Number of requests without an answer.
    pub unanswered: usize,
    /// Number of refused requests, and over a load balancer also of ones without an answer.
    pub failed: usize,
    /// Some of these.
    pub failures: Vec<String>,
    /// Messages of acknowledged posts that no claim has delivered, with their queues.
    left: Vec<(String, String)>,
}

impl Traffic {
    /// Returns the longest of the pauses.
    pub fn longest(&self) -> Duration {
        self.pauses.iter().copied().max().unwrap_or_default()
    }

    /// Prints the figures of a change, and asserts that it has paused no client for longer than `max`, and that no
    /// acknowledged message is lost.
    pub fn assert_kept(&self, what: &str, max: Duration, client: &Client) {
        let [posts, claims, deletions] = self.pauses;
        eprintln!(
            "{what}: the longest pauses are {posts:.2?} of posts, {claims:.2?} of claims, {deletions:.2?} of deletions \
             (bar {max:.2?}); of {} requests {} had no answer, {} failed {:?}",
            self.requests, self.unanswered, self.failed, self.failures
        );
        assert!(self.longest() <= max, "{what}: a pause of {:?}", self.longest());
        let is_there = |queue: &str, id: &str| {
            client.get_message(queue, id).is_ok_and(|answer| answer.status == StatusCode::OK)
        };
        let lost: Vec<_> = self.left.iter().filter(|(queue, id)| !is_there(queue, id)).collect();
        assert!(lost.is_empty(), "{what}: lost: {lost:?}");
    }

    fn add(mut self, other: Self) -> Self {
        self.pauses.iter_mut().zip(other.pauses).for_each(|(pause, of_other)| *pause = of_other.max(*pause));
        self.requests += other.requests;
        self.unanswered += other.unanswered;
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.left.extend(other.left);
        self
    }
}

/// Makes a change while clients post, claim and delete on each of these ways, in this many queues each.
pub fn watch<T>(routes: &[Route], queues: usize, change: impl FnOnce() -> T) -> (T, Traffic) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers = routes.iter().enumerate().flat_map(|(route, way)| {
            (0..queues).map(move |queue| Worker::new(way, format!("pause-{route}-{queue}")))
        });
        let end = &stop;
        let running: Vec<_> = workers.map(|worker| scope.spawn(move || worker.run(end))).collect();
        let stopper = Stopper(&stop);
        let changed = change();
        drop(stopper);
        let all = running.into_iter().map(|worker| worker.join().expect("a client does not panic"));
        (changed, all.fold(Traffic::default(), Traffic::add))
    })
}

/// Ends clients when it is dropped, also by a panic: a scope of threads waits for them.
pub struct Stopper<'a>(pub &'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One client with a queue of its own.
struct Worker {
    is_balanced: bool,
    client: Client,
    queue: String,
    pauses: [Pause; 3],
    /// Messages of acknowledged posts.
    posted: HashSet<String>,
    /// Messages that claims have delivered.
    claimed: HashSet<String>,
    traffic: Traffic,
}

/// The operations of a cycle, as indices of pauses.
const POST: usize = 0;
const TAKE: usize = 1;
const DELETE: usize = 2;

impl Worker {
    fn new(route: &Route, queue: String) -> Self {
        let (Route::Balancer(base) | Route::Replica(base)) = route;
        Self {
            is_balanced: matches!(route, Route::Balancer(_)),
            client: Client::with_timeout(base, ATTEMPT),
            queue,
            pauses: [(); 3].map(|()| Pause::begin()),
            posted: HashSet::new(),
            claimed: HashSet::new(),
            traffic: Traffic::default(),
        }
    }

    fn run(mut self, stop: &AtomicBool) -> Traffic {
        while !stop.load(Ordering::Relaxed) {
            self.cycle();
            thread::sleep(REST);
        }
        let left = self.posted.difference(&self.claimed).map(|id| (self.queue.clone(), id.clone())).collect();
        Traffic { pauses: self.pauses.map(Pause::longest), left, ..self.traffic }
    }

    fn cycle(&mut self) {
        let posted = self.client.post_messages(&self.queue, &[json!(self.traffic.requests)]);
        let posted = self.note(POST, posted).map(|answer| answer.posted_ids());
        self.posted.extend(posted.unwrap_or_default());
        let claimed = self.client.claim(&self.queue, 1, CLAIM);
        let Some(claim) = self.note(TAKE, claimed).and_then(|answer| answer.granted()) else { return };
        for message in claim.messages {
            let deleted = self.client.delete_message(&self.queue, &message.id, Some(&claim.id));
            self.note(DELETE, deleted);
            self.claimed.insert(message.id);
        }
    }

    /// Notes the outcome of a request, and returns the answer of a success.
    fn note(&mut self, operation: usize, reply: Reply) -> Option<Answer> {
        self.traffic.requests += 1;
        let failure = match reply {
            Ok(answer) if answer.status.is_success() => {
                self.pauses[operation].succeed();
                return Some(answer);
            }
            failure => failure,
        };
        self.traffic.unanswered += usize::from(failure.is_err());
        if failure.is_err() && !self.is_balanced {
            self.pauses.iter_mut().for_each(Pause::depart);
            return None;
        }
        self.traffic.failed += 1;
        if self.traffic.failures.len() < KEPT {
            let text = failure.map(|answer| format!("{}: {}", answer.status, answer.text()));
            self.traffic.failures.push(text.unwrap_or_else(|no_answer| no_answer.0));
        }
        None
    }
}

#[test]
fn time_of_an_absent_replica_is_no_pause() {
    let began = Instant::now();
    let mut pause = Pause::begin();
    thread::sleep(Duration::from_millis(20));
    pause.depart();
    let present = began.elapsed();
    thread::sleep(Duration::from_millis(200));
    pause.succeed();
    assert!(pause.longest <= present, "{pause:?} of {present:?}");
    thread::sleep(Duration::from_millis(200));
    assert!(pause.longest() >= Duration::from_millis(200));
}
