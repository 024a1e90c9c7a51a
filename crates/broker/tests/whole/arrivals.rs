//! Messages that arrive from other queues: each brings one copy to each subscription, and circles of queues end.

use std::collections::BTreeSet;

use angarium_broker::{MessageSelection, MessageView, NewSubscription};
use angarium_core::durability::Durability;
use angarium_core::group::GroupName;
use angarium_core::limits::HOPS;
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::quota::Quota;
use angarium_core::settle::{MessageState, Retry, SettleEntry, Verdict};
use angarium_storage::Batch;
use futures_util::future::join_all;

use super::deadletters::{FOR_EVER, Lives, ONCE, claim_once};
use super::explain::explain;
use super::faulty::Fault;
use super::holds::{effects, hold_terms};
use super::outcomes::{Faulty, faulty};
use super::peek::peek_of;
use super::quotas::Bounded;
use super::requeue::AT_ONCE;
use super::settle::{DONE, entry, fail, forward, forwarding, hold, name, settle_one};
use super::subscriptions::{new, options, with_body};
use super::transfers::until;
use super::{Whole, limit, metadata, queue, terms, whole};

impl Whole {
    async fn subscribe_with(&self, at: &QueueRef, subscriber: &str, json: &str) -> QueueRef {
        let subscription = NewSubscription { options: options(json), ..new(subscriber) };
        at.of_subscription(self.broker.subscription_create(at, subscription).await.unwrap().id)
    }

    /// Claims messages and deletes them. Returns their bodies.
    async fn take_bodies(&self, at: &QueueRef, most: i64) -> Vec<String> {
        let claim = self.broker.claim_create(at, terms(60), limit(most)).await.unwrap();
        let Some((claim, mut guard)) = claim else { return Vec::new() };
        guard.done();
        for message in &claim.messages {
            self.broker.message_delete(at, message.id, Some(claim.id)).await.unwrap();
        }
        let body = |body: &[u8]| String::from_utf8(body.to_vec()).unwrap();
        claim.messages.iter().map(|message| body(&message.body)).collect()
    }

    pub(super) async fn stored(&self, at: &QueueRef) -> u64 {
        let stats = self.broker.queue_stats(at).await.unwrap();
        stats.free + stats.claimed + stats.delayed + stats.in_transfer
    }

    /// Returns the reasons of the failed messages of a queue.
    async fn failures(&self, at: &QueueRef) -> Vec<String> {
        let selection =
            MessageSelection { states: vec![MessageState::Failed], ..MessageSelection::default() };
        let page = self.broker.messages_peek(at, &peek_of(selection)).await.unwrap();
        page.messages.iter().map(|message| reason_of(&message.view)).collect()
    }
}

