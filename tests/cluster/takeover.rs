//! Replicas that die, stand still, come and go: what was acknowledged stays, and service continues.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Cluster, MAX_WAIT, queues, slot_of};
use crate::support::client::Client;
use crate::support::pauses::Stopper;
use angarium_testbed::held::wait_until;

/// How long a stopping replica that has handed over waits for the next request, and for the last one.
const FAREWELL_IDLE: Duration = Duration::from_secs(1);
const FAREWELL: Duration = Duration::from_secs(5);

/// Claims all that queues hold, until a claim of each finds nothing. A claim that is refused for now is made again.
fn drain(client: &Client, queues: &[String]) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let start = Instant::now();
    for queue in queues {
        loop {
            assert!(start.elapsed() < MAX_WAIT, "{queue} cannot be claimed from");
            let answer = client.claim(queue, 20, 300).unwrap();
            match answer.status {
                StatusCode::CREATED => {
                    let messages = answer.granted().unwrap().messages;
                    found.extend(messages.iter().filter_map(|message| message.body.as_u64()));
                }
                StatusCode::NO_CONTENT => break,
                _ => thread::sleep(Duration::from_millis(50)),
            }
        }
    }
    found
}

#[test]
fn survivors_serve_all_acknowledged_data_of_killed_replica() {
    let mut cluster = Cluster::start(2);
    let queues = queues(16);
    let mut posted = BTreeSet::new();
    for (number, queue) in (0..).zip(&queues) {
        let answer = cluster.client(0).post_messages(queue, &[json!(number), json!(number + 100)]).unwrap();
        assert_eq!(answer.status, StatusCode::CREATED);
        posted.extend([number, number + 100]);
    }
    let held = queues.iter().find(|queue| cluster.owner_of(slot_of(queue)) == 0).unwrap();
    let claim = cluster.client(1).claim(held, 1, 300).unwrap().granted().unwrap();
    cluster.replicas[0].server.take().unwrap().kill9();
    cluster.wait_until_shared();
    let client = cluster.client(1);
    // The claim is still its holder's.
    let status = client.get(&format!("/v2/queues/{held}/claims/{}", claim.id)).unwrap();
    assert_eq!(status.status, StatusCode::OK, "{}", status.text());
    let claimed: BTreeSet<u64> = claim.messages.iter().filter_map(|message| message.body.as_u64()).collect();
    assert_eq!(drain(&client, &queues), &posted - &claimed);
    // A process on the same data is the same replica, and gets its share again.
    cluster.replicas[0].server = Some(cluster.replicas[0].builder.start());
    cluster.wait_until_shared();
}

#[test]
fn frozen_replica_acknowledges_nothing_for_lost_queues() {
    let cluster = Cluster::start(2);
    let queue = queues(64).into_iter().find(|queue| cluster.owner_of(slot_of(queue)) == 0).unwrap();
    let posted = cluster.client(1).post_messages(&queue, &[json!(1), json!(2)]).unwrap();
    assert_eq!(posted.status, StatusCode::CREATED);
    let lost = cluster.client(1).claim(&queue, 1, 60).unwrap().granted().unwrap();
    cluster.replicas[0].server().signal(Signal::STOP);
    let start = Instant::now();
    let client = cluster.client(1);
    while client.stats(&queue).unwrap().status != StatusCode::OK {
        assert!(start.elapsed() < MAX_WAIT, "nobody has taken {queue}");
        thread::sleep(Duration::from_millis(100));
    }
    // The claim leaves, and another caller has its message.
    let path = format!("/v2/queues/{queue}/claims/{}", lost.id);
    assert_eq!(client.delete(&path).unwrap().status, StatusCode::NO_CONTENT);
    let taken = client.claim(&queue, 1, 300).unwrap().granted().unwrap();
    assert_eq!(taken.messages[0].id, lost.messages[0].id);
    cluster.replicas[0].server().signal(Signal::CONT);
    // Whatever the thawed one still believes, it states nothing that is not so.
    let thawed = cluster.client(0);
    let until = Instant::now() + Duration::from_secs(6);
    while Instant::now() < until {
        let acknowledged = thawed.delete_message(&queue, &lost.messages[0].id, Some(&lost.id)).unwrap();
        assert_ne!(acknowledged.status, StatusCode::NO_CONTENT);
        let claimed = thawed.claim(&queue, 20, 60).unwrap();
        if claimed.status == StatusCode::CREATED {
            let claim = claimed.granted().unwrap();
            assert_eq!(claim.messages.len(), 1);
            assert_eq!(claim.messages[0].body, json!(2), "the other one is claimed");
            // Where the lease of an owner has not begun again yet, it is refused for a moment.
            wait_until("the claim is released", || {
                client.release_claim(&queue, &claim.id).unwrap().status == StatusCode::NO_CONTENT
            });
        }
        thread::sleep(Duration::from_millis(20));
    }
    cluster.wait_until_shared();
    // The lease of their owner may begin a moment later.
    wait_until("both are there", || client.stats(&queue).unwrap().json()["messages"]["total"] == json!(2));
}

