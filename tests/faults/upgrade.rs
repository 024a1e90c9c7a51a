//! Owns upgrades: the program of an earlier commit and the one built here serve the same data, after each other and side by
//! side, and nothing acknowledged is lost.

use std::ops::RangeInclusive;
use std::process::Command;
use std::thread;
use std::time::Duration;

use angarium_catalogue::Schema;
use http::{Method, StatusCode};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::crash::{assert_kept, create_queues};
use super::drain::drain;
use super::history::History;
use super::load::Load;
use super::verdict::judge;
use crate::support::client::{Answer, Client};
use crate::support::cluster::{Cluster, REPLICAS};
use crate::support::pauses::{Route, max_hand_over, noise, watch};
use crate::support::server::ServerBuilder;
use angarium_testbed::held::wait_until;
use angarium_testbed::settings::{self, earlier_program};

/// How long both versions serve side by side, in each of the mixtures.
const SIDE_BY_SIDE: Duration = Duration::from_secs(2);
/// Seconds of claims: they outlive the test. The record of the time of the earlier program is wrong by the length of its
/// commit, so on a machine too busy for commits claims of both programs would end some seconds early.
const CLAIMS: RangeInclusive<u64> = 900..=1_200;
/// Queues whose pauses are measured.
const WATCHED: usize = 6;

#[test]
fn rolling_upgrade_and_downgrade_lose_nothing() {
    let mut dice = StdRng::seed_from_u64(settings::seed("upgrade"));
    let mut cluster = Cluster::start_with(|builder| builder.program(earlier_program()));
    let (history, mut load) = (History::new(), Load::balanced().of_earlier_programs().with_claims_of(CLAIMS));
    create_queues(&cluster.client(), false);
    let base = cluster.balancer.base();
    let now = env!("CARGO_BIN_EXE_angarium");
    let routes = [Route::Balancer(base.clone())];
    load.run_while(&base, &history, &mut dice, || {
        let hand_over = hand_over(&mut cluster);
        // The last of them returns once, and forth again: what the new one wrote the old one reads.
        let ways = (0..REPLICAS).map(|replica| (replica, now.into()));
        let back_and_forth = [earlier_program(), now.into()].map(|program| (REPLICAS - 1, program));
        let ((), traffic) = watch(&routes, WATCHED, || {
            for (replica, program) in ways.chain(back_and_forth) {
                change(&mut cluster, replica, |builder| builder.program(program.clone()));
                assert_reached(&cluster);
            }
        });
        traffic.assert_kept("upgrade and downgrade", hand_over + noise(), &cluster.client());
    });
    drain(&cluster.client(), &history);
    assert_kept("upgrade of a cluster", 1, &judge(&history.record()));
}

/// Restarts a replica in another way, after a while in which all serve side by side.
fn change(cluster: &mut Cluster, replica: usize, own: impl Fn(ServerBuilder) -> ServerBuilder) {
    thread::sleep(SIDE_BY_SIDE);
    cluster.leave(replica);
    cluster.change(replica, own);
    cluster.enter(replica);
    cluster.await_calm();
}

/// Restarts a replica as it is, and returns the longest pause of clients: that of a hand-over.
fn hand_over(cluster: &mut Cluster) -> Duration {
    let routes = [Route::Balancer(cluster.balancer.base())];
    let ((), traffic) = watch(&routes, WATCHED, || change(cluster, 0, |builder| builder));
    traffic.assert_kept("hand-over", max_hand_over(), &cluster.client());
    traffic.longest()
}

/// The program before has an open tree, and replicas that share a secret. The one built here gets an identity at ZooKeeper
/// and shows certificates; then the tree is closed.
#[test]
fn upgrade_to_closed_tree_pauses_no_longer_than_hand_over() {
    let mut dice = StdRng::seed_from_u64(settings::seed("upgrade to a closed tree"));
    let dir = TempDir::new().expect("a temporary directory");
    let logins = dir.path().join("logins");
    std::fs::write(&logins, "digest angarium:secret\n").expect("the directory is ours");
    let mut cluster = Cluster::start_with(|builder| builder.program(earlier_program()));
    let (history, mut load) = (History::new(), Load::balanced().of_earlier_programs().with_claims_of(CLAIMS));
    create_queues(&cluster.client(), false);
    let base = cluster.balancer.base();
    let secure = |cluster: &Cluster| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_angarium"));
        command.args(["tree", "secure", "--coordination", &cluster.coordination]);
        command.arg("--zookeeper-auth-file").arg(&logins).output().expect("the program starts")
    };
    load.run_while(&base, &history, &mut dice, || {
        let hand_over = hand_over(&mut cluster);
        let ((), traffic) = watch(&[Route::Balancer(base.clone())], WATCHED, || {
            for replica in 0..REPLICAS {
                let refused = secure(&cluster);
                let text = String::from_utf8_lossy(&refused.stderr);
                assert!(!refused.status.success() && text.contains("without this identity"), "{text}");
                change(&mut cluster, replica, |builder| {
                    let builder = builder.program(env!("CARGO_BIN_EXE_angarium").into());
                    builder.arg("--zookeeper-auth-file").arg(&logins)
                });
                assert_reached(&cluster);
            }
            let done = secure(&cluster);
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            thread::sleep(SIDE_BY_SIDE);
        });
        traffic.assert_kept("upgrade to a closed tree", hand_over + noise(), &cluster.client());
    });
    let client = cluster.client();
    wait_until("no replica warns", || {
        client.get("/readyz").is_ok_and(|answer| answer.json()["warnings"] == json!([]))
    });
    drain(&client, &history);
    assert_kept("upgrade to a closed tree", 1, &judge(&history.record()));
}

