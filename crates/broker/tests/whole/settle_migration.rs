//! Settles, kept messages and forwards of a queue while it migrates to another pool (P6).

use std::time::Duration;

use angarium_broker::Destination;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::NewMessage;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::outcome::Keep;
use angarium_core::settle::{MessageState, Retry, SettleEntry, Verdict};

use super::deadletters::FOR_EVER;
use super::faulty::Fault;
use super::migration::{Pools, to};
use super::settle::{DONE, entry, forward, forwarding, hold, settle_one, status};
use super::transfers::until;
use super::{Whole, metadata, queue};

const FAILED: Verdict = Verdict::Fail { reason: None, retry: Retry::Never };

/// Posts messages that are kept for an hour.
async fn post_kept(whole: &Whole, at: &QueueRef, count: usize) -> Vec<MessageId> {
    let keep = Some(Keep::stored(3_600));
    let message = || NewMessage { body: "\"x\"".into(), keep, ..NewMessage::default() };
    let messages = (0..count).map(|_| message()).collect();
    whole.broker.messages_post(at, messages, None).await.unwrap().ids
}

/// Posts a message, and settles it with a forward to `next`.
async fn settled_message(whole: &Whole, at: &QueueRef) -> (ClaimId, MessageId, Vec<MessageId>) {
    let ids = post_kept(whole, at, 1).await;
    let (claim, _) = hold(&whole.broker, at).await;
    let settled = settle_one(&whole.broker, at, claim, forwarding(ids[0], "next")).await.unwrap();
    (claim, ids[0], settled.ids)
}