/// The messages of a queue in a state, as a replica's page of metrics shows them; and whether all its queues are counted.
fn shown(client: &Client, queue: &str, state: &str) -> (Option<u64>, bool) {
    let page = client.get("/metrics").unwrap().text();
    let value = |series: &str| {
        page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse::<u64>().ok())
    };
    let series = format!("angarium_messages{{project=\"000000000000\",queue=\"{queue}\",state=\"{state}\"}}");
    (value(&series), value("angarium_slots_counted") == value("angarium_slots_owned"))
}

#[test]
fn idle_backlog_is_shown_by_its_new_owner() {
    let mut cluster = Cluster::start(3);
    // Instances have random ids: of the first sixteen queues one replica may own none.
    let mut queues = queues(64);
    let place = queues.iter().position(|queue| cluster.owner_of(slot_of(queue)) == 0).unwrap();
    queues.swap(0, place);
    queues.truncate(16);
    for queue in &queues {
        let answer = cluster.client(0).post_messages(queue, &[json!(1), json!(2)]).unwrap();
        assert_eq!(answer.status, StatusCode::CREATED);
    }
    let idle = &queues[0];
    cluster.client(1).claim(idle, 1, 300).unwrap().granted().unwrap();
    cluster.replicas[0].server.take().unwrap().kill9();
    cluster.wait_until_shared();
    // From here on no request is for any queue.
    let start = Instant::now();
    let others = [cluster.client(1), cluster.client(2)];
    while !others.iter().all(|client| shown(client, idle, "ready").1) {
        assert!(start.elapsed() < MAX_WAIT, "the queues are not counted");
        thread::sleep(Duration::from_millis(100));
    }
    for (state, expected) in [("ready", 1), ("claimed", 1)] {
        let found: Vec<u64> = others.iter().filter_map(|client| shown(client, idle, state).0).collect();
        assert_eq!(found, [expected], "{state}: one replica has it");
    }
    let all =
        |client: &Client| queues.iter().filter_map(|queue| shown(client, queue, "ready").0).sum::<u64>();
    assert_eq!(others.iter().map(all).sum::<u64>(), 31, "of all queues, by those that serve them");
}

/// Posts, claims and deletes at these replicas until told to stop. Everything that was not answered as it should be.
fn work(clients: &[Client], queue: &str, stop: &AtomicBool) -> (u64, Vec<String>) {
    let (mut number, mut failures) = (0, Vec::new());
    let mut clients = clients.iter().cycle();
    let mut next = || clients.next().unwrap();
    while !stop.load(Ordering::Relaxed) {
        match next().post_messages(queue, &[json!(number)]) {
            Ok(answer) if answer.status == StatusCode::CREATED => number += 1,
            other => failures.push(format!("post to {queue}: {other:?}")),
        }
        let claimed = next().claim(queue, 1, 300);
        let created = claimed.as_ref().ok().filter(|answer| answer.status == StatusCode::CREATED);
        let Some(claim) = created.and_then(|answer| answer.granted()) else {
            failures.push(format!("claim of {queue}: {claimed:?}"));
            continue;
        };
        let deleted = next().delete_message(queue, &claim.messages[0].id, Some(&claim.id));
        if !deleted.as_ref().is_ok_and(|answer| answer.status == StatusCode::NO_CONTENT) {
            failures.push(format!("delete from {queue}: {deleted:?}"));
        }
    }
    (number, failures)
}

