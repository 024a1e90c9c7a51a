//! Replicas that are cut off from a part: from the pools, from each other, from ZooKeeper. Their slots go where they can be
//! served, and come back; and none is taken out of service for what all of them lack.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};

use super::queues;
use crate::support::client::Client;
use crate::support::cluster::{Cluster, Part, REPLICAS};
use crate::support::pauses::Stopper;
use angarium_testbed::held::wait_until;
use angarium_testbed::proxy::Wire;

/// Of each replica, in seconds.
const SESSION: u32 = 4;

/// How long a cut lasts until the slots of the replica leave: a session until it is known, half of one until it is
/// reported, one for the view to be stable.
const LEAVE: Duration = Duration::from_secs(2 * SESSION as u64 + SESSION as u64 / 2);

/// Max time of the hand-over beyond it, on a busy machine.
const MAX_WAIT: Duration = Duration::from_secs(180);

fn start() -> Cluster {
    Cluster::start_with(|builder| builder.arg("--session-timeout").arg(SESSION.to_string()))
}

/// Waits until a replica has no slot and the others have all of them, as another one states.
fn await_left(cluster: &Cluster, replica: usize) {
    let (start, asked) = (Instant::now(), (replica + 1) % REPLICAS);
    loop {
        let (owned, registered) = cluster.owned(asked);
        assert_eq!(registered, REPLICAS, "its session lasts");
        if owned[replica] == 0 && owned.iter().sum::<usize>() == 256 {
            return;
        }
        assert!(start.elapsed() < LEAVE + MAX_WAIT, "slots stay: {owned:?}\n{}", cluster.last_lines());
        thread::sleep(Duration::from_millis(100));
    }
}

fn post(client: &Client, queue: &str, body: usize) -> bool {
    client.post_messages(queue, &[json!(body)]).is_ok_and(|answer| answer.status == StatusCode::CREATED)
}

#[test]
fn slots_leave_replica_cut_off_from_pools_or_peers() {
    let cluster = start();
    // Instances have random ids: of a few queues one replica may own none.
    let queues = queues(64);
    let owned = queues.iter().position(|queue| cluster.owner_of(queue) == 0).expect("it has some");
    let (first, client) = (cluster.client_of(1), cluster.client_of(2));
    for (number, queue) in queues.iter().enumerate() {
        assert!(post(&first, queue, number));
    }
    // From everything that waits at the pools it has no answer, also under traffic.
    cluster.cut(0, Part::Pool, Wire::Silent);
    let (stop, busy) = (AtomicBool::new(false), &queues[owned]);
    let acknowledged = thread::scope(|scope| {
        let stopper = Stopper(&stop);
        let posting = scope.spawn(|| {
            let posts = (1_000..).take_while(|_| !stop.load(Ordering::Relaxed));
            let done = |number: &usize| {
                thread::sleep(Duration::from_millis(20));
                post(&first, busy, *number)
            };
            posts.filter(done).map(|number| number as u64).collect::<BTreeSet<u64>>()
        });
        await_left(&cluster, 0);
        assert!(post(&client, busy, 100));
        drop(stopper);
        posting.join().unwrap()
    });
    cluster.heal();
    cluster.await_calm();
    cluster.cut(0, Part::Peers, Wire::Silent);
    await_left(&cluster, 0);
    assert!(post(&client, &queues[owned], 101));
    cluster.heal();
    cluster.await_calm();
    // Nothing was lost, and nothing is there twice.
    let mut found: Vec<u64> = Vec::new();
    for queue in &queues {
        while let Some(claim) = client.claim(queue, 20, 300).unwrap().granted() {
            found.extend(claim.messages.iter().filter_map(|message| message.body.as_u64()));
        }
    }
    let once: BTreeSet<u64> = found.iter().copied().collect();
    assert_eq!(found.len(), once.len());
    let wanted: BTreeSet<u64> = (0..64).chain([100, 101]).chain(acknowledged).collect();
    // A post without a known outcome may be there too.
    assert_eq!(wanted.difference(&once).collect::<Vec<_>>(), [&0; 0]);
    assert!(once.difference(&wanted).all(|number| *number >= 1_000));
}

