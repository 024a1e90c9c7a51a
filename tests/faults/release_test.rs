//! Owns the tests of a release with a delay that is cut short between its steps: the headers of the messages are written, and
//! the record of the claim is not removed. Whatever cuts it short, a delete under the claim is final, and no other message
//! is lost.

use std::thread;
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::powercut::PowerCut;
use super::table_damage::doctor;
use crate::support::client::{Answer, Claim, Client, Reply};
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::wait_until;
use angarium_testbed::proxy::{Proxy, Wire};
use angarium_testbed::zookeeper::{ZooKeeper, fresh_tree_at};

const QUEUE: &str = "letters";
/// Of the release, in seconds.
const DELAY: u64 = 2;
/// In this time each connection of a cut wire is closed, and no session ends.
const CUT: Duration = Duration::from_secs(1);

/// A claim on two of three messages.
struct ClaimedPair {
    claim: Claim,
    /// The third message.
    free: String,
}

impl ClaimedPair {
    fn new(client: &Client) -> Self {
        let posted = client.post_messages(QUEUE, &[json!(1), json!(2), json!(3)]).unwrap();
        assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
        let claim = client.claim(QUEUE, 2, 43_200).unwrap().granted().expect("three are ready");
        let ids = posted.posted_ids();
        assert_eq!(claim.messages.iter().map(|message| &message.id).collect::<Vec<_>>(), [&ids[0], &ids[1]]);
        Self { claim, free: ids[2].clone() }
    }

    fn release(&self, client: &Client) -> Reply {
        client.put_off_claim(QUEUE, &self.claim.id, DELAY)
    }

    /// Deletes one message under the claim, of which the other one stays: there is the rest and nothing else, also after the
    /// delay and in the next process.
    fn assert_delete_is_final(&self, builder: &ServerBuilder, server: Server) {
        let client = server.client();
        let (deleted, kept) = (&self.claim.messages[0].id, &self.claim.messages[1].id);
        let delete = || client.delete_message(QUEUE, deleted, Some(&self.claim.id));
        assert_eq!(once_served(delete).status, StatusCode::NO_CONTENT);
        assert_eq!(counts(&client), [1, 1, 2]);
        thread::sleep(Duration::from_secs(DELAY + 1));
        assert_eq!(claim_and_delete(&client), std::slice::from_ref(&self.free));
        assert_eq!(client.get_message(QUEUE, deleted).unwrap().status, StatusCode::NOT_FOUND);
        assert_eq!(counts(&client), [1, 0, 1]);
        let released = client.release_claim(QUEUE, &self.claim.id).unwrap();
        assert_eq!(released.status, StatusCode::NO_CONTENT, "{}", released.text());
        server.kill9();
        let server = builder.start();
        let client = server.client();
        assert_eq!(counts(&client), [0, 1, 1]);
        assert_eq!(claim_and_delete(&client), std::slice::from_ref(kept));
        assert_eq!(counts(&client), [0, 0, 0]);
        server.terminate();
        assert_eq!(doctor(builder.data()), [""; 0]);
    }
}

/// The first answer that is not a refusal for now.
fn once_served(ask: impl Fn() -> Reply) -> Answer {
    let mut answer = ask().unwrap();
    wait_until("the request is served", || {
        let is_refused = answer.status == StatusCode::SERVICE_UNAVAILABLE;
        if is_refused {
            answer = ask().unwrap();
        }
        !is_refused
    });
    answer
}

/// How many messages the queue states to have: claimed, free, and all.
fn counts(client: &Client) -> [u64; 3] {
    let answer = once_served(|| client.stats(QUEUE));
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let messages = answer.json()["messages"].clone();
    ["claimed", "free", "total"].map(|name| messages[name].as_u64().unwrap_or_else(|| panic!("{messages}")))
}

/// The ids of all that a queue gives, deleted under one claim.
fn claim_and_delete(client: &Client) -> Vec<String> {
    let answer = client.claim(QUEUE, 20, 300).unwrap();
    assert!(answer.status.is_success(), "{}", answer.text());
    let Some(claim) = answer.granted() else { return Vec::new() };
    let ids: Vec<&str> = claim.messages.iter().map(|message| message.id.as_str()).collect();
    let deleted = client.delete_messages(QUEUE, &ids, &claim.id).unwrap();
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.text());
    ids.into_iter().map(ToOwned::to_owned).collect()
}

#[test]
fn delete_after_release_killed_halfway_is_final() {
    let cut = PowerCut::new();
    let server = cut.server().start();
    let client = server.client();
    let pair = ClaimedPair::new(&client);
    // The record of the claim is the only key with its id.
    cut.kill_before_write_of(&pair.claim.id);
    pair.release(&client).expect_err("the process ends before it answers");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&server.await_end()), Some(9));
    cut.spare();
    pair.assert_delete_is_final(&cut.server(), cut.server().start());
}

#[test]
fn delete_after_release_failed_by_disk_is_final() {
    let cut = PowerCut::new();
    let server = cut.server().start();
    let client = server.client();
    let pair = ClaimedPair::new(&client);
    cut.refuse_writes_of(&pair.claim.id);
    let released = pair.release(&client).unwrap();
    assert_eq!(released.status, StatusCode::SERVICE_UNAVAILABLE, "{}", released.text());
    assert_eq!(released.json()["nothing_written"], json!(false), "the headers are written");
    cut.allow_writes();
    pair.assert_delete_is_final(&cut.server(), server);
}

#[test]
fn delete_after_release_without_zookeeper_is_final() {
    let (runtime, dir) = (Runtime::new().unwrap(), TempDir::new().unwrap());
    let wire = runtime.block_on(Proxy::start(ZooKeeper::shared().endpoint()));
    let address = fresh_tree_at(&wire.address().to_string()).to_string();
    let builder = ServerBuilder::new(dir.path()).arg("--coordination").arg(address);
    let builder = builder.arg("--pool").arg("embedded:journal");
    let server = builder.start();
    let client = server.client();
    let pair = ClaimedPair::new(&client);
    // ZooKeeper never gets the request, and the service cannot know that.
    wire.set(Wire::Mute);
    let released = pair.release(&client).unwrap();
    assert_eq!(released.status, StatusCode::SERVICE_UNAVAILABLE, "{}", released.text());
    assert_eq!(released.json()["nothing_written"], json!(false), "the headers are written");
    wire.set(Wire::Cut);
    thread::sleep(CUT);
    wire.set(Wire::Whole);
    pair.assert_delete_is_final(&builder, server);
}
