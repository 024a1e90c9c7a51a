//! Bodies that messages and their copies for subscriptions share: each counts once in the quota, until no message has
//! it.

use std::sync::Arc;

use angarium_broker::limits::IDLE_ROUNDS;
use angarium_core::delay::Delay;
use angarium_core::ids::SubscriptionId;
use angarium_core::limits::Limits;
use angarium_core::message::{MessageTtl, NewMessage};
use angarium_core::names::QueueRef;
use angarium_core::page::PopCount;
use angarium_core::quota::Quota;
use angarium_core::settle::{Forward, SettleEntry};
use angarium_testbed::settings;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::explain::explain;
use super::faulty::Fault::{NotSent, UnknownAfter, UnknownBefore};
use super::migration::{Pools, to};
use super::quotas::{Bounded, TRIES, assert_over, post_counted, project, table, used, used_soon};
use super::requeue::AT_ONCE;
use super::settle::{DONE, entry, forward, hold, settle_one};
use super::subscriptions::with_body;
use super::topics::topic;
use super::transfers::until;
use super::{Whole, metadata, queue};

/// Bytes of a body that is shared.
const LONG: u64 = 1_000;
/// Bytes of a body that is not.
const SHORT: u64 = 100;

fn bytes(bytes: u64) -> Quota {
    Quota { bytes: Some(bytes), ..Quota::NONE }
}

fn body(bytes: u64) -> String {
    format!("\"{}\"", "x".repeat(usize::try_from(bytes).unwrap() - 2))
}

fn long() -> NewMessage {
    with_body(&body(LONG))
}

fn lasting(seconds: i64, message: NewMessage) -> NewMessage {
    NewMessage { ttl: Some(MessageTtl::new(seconds, "ttl", &Limits::ZAQAR).unwrap()), ..message }
}