#[test]
fn pool_without_queues_moves_no_slot() {
    let mut cluster = start();
    // Only the last replica reaches the second pool, which is empty.
    cluster.add_postgres("rows");
    let post_all = || {
        for queue in queues(16) {
            let posted = cluster.client_of(2).post_messages(&queue, &[json!(1)]).unwrap();
            assert_eq!(posted.status, StatusCode::CREATED, "{queue}: {}", posted.text());
        }
    };
    post_all();
    [0, 1].into_iter().for_each(|replica| cluster.cut_pool(replica, 1, Wire::Silent));
    wait_until("both have said so", || cluster.last_lines().matches("pools=\"rows\"").count() >= 2);
    thread::sleep(LEAVE + Duration::from_secs(6));
    let (owned, _) = cluster.owned(2);
    assert!(owned.iter().all(|slots| *slots >= 32), "slots have left: {owned:?}\n{}", cluster.last_lines());
    post_all();
    // A queue in it makes them go to who reaches it.
    let name = (0..64).map(|number| format!("r{number}")).find(|name| cluster.owner_of(name) == 2);
    let path = format!("/v2/queues/{}", name.as_ref().expect("it has some"));
    let made = cluster.client_of(2).put(&path, Some(&json!({"_flavor": "rows"}))).unwrap();
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    let (start, mut owned) = (Instant::now(), Vec::new());
    while owned != [0, 0, 256] {
        assert!(start.elapsed() < LEAVE + MAX_WAIT, "slots stay: {owned:?}\n{}", cluster.last_lines());
        thread::sleep(Duration::from_millis(100));
        owned = cluster.owned(2).0;
    }
    assert!(post(&cluster.client_of(0), name.as_ref().expect("it has some"), 1));
}

/// The others admit its certificate for ten minutes after it has left the registry (P8).
#[test]
fn replica_without_session_forwards_on_new_connections() {
    let cluster = start();
    let far: Vec<String> = queues(32).into_iter().filter(|queue| cluster.owner_of(queue) != 0).collect();
    assert!(far.iter().all(|queue| post(&cluster.client_of(0), queue, 1)));
    cluster.cut(0, Part::Tree, Wire::Silent);
    wait_until("it has left the registry", || cluster.owned(1).1 == REPLICAS - 1);
    // Each connection from here on has another handshake.
    cluster.cut(0, Part::Peers, Wire::Cut);
    thread::sleep(Duration::from_secs(1));
    cluster.cut(0, Part::Peers, Wire::Whole);
    let posted = far.iter().filter(|queue| post(&cluster.client_of(0), queue, 2)).count();
    assert_eq!(posted, far.len(), "{}", cluster.last_lines());
    cluster.heal();
    cluster.await_calm();
}

/// What its `/readyz` states.
fn readiness(cluster: &Cluster, replica: usize) -> (StatusCode, Value) {
    let answer = cluster.client_of(replica).get("/readyz").unwrap();
    (answer.status, answer.json())
}

#[test]
fn readiness_without_session_depends_on_the_others() {
    let mut cluster = start();
    let queue = queues(64).into_iter().find(|queue| cluster.owner_of(queue) == 0).unwrap();
    assert!(post(&cluster.client_of(0), &queue, 1));
    // One alone is cut off: it stays for two sessions, then clients go to those that have one.
    cluster.cut(0, Part::Tree, Wire::Silent);
    let cut = Instant::now();
    // A test that is stopped for a while finds it not ready at once. That must not be too early: see below.
    wait_until("it has no session", || {
        let (status, said) = readiness(&cluster, 0);
        let has_none = said["warnings"][0].as_str().is_some_and(|warning| warning.contains("no session"));
        has_none || status == StatusCode::SERVICE_UNAVAILABLE
    });
    wait_until("it is not ready", || readiness(&cluster, 0).0 == StatusCode::SERVICE_UNAVAILABLE);
    assert!(cut.elapsed() > Duration::from_secs(2 * u64::from(SESSION)), "{:?}", cut.elapsed());
    assert!(cut.elapsed() < Duration::from_secs(2 * u64::from(SESSION)) + MAX_WAIT, "{:?}", cut.elapsed());
    for other in 1..REPLICAS {
        // A busy machine may have kept a session waiting for a moment.
        wait_until("another one warns of nothing", || {
            let (status, said) = readiness(&cluster, other);
            assert_eq!(status, StatusCode::OK, "{said}");
            said == json!({"warnings": []})
        });
    }
    cluster.heal();
    cluster.await_calm();
    // Without a majority none has one: they stay, and posts go on where the queue is open.
    let owner = cluster.owner_of(&queue);
    assert!(post(&cluster.client_of(owner), &queue, 2));
    let lost: Vec<usize> = (0..3).filter(|server| *server != cluster.ensemble.leader()).take(2).collect();
    lost.iter().for_each(|server| cluster.ensemble.0[*server].kill9());
    let end = Instant::now() + Duration::from_secs(5 * u64::from(SESSION));
    let mut warned = 0;
    while Instant::now() < end {
        for replica in 0..REPLICAS {
            let (status, said) = readiness(&cluster, replica);
            assert_eq!(status, StatusCode::OK, "{said}");
            warned += usize::from(said["warnings"][0].is_string());
        }
        assert!(post(&cluster.client_of(owner), &queue, 3));
        thread::sleep(Duration::from_millis(200));
    }
    assert!(warned > REPLICAS, "they were without a session");
    lost.iter().for_each(|server| cluster.ensemble.0[*server].restart());
    cluster.await_calm();
    for replica in 0..REPLICAS {
        wait_until("nothing is left to warn of", || {
            readiness(&cluster, replica).1 == json!({"warnings": []})
        });
    }
}