#[test]
fn added_and_stopped_replicas_cost_no_request() {
    let mut cluster = Cluster::start(2);
    let clients = [cluster.client(0), cluster.client(1)];
    let stop = AtomicBool::new(false);
    let queues = queues(6);
    thread::scope(|scope| {
        let stopper = Stopper(&stop);
        let working: Vec<_> =
            queues.iter().map(|queue| scope.spawn(|| work(&clients, queue, &stop))).collect();
        cluster.add();
        cluster.wait_until_shared();
        let ended = cluster.replicas[2].server.take().unwrap().terminate();
        assert!(ended.success(), "{ended:?}");
        cluster.wait_until_shared();
        thread::sleep(Duration::from_millis(500));
        drop(stopper);
        for working in working {
            let (done, failures) = working.join().unwrap();
            assert_eq!(failures, [""; 0], "beside {done} that were done");
            assert!(done > 10);
        }
    });
}

#[test]
fn stopping_one_of_two_replicas_costs_no_request() {
    let mut cluster = Cluster::start(2);
    let (clients, stop, queues) = ([cluster.client(0)], AtomicBool::new(false), queues(6));
    thread::scope(|scope| {
        let stopper = Stopper(&stop);
        let working: Vec<_> =
            queues.iter().map(|queue| scope.spawn(|| work(&clients, queue, &stop))).collect();
        thread::sleep(Duration::from_millis(300));
        assert!(cluster.replicas[1].server.take().unwrap().terminate().success());
        drop(stopper);
        for working in working {
            let (done, failures) = working.join().unwrap();
            assert_eq!(failures, [""; 0], "beside {done} that were done");
            assert!(done > 0);
        }
    });
}

#[test]
fn draining_replicas_serve_while_no_other_runs() {
    let mut cluster = Cluster::start(2);
    let [drained, other] = [0, 1].map(|replica| cluster.replicas[replica].instance());
    let all_at = |cluster: &Cluster, instance: &String| {
        let has_all = || cluster.shares().get(instance) == Some(&256) && cluster.serve_all();
        wait_until("one has all slots", has_all);
    };
    let told = cluster.client(0).post(&format!("/v2/components/{drained}/drain"), &json!({})).unwrap();
    assert_eq!(told.status, StatusCode::ACCEPTED, "{}", told.text());
    all_at(&cluster, &other);
    assert!(cluster.replicas[1].server.take().unwrap().terminate().success());
    all_at(&cluster, &drained);
    assert_eq!(cluster.client(0).post_messages("q", &[json!(1)]).unwrap().status, StatusCode::CREATED);
    // One that was not told to drain has them again.
    cluster.replicas[1].server = Some(cluster.replicas[1].builder.start());
    all_at(&cluster, &other);
    assert!(cluster.client(1).claim("q", 1, 60).unwrap().granted().is_some());
}

/// A load balancer sends what it has on connections that it kept, until it sees that the replica is not ready any more.
#[test]
fn stopping_replica_answers_until_clients_are_idle() {
    let mut cluster = Cluster::start(2);
    let clients: Vec<Client> = (0..12).map(|_| cluster.client(1)).collect();
    for client in &clients {
        assert_eq!(client.get("/v2/queues").unwrap().status, StatusCode::OK);
    }
    let leaving = cluster.replicas[1].server.take().unwrap();
    let probe = leaving.client();
    let mut begun = Instant::now();
    thread::scope(|scope| {
        let ended = scope.spawn(move || (leaving.terminate(), Instant::now()));
        wait_until("it is not ready, or has ended", || {
            let ready = probe.get("/readyz");
            ready.map_or(true, |answer| answer.status == StatusCode::SERVICE_UNAVAILABLE)
        });
        wait_until("it has handed over", || {
            let asked = Instant::now();
            let is_done = cluster.shares().values().filter(|share| **share > 0).count() == 1;
            if !is_done {
                begun = asked;
            }
            is_done
        });
        let mut last = begun;
        for client in &clients {
            // Together longer than the pause that it must outlast.
            thread::sleep(Duration::from_millis(125));
            let asked = Instant::now();
            let Ok(answer) = client.post_messages("late", &[json!(1)]) else {
                // It may end if this test was stopped for so long, as on a busy machine.
                assert!(last.elapsed() > FAREWELL_IDLE || begun.elapsed() > FAREWELL, "{:?}", last.elapsed());
                break;
            };
            last = asked;
            assert_eq!(answer.status, StatusCode::CREATED);
            assert_eq!(answer.headers["connection"], "close");
        }
        let last = Instant::now();
        let (status, end) = ended.join().unwrap();
        assert!(status.success(), "{status}");
        assert!(end - last < Duration::from_secs(20), "no client asks any more");
    });
}