impl Whole {
    /// Subscribes so many consumer groups. Returns the queues of the subscriptions.
    async fn subscribe_groups(&self, at: &QueueRef, count: usize) -> Vec<QueueRef> {
        let mut owns = Vec::new();
        for number in 0..count {
            owns.push(self.subscribe(at, &format!("pull:{number}")).await.1);
        }
        owns
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_body_counts_once_until_its_last_copy_is_removed() {
    let bounded = Bounded::new(bytes(LONG));
    let (whole, q) = (bounded.start().await, queue("q"));
    let owns = whole.subscribe_groups(&q, 10).await;
    assert_over(post_counted(&whole, &q, &[long(), long()]).await, ("bytes of messages", LONG));
    assert_eq!(used(&whole).await, (11, 0, 0), "a refused post leaves nothing");
    post_counted(&whole, &q, &[long()]).await.unwrap();
    assert_eq!(used(&whole).await, (11, 11, LONG));
    assert_over(post_counted(&whole, &q, &[with_body("1")]).await, ("bytes of messages", LONG));
    assert_eq!(used(&whole).await, (11, 11, LONG));
    for (removed, reader) in (1..).zip([&q].into_iter().chain(&owns)) {
        assert_eq!(used(&whole).await, (11, 12 - removed, LONG));
        whole.broker.queue_purge(reader).await.unwrap();
    }
    assert_eq!(used(&whole).await, (11, 0, 0));
    post_counted(&whole, &q, &[long()]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn long_body_of_a_topic_counts_once() {
    let bounded = Bounded::new(bytes(LONG));
    let (whole, t) = (bounded.start().await, topic("t"));
    whole.broker.queue_create(&t, metadata("{}")).await.unwrap();
    post_counted(&whole, &t, &[long()]).await.unwrap();
    assert_eq!(used(&whole).await, (1, 0, 0), "it has no subscription");
    let (_, first) = whole.subscribe(&t, "pull:first").await;
    post_counted(&whole, &t, &[long()]).await.unwrap();
    assert_eq!(used(&whole).await, (2, 1, LONG), "the only copy");
    assert_over(post_counted(&whole, &t, &[long()]).await, ("bytes of messages", LONG));
    whole.broker.queue_purge(&first).await.unwrap();
    let mut owns = whole.subscribe_groups(&t, 3).await;
    owns.push(first);
    post_counted(&whole, &t, &[long()]).await.unwrap();
    assert_eq!(used(&whole).await, (5, 4, LONG));
    assert_over(post_counted(&whole, &t, &[long()]).await, ("bytes of messages", LONG));
    for (left, own) in (1..=4).rev().zip(&owns) {
        assert_eq!(used(&whole).await, (5, left, LONG));
        whole.broker.queue_purge(own).await.unwrap();
    }
    assert_eq!(used(&whole).await, (5, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn short_body_counts_for_each_copy() {
    let bounded = Bounded::new(bytes(10 * SHORT));
    let (whole, q) = (bounded.start().await, queue("q"));
    whole.subscribe_groups(&q, 4).await;
    for posts in 1..=2 {
        post_counted(&whole, &q, &[with_body(&body(SHORT))]).await.unwrap();
        assert_eq!(used(&whole).await, (5, 5 * posts, 5 * posts * SHORT));
    }
    assert_over(post_counted(&whole, &q, &[with_body("1")]).await, ("bytes of messages", 10 * SHORT));
}

/// No post opens the source after the restart.
#[tokio::test(flavor = "multi_thread")]
async fn restart_counts_shared_bodies_once() {
    let bounded = Bounded::new(bytes(LONG));
    let (whole, q) = (bounded.start().await, queue("q"));
    let owns = whole.subscribe_groups(&q, 3).await;
    post_counted(&whole, &q, &[long()]).await.unwrap();
    whole.broker.queue_purge(&q).await.unwrap();
    whole.broker.stop().await;
    drop(whole);
    let whole = bounded.start().await;
    assert_over(post_counted(&whole, &queue("new"), &[with_body("1")]).await, ("bytes of messages", LONG));
    for (left, own) in (1..=3).rev().zip(&owns) {
        assert_eq!(used(&whole).await, (4, left, LONG));
        whole.broker.queue_purge(own).await.unwrap();
    }
    assert_eq!(used(&whole).await, (4, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn last_copy_frees_the_body_of_a_closed_source() {
    let bounded = Bounded::new(bytes(LONG));
    let (whole, q) = (bounded.start().await, queue("q"));
    let owns = whole.subscribe_groups(&q, 2).await;
    post_counted(&whole, &q, &[long()]).await.unwrap();
    whole.broker.queue_purge(&q).await.unwrap();
    let mut closed = 0;
    for _ in 0..3 * IDLE_ROUNDS {
        for own in &owns {
            whole.broker.queue_stats(own).await.unwrap();
        }
        closed += whole.broker.close_idle_round().0;
    }
    assert_eq!(closed, 1, "the source alone is closed");
    for (left, own) in (1..=2).rev().zip(&owns) {
        assert_eq!(used(&whole).await, (3, left, LONG));
        whole.broker.queue_purge(own).await.unwrap();
    }
    assert_eq!(used(&whole).await, (3, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn expiry_in_closed_subscriptions_frees_the_body() {
    let bounded = Bounded::new(bytes(LONG));
    let (whole, q) = (bounded.start().await, queue("q"));
    whole.subscribe_groups(&q, 2).await;
    post_counted(&whole, &q, &[lasting(60, long())]).await.unwrap();
    whole.broker.queue_purge(&q).await.unwrap();
    whole.broker.stop().await;
    drop(whole);
    let whole = bounded.start().await;
    used_soon(&whole, (3, 2, LONG)).await;
    // A bucket of expiry is read 8 seconds after its messages expire.
    whole.clock.advance(80_000);
    used_soon(&whole, (3, 0, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_subscription_frees_the_bodies_of_its_copies() {
    let bounded = Bounded::new(bytes(LONG));
    let (whole, q) = (bounded.start().await, queue("q"));
    let (first, _) = whole.subscribe(&q, "pull:first").await;
    let (second, _) = whole.subscribe(&q, "pull:second").await;
    post_counted(&whole, &q, &[long()]).await.unwrap();
    whole.broker.queue_purge(&q).await.unwrap();
    whole.broker.subscription_delete(&q, first).await.unwrap();
    assert_eq!(used(&whole).await, (2, 1, LONG), "the other one has a copy");
    whole.broker.subscription_delete(&q, second).await.unwrap();
    used_soon(&whole, (1, 0, 0)).await;
    post_counted(&whole, &q, &[long()]).await.unwrap();
}

/// The batch that removes the last copy is settled once its subscription is not in memory any more.
#[tokio::test(flavor = "multi_thread")]
async fn copies_removed_during_a_deletion_free_their_bodies() {
    let bounded = Bounded::new(bytes(LONG));
    let (whole, q) = (bounded.start().await, queue("q"));
    let (id, own) = whole.subscribe(&q, "pull:").await;
    post_counted(&whole, &q, &[long()]).await.unwrap();
    whole.broker.queue_purge(&q).await.unwrap();
    assert_eq!(used(&whole).await, (2, 1, LONG));
    // Fewer faults than attempts of a batch: it is repeated for more than half a second.
    bounded.pool.next(&[NotSent; TRIES - 1]);
    let delete = async {
        until("the batch is not sent", async || bounded.pool.left() < TRIES - 1).await;
        whole.broker.subscription_delete(&q, id).await.unwrap();
    };
    // A purge of a closed queue may fail.
    let (_, ()) = tokio::join!(whole.broker.queue_purge(&own), delete);
    used_soon(&whole, (1, 0, 0)).await;
    post_counted(&whole, &q, &[long()]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn new_body_needs_room_beside_a_shared_one() {
    let bounded = Bounded::new(bytes(LONG));
    let (whole, q) = (bounded.start().await, queue("q"));
    let owns = whole.subscribe_groups(&q, 1).await;
    let ids = post_counted(&whole, &q, &[long()]).await.unwrap();
    let replace = async || whole.broker.message_replace(&q, ids[0], AT_ONCE, body(LONG).into()).await;
    assert_over(replace().await, ("bytes of messages", LONG));
    assert_eq!(used(&whole).await, (2, 2, LONG));
    bounded.quotas.send_replace(Arc::new(table(bytes(2 * LONG))));
    replace().await.unwrap();
    assert_eq!(used(&whole).await, (2, 2, 2 * LONG));
    whole.broker.queue_purge(&owns[0]).await.unwrap();
    assert_eq!(used(&whole).await, (2, 1, LONG));
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_do_not_leave_at_twice_the_quota() {
    let bounded = Bounded::new(bytes(LONG));
    let (whole, q, target) = (bounded.start().await, queue("q"), queue("target"));
    let (_, own) = whole.subscribe(&q, "queue:target").await;
    let later = NewMessage { delay: Some(Delay::Seconds(30)), ..long() };
    post_counted(&whole, &q, &[later]).await.unwrap();
    bounded.quotas.send_replace(Arc::new(table(bytes(LONG / 2))));
    whole.clock.advance(30_000);
    until("it has no reason to wait", async || explain(&whole, &own).await.says.contains("quota")).await;
    assert_eq!((whole.stored(&own).await, whole.stored(&target).await), (1, 0));
    bounded.quotas.send_replace(Arc::new(table(bytes(LONG / 2 + 1))));
    until("it has not moved", async || whole.stored(&own).await == 0).await;
    used_soon(&whole, (3, 2, 2 * LONG)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_source_frees_all() {
    let bounded = Bounded::new(bytes(2 * LONG));
    let (whole, q, t) = (bounded.start().await, queue("q"), topic("t"));
    whole.broker.queue_create(&t, metadata("{}")).await.unwrap();
    for at in [&q, &t] {
        whole.subscribe_groups(at, 3).await;
        post_counted(&whole, at, &[long()]).await.unwrap();
    }
    assert_eq!(used(&whole).await, (8, 7, 2 * LONG));
    for at in [&q, &t] {
        whole.broker.queue_delete(at).await.unwrap();
    }
    used_soon(&whole, (0, 0, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_an_arrival_count_one_body_together() {
    let bounded = Bounded::new(bytes(3 * LONG));
    let (whole, q, target) = (bounded.start().await, queue("q"), queue("target"));
    let owns = whole.subscribe_groups(&target, 2).await;
    whole.subscribe(&q, "queue:target").await;
    post_counted(&whole, &q, &[long()]).await.unwrap();
    // The body of the post, that of the message which arrives, and that of its copies.
    used_soon(&whole, (5, 4, 3 * LONG)).await;
    for at in owns.iter().chain([&q, &target]) {
        whole.broker.queue_purge(at).await.unwrap();
    }
    assert_eq!(used(&whole).await, (5, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn forward_to_its_own_queue_counts_one_body() {
    let bounded = Bounded::new(bytes(2 * LONG));
    let (whole, q) = (bounded.start().await, queue("q"));
    let owns = whole.subscribe_groups(&q, 2).await;
    post_counted(&whole, &q, &[long()]).await.unwrap();
    let (claim, held) = hold(&whole.broker, &q).await;
    let forwards = vec![Forward { body: body(LONG).into(), ..forward("q") }];
    let settled = SettleEntry { forwards, ..entry(held[0].id, DONE) };
    settle_one(&whole.broker, &q, claim, settled).await.unwrap();
    // The copies keep the body of the message that is done.
    assert_eq!(used(&whole).await, (3, 5, 2 * LONG));
    for at in owns.iter().chain([&q]) {
        whole.broker.queue_purge(at).await.unwrap();
    }
    assert_eq!(used(&whole).await, (3, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_doubt_post_counts_its_shared_body_once() {
    for (fault, messages) in [(UnknownBefore, 0), (UnknownAfter, 3)] {
        let bounded = Bounded::new(bytes(LONG));
        let (whole, q) = (bounded.start().await, queue("q"));
        whole.subscribe_groups(&q, 2).await;
        bounded.pool.next(&[fault; TRIES]);
        let unknown = post_counted(&whole, &q, &[long()]).await.unwrap_err();
        assert!(!unknown.nothing_written(), "{unknown:?}");
        let stored = if messages > 0 { LONG } else { 0 };
        used_soon(&whole, (3, messages, stored)).await;
    }
}

/// A claimed copy keeps the queue in two pools, in the older of which it has the shared body.
#[tokio::test(flavor = "multi_thread")]
async fn migration_makes_a_body_for_each_copy() {
    let (pools, q) = (Pools::new(), queue("q"));
    let (whole, _) = pools.start_within(bytes(LONG)).await;
    let owns = whole.subscribe_groups(&q, 2).await;
    post_counted(&whole, &q, &[long()]).await.unwrap();
    assert_eq!(used(&whole).await, (3, 3, LONG));
    assert_eq!(whole.claim(&owns[0], 1, 300).await.len(), 1);
    whole.broker.queue_migrate(&q, to("b")).await.unwrap();
    used_soon(&whole, (3, 3, 3 * LONG)).await;
    whole.clock.advance(400_000);
    whole.arrived(&q).await;
    used_soon(&whole, (3, 3, 3 * LONG)).await;
    for at in owns.iter().chain([&q]) {
        whole.broker.queue_purge(at).await.unwrap();
    }
    assert_eq!(used(&whole).await, (3, 0, 0));
}

/// A random history of a queue and a topic with subscriptions.
struct History {
    dice: StdRng,
    sources: [QueueRef; 2],
    subscriptions: Vec<(QueueRef, SubscriptionId)>,
}

impl History {
    /// The number of a subscription, if there is one.
    fn subscription(&mut self) -> Option<usize> {
        let count = self.subscriptions.len();
        (count > 0).then(|| self.dice.random_range(0..count))
    }

    /// A queue that has messages.
    fn reader(&mut self) -> QueueRef {
        match self.subscription() {
            Some(number) if self.dice.random_ratio(3, 4) => {
                let (source, id) = &self.subscriptions[number];
                source.of_subscription(*id)
            }
            Some(_) | None => self.sources[0].clone(),
        }
    }

    fn messages(&mut self) -> Vec<NewMessage> {
        let count = self.dice.random_range(1..4);
        let mut messages = Vec::new();
        for _ in 0..count {
            let size = if self.dice.random() { LONG } else { SHORT };
            let seconds = if self.dice.random_ratio(1, 4) { 60 } else { 3_600 };
            messages.push(lasting(seconds, with_body(&body(size))));
        }
        messages
    }

    async fn step(&mut self, whole: &Whole, number: usize) {
        let source = self.sources[self.dice.random_range(0..2)].clone();
        match self.dice.random_range(0..14) {
            0..=5 => drop(post_counted(whole, &source, &self.messages()).await),
            6 | 7 => {
                let count = PopCount::new(3, &Limits::ZAQAR).unwrap();
                whole.broker.messages_pop(&self.reader(), count).await.unwrap();
            }
            8 => whole.broker.queue_purge(&self.reader()).await.unwrap(),
            9 => drop(whole.claim(&self.reader(), 3, 60).await),
            10 if self.subscriptions.len() < 6 => {
                let (id, _) = whole.subscribe(&source, &format!("pull:{number}")).await;
                self.subscriptions.push((source, id));
            }
            11 => {
                let Some(gone) = self.subscription() else { return };
                let (source, id) = self.subscriptions.swap_remove(gone);
                whole.broker.subscription_delete(&source, id).await.unwrap();
            }
            12 => {
                for _ in 0..3 * IDLE_ROUNDS {
                    whole.broker.close_idle_round();
                }
            }
            _ => whole.clock.advance(10_000),
        }
    }
}

/// After any history the ledger agrees with a new count, and no body counts for ever.
#[tokio::test(flavor = "multi_thread")]
async fn books_of_shared_bodies_are_those_of_a_fresh_count() {
    let quota = Quota { messages: Some(200), bytes: Some(20 * LONG), ..Quota::NONE };
    let bounded = Bounded::new(quota);
    let whole = bounded.start().await;
    let sources = [queue("q"), topic("t")];
    for at in &sources {
        whole.broker.queue_create(at, metadata("{}")).await.unwrap();
    }
    let dice = StdRng::seed_from_u64(settings::seed("shared books"));
    let mut history = History { dice, sources, subscriptions: Vec::new() };
    for number in 0..300 {
        history.step(&whole, number).await;
    }
    until("the books are wrong", async || {
        let books = whole.broker.quota(&project()).await.unwrap().used;
        bounded.quotas.send_replace(Arc::new(table(Quota::NONE)));
        let fresh = whole.broker.quota(&project()).await.unwrap().used;
        bounded.quotas.send_replace(Arc::new(table(quota)));
        books == fresh
    })
    .await;
    whole.broker.queue_purge(&history.sources[0]).await.unwrap();
    for (source, id) in &history.subscriptions {
        whole.broker.queue_purge(&source.of_subscription(*id)).await.unwrap();
    }
    used_soon(&whole, (2 + history.subscriptions.len() as u64, 0, 0)).await;
}
