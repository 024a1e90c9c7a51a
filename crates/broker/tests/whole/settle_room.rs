//! Settles in a pool without room.

use std::sync::atomic::Ordering;
use std::time::Duration;

use angarium_core::error::{Error, ErrorCode};
use angarium_core::settle::MessageState;
use tokio::task::JoinSet;

use super::faulty::Fault;
use super::outcomes::faulty;
use super::settle::{DONE, entry, forwarding, hold, result, settle_one, status};
use super::transfers::until;
use super::{metadata, queue};

/// One batch has settles that need room and changes that make some.
#[tokio::test(flavor = "multi_thread")]
async fn deletion_passes_beside_refused_settles() {
    let faulty = faulty().await;
    let (broker, q) = (&faulty.whole.broker, queue("q"));
    broker.queue_create(&q, metadata(r#"{"_keep": 3600}"#)).await.unwrap();
    let ids = faulty.whole.post(&q, 5, 3_600).await;
    let (claim, _) = hold(broker, &q).await;
    faulty.pool.next(&[Fault::Held]);
    let (deleter, at, held) = (broker.clone(), q.clone(), ids[0]);
    let mut first = JoinSet::new();
    first.spawn(async move { deleter.message_delete(&at, held, Some(claim)).await });
    // The others are in the batch behind it.
    until("nothing is written", async || faulty.pool.is_done()).await;
    let with_result = settle_one(broker, &q, claim, entry(ids[1], result("1")));
    let with_forward = settle_one(broker, &q, claim, forwarding(ids[2], "next"));
    let without = settle_one(broker, &q, claim, entry(ids[3], DONE));
    let release = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        faulty.given.is_full.store(true, Ordering::SeqCst);
        faulty.pool.release();
    };
    let (refused, second, kept, deleted, ()) = tokio::join!(
        with_result,
        with_forward,
        without,
        broker.message_delete(&q, ids[4], Some(claim)),
        release,
    );
    first.join_next().await.unwrap().unwrap().unwrap();
    for refused in [refused, second] {
        assert!(matches!(refused, Err(Error::Full)), "{refused:?}");
    }
    assert_eq!(kept.unwrap().state, MessageState::Done);
    deleted.unwrap();
    let batch = faulty.given.given().into_iter().find(|batch| batch.needs_room() && batch_size(batch) > 3);
    assert!(batch.is_some(), "they are in one batch");
    // The holder has them still, and there is room again.
    faulty.given.is_full.store(false, Ordering::SeqCst);
    assert_eq!(
        settle_one(broker, &q, claim, entry(ids[1], result("1"))).await.unwrap().state,
        MessageState::Done
    );
    assert_eq!(status(broker, &q, ids[1]).await.unwrap().state, MessageState::Done);
    let gone = broker.message_get(&q, ids[4]).await.unwrap_err();
    assert_eq!(gone.error_code(), ErrorCode::NotFound);
}

fn batch_size(batch: &angarium_storage::Batch) -> usize {
    let changes = batch.queues.iter().map(|queue| &queue.changes);
    changes.map(|changes| changes.appends.len() + changes.updates.len() + changes.removes.len()).sum()
}
