//! The body of a message and of its copies, which the embedded pool stores once.

use std::sync::Arc;

use angarium_broker::Broker;
use angarium_catalogue::{Catalogue, Schema};
use angarium_clock::Clock;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::limits::Limits;
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::settle::{Forward, SettleEntry};
use angarium_journal::Journal;
use angarium_storage::embedded::{EmbeddedPool, audit};
use tempfile::TempDir;

use super::settle::{DONE, entry, forward, hold, settle_one};
use super::subscriptions::with_body;
use super::topics::topic;
use super::transfers::until;
use super::{Whole, metadata, one_pool, other_replica, queue, replica};

/// A broker over a journal, which the test reads too.
struct Scene {
    whole: Whole,
    journal: Journal,
    tree: Arc<EmbeddedTree>,
}

impl Scene {
    async fn new() -> Self {
        let data = TempDir::new().unwrap();
        let clock = Clock::manual(1_700_000_000_000);
        let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
        let tree = Arc::new(EmbeddedTree::open(journal.clone()).await.unwrap());
        let (catalogue, pool) = (Catalogue::new(tree.clone()), EmbeddedPool::new(journal.clone()));
        let pools = one_pool(Arc::new(pool));
        let broker = Broker::start(catalogue, &pools, replica(), clock.clone(), Limits::ZAQAR).await.unwrap();
        Self { whole: Whole { broker, clock, _data: data }, journal, tree }
    }

    /// The bodies that are stored beside their messages.
    fn bodies(&self) -> u64 {
        let found = audit(&self.journal.view().unwrap());
        let wrong: Vec<_> = found.queues.iter().filter(|queue| !queue.is_whole()).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        found.shared_bodies
    }

    async fn post(&self, at: &QueueRef, bodies: &[String]) {
        let messages: Vec<NewMessage> = bodies.iter().map(|body| with_body(body)).collect();
        self.whole.broker.messages_post(at, messages, None).await.unwrap();
    }
}

fn long_bodies(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("\"{}{number}\"", "x".repeat(1_000))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_share_the_body_of_their_post() {
    let (scene, q) = (Scene::new().await, queue("q"));
    let (whole, bodies) = (&scene.whole, long_bodies(5));
    let mut readers = vec![q.clone()];
    for name in ["pull:one", "pull:two", "pull:three"] {
        readers.push(whole.subscribe(&q, name).await.1);
    }
    scene.post(&q, &bodies).await;
    assert_eq!(scene.bodies(), 5);
    for reader in readers {
        assert_eq!(scene.bodies(), 5, "until all have it");
        assert_eq!(whole.claim_all(&reader, 5).await, bodies);
        whole.broker.queue_purge(&reader).await.unwrap();
    }
    until("bodies are left", async || scene.bodies() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_a_topic_share_a_body_until_it_is_deleted() {
    let (scene, t) = (Scene::new().await, topic("t"));
    let (whole, bodies) = (&scene.whole, long_bodies(3));
    whole.broker.queue_create(&t, metadata("{}")).await.unwrap();
    let (_, one) = whole.subscribe(&t, "pull:one").await;
    let (_, two) = whole.subscribe(&t, "pull:two").await;
    scene.post(&t, &bodies).await;
    assert_eq!(scene.bodies(), 3);
    assert_eq!(whole.claim_all(&one, 3).await, bodies);
    assert_eq!(whole.claim_all(&two, 3).await, bodies);
    whole.broker.queue_delete_forced(&t).await.unwrap();
    until("bodies are left", async || scene.bodies() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_an_arrival_and_of_a_forward_share_a_body() {
    let (scene, q, target) = (Scene::new().await, queue("q"), queue("target"));
    let (whole, bodies) = (&scene.whole, long_bodies(1));
    whole.subscribe(&q, "queue:target").await;
    let (_, one) = whole.subscribe(&target, "pull:one").await;
    let (_, two) = whole.subscribe(&target, "pull:two").await;
    scene.post(&q, &bodies).await;
    assert_eq!(whole.claim_all(&one, 1).await, bodies);
    assert_eq!(whole.claim_all(&two, 1).await, bodies);
    // The message in the first queue keeps the body of its post.
    until("other bodies are shared", async || scene.bodies() == 2).await;
    let (claim, held) = hold(&whole.broker, &target).await;
    let long = format!("\"{}\"", "y".repeat(1_000));
    let forwards = vec![Forward { body: long.clone().into(), ..forward("target") }];
    let settled = SettleEntry { forwards, ..entry(held[0].id, DONE) };
    settle_one(&whole.broker, &target, claim, settled).await.unwrap();
    assert_eq!(whole.claim_all(&one, 1).await, std::slice::from_ref(&long));
    assert_eq!(scene.bodies(), 3);
}

/// A program before shared bodies would take the messages for damage.
#[tokio::test(flavor = "multi_thread")]
async fn copies_share_no_body_beside_older_replicas() {
    let (scene, q) = (Scene::new().await, queue("q"));
    let (whole, bodies) = (&scene.whole, long_bodies(2));
    let (catalogue, older) = (Catalogue::new(scene.tree.clone()), other_replica(Schema::CONFIRMATIONS));
    let seen = catalogue.registry().await.unwrap();
    catalogue.component_join(&seen, "elsewhere", &older).await.unwrap().unwrap();
    let (_, own) = whole.subscribe(&q, "pull:").await;
    scene.post(&q, &bodies).await;
    assert_eq!(scene.bodies(), 0);
    assert_eq!(whole.claim_all(&own, 2).await, bodies);
}
