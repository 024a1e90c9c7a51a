//! What operators are told of the whole: every replica is asked, and who does not answer is named.

use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::transfers::one_of_each;
use super::{Cluster, queues};
use angarium_testbed::held::wait_until;

/// What is said of this replica, in a list of all.
fn part<'v>(whole: &'v Value, instance: &str) -> &'v Value {
    let components = whole["components"].as_array().expect("a list of components");
    components.iter().find(|one| one["instance"] == instance).expect("it is registered")
}

#[test]
fn silent_replica_is_named_with_its_last_report() {
    let cluster = Cluster::start(3);
    let asked = cluster.client(0);
    for queue in queues(12) {
        asked.post_messages(&queue, &[json!(1)]).unwrap();
        asked.claim(&queue, 1, 60).unwrap().granted().unwrap();
    }
    // On a busy machine another replica may answer too late.
    let await_whole = || {
        let mut whole = Value::Null;
        wait_until("every replica answers", || {
            whole = asked.get("/v2/stats").unwrap().json();
            whole["complete"] == json!(true)
        });
        whole
    };
    let whole = await_whole();
    let messages = json!({"free": 0, "claimed": 12, "total": 12, "bytes": 12});
    assert_eq!((&whole["queues"]["total"], &whole["messages"]), (&json!(12), &messages));
    let (frozen, other) = (cluster.replicas[2].instance(), cluster.replicas[1].instance());
    let ask = |path: &'static str| {
        let asked = asked.clone();
        thread::spawn(move || asked.get(path).unwrap().json())
    };
    let (mut heard, mut reports) = (Value::Null, [Value::Null, Value::Null]);
    wait_until("the replica that runs answers in time", || {
        heard = part(&await_whole(), &frozen)["serves"].clone();
        cluster.replicas[2].server().signal(Signal::STOP);
        // At once, so that both are answered before its session ends.
        let asked = [ask("/v2/stats"), ask("/v2/health")];
        reports = asked.map(|report| report.join().unwrap());
        cluster.replicas[2].server().signal(Signal::CONT);
        reports.iter().all(|report| part(report, &other)["answer"]["given"] == json!(true))
    });
    for whole in &reports {
        let silent = part(whole, &frozen);
        assert_eq!((&silent["answer"]["given"], &silent["serves"]), (&json!(false), &heard), "{whole}");
        let (age, why) = (silent["answer"]["age"].as_f64(), silent["answer"]["description"].as_str());
        assert!(
            age.is_some_and(|age| age > 1.0)
                && why.is_some_and(|why| why.contains("no answer") || why.contains("did not end in time")),
            "{whole}"
        );
        assert_eq!(part(whole, &other)["serves"]["ready"], json!(true));
    }
    assert_eq!(reports[0]["complete"], json!(false));
}

/// What is claimed is in the memory of each queue's owner, and nowhere else.
#[test]
fn queues_of_all_replicas_are_listed_with_their_stats() {
    let cluster = Cluster::start(2);
    let (ours, theirs) = one_of_each(&cluster);
    let client = cluster.client(0);
    for (queue, messages) in [(&ours, 2), (&theirs, 3)] {
        let bodies: Vec<Value> = (0..messages).map(Value::from).collect();
        client.post_messages(queue, &bodies).unwrap();
        client.post_delayed(queue, &[json!(9)], 600).unwrap();
        client.claim(queue, 1, 60).unwrap().granted().unwrap();
    }
    for replica in 0..2 {
        let page = cluster.client(replica).get("/v2/queues?with_stats=true&limit=20").unwrap().json();
        for (queue, ready) in [(&ours, 1), (&theirs, 2)] {
            let listed = page["queues"].as_array().unwrap().iter().find(|one| one["name"] == **queue);
            let stats = &listed.expect("it is listed")["stats"];
            let counts = ["ready", "delayed", "claimed", "in_transfer"].map(|state| stats[state].as_u64());
            assert_eq!(counts, [ready, 1, 1, 0].map(Some), "{queue} of replica {replica}: {stats}");
        }
    }
}
