//! The gap of a suspended subscription: it catches up with the messages that its source still has, each once and in order.

use std::collections::BTreeSet;
use std::time::Duration;

use angarium_core::group::GroupName;
use angarium_core::ids::SubscriptionId;
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::overflow::Omissions;
use angarium_testbed::settings;
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::deadletters::{FOR_EVER, Lives};
use super::explain::explain;
use super::faulty::Fault;
use super::overflow::{backlog, bounded, change, post, stored, take};
use super::subscriptions::{next_body, with_body};
use super::topics::topic;
use super::transfers::until;
use super::{Whole, limit, metadata, queue, terms, whole};

/// Takes copies until the subscription has caught up. Returns their bodies.
async fn take_gap(whole: &Whole, q: &QueueRef, id: SubscriptionId) -> Vec<usize> {
    let own = q.of_subscription(id);
    let mut copies = Vec::new();
    until("it does not catch up", async || {
        // Read first: the last page may come after a claim that gets nothing.
        let is_filling = backlog(whole, q, id).await.is_filling;
        let taken = take(whole, &own, 20).await;
        copies.extend(&taken);
        taken.is_empty() && !is_filling
    })
    .await;
    copies
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_subscription_catches_up_with_its_queue() {
    let (whole, q) = (whole().await, queue("q"));
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 100}"#).await;
    let post_up = async |from: usize, to: usize| {
        for first in (from..to).step_by(50) {
            post(&whole, &q, &(first..first + 50).collect::<Vec<_>>()).await.unwrap();
        }
    };
    post_up(0, 1_000).await;
    assert_eq!((stored(&whole, &own).await, backlog(&whole, &q, id).await.omissions.left_out), (100, 900));
    let text = explain(&whole, &own).await.says;
    assert!(
        text.contains("messages left out are copied as there is room, as long as the source has them"),
        "{text}"
    );
    // New messages are left out until it has caught up.
    let mut copies = take(&whole, &own, 20).await;
    until("it does not catch up", async || stored(&whole, &own).await == 100).await;
    post_up(1_000, 1_050).await;
    assert!(backlog(&whole, &q, id).await.is_suspended);
    copies.extend(take_gap(&whole, &q, id).await);
    post_up(1_050, 1_100).await;
    copies.extend(take(&whole, &own, 20).await);
    copies.extend(take_gap(&whole, &q, id).await);
    assert_eq!(copies, (0..1_100).collect::<Vec<_>>());
    assert_eq!(backlog(&whole, &q, id).await.omissions, Omissions::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn posts_during_the_catch_up_are_copied_once() {
    let (whole, q) = (whole().await, queue("q"));
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 30}"#).await;
    let (to, from) = (&whole, &q);
    let posts = async {
        for body in 0..600 {
            post(to, from, &[body]).await.unwrap();
        }
    };
    let takes = async {
        let mut copies = Vec::new();
        while copies.len() < 300 {
            copies.extend(take(&whole, &own, 20).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        copies
    };
    let ((), mut copies) = futures_util::future::join(posts, takes).await;
    copies.extend(take_gap(&whole, &q, id).await);
    assert_eq!(copies.len(), 600);
    assert_eq!(BTreeSet::from_iter(copies), BTreeSet::from_iter(0..600));
}

#[tokio::test(flavor = "multi_thread")]
async fn message_gone_from_the_source_stays_counted() {
    let (whole, q) = (whole().await, queue("q"));
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 2}"#).await;
    post(&whole, &q, &[0, 1]).await.unwrap();
    let mut left_out = Vec::new();
    for body in 2..5 {
        left_out.extend(post(&whole, &q, &[body]).await.unwrap());
    }
    whole.broker.message_delete(&q, left_out[1], None).await.unwrap();
    // A claimed message waits in its queue.
    assert_eq!(whole.claim(&q, 20, 300).await.len(), 4);
    assert_eq!(take(&whole, &own, 20).await, [0, 1]);
    assert_eq!(take_gap(&whole, &q, id).await, [2, 4]);
    let view = backlog(&whole, &q, id).await;
    let gap = view.omissions.gap.unwrap();
    assert_eq!((view.is_suspended, view.omissions.left_out, gap.messages), (false, 1, 1));
    assert_eq!((gap.first, gap.last), (left_out[0], left_out[2]));
    // The next gap is counted by itself.
    post(&whole, &q, &[5, 6]).await.unwrap();
    let next = post(&whole, &q, &[7]).await.unwrap();
    let view = backlog(&whole, &q, id).await;
    assert_eq!((view.omissions.left_out, view.omissions.gap.unwrap().first), (2, next[0]));
    assert_eq!(take(&whole, &own, 20).await, [5, 6]);
    assert_eq!(take_gap(&whole, &q, id).await, [7]);
    let view = backlog(&whole, &q, id).await;
    assert_eq!((view.omissions.left_out, view.omissions.gap), (1, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn gap_of_fifo_queue_keeps_order_of_groups() {
    let (whole, q) = (whole().await, queue("steps.fifo"));
    whole.broker.queue_create(&q, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 10}"#).await;
    let mut copies = Vec::new();
    for pair in 0..200 {
        let groups = [("a", 2 * pair), ("b", 2 * pair + 1)].map(|(group, body)| NewMessage {
            group: Some(GroupName::new(group, "group").unwrap()),
            ..with_body(&body.to_string())
        });
        whole.broker.messages_post(&q, groups.into(), None).await.unwrap();
        if pair % 8 == 0 {
            copies.extend(take(&whole, &own, 6).await);
            assert!(stored(&whole, &own).await <= 10);
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    }
    copies.extend(take_gap(&whole, &q, id).await);
    for group in 0..2 {
        let bodies: Vec<usize> = copies.iter().copied().filter(|body| body % 2 == group).collect();
        assert_eq!(bodies, (0..200).map(|pair| 2 * pair + group).collect::<Vec<_>>());
    }
}

/// Messages that arrive have ids before the gap, in it, or behind the pass that reads it.
#[tokio::test(flavor = "multi_thread")]
async fn arrivals_in_a_gap_are_copied_once() {
    let (whole, source, q) = (whole().await, queue("source"), queue("q"));
    whole.subscribe(&source, "queue:q").await;
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 10}"#).await;
    let mut bodies = Vec::new();
    for round in 0..30 {
        let from = 6 * round;
        post(&whole, &source, &[from, from + 1, from + 2]).await.unwrap();
        post(&whole, &q, &[from + 3, from + 4, from + 5]).await.unwrap();
        if round % 4 == 0 {
            bodies.extend(take(&whole, &own, 7).await);
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
    until("messages have not arrived", async || stored(&whole, &q).await == 180).await;
    bodies.extend(take_gap(&whole, &q, id).await);
    assert_eq!(bodies.len(), 180);
    assert_eq!(BTreeSet::from_iter(bodies), BTreeSet::from_iter(0..180));
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_resumes_without_messages_left_out() {
    let whole = whole().await;
    let topic = topic("t");
    whole.broker.queue_create(&topic, metadata("{}")).await.unwrap();
    let (id, own) = bounded(&whole, &topic, "pull:", r#"{"max_messages": 2}"#).await;
    post(&whole, &topic, &[0, 1]).await.unwrap();
    post(&whole, &topic, &[2]).await.unwrap();
    let view = backlog(&whole, &topic, id).await;
    assert_eq!((view.is_suspended, view.is_filling), (true, false));
    assert_eq!(take(&whole, &own, 20).await, [0, 1]);
    until("it is suspended still", async || !backlog(&whole, &topic, id).await.is_suspended).await;
    post(&whole, &topic, &[3]).await.unwrap();
    assert_eq!(take(&whole, &own, 20).await, [3]);
    assert_eq!(backlog(&whole, &topic, id).await.omissions.left_out, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_effect_in_a_suspension_is_followed() {
    let (whole, q) = (whole().await, queue("q"));
    for overflow in ["refuse", "drop_oldest"] {
        let (id, own) = bounded(&whole, &q, &format!("pull:{overflow}"), r#"{"max_messages": 2}"#).await;
        post(&whole, &q, &[0, 1]).await.unwrap();
        post(&whole, &q, &[2]).await.unwrap();
        change(&whole, &q, id, &format!(r#"{{"max_messages": 2, "overflow": "{overflow}"}}"#)).await.unwrap();
        post(&whole, &q, &[3]).await.unwrap();
        let copies = [take(&whole, &own, 20).await, take_gap(&whole, &q, id).await].concat();
        if overflow == "refuse" {
            assert_eq!(copies, [0, 1, 2, 3], "it catches up first");
            post(&whole, &q, &[4, 5]).await.unwrap();
            assert_eq!(post(&whole, &q, &[6]).await.unwrap_err().code(), "subscription_full");
            whole.broker.subscription_delete(&q, id).await.unwrap();
        } else {
            assert_eq!(copies, [1, 3], "it continues with new messages");
            assert_eq!(backlog(&whole, &q, id).await.omissions.left_out, 1);
        }
    }
}

/// Whatever the fault while it catches up, and wherever, each message is copied once.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_catch_up_copies_each_message_once() {
    let faults = [Fault::NotSent, Fault::UnknownBefore, Fault::UnknownAfter];
    let all = (0..6).flat_map(|batches| faults.map(|fault| (batches, fault)));
    join_all(all.map(async |(batches, fault)| {
        let case = format!("{fault:?} after {batches}");
        let (lives, q) = (Lives::new(), queue("q"));
        let (whole, plan) = lives.whole().await;
        let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 40}"#).await;
        for first in (0..160).step_by(40) {
            post(&whole, &q, &(first..first + 40).collect::<Vec<_>>()).await.unwrap();
        }
        let mut copies = take(&whole, &own, 20).await;
        copies.extend(take(&whole, &own, 20).await);
        plan.next(&vec![fault; FOR_EVER]);
        plan.skip(batches);
        // Posts that may fail, while it catches up.
        for body in 0..5 {
            let _ = post(&whole, &q, &[1_000 + body]).await;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        whole.broker.stop().await;
        let (whole, _) = lives.whole().await;
        copies.extend(take_gap(&whole, &q, id).await);
        let in_source: BTreeSet<usize> =
            whole.drain_bodies(&q).await.iter().map(|body| body.parse().unwrap()).collect();
        assert_eq!(BTreeSet::from_iter(copies.iter().copied()), in_source, "{case}");
        assert_eq!(copies.len(), in_source.len(), "{case}: some are doubled");
        assert_eq!(backlog(&whole, &q, id).await.omissions.left_out, 0, "{case}");
    }))
    .await;
}

/// The next owner of the slot continues, though no request names the source or the subscription.
#[tokio::test(flavor = "multi_thread")]
async fn next_owner_fills_unused_subscription() {
    join_all((0..12).map(async |steps| {
        let (lives, q, target) = (Lives::new(), queue("q"), queue("target"));
        let (first, plan) = lives.whole().await;
        bounded(&first, &q, "queue:target", r#"{"max_messages": 2}"#).await;
        plan.next(&vec![Fault::NotSent; FOR_EVER]);
        plan.skip(2 + steps);
        post(&first, &q, &[0, 1]).await.unwrap();
        // It does not fit beside the two, and is left out if these have not left yet.
        let _ = post(&first, &q, &[2, 3]).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let posted = stored(&first, &q).await;
        first.broker.stop().await;
        let (second, _) = lives.whole().await;
        let case = format!("after {steps} steps: of {posted} some do not arrive");
        until(&case, async || stored(&second, &target).await == posted).await;
    }))
    .await;
}

/// A reader, with the copies that it has got.
#[derive(Default)]
struct Reader {
    bodies: Vec<String>,
    /// Those whose deletion has no certain outcome: they may come again.
    unsure: BTreeSet<String>,
}

impl Reader {
    /// Claims some copies and deletes them. Returns their number.
    async fn take(&mut self, whole: &Whole, own: &QueueRef) -> usize {
        let claim = whole.broker.claim_create(own, terms(60), limit(7)).await;
        let Ok(Some((claim, mut guard))) = claim else { return 0 };
        guard.done();
        for message in &claim.messages {
            let body = String::from_utf8(message.body.to_vec()).unwrap();
            match whole.broker.message_delete(own, message.id, Some(claim.id)).await {
                Ok(()) => self.bodies.push(body),
                Err(_) => drop(self.unsure.insert(body)),
            }
        }
        claim.messages.len()
    }
}

/// Posts, arrivals, readers, restarts and doubtful batches in any order.
#[tokio::test(flavor = "multi_thread")]
async fn random_history_of_gaps_loses_and_doubles_none() {
    let mut dice = StdRng::seed_from_u64(settings::seed("subscription gaps"));
    for _ in 0..settings::number("ANGARIUM_GAP_HISTORIES", 4) {
        let (lives, source, q) = (Lives::new(), queue("source"), queue("q"));
        let (mut whole, mut plan) = lives.whole().await;
        let (_, sending) = whole.subscribe(&source, "queue:q").await;
        let mut readers = Vec::new();
        for (name, options) in
            [("pull:a", r#"{"max_messages": 8}"#), ("pull:b", r#"{"max_messages": 20, "from": "oldest"}"#)]
        {
            readers.push((bounded(&whole, &q, name, options).await, Reader::default()));
        }
        for _ in 0..24 {
            match dice.random_range(0..8) {
                0 => {
                    let fault = [Fault::NotSent, Fault::UnknownAfter][dice.random_range(0..2)];
                    plan.next(&vec![fault; FOR_EVER]);
                    plan.skip(dice.random_range(0..4));
                    tokio::time::sleep(Duration::from_millis(dice.random_range(0..600))).await;
                    whole.broker.stop().await;
                    (whole, plan) = lives.whole().await;
                }
                1 => tokio::time::sleep(Duration::from_millis(dice.random_range(0..700))).await,
                2 | 3 => {
                    let ((_, own), taken) = &mut readers[dice.random_range(0..2)];
                    taken.take(&whole, own).await;
                }
                4 => drop(whole.broker.messages_post(&source, vec![with_body(&next_body())], None).await),
                _ => {
                    let post = |_| whole.broker.messages_post(&q, vec![with_body(&next_body())], None);
                    join_all((0..5).map(post)).await;
                }
            }
        }
        whole.broker.stop().await;
        let (whole, _) = lives.whole().await;
        whole.clock.advance(61_000);
        // A message that has left its source is published in its target a moment later.
        until("copies have not arrived", async || {
            let in_transfer = whole.broker.queue_stats(&q).await.unwrap().in_transfer;
            stored(&whole, &sending).await + in_transfer == 0
        })
        .await;
        let in_source = BTreeSet::from_iter(whole.drain_bodies(&q).await);
        for ((id, own), mut taken) in readers {
            until("copies are missing", async || {
                let is_filling = backlog(&whole, &q, id).await.is_filling;
                taken.take(&whole, &own).await == 0 && !is_filling
            })
            .await;
            let got = BTreeSet::from_iter(taken.bodies.iter().cloned());
            assert_eq!(got.len(), taken.bodies.len(), "some are doubled: {:?}", taken.bodies);
            let missing: Vec<_> =
                in_source.difference(&got).filter(|body| !taken.unsure.contains(*body)).collect();
            assert_eq!(missing, [""; 0], "of {id}");
            let strange: Vec<_> = got.difference(&in_source).collect();
            assert!(strange.is_empty(), "{strange:?} have no message, beside {in_source:?}");
        }
    }
}