async fn state(whole: &Whole, at: &QueueRef, id: MessageId) -> Option<MessageState> {
    status(&whole.broker, at, id).await.map(|view| view.state)
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_messages_migrate_and_stay_readable() {
    let (pools, q) = (Pools::new(), queue("q"));
    let (whole, _) = pools.start().await;
    let ids = post_kept(&whole, &q, 300).await;
    let mut settled = 0;
    while settled < 299 {
        let (claim, views) = hold(&whole.broker, &q).await;
        let views = views.iter().filter(|view| view.id != ids[299]);
        let entries: Vec<_> =
            views.map(|view| entry(view.id, if settled % 2 == 0 { DONE } else { FAILED })).collect();
        settled += entries.len();
        for result in whole.broker.messages_settle(&q, claim, entries).await.unwrap() {
            result.unwrap();
        }
        whole.broker.claim_release(&q, claim).await.unwrap();
    }
    for (pool, held) in [("b", [0, 300]), ("a", [300, 0])] {
        whole.broker.queue_migrate(&q, to(pool)).await.unwrap();
        whole.arrived(&q).await;
        assert_eq!(pools.held(&q).await, held);
        for id in &ids[..299] {
            assert!(state(&whole, &q, *id).await.unwrap().is_final());
        }
    }
    assert_eq!(whole.drain(&q).await, ids[299..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeat_after_migration_has_same_outcome() {
    let (pools, q) = (Pools::new(), queue("q"));
    let (whole, _) = pools.start().await;
    let (claim, id, forwards) = settled_message(&whole, &q).await;
    for pool in ["b", "a"] {
        whole.broker.queue_migrate(&q, to(pool)).await.unwrap();
        whole.arrived(&q).await;
        let again = settle_one(&whole.broker, &q, claim, forwarding(id, "next")).await.unwrap();
        assert_eq!(again.ids, forwards);
    }
    let (_, arrived) = hold(&whole.broker, &queue("next")).await;
    assert_eq!(arrived.iter().map(|view| view.id).collect::<Vec<_>>(), forwards);
}

#[tokio::test(flavor = "multi_thread")]
async fn settles_during_migration_forward_once() {
    let (pools, q, next) = (Pools::new(), queue("q"), queue("next"));
    let (whole, _) = pools.start().await;
    let ids = post_kept(&whole, &q, 40).await;
    let (claim, views) = hold(&whole.broker, &q).await;
    let slow = Destination::new(PoolName::new("b").unwrap(), Some(40)).unwrap();
    whole.broker.queue_migrate(&q, slow).await.unwrap();
    let mut forwards = Vec::new();
    for (number, view) in views.iter().enumerate() {
        let verdict = match number % 4 {
            0 => DONE,
            1 => FAILED,
            2 => Verdict::Fail { reason: None, retry: Retry::Backoff },
            _ => Verdict::Move { target: super::settle::name("next"), delay: None },
        };
        let moves = matches!(verdict, Verdict::Move { .. });
        let settle = || SettleEntry { forwards: vec![forward("next")], ..entry(view.id, verdict.clone()) };
        let settled = settle_one(&whole.broker, &q, claim, settle()).await.unwrap();
        let again = settle_one(&whole.broker, &q, claim, settle()).await;
        assert_eq!(again.unwrap(), settled, "{verdict:?}");
        forwards.extend(settled.ids);
        forwards.extend(moves.then_some(view.id));
    }
    whole.arrived(&q).await;
    assert_eq!(pools.held(&q).await[0], 0);
    let mut arrived = Vec::new();
    while arrived.len() < forwards.len() {
        let (_, views) = hold(&whole.broker, &next).await;
        arrived.extend(views.iter().map(|view| view.id));
    }
    arrived.sort_unstable();
    forwards.sort_unstable();
    assert_eq!(arrived, forwards);
    let returned = views.iter().enumerate().filter(|(number, _)| number % 4 == 2).map(|(_, view)| view.id);
    let mut left: Vec<MessageId> = returned.chain(ids[views.len()..].iter().copied()).collect();
    left.sort_unstable();
    assert_eq!(whole.drain(&q).await, left);
    for (number, view) in views.iter().enumerate().filter(|(number, _)| number % 4 < 2) {
        assert!(state(&whole, &q, view.id).await.unwrap().is_final(), "{number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_message_in_copy_does_not_block_its_group() {
    let (pools, q) = (Pools::new(), queue("q"));
    let (whole, plan) = pools.start().await;
    whole.broker.queue_create(&q, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let ids = post_kept(&whole, &q, 2).await;
    let claim = whole.broker.claim_create(&q, super::terms(300), super::limit(1)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    settle_one(&whole.broker, &q, view.id, entry(ids[0], FAILED)).await.unwrap();
    assert_eq!(state(&whole, &q, ids[0]).await, Some(MessageState::Failed));
    // Passed are the wait for earlier writes, and the two steps for the ready message; the kept one is held.
    plan.next(&[Fault::Held]);
    plan.skip(3);
    whole.broker.queue_migrate(&q, to("b")).await.unwrap();
    until("the kept message is not copied", async || plan.is_done()).await;
    assert_eq!(whole.claim(&q, 10, 300).await, ids[1..]);
    assert_eq!(state(&whole, &q, ids[0]).await, Some(MessageState::Failed));
    plan.release();
    whole.arrived(&q).await;
    assert_eq!(pools.held(&q).await, [0, 2]);
    assert_eq!(state(&whole, &q, ids[0]).await, Some(MessageState::Failed));
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_migration_keeps_settles_and_kept_messages() {
    for steps in 0..8 {
        let (pools, q, next) = (Pools::new(), queue("q"), queue("next"));
        let (whole, plan) = pools.start().await;
        let (claim, id, forwards) = settled_message(&whole, &q).await;
        let ready = whole.post(&q, 1, 3_600).await;
        until("it does not arrive", async || whole.broker.queue_stats(&next).await.unwrap().free == 1).await;
        plan.next(&vec![Fault::NotSent; FOR_EVER]);
        plan.skip(steps);
        whole.broker.queue_migrate(&q, to("b")).await.unwrap();
        let begun = std::time::Instant::now();
        while plan.left() >= FOR_EVER && begun.elapsed() < Duration::from_secs(2) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        whole.broker.stop().await;
        let (whole, _) = pools.start().await;
        whole.arrived(&q).await;
        assert_eq!(pools.held(&q).await, [0, 2], "{steps}");
        let again = settle_one(&whole.broker, &q, claim, forwarding(id, "next")).await.unwrap();
        assert_eq!(again.ids, forwards, "{steps}");
        assert_eq!(state(&whole, &q, id).await, Some(MessageState::Done), "{steps}");
        assert_eq!(whole.drain(&q).await, ready, "{steps}");
        assert_eq!(whole.claim_soon(&next, 20).await, forwards, "{steps}");
    }
}