/// How many claims wait at a replica for messages.
fn waiting_claims(client: &Client) -> usize {
    let page = client.get("/metrics").unwrap().text();
    let shown = page.lines().find_map(|line| line.strip_prefix("angarium_waiting_claims ")?.parse().ok());
    shown.expect("it is shown")
}

#[test]
fn waiting_claim_follows_its_queue() {
    let mut cluster = Cluster::start(2);
    let mine: Vec<String> =
        queues(64).into_iter().filter(|queue| cluster.owner_of(slot_of(queue)) == 1).take(4).collect();
    let client = cluster.client(0);
    thread::scope(|scope| {
        let wait = |queue: &String| {
            let (client, path) = (client.clone(), format!("/v2/queues/{queue}/claims?wait=20"));
            scope.spawn(move || client.post(&path, &json!({"ttl": 60, "grace": 60})).unwrap())
        };
        let waiting: Vec<_> = mine.iter().map(wait).collect();
        wait_until("they wait at the owner", || waiting_claims(&cluster.client(1)) == mine.len());
        // It ends when it has handed over. The claims wait for no longer than twenty seconds.
        assert!(cluster.replicas[1].server.take().unwrap().terminate().success());
        for (queue, waiting) in mine.iter().zip(waiting) {
            let posted = client.post_messages(queue, &[json!(queue)]).unwrap();
            assert_eq!(posted.status, StatusCode::CREATED);
            let answer = waiting.join().unwrap();
            let claim = answer.granted().unwrap_or_else(|| panic!("{answer:?}"));
            assert_eq!(claim.messages[0].body, Value::from(queue.as_str()));
        }
    });
}

#[test]
fn draining_replica_has_no_queue_and_forwards_all() {
    let cluster = Cluster::start(2);
    let (queues, instance) = (queues(8), cluster.replicas[0].instance());
    for queue in &queues {
        assert_eq!(
            cluster.client(0).post_messages(queue, &[json!(queue)]).unwrap().status,
            StatusCode::CREATED
        );
    }
    let drained = Command::new(env!("CARGO_BIN_EXE_angarium"))
        .args(["drain", &instance, "--url", cluster.replicas[1].server().base(), "-o", "json"])
        .output()
        .unwrap();
    assert!(drained.status.success(), "{drained:?}");
    let shares = cluster.shares();
    assert_eq!((shares[&instance], shares.values().sum::<usize>()), (0, 256));
    wait_until("the other one serves all", || cluster.serve_all());
    let ready = cluster.client(0).get("/readyz").unwrap();
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    for queue in &queues {
        let answer = cluster.client(0).claim(queue, 1, 60).unwrap();
        assert_eq!(answer.headers["connection"], "close", "its clients are sent elsewhere");
        assert_eq!(answer.granted().unwrap().messages[0].body, json!(queue));
    }
    // The last one that runs keeps what it has.
    let other = cluster.replicas[1].instance();
    let refused = cluster.client(0).post(&format!("/v2/components/{other}/drain"), &json!({})).unwrap();
    assert_eq!(refused.status, StatusCode::CONFLICT);
    let nobody =
        cluster.client(1).post(&format!("/v2/components/{}/drain", uuid::Uuid::nil()), &json!({})).unwrap();
    assert_eq!(nobody.status, StatusCode::NOT_FOUND);
}

/// Told to stop while claims wait through it and at it: they hear that there is nothing, and not that something failed.
#[test]
fn waits_at_stopping_replica_end_with_no_messages() {
    let mut cluster = Cluster::start(2);
    let queues: Vec<String> =
        queues(64).into_iter().filter(|queue| cluster.owner_of(slot_of(queue)) == 1).take(3).collect();
    let client = cluster.client(0);
    thread::scope(|scope| {
        let wait = |queue: &String| {
            let (client, path) = (client.clone(), format!("/v2/queues/{queue}/claims?wait=20"));
            scope.spawn(move || client.post(&path, &json!({"ttl": 60, "grace": 60})).unwrap())
        };
        let waiting: Vec<_> = queues.iter().map(wait).collect();
        wait_until("they wait at the owner", || waiting_claims(&cluster.client(1)) == queues.len());
        let start = Instant::now();
        assert!(cluster.replicas[0].server.take().unwrap().terminate().success());
        assert!(start.elapsed() < Duration::from_secs(15), "it does not wait for them");
        for waiting in waiting {
            let answer = waiting.join().unwrap();
            assert_eq!(answer.status, StatusCode::NO_CONTENT, "{answer:?}");
        }
    });
}