fn reason_of(view: &MessageView) -> String {
    let reason = view.extras.as_ref().and_then(|extras| extras.reason.as_ref());
    reason.map(ToString::to_string).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn new_messages_bring_copies_and_returning_ones_do_not() {
    let (whole, q, target) = (whole().await, queue("q"), queue("target"));
    whole.broker.queue_create(&target, metadata(ONCE)).await.unwrap();
    let (_, own) = whole.subscribe(&target, "pull:").await;
    whole.subscribe(&q, "queue:target").await;
    let posted = whole.post_bodies(&q, 3, 3_600).await;
    assert_eq!(whole.claim_all(&own, 3).await, posted);
    // One message is moved, and one forwards another one.
    let (claim, views) = hold(&whole.broker, &q).await;
    let moved = entry(views[0].id, Verdict::Move { target: name("target"), delay: None });
    settle_one(&whole.broker, &q, claim, moved).await.unwrap();
    let forwards = SettleEntry { forwards: vec![forward("target")], ..entry(views[1].id, DONE) };
    settle_one(&whole.broker, &q, claim, forwards).await.unwrap();
    let copies = BTreeSet::from_iter(whole.claim_all(&own, 2).await);
    assert_eq!(copies, BTreeSet::from([posted[0].clone(), "\"next\"".to_owned()]));
    // One forwards another one to its own queue.
    let (there, held) = hold(&whole.broker, &target).await;
    let forwards = SettleEntry { forwards: vec![forward("target")], ..entry(held[0].id, DONE) };
    settle_one(&whole.broker, &target, there, forwards).await.unwrap();
    assert_eq!(whole.claim_all(&own, 1).await, ["\"next\""]);
    // A dead letter, and one that fails and is made available again.
    let dead_letters = r#"{"_dead_letter_queue": "target", "_max_claim_count": 1}"#;
    whole.broker.queue_create(&queue("source"), metadata(dead_letters)).await.unwrap();
    whole.post_bodies(&queue("source"), 1, 3_600).await;
    claim_once(&whole, &queue("source")).await;
    assert!(whole.claim(&queue("source"), 20, 300).await.is_empty());
    let failed = entry(views[2].id, fail("no", Retry::Never));
    settle_one(&whole.broker, &q, claim, failed).await.unwrap();
    whole.broker.message_requeue(&q, views[2].id, AT_ONCE).await.unwrap();
    until("the dead letter has not arrived", async || whole.stored(&target).await == 6).await;
    assert!(whole.claim(&own, 20, 300).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn circle_of_two_queues_ends_at_the_bound() {
    let (whole, a, b) = (whole().await, queue("a"), queue("b"));
    let (_, last) = whole.subscribe(&a, "queue:b").await;
    let (_, own) = whole.subscribe(&b, "queue:a").await;
    let (_, pull) = whole.subscribe(&a, "pull:").await;
    whole.post_bodies(&a, 2, 3_600).await;
    // Each passes every second queue; the last one to b has no hop left.
    assert_eq!(HOPS, 8);
    assert_eq!(whole.claim_all(&b, 8).await.len(), 8);
    assert_eq!(whole.claim_all(&a, 10).await.len(), 10);
    assert_eq!(whole.claim_all(&pull, 10).await.len(), 10);
    until("there is no failure", async || whole.failures(&last).await.len() == 2).await;
    for reason in whole.failures(&last).await {
        assert_eq!(reason, "8 queues have sent it on, one after the other: they form a circle");
    }
    assert!(whole.failures(&own).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn circle_of_three_queues_ends_in_the_dead_letters() {
    let (whole, all) = (whole().await, ["a", "b", "c"].map(queue));
    for (at, to) in all.iter().zip(["queue:b", "queue:c", "queue:a"]) {
        whole.subscribe_with(at, to, r#"{"_dead_letter_queue": "dead"}"#).await;
    }
    let posted = whole.post_bodies(&all[0], 1, 3_600).await;
    for at in &all {
        assert_eq!(whole.claim_all(at, 3).await, vec![posted[0].clone(); 3], "{at:?}");
    }
    let (claim, views) = hold(&whole.broker, &queue("dead")).await;
    assert_eq!(views.len(), 1);
    assert!(reason_of(&views[0]).ends_with("they form a circle"));
    whole.broker.claim_release(&queue("dead"), claim).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn arrivals_in_fifo_queue_keep_order_of_groups() {
    let (whole, q, target) = (whole().await, queue("q.fifo"), queue("target.fifo"));
    let (_, own) = whole.subscribe(&target, "pull:").await;
    whole.subscribe(&q, "queue:target.fifo").await;
    let mut posted = Vec::new();
    for number in 0..40 {
        let group = Some(GroupName::new(["a", "b"][number % 2], "group").unwrap());
        let message = NewMessage { group, ..with_body(&number.to_string()) };
        whole.broker.messages_post(&q, vec![message], None).await.unwrap();
        posted.push(number.to_string());
    }
    for at in [&own, &target] {
        let mut got = Vec::new();
        until("messages are missing", async || {
            got.extend(whole.take_bodies(at, 3).await);
            got.len() >= posted.len()
        })
        .await;
        for group in [0, 1] {
            let of_group: Vec<&String> = posted.iter().skip(group).step_by(2).collect();
            let got: Vec<&String> = got.iter().filter(|body| of_group.contains(body)).collect();
            assert_eq!(got, of_group, "{at:?}");
        }
    }
}

/// A message of group `a` that has left `q.fifo` and waits, prepared in its target, for room in a full subscription
/// there. One of group `c` has left with it. That one and the next one of group `a` need no room.
struct WithoutRoom {
    faulty: Faulty,
    target: QueueRef,
    full: QueueRef,
    way: QueueRef,
}

fn grouped(group: &str, body: &str) -> NewMessage {
    NewMessage { group: Some(GroupName::new(group, "group").unwrap()), ..with_body(body) }
}

impl WithoutRoom {
    async fn begin() -> Self {
        let (faulty, q) = (faulty().await, queue("q.fifo"));
        // In another slot, the post to the target does not wait behind the held batch of the source.
        let mut targets = (0..).map(|number| queue(&format!("target{number}.fifo")));
        let target = targets.find(|target| target.slot() != q.slot()).unwrap();
        let whole = &faulty.whole;
        let refusing =
            r#"{"max_messages": 1, "overflow": "refuse", "filter": {"k": ["a"]}, "filter_scope": "body"}"#;
        let full = whole.subscribe_with(&target, "pull:full", refusing).await;
        let (_, way) = whole.subscribe(&q, &format!("queue:{}", target.name)).await;
        let post = async |at: &QueueRef, messages: Vec<NewMessage>| {
            whole.broker.messages_post(at, messages, None).await.unwrap();
        };
        // All queues are open from here on.
        post(&q, vec![grouped("z", r#"{"k": "z"}"#)]).await;
        until("the first one has not arrived", async || whole.take_bodies(&target, 1).await.len() == 1).await;
        until("the first one has not left", async || whole.stored(&way).await == 0).await;
        // Both are admitted and prepared; the room of the first is taken before they have left their source.
        faulty.pool.next(&[Fault::Held]);
        faulty.pool.skip(2);
        post(&q, vec![grouped("a", r#"{"k": "a", "n": 1}"#), grouped("c", r#"{"k": "z", "n": 3}"#)]).await;
        until("their removal is not tried", async || faulty.pool.is_done()).await;
        post(&target, vec![grouped("b", r#"{"k": "a", "n": 0}"#)]).await;
        faulty.pool.release();
        until("they have not left", async || whole.stored(&way).await == 0).await;
        post(&q, vec![grouped("a", r#"{"k": "z", "n": 2}"#)]).await;
        Self { faulty, target, full, way }
    }

    /// Takes the messages of other groups: they do not wait.
    async fn take_others(&self) {
        let mut got = self.take(2).await;
        got.sort();
        assert_eq!(got, [r#"{"k": "a", "n": 0}"#, r#"{"k": "z", "n": 3}"#]);
    }

    /// Takes messages from the target until it has given as many.
    async fn take(&self, count: usize) -> Vec<String> {
        let mut got = Vec::new();
        until("messages are missing", async || {
            got.extend(self.faulty.whole.take_bodies(&self.target, 10).await);
            got.len() >= count
        })
        .await;
        got
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn later_arrival_of_group_waits_for_one_without_room() {
    let scene = WithoutRoom::begin().await;
    let whole = &scene.faulty.whole;
    let why = "an earlier message of the group has not arrived yet";
    until("the later one is not tried", async || {
        whole.stored(&scene.way).await == 0 || explain(whole, &scene.way).await.says.contains(why)
    })
    .await;
    scene.take_others().await;
    assert_eq!(whole.stored(&scene.way).await, 1, "the later one stays at its source");
    whole.broker.queue_purge(&scene.full).await.unwrap();
    assert_eq!(scene.take(2).await, [r#"{"k": "a", "n": 1}"#, r#"{"k": "z", "n": 2}"#]);
}

/// The earlier one may never have room.
#[tokio::test(flavor = "multi_thread")]
async fn later_arrival_of_group_waits_ten_minutes_at_most() {
    let scene = WithoutRoom::begin().await;
    scene.take_others().await;
    scene.faulty.whole.clock.advance(601_000);
    assert_eq!(scene.take(1).await, [r#"{"k": "z", "n": 2}"#]);
}

/// Whatever the fault, and whichever step it stops, a message that arrives brings its copy once.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_arrival_brings_one_copy() {
    let faults = [Fault::NotSent, Fault::UnknownBefore, Fault::UnknownAfter];
    let all = (0..=6).flat_map(|steps| faults.map(|fault| (steps, fault)));
    join_all(all.map(async |(steps, fault)| {
        let case = format!("{fault:?} after {steps}");
        let (lives, q, target) = (Lives::new(), queue("q"), queue("target"));
        let (first, plan) = lives.whole().await;
        let (_, own) = first.subscribe(&target, "pull:").await;
        first.subscribe(&q, "queue:target").await;
        plan.next(&vec![fault; FOR_EVER]);
        plan.skip(steps);
        let bodies: Vec<String> = (0..3).map(|number| number.to_string()).collect();
        let messages = bodies.iter().map(|body| with_body(body)).collect();
        let _ = first.broker.messages_post(&q, messages, None).await;
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        first.broker.stop().await;
        let (second, _) = lives.whole().await;
        let stored = second.drain_bodies(&q).await;
        assert!(stored.is_empty() || stored.len() == 3, "{case}");
        for at in [&target, &own] {
            if stored.is_empty() {
                assert!(second.claim(at, 20, 300).await.is_empty(), "{case}");
            } else {
                assert_eq!(BTreeSet::from_iter(second.claim_all(at, 3).await).len(), 3, "{case}");
            }
        }
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_subscription_delays_an_arrival_or_counts_it() {
    let (whole, q, target) = (whole().await, queue("q"), queue("target"));
    let refusing =
        r#"{"max_messages": 2, "overflow": "refuse", "filter": {"k": ["a"]}, "filter_scope": "body"}"#;
    let refuses = whole.subscribe_with(&target, "pull:refuse", refusing).await;
    let dropping = r#"{"max_messages": 2, "overflow": "drop_oldest"}"#;
    let drops = whole.subscribe_with(&target, "pull:drop", dropping).await;
    let suspends = whole.subscribe_with(&target, "pull:suspend", r#"{"max_messages": 2}"#).await;
    let (_, way) = whole.subscribe(&q, "queue:target").await;
    let post = async |body: &str| {
        whole.broker.messages_post(&q, vec![with_body(body)], None).await.unwrap();
    };
    for _ in 0..4 {
        post(r#"{"k": "a"}"#).await;
    }
    post(r#"{"k": "b"}"#).await;
    // The refused ones wait at their source, and delay no other.
    until("three have not arrived", async || whole.stored(&target).await == 3).await;
    until("the transfer has no reason", async || {
        explain(&whole, &way).await.says.contains("refuses posts beyond")
    })
    .await;
    // An arrival is counted in both queues for a moment.
    until("two do not wait", async || (whole.stored(&way).await, whole.stored(&refuses).await) == (2, 2))
        .await;
    until("too many are kept", async || whole.stored(&drops).await == 2).await;
    assert_eq!(whole.stored(&suspends).await, 2);
    whole.broker.queue_purge(&refuses).await.unwrap();
    until("the rest has not arrived", async || {
        (whole.stored(&way).await, whole.stored(&refuses).await) == (0, 2)
    })
    .await;
    assert_eq!(whole.stored(&target).await, 5);
    // One that no bounds have room for does not wait for ever.
    let tiny = r#"{"max_bytes": 3, "overflow": "refuse"}"#;
    whole.subscribe_with(&target, "pull:tiny", tiny).await;
    post(r#"{"k": "c"}"#).await;
    until("it waits", async || whole.stored(&target).await == 6).await;
}

/// What its consumers forward to its source waits in it meanwhile, so no other message would ever make room.
#[tokio::test(flavor = "multi_thread")]
async fn full_subscription_accepts_messages_from_itself() {
    let (whole, q) = (whole().await, queue("q"));
    let own = whole.subscribe_with(&q, "pull:", r#"{"max_messages": 2, "overflow": "refuse"}"#).await;
    whole.post_bodies(&q, 2, 3_600).await;
    let (claim, views) = hold(&whole.broker, &own).await;
    assert_eq!(views.len(), 2);
    for view in &views {
        settle_one(&whole.broker, &own, claim, forwarding(view.id, "q")).await.unwrap();
    }
    until("they have not arrived", async || whole.stored(&q).await == 4).await;
    let mut copies = Vec::new();
    until("copies are missing", async || {
        copies.extend(whole.take_bodies(&own, 5).await);
        copies.len() >= 2
    })
    .await;
    assert_eq!(copies, ["\"next\"", "\"next\""]);
    until("they are in it no more", async || whole.stored(&own).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn arrival_waits_for_room_in_the_quota() {
    let house = Bounded::new(Quota { messages: Some(5), ..Quota::NONE });
    let (whole, q, target) = (house.start().await, queue("q"), queue("target"));
    let (_, own) = whole.subscribe(&target, "pull:").await;
    whole.subscribe(&q, "queue:target").await;
    // Two in the queue, two on their way, and one copy.
    let posted = whole.post_bodies(&q, 2, 3_600).await;
    until("one has not arrived", async || whole.stored(&own).await == 1).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(whole.stored(&target).await, 1);
    whole.broker.queue_purge(&q).await.unwrap();
    until("the other has not arrived", async || whole.stored(&own).await == 2).await;
    assert_eq!(BTreeSet::from_iter(whole.claim_all(&own, 2).await), BTreeSet::from_iter(posted));
}

#[tokio::test(flavor = "multi_thread")]
async fn held_posts_do_not_stop_arrivals() {
    let (whole, q, target) = (whole().await, queue("q"), queue("target"));
    let (_, own) = whole.subscribe(&target, "pull:").await;
    whole.subscribe(&q, "queue:target").await;
    whole.broker.queue_hold(&target, hold_terms(effects(true, true, false))).await.unwrap();
    let posted = whole.post_bodies(&q, 2, 3_600).await;
    assert_eq!(whole.claim_all(&own, 2).await, posted);
    assert!(whole.claim(&target, 20, 300).await.is_empty());
}

/// The arrivals were posted before the subscription was created, and its fill has not met their ids.
#[tokio::test(flavor = "multi_thread")]
async fn arrival_during_a_fill_is_copied_once() {
    let (whole, q, target) = (whole().await, queue("q"), queue("target"));
    let mut expected = whole.post_bodies(&target, 8, 3_600).await;
    let full = r#"{"max_messages": 1, "overflow": "refuse"}"#;
    let gate = whole.subscribe_with(&target, "pull:gate", full).await;
    expected.extend(whole.post_bodies(&target, 1, 3_600).await);
    whole.subscribe(&q, "queue:target").await;
    expected.extend(whole.post_bodies(&q, 2, 3_600).await);
    // The fill waits while more than half of the bounds is in use, and has then room for the arrivals.
    let late = whole.subscribe_with(&target, "pull:late", r#"{"from": "oldest", "max_messages": 6}"#).await;
    until("the fill does not begin", async || whole.stored(&late).await == 6).await;
    let mut copies = whole.take_bodies(&late, 2).await;
    until("the messages have not arrived", async || {
        whole.broker.queue_purge(&gate).await.unwrap();
        whole.stored(&target).await == 11 && whole.stored(&late).await == 6
    })
    .await;
    let id = late.name.subscription().unwrap();
    until("it is not filled", async || {
        copies.extend(whole.take_bodies(&late, 20).await);
        !whole.broker.subscription_get(&target, id).await.unwrap().backlog.unwrap().is_filling
    })
    .await;
    copies.extend(whole.take_bodies(&late, 20).await);
    copies.sort();
    expected.sort();
    assert_eq!(copies, expected);
}

/// The copy is in transfer from the first moment: a power cut must not take the message that it is of.
#[tokio::test(flavor = "multi_thread")]
async fn copy_for_a_queue_is_synced_in_a_relaxed_queue() {
    let (faulty, q) = (faulty().await, queue("q"));
    let whole = &faulty.whole;
    whole.broker.queue_create(&q, metadata(r#"{"_durability": "relaxed"}"#)).await.unwrap();
    whole.subscribe_with(&q, "pull:", "{}").await;
    let before = faulty.given.given().len();
    whole.post_bodies(&q, 1, 3_600).await;
    let given = faulty.given.given().split_off(before);
    assert!(given.iter().all(|batch| batch.durability == Durability::Relaxed), "{given:?}");
    whole.subscribe_with(&q, "queue:target", r#"{"from": "oldest"}"#).await;
    assert_eq!(whole.claim_all(&queue("target"), 1).await.len(), 1);
    let before = faulty.given.given().len();
    whole.post_bodies(&q, 1, 3_600).await;
    assert_eq!(whole.claim_all(&queue("target"), 1).await.len(), 1);
    let given = faulty.given.given().split_off(before);
    let stores = |batch: &&Batch| batch.queues.iter().any(|queue| !queue.changes.appends.is_empty());
    assert!(given.iter().filter(stores).all(|batch| batch.durability == Durability::Sync), "{given:?}");
}
