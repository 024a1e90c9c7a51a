//! Notes of settles are removed after they expire, and messages without a target become failed ones.

use angarium_coordination::Coordination;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::durability::Durability;
use angarium_core::ids::QueueId;
use angarium_core::message::{Header, Life, NewMessage, State};
use angarium_core::outcome::Tags;
use angarium_core::settle::MessageState;
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::{Batch, Changes, Epoch, PoolReads, PoolWrites};
use angarium_testbed::owner::changes;

use super::deadletters::Lives;
use super::outcomes::faulty;
use super::settle::{forwarding, hold, settle_one, status};
use super::transfers::{id_of, until};
use super::{Whole, queue};

/// The kind of the notes of settles.
const SETTLE_KIND: u8 = 3;

async fn notes(pool: &EmbeddedPool, queue: QueueId) -> usize {
    pool.notes(queue, SETTLE_KIND, None, 100).await.unwrap().len()
}

/// Settles this number of messages of queue `q`, each with a forward to `next`.
async fn settle_some(whole: &Whole, count: usize) {
    let q = queue("q");
    whole.post(&q, count, 43_200).await;
    let (claim, views) = hold(&whole.broker, &q).await;
    for view in views {
        settle_one(&whole.broker, &q, claim, forwarding(view.id, "next")).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_notes_are_removed_from_pool() {
    let faulty = faulty().await;
    settle_some(&faulty.whole, 5).await;
    let id = id_of(&faulty.catalogue, "q").await.unwrap();
    faulty.whole.clock.advance(200_000);
    settle_some(&faulty.whole, 2).await;
    assert_eq!(notes(&faulty.store, id).await, 7);
    faulty.whole.clock.advance(100_000);
    until("expired notes stay", async || notes(&faulty.store, id).await < 7).await;
    assert_eq!(notes(&faulty.store, id).await, 2, "the others have not expired");
    faulty.whole.clock.advance(200_000);
    until("expired notes stay", async || notes(&faulty.store, id).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_of_earlier_owner_are_removed() {
    let lives = Lives::new();
    let (first, _) = lives.whole().await;
    settle_some(&first, 3).await;
    let arrived = async || first.broker.queue_stats(&queue("next")).await.unwrap().ready() == 3;
    until("the forwards do not arrive", arrived).await;
    first.broker.stop().await;
    let pool = EmbeddedPool::new(lives.journal.clone());
    let id = lives.id_of(&queue("q")).await;
    let (second, _) = lives.whole().await;
    assert_eq!(second.broker.queue_stats(&queue("q")).await.unwrap().free, 0);
    assert_eq!(notes(&pool, id).await, 3);
    second.clock.advance(300_000);
    until("notes of the first owner stay", async || notes(&pool, id).await == 0).await;
}

/// Has the pool store the message without a target, as an earlier version did for its own dead letter queue.
async fn store_without_target(lives: &Lives, header: Header) {
    let (slot, id) = (queue("q").slot(), lives.id_of(&queue("q")).await);
    let tree = EmbeddedTree::open(lives.journal.clone()).await.unwrap();
    let taken = tree.get(&format!("/meta/slots/{slot}")).await.unwrap().unwrap().modified;
    drop(tree);
    let epoch = Epoch { generation: 1, transaction: taken };
    let pool = EmbeddedPool::new(lives.journal.clone());
    pool.fence(slot, epoch).await.unwrap();
    let stored = Header { state: State::NoTarget, attempts: 3, ..header };
    let queues = vec![changes(id, Changes::updates(vec![stored]))];
    pool.commit(&Batch { slot, epoch, seq: 1, durability: Durability::Sync, queues }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn message_without_target_becomes_failed() {
    let lives = Lives::new();
    let (first, _) = lives.whole().await;
    let (q, pool) = (queue("q"), EmbeddedPool::new(lives.journal.clone()));
    let ids = first.post(&q, 2, 600).await;
    first.broker.stop().await;
    let id = lives.id_of(&q).await;
    let header = async || pool.get(id, &ids[..1]).await.unwrap().remove(0).header;
    let posted = header().await;
    store_without_target(&lives, posted.clone()).await;

    // It stays as it is while an older program may join.
    let (second, _) = lives.whole().await;
    assert_eq!(second.claim_soon(&q, 20).await, ids[1..]);
    assert_eq!(second.broker.queue_stats(&q).await.unwrap().in_transfer, 1);
    let tagged = NewMessage {
        body: "1".into(),
        tags: Tags::new(vec!["a".to_owned()], "tags").unwrap(),
        ..NewMessage::default()
    };
    second.broker.messages_post(&queue("other"), vec![tagged], None).await.unwrap();
    assert_eq!(header().await.state, State::NoTarget);
    second.broker.stop().await;

    lives.clock.advance(100_000);
    let (third, _) = lives.whole().await;
    until("it is not carried over", async || header().await.state == State::Failed).await;
    let now = lives.clock.now();
    let failed = header().await;
    assert_eq!((failed.ready, failed.life), (now, Life::lasting(500, now)));
    assert_eq!((failed.attempts, failed.extras.unwrap().life), (3, Some(posted.life)));
    let view = status(&third.broker, &q, ids[0]).await.unwrap();
    assert_eq!(view.state, MessageState::Failed);
    until("it is in transfer", async || third.broker.queue_stats(&q).await.unwrap().in_transfer == 0).await;
}
