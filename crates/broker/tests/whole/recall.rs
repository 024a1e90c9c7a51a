//! Recalls of claimed messages, purges of kept ones, and their numbers.

use angarium_broker::Broker;
use angarium_core::error::{Error, ErrorCode};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::names::QueueRef;
use angarium_core::settle::{MessageState, Requeue, SettleEntry, Verdict};

use super::deadletters::Lives;
use super::faulty::Fault::{self, Held, HeldAndLost, NotSent};
use super::metrics::value;
use super::outcomes::faulty;
use super::requeue::{done, failed, post_kept, settled};
use super::settle::{entry, forwarding, hold, name, settle_one, status};
use super::transfers::until;
use super::{limit, queue, terms, whole};

const DONE: Verdict = Verdict::Done { result: None };

async fn delete(broker: &Broker, at: &QueueRef, id: MessageId, claim: ClaimId) -> Option<ErrorCode> {
    broker.message_delete(at, id, Some(claim)).await.err().map(|error| error.error_code())
}

#[tokio::test(flavor = "multi_thread")]
async fn recalled_message_is_gone_for_its_holder() {
    let (whole, q) = (whole().await, queue("q"));
    let (broker, ids) = (&whole.broker, whole.post(&q, 3, 3_600).await);
    let (claim, _) = hold(broker, &q).await;
    assert_eq!(broker.claim_held(&q, claim).await.unwrap(), ids);
    broker.message_recall(&q, ids[1]).await.unwrap();
    broker.message_recall(&q, ids[1]).await.unwrap();
    assert_eq!(broker.claim_held(&q, claim).await.unwrap(), [ids[0], ids[2]]);
    assert!(status(broker, &q, ids[1]).await.is_none());
    assert_eq!(delete(broker, &q, ids[1], claim).await, Some(ErrorCode::Gone));
    let refused = settle_one(broker, &q, claim, forwarding(ids[1], "next")).await.unwrap_err();
    assert_eq!(refused.error_code(), ErrorCode::Gone);
    // The other messages of the claim stay.
    assert_eq!(delete(broker, &q, ids[0], claim).await, None);
    settle_one(broker, &q, claim, entry(ids[2], DONE)).await.unwrap();
    let ended = broker.claim_held(&q, claim).await.unwrap_err();
    assert_eq!(ended.error_code(), ErrorCode::NotFound);
    assert!(!broker.queue_stats(&queue("next")).await.unwrap().exists);
}