/// Each replica soon passes requests on to each other one.
fn assert_reached(cluster: &Cluster) {
    for replica in 0..REPLICAS {
        let client = cluster.client_of(replica);
        wait_until("it reaches the others", || {
            (0..24).all(|number| {
                let posted = client.post_messages(&format!("reach-{number}"), &[json!(number)]);
                posted.is_ok_and(|answer| answer.status == StatusCode::CREATED)
            })
        });
    }
}

#[test]
fn data_of_earlier_program_is_served() {
    let mut dice = StdRng::seed_from_u64(settings::seed("upgrade alone"));
    let dir = TempDir::new().expect("a temporary directory");
    let builder = ServerBuilder::new(&dir.path().join("data"));
    let (history, mut load) = (History::new(), Load::new().of_earlier_programs());
    let earlier = builder.clone().program(earlier_program()).start();
    create_queues(&earlier.client(), false);
    let base = earlier.base().to_owned();
    load.run_while(&base, &history, &mut dice, || {
        thread::sleep(SIDE_BY_SIDE);
        earlier.kill9();
    });
    let server = builder.start();
    load.run_while(server.base(), &history, &mut dice, || thread::sleep(SIDE_BY_SIDE));
    drain(&server.client(), &history);
    assert_kept("upgrade alone", 1, &judge(&history.record()));
}

/// The project of requests to SQS whose key is no number of an account.
const PROJECT: &str = "000000000000";

fn sqs(client: Client, operation: &str, members: &Value) -> Option<Answer> {
    let client = client.with_header("x-amz-target", &format!("AmazonSQS.{operation}"));
    client.send(Method::POST, "/", &[], Some(members)).ok().filter(|answer| answer.status == StatusCode::OK)
}

fn schema(client: &Client) -> Option<u64> {
    client.get("/v2/components").ok()?.json()["schema"].as_u64()
}

/// What a new replica stores of SQS beside older ones is read by these when they have its slots, and it is stored by queue when
/// there is none of them any more.
#[test]
fn older_replica_beside_new_one_meets_no_message_by_queue() {
    let mut cluster = Cluster::start_with(|builder| builder.program(earlier_program()));
    let now = env!("CARGO_BIN_EXE_angarium");
    let upgrade =
        |cluster: &mut Cluster, replica| change(cluster, replica, |builder| builder.program(now.into()));
    upgrade(&mut cluster, 0);
    // Older ones know nothing of SQS: the queue is one of the new replica.
    let mut names = (0..200).map(|number| format!("q{number}"));
    let create = |name: &String| sqs(cluster.client_of(0), "CreateQueue", &json!({"QueueName": name}));
    let url =
        names.find_map(|name| create(&name)).expect("a queue of the new replica").json()["QueueUrl"].clone();
    let name = url.as_str().and_then(|url| url.rsplit('/').next()).expect("a URL").to_owned();
    for _ in 0..5 {
        let message = json!({"QueueUrl": url, "MessageBody": "1"});
        assert!(sqs(cluster.client_of(0), "SendMessage", &message).is_some(), "{}", cluster.last_lines());
    }
    assert_eq!(schema(&cluster.client_of(0)), Some(u64::from(Schema::FIRST.0)));
    cluster.leave(0);
    cluster.await_calm();
    let older = cluster.client_of(1).with_header("x-project-id", PROJECT);
    let free = || older.stats(&name).ok().map(|answer| answer.json()["messages"]["free"].clone());
    wait_until("an older replica serves them", || free() == Some(json!(5)));
    // It knows nothing of what is before a body of SQS; of headers it does.
    let stats = older.get(&format!("/v2/queues/{name}/stats")).expect("an answer").json();
    assert!(stats["messages"]["oldest"]["age"].is_u64(), "{stats}");

    cluster.enter(0);
    cluster.await_calm();
    (1..REPLICAS).for_each(|replica| upgrade(&mut cluster, replica));
    let client = || Client::new(&cluster.balancer.base());
    let message = json!({"QueueUrl": url, "MessageBody": "2"});
    wait_until("messages are stored by queue", || {
        sqs(client(), "SendMessage", &message).is_some()
            && schema(&client()) == Some(u64::from(Schema::RETENTION.0))
    });
    let received = || {
        let asked = json!({"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 1});
        let answer = sqs(client(), "ReceiveMessage", &asked).map(|answer| answer.json());
        answer.is_some_and(|answer| answer["Messages"].as_array().is_some_and(|all| !all.is_empty()))
    };
    wait_until("they are received", received);
}
