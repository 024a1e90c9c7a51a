//! A step of the wall clock of a real ZooKeeper server, by an hour: claims and lives of messages last as long as their clients
//! were told, also where a replica starts after the step and where another one takes the slot over.

use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};

use super::{Cluster, MAX_WAIT, Replica, queues, slot_of};
use crate::support::clock_step::SteppedClock;
use angarium_testbed::held::wait_until;
use angarium_testbed::zookeeper::ZooKeeper;

const HOUR: i64 = 3_600_000;
/// Sessions are short, so that a killed replica is replaced soon.
const SETTINGS: &[&str] = &["--min-claim-ttl=1", "--session-timeout=4"];
/// Of the claim, in seconds: a replica is restarted and another one drained meanwhile.
const TTL: u32 = 18;
/// A new owner ends no claim before.
const HELD_AFTER_TAKEOVER: Duration = Duration::from_secs(2);
/// By which the tree time of two replicas may differ.
const APART: Duration = Duration::from_secs(1);
/// What a busy machine takes to end a claim that is due, and to claim its message again.
const LATE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);

/// Tree time runs at most so fast while it follows a step, and at least so.
const FASTEST: f64 = 1.1;
const SLOWEST: f64 = 0.9;

/// A claim, and the instants between which it was granted.
struct HeldClaim {
    queue: String,
    began: Instant,
    granted: Instant,
    ttl: Duration,
}

/// The instants between which something happened.
#[derive(Clone, Copy)]
struct Between(Instant, Instant);

impl HeldClaim {
    fn new(cluster: &Cluster, queue: &str, ttl: u32) -> Self {
        let client = cluster.client(0);
        let posted = client.post_messages(queue, &[json!(1)]).unwrap();
        assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
        let began = Instant::now();
        let claim = client.claim(queue, 1, u64::from(ttl)).unwrap();
        assert_eq!(claim.status, StatusCode::CREATED, "{}", claim.text());
        let (granted, ttl) = (Instant::now(), Duration::from_secs(ttl.into()));
        Self { queue: queue.to_owned(), began, granted, ttl }
    }

    /// When it may end at the earliest, as its client was told.
    fn earliest_end(&self) -> Instant {
        self.began + self.ttl.div_f64(FASTEST) - APART
    }

    /// Asserts that the next owner of the slot, which had not taken it over at `not_taken`, has not ended the claim too
    /// early. On a busy machine the earlier owner, which had the slot until `kept` at the latest, may have ended it.
    fn assert_held_after(&self, not_taken: Instant, kept: Instant, end: Instant) {
        let (held, least) = (end - not_taken, HELD_AFTER_TAKEOVER.div_f64(FASTEST));
        let is_over_before = kept >= self.earliest_end();
        assert!(is_over_before || held >= least, "it ended {held:?} after the take-over");
    }

    /// Claims its message through a replica until that is granted.
    fn await_end(&self, replica: &Replica) -> Instant {
        let client = replica.client();
        let mut end = None;
        wait_until("the claim ends", || {
            let answer = client.claim(&self.queue, 1, 60).unwrap();
            let is_refused = answer.status == StatusCode::SERVICE_UNAVAILABLE;
            assert!(is_refused || answer.status.is_success(), "{}", answer.text());
            end = (answer.status == StatusCode::CREATED).then(Instant::now);
            end.is_some()
        });
        end.expect("it ended")
    }
}

impl Cluster {
    /// Two replicas on a ZooKeeper with this clock.
    fn start_stepped(clock: &SteppedClock) -> (ZooKeeper, Self) {
        let zookeeper = ZooKeeper::start_through(&clock.command());
        let cluster = Self::start_on(&zookeeper, 2, SETTINGS);
        (zookeeper, cluster)
    }

    /// Queues that the first replica serves.
    fn queues_of_first(&self) -> Vec<String> {
        queues(64).into_iter().filter(|queue| self.owner_of(slot_of(queue)) == 0).collect()
    }

