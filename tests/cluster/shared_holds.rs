//! Holds of pools and projects in a cluster: in force at every replica with the answer, through stops, deaths and
//! hand-overs.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Cluster, queues, slot_of};
use crate::support::client::{Answer, Client};
use crate::support::pauses::Stopper;
use angarium_testbed::held::wait_until;

const POOL: &str = "/v2/pools/default/hold";
const PROJECT: &str = "/v2/projects/000000000000/hold";

/// More than a session of a stopped replica lasts, and the time in which others take its slots.
const HELD_IN: Duration = Duration::from_secs(120);

/// Holds claims and posts. Repeats the request while its outcome is unknown.
fn hold(client: &Client, path: &str) {
    let terms = json!({"reason": "bad deploy", "post": true});
    let start = std::time::Instant::now();
    loop {
        let answer = client.put(path, Some(&terms)).unwrap();
        if answer.status == StatusCode::OK {
            return;
        }
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text());
        assert!(start.elapsed() < HELD_IN, "{}", answer.text());
    }
}

fn release(client: &Client, path: &str) {
    assert_eq!(client.delete(path).unwrap().status, StatusCode::NO_CONTENT);
}

/// Posts one message to each queue.
fn fill(cluster: &Cluster, queues: &[String]) {
    for queue in queues {
        let posted = cluster.client(0).post_messages(queue, &[json!(queue)]).unwrap();
        assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
    }
}

/// Whether an answer granted or stored something.
fn is_done(answer: &Answer) -> bool {
    answer.status == StatusCode::CREATED
}

/// Repeats a request that this replica could not carry out: a slot of the resumed replica is being handed over.
fn answered(request: impl Fn() -> Answer) -> Answer {
    let is_away = |answer: &Answer| {
        answer.status == StatusCode::SERVICE_UNAVAILABLE && answer.json()["code"] == json!("unavailable")
    };
    let mut answer = request();
    wait_until("an answer", || {
        if is_away(&answer) {
            answer = request();
        }
        !is_away(&answer)
    });
    answer
}

/// Nothing is granted and no post is stored through this replica.
fn assert_held(client: &Client, queues: &[String]) {
    for queue in queues {
        let nothing = answered(|| client.claim(queue, 1, 300).unwrap());
        assert_eq!(nothing.status, StatusCode::NO_CONTENT, "{queue}: {}", nothing.text());
        assert_eq!(nothing.headers["x-held"], "bad deploy");
        let refused = answered(|| client.post_messages(queue, &[json!("late")]).unwrap());
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (StatusCode::SERVICE_UNAVAILABLE, &json!("held"))
        );
    }
}

/// Claims all messages of the queues. Returns their bodies.
fn drain(client: &Client, queues: &[String]) -> Vec<Value> {
    let mut bodies = Vec::new();
    for queue in queues {
        let claim = answered(|| client.claim(queue, 20, 300).unwrap());
        if claim.status == StatusCode::CREATED {
            bodies.extend(claim.granted().unwrap().messages.into_iter().map(|message| message.body));
        }
    }
    bodies
}

#[test]
fn shared_hold_is_in_force_at_every_replica_and_after_kill_9() {
    let mut cluster = Cluster::start(3);
    let queues = queues(12);
    let owners: HashSet<usize> = queues.iter().map(|queue| cluster.owner_of(slot_of(queue))).collect();
    assert!(owners.len() > 1);
    fill(&cluster, &queues);
    for path in [POOL, PROJECT] {
        hold(&cluster.client(1), path);
        (0..3).for_each(|replica| assert_held(&cluster.client(replica), &queues));
        release(&cluster.client(2), path);
        assert_eq!(
            cluster.client(0).post_messages(&queues[0], &[json!(0)]).unwrap().status,
            StatusCode::CREATED
        );
    }
    hold(&cluster.client(0), PROJECT);
    cluster.replicas[0].server.take().unwrap().kill9();
    cluster.wait_until_shared();
    assert_held(&cluster.client(1), &queues);
    release(&cluster.client(1), PROJECT);
    assert_eq!(drain(&cluster.client(2), &queues).len(), queues.len() + 2);
}