#[tokio::test(flavor = "multi_thread")]
async fn recall_of_last_message_ends_its_claim() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.post(&q, 1, 3_600).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    whole.broker.message_recall(&q, ids[0]).await.unwrap();
    assert!(whole.broker.claim_get(&q, claim).await.is_err());
    assert_eq!(delete(&whole.broker, &q, ids[0], claim).await, Some(ErrorCode::Gone));
    let stats = whole.broker.queue_stats(&q).await.unwrap();
    assert_eq!((stats.free, stats.claimed), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn recall_removes_message_in_any_state() {
    let (whole, q) = (whole().await, queue("q"));
    let broker = &whole.broker;
    broker.message_recall(&queue("none"), MessageId::from_bytes([9; 16])).await.unwrap();
    let (_, kept) = settled(&whole, &q, done("1")).await;
    let parked = whole.post(&q, 1, 3_600).await[0];
    broker.message_requeue(&q, parked, Requeue::Never).await.unwrap();
    let ready = whole.post(&q, 1, 3_600).await[0];
    for id in [kept, parked, ready] {
        broker.message_recall(&q, id).await.unwrap();
        assert!(status(broker, &q, id).await.is_none());
    }
    let stats = broker.queue_stats(&q).await.unwrap();
    assert_eq!((stats.free, stats.claimed, stats.kept), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_recall_leaves_message_with_its_holder() {
    let faulty = faulty().await;
    let (whole, q) = (&faulty.whole, queue("q"));
    let ids = whole.post(&q, 1, 3_600).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    faulty.pool.next(&[Fault::NotSent; 6]);
    let refused = whole.broker.message_recall(&q, ids[0]).await.unwrap_err();
    assert!(refused.nothing_written() && faulty.pool.is_done(), "{refused:?}");
    assert_eq!(whole.broker.claim_held(&q, claim).await.unwrap(), ids);
    settle_one(&whole.broker, &q, claim, entry(ids[0], DONE)).await.unwrap();
}

/// The holder was told that the message was gone, and then it was not removed. So it was when the holder itself had
/// deleted the message.
#[tokio::test(flavor = "multi_thread")]
async fn settle_waits_for_outcome_of_removal() {
    for (is_recall, is_durable) in [(true, false), (true, true), (false, false), (false, true)] {
        let faulty = faulty().await;
        let (broker, q) = (&faulty.whole.broker, queue("q"));
        let id = faulty.whole.post(&q, 1, 3_600).await[0];
        let (claim, _) = hold(broker, &q).await;
        let faults = if is_durable { [Held].to_vec() } else { [&[HeldAndLost][..], &[NotSent; 5]].concat() };
        faulty.pool.next(&faults);
        let removal = async {
            match is_recall {
                true => broker.message_recall(&q, id).await,
                false => broker.message_delete(&q, id, Some(claim)).await,
            }
        };
        let deletion = async {
            until("nothing is removed", async || faulty.pool.left() < faults.len()).await;
            let deleted = if is_recall { delete(broker, &q, id, claim).await } else { Some(ErrorCode::Busy) };
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            faulty.pool.release();
            deleted
        };
        let settle = async {
            until("nothing is removed", async || faulty.pool.left() < faults.len()).await;
            settle_one(broker, &q, claim, entry(id, DONE)).await.map_err(|error| error.error_code())
        };
        let (removed, deleted, settled) = tokio::join!(removal, deletion, settle);
        assert_eq!(deleted, Some(ErrorCode::Busy), "the removal has no outcome");
        assert_eq!((removed.is_ok(), settled.is_ok()), (is_durable, !is_durable), "recall: {is_recall}");
        let gone = if is_recall { ErrorCode::Gone } else { ErrorCode::NotFound };
        assert_eq!(settled.err(), is_durable.then_some(gone));
        assert!(status(broker, &q, id).await.is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recall_waits_for_end_of_settle() {
    let faulty = faulty().await;
    let (whole, q) = (&faulty.whole, queue("q"));
    let id = post_kept(whole, &q).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    faulty.pool.next(&[Fault::Held]);
    let settle = settle_one(&whole.broker, &q, claim, entry(id, done("1")));
    let recall = async {
        while !faulty.pool.is_done() {
            tokio::task::yield_now().await;
        }
        let recall = whole.broker.message_recall(&q, id);
        let release = async {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            faulty.pool.release();
        };
        tokio::join!(recall, release).0
    };
    let (settled, recalled) = tokio::join!(settle, recall);
    assert_eq!(settled.unwrap().state, MessageState::Done);
    recalled.unwrap();
    assert!(status(&whole.broker, &q, id).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn recalled_message_stays_gone_after_restart() {
    let (lives, q) = (Lives::new(), queue("q"));
    let (whole, plan) = lives.whole().await;
    let ids = whole.post(&q, 2, 3_600).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    whole.broker.message_recall(&q, ids[0]).await.unwrap();
    whole.broker.stop().await;
    drop((whole, plan));
    let (whole, _) = lives.whole().await;
    assert_eq!(whole.broker.claim_held(&q, claim).await.unwrap(), ids[1..]);
    let refused = settle_one(&whole.broker, &q, claim, entry(ids[0], DONE)).await.unwrap_err();
    assert_eq!(refused.error_code(), ErrorCode::NotFound, "memory of it has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_of_kept_messages_spares_others() {
    let (whole, q) = (whole().await, queue("q"));
    let broker = &whole.broker;
    broker.queue_purge_kept(&queue("none")).await.unwrap();
    let (_, done) = settled(&whole, &q, done("1")).await;
    let (_, failed) = settled(&whole, &q, failed()).await;
    let held = whole.post(&q, 1, 3_600).await[0];
    assert_eq!(whole.claim(&q, 1, 300).await, [held]);
    let ready = whole.post(&q, 1, 3_600).await[0];
    // An ordinary purge spares them.
    let stats = broker.queue_stats(&q).await.unwrap();
    assert_eq!((stats.free, stats.ready(), stats.claimed, stats.kept), (1, 1, 1, 2));
    broker.queue_purge_kept(&q).await.unwrap();
    for id in [done, failed] {
        assert!(status(broker, &q, id).await.is_none());
    }
    let stats = broker.queue_stats(&q).await.unwrap();
    assert_eq!((stats.free, stats.claimed, stats.kept), (1, 1, 0));
    assert_eq!(status(broker, &q, held).await.unwrap().state, MessageState::Claimed);
    assert_eq!(status(broker, &q, ready).await.unwrap().state, MessageState::Ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn ordinary_purge_spares_kept_messages() {
    let (whole, q) = (whole().await, queue("q"));
    let (_, kept) = settled(&whole, &q, done("1")).await;
    whole.post(&q, 3, 3_600).await;
    whole.broker.queue_purge(&q).await.unwrap();
    let stats = whole.broker.queue_stats(&q).await.unwrap();
    assert_eq!((stats.free, stats.claimed, stats.kept), (0, 0, 1));
    assert_eq!(status(&whole.broker, &q, kept).await.unwrap().state, MessageState::Done);
    assert_eq!(whole.broker.messages_get(&q, &[kept]).await.unwrap().len(), 0);
}

/// More than one page, while some of them are made available again.
#[tokio::test(flavor = "multi_thread")]
async fn purge_of_kept_messages_spares_requeued_ones() {
    let (whole, q) = (whole().await, queue("q"));
    whole.broker.queue_create(&q, super::metadata(r#"{"_keep": 3600}"#)).await.unwrap();
    let ids = whole.post(&q, 1_500, 3_600).await;
    let mut left = ids.len();
    while left > 0 {
        let (claim, views) = hold(&whole.broker, &q).await;
        let entries: Vec<SettleEntry> = views.iter().map(|view| entry(view.id, DONE)).collect();
        left -= entries.len();
        for result in whole.broker.messages_settle(&q, claim, entries).await.unwrap() {
            result.unwrap();
        }
    }
    assert_eq!(whole.broker.queue_stats(&q).await.unwrap().kept, 1_500);
    let requeue = async {
        let mut requeued = Vec::new();
        for id in ids.iter().step_by(100) {
            match whole.broker.message_requeue(&q, *id, Requeue::Never).await {
                Ok(()) => requeued.push(*id),
                Err(Error::NotFound { .. } | Error::Busy(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        requeued
    };
    let (purged, requeued) = tokio::join!(whole.broker.queue_purge_kept(&q), requeue);
    purged.unwrap();
    for id in &requeued {
        assert_eq!(status(&whole.broker, &q, *id).await.unwrap().state, MessageState::Delayed);
    }
    let stats = whole.broker.queue_stats(&q).await.unwrap();
    assert_eq!((stats.kept, stats.delayed), (0, requeued.len() as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn settles_and_kept_messages_are_in_metrics() {
    let (whole, q) = (whole().await, queue("q"));
    let broker = &whole.broker;
    settled(&whole, &q, done("1")).await;
    settled(&whole, &q, failed()).await;
    let ids = whole.post(&q, 4, 3_600).await;
    let (claim, _) = hold(broker, &q).await;
    let verdicts = [
        DONE,
        Verdict::Defer { delay: angarium_core::delay::Delay::Seconds(60) },
        Verdict::Move { target: name("next"), delay: None },
    ];
    for (id, verdict) in ids.iter().zip(verdicts) {
        settle_one(broker, &q, claim, entry(*id, verdict)).await.unwrap();
    }
    settle_one(broker, &q, claim, forwarding(ids[3], "next")).await.unwrap();
    hold(broker, &queue("next")).await;
    let page = broker.metrics_page().await;
    for (what, expected) in
        [("done", 3.0), ("failed", 1.0), ("deferred", 1.0), ("moved", 1.0), ("forwarded", 1.0)]
    {
        let labels = [("queue", "q"), ("what", what)];
        assert_eq!(value(&page, "angarium_messages_settled_total", &labels), expected, "{what}");
    }
    for (state, expected) in [("kept", 2.0), ("delayed", 1.0), ("ready", 0.0), ("claimed", 0.0)] {
        let labels = [("queue", "q"), ("state", state)];
        assert_eq!(value(&page, "angarium_messages", &labels), expected, "{state}");
    }
}

/// Memory of an open queue does not know kept messages, so it must not take the queue as empty.
#[tokio::test(flavor = "multi_thread")]
async fn closed_queue_counts_its_kept_messages() {
    let (whole, q) = (whole().await, queue("q"));
    settled(&whole, &q, done("1")).await;
    // The note of the settle expires first.
    whole.clock.advance(310_000);
    let begun = std::time::Instant::now();
    while whole.broker.close_idle_round() != (0, 0) {
        assert!(begun.elapsed() < super::MAX_WAIT, "the queue stays open");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    loop {
        let page = whole.broker.metrics_page().await;
        if value(&page, "angarium_messages", &[("queue", "q"), ("state", "kept")]) == 1.0 {
            break;
        }
        assert!(begun.elapsed() < super::MAX_WAIT);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let stats = whole.broker.queue_stats(&q).await.unwrap();
    assert_eq!((stats.kept, stats.free), (1, 0));
    assert!(whole.broker.claim_create(&q, terms(60), limit(1)).await.unwrap().is_none());
}