    /// Waits until the second replica serves a queue.
    fn await_takeover(&self, queue: &str) -> Between {
        let (start, slot) = (Instant::now(), Value::from(slot_of(queue)));
        let second = self.replicas[1].instance();
        let mut before = start;
        loop {
            let now = Instant::now();
            let view = self.client(1).get("/v2/components").unwrap().json();
            let components = view["components"].as_array().cloned().unwrap_or_default();
            let mut owned = components.iter().filter(|one| one["instance"] == second);
            if owned.any(|one| one["slots"].as_array().is_some_and(|slots| slots.contains(&slot))) {
                return Between(before, Instant::now());
            }
            assert!(start.elapsed() < MAX_WAIT, "it is not taken over: {view}");
            before = now;
            thread::sleep(LOOK);
        }
    }
}

/// Waits until a replica warns of the step and has logged it.
fn await_step_shown(replica: &Replica) {
    wait_until("the step is shown", || {
        let ready = replica.client().get("/readyz").unwrap();
        assert_eq!(ready.status, StatusCode::OK, "{}", ready.text());
        ready.json()["warnings"].to_string().contains("made a step")
    });
    let lines = replica.server().last_lines();
    assert!(lines.contains("coordination clock stepped"), "{lines}");
}

fn assert_claims_outlive_step(before: i64, after: i64) {
    let clock = SteppedClock::new(before);
    let (_zookeeper, mut cluster) = Cluster::start_stepped(&clock);
    let queues = cluster.queues_of_first();
    // It lives for an hour.
    let living = cluster.client(0).post_messages(&queues[1], &[json!("living")]).unwrap().posted_ids();
    let claim = HeldClaim::new(&cluster, &queues[0], TTL);
    clock.set(after);
    cluster.replicas.iter().for_each(await_step_shown);

    let restarted = &mut cluster.replicas[1];
    restarted.server.take().unwrap().terminate();
    restarted.server = Some(restarted.builder.start());
    await_step_shown(restarted);
    let drain = format!("/v2/components/{}/drain", cluster.replicas[0].instance());
    let drained = cluster.client(0).post(&drain, &json!({})).unwrap();
    assert!(drained.status.is_success(), "{}", drained.text());
    let Between(not_taken, taken) = cluster.await_takeover(&claim.queue);
    let end = claim.await_end(&cluster.replicas[1]);

    let ttl = Duration::from_secs(TTL.into());
    assert!(end >= claim.earliest_end(), "the claim lasted {:?}", end - claim.began);
    claim.assert_held_after(not_taken, taken, end);
    let latest = (claim.granted + ttl.div_f64(SLOWEST)).max(taken + HELD_AFTER_TAKEOVER.div_f64(SLOWEST));
    assert!(end <= latest + APART + LATE, "it ended {:?} late", end - latest);
    let found = cluster.client(1).get_message(&queues[1], &living[0]).unwrap();
    assert_eq!(found.status, StatusCode::OK, "{}", found.text());
}

#[test]
fn claims_and_lives_outlast_step_forward() {
    assert_claims_outlive_step(0, HOUR);
}

#[test]
fn claims_and_lives_outlast_step_back() {
    assert_claims_outlive_step(HOUR, 0);
}

/// Its holder may have been cut off only by the death of the owner.
#[test]
fn claim_of_killed_owner_ends_two_seconds_after_takeover() {
    let clock = SteppedClock::new(0);
    let (_zookeeper, mut cluster) = Cluster::start_stepped(&clock);
    let queue = cluster.queues_of_first().remove(0);
    clock.set(HOUR);
    cluster.replicas.iter().for_each(await_step_shown);
    // Its time ends before its owner loses the slot.
    let claim = HeldClaim::new(&cluster, &queue, 4);
    cluster.replicas[0].server.take().unwrap().kill9();
    let killed = Instant::now();
    let Between(not_taken, taken) = cluster.await_takeover(&queue);
    let end = claim.await_end(&cluster.replicas[1]);
    claim.assert_held_after(not_taken, killed, end);
    assert!(end <= taken + HELD_AFTER_TAKEOVER + LATE, "it ended {:?} after the take-over", end - taken);
}