/// An owner is stopped over the hold. The answer waits until others have its slots. When it continues, it grants nothing
/// and stores nothing, whatever requests wait in its sockets.
#[test]
fn thawed_owner_grants_and_stores_nothing_of_held_pool() {
    for path in [POOL, PROJECT] {
        let cluster = Cluster::start(3);
        let queues: Vec<String> =
            queues(64).into_iter().filter(|queue| cluster.owner_of(slot_of(queue)) == 0).take(6).collect();
        fill(&cluster, &queues);
        cluster.replicas[0].server().signal(Signal::STOP);
        hold(&cluster.client(1), path);
        let frozen = cluster.client(0);
        thread::scope(|scope| {
            let late = queues.iter().flat_map(|queue| {
                let (claims, posts) = (frozen.clone(), frozen.clone());
                let pops = frozen.clone();
                [
                    scope.spawn(move || claims.claim(queue, 1, 300).is_ok_and(|answer| is_done(&answer))),
                    scope.spawn(move || {
                        posts.post_messages(queue, &[json!("late")]).is_ok_and(|answer| is_done(&answer))
                    }),
                    scope.spawn(move || {
                        let popped = pops.delete(&format!("/v2/queues/{queue}/messages?pop=1"));
                        popped.is_ok_and(|answer| {
                            answer.status == StatusCode::OK && answer.json()["messages"] != json!([])
                        })
                    }),
                ]
            });
            let late: Vec<_> = late.collect();
            thread::sleep(Duration::from_millis(500));
            cluster.replicas[0].server().signal(Signal::CONT);
            for request in late {
                assert!(!request.join().unwrap(), "{path}");
            }
        });
        cluster.wait_until_shared();
        assert_held(&cluster.client(1), &queues);
        release(&cluster.client(1), path);
        let mut bodies = drain(&cluster.client(2), &queues);
        bodies.sort_by_key(ToString::to_string);
        let mut expected: Vec<Value> = queues.iter().map(|queue| json!(queue)).collect();
        expected.sort_by_key(ToString::to_string);
        assert_eq!(bodies, expected, "{path}");
    }
}

/// Clients claim and post without a pause while a replica joins and takes its share, and the pool is held meanwhile.
/// Nothing that begins after the answer is granted or stored, and no acknowledged message is lost.
#[test]
fn hold_during_hand_over_bars_every_later_request() {
    let mut cluster = Cluster::start(2);
    let queues = queues(24);
    fill(&cluster, &queues);
    let (is_held, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let clients = [cluster.client(0), cluster.client(1)];
    thread::scope(|scope| {
        let stopper = Stopper(&is_over);
        let workers: Vec<_> = clients
            .iter()
            .map(|client| {
                let (queues, is_held, is_over) = (&queues, &is_held, &is_over);
                scope.spawn(move || {
                    let (mut stored, mut late) = (0, 0);
                    while !is_over.load(Ordering::SeqCst) {
                        for queue in queues {
                            let is_late = is_held.load(Ordering::SeqCst);
                            let posted = client
                                .post_messages(queue, &[json!("more")])
                                .is_ok_and(|answer| is_done(&answer));
                            let claimed = client.claim(queue, 1, 3_600).is_ok_and(|answer| is_done(&answer));
                            stored += usize::from(posted);
                            late += usize::from(is_late && (posted || claimed));
                        }
                    }
                    (stored, late)
                })
            })
            .collect();
        cluster.add();
        hold(&clients[1], POOL);
        is_held.store(true, Ordering::SeqCst);
        thread::sleep(Duration::from_secs(8));
        drop(stopper);
        for worker in workers {
            let (stored, late) = worker.join().unwrap();
            assert!(stored > 0);
            assert_eq!(late, 0);
        }
    });
    release(&clients[0], POOL);
}
