//! A pool is fenced once for a slot, whichever caller needs it first: a second fence would restart the numbering of
//! batches.

use std::sync::Arc;
use std::time::Duration;

use angarium_broker::Broker;
use angarium_catalogue::{Catalogue, HeldRecords, OwnedSlot, QueueRecord};
use angarium_coordination::Coordination;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::durability::Durability;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits::Limits;
use angarium_core::message::{Header, Message, NewMessage};
use angarium_core::queue::Metadata;
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::{Batch, Changes, Epoch, PoolReads, PoolWrites};
use angarium_testbed::owner::changes;
use tokio::task::JoinSet;

use super::Whole;
use super::deadletters::Lives;
use super::faulty::{Fault, FaultyPool, Plan};
use super::transfers::{id_of, until};
use super::{one_pool, queue, replica};

/// Leaves the note of a deleted queue in the slot of `q`: the next owner of the slot cleans that queue away beside its
/// other work.
async fn leave_note(lives: &Lives) {
    let tree = Arc::new(EmbeddedTree::open(lives.journal.clone()).await.unwrap());
    let slot = queue("q").slot();
    let node = tree.get(&format!("/meta/slots/{slot}")).await.unwrap().unwrap();
    let catalogue = Catalogue::new(tree);
    let owned = OwnedSlot::new(slot, node.version, node.modified);
    let pool = catalogue.pools().await.unwrap().remove(0);
    let gone = (0..).map(|n| queue(&format!("gone{n}"))).find(|at| at.slot() == slot).unwrap();
    let id = QueueId::new(slot, &mut rand::rng());
    let record = QueueRecord::new(id, &pool.name, &Metadata::empty(), lives.clock.now());
    assert!(catalogue.queue_create(&owned, &gone, &record, &pool, None).await.unwrap());
    catalogue.queue_delete(&owned, &gone, &record, HeldRecords::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_users_fence_a_pool_once() {
    let lives = Lives::new();
    let (first, _) = lives.whole().await;
    first.broker.stop().await;
    leave_note(&lives).await;
    let catalogue = Catalogue::new(Arc::new(EmbeddedTree::open(lives.journal.clone()).await.unwrap()));
    let pool = Arc::new(FaultyPool::new(Arc::new(EmbeddedPool::new(lives.journal.clone())), Plan::default()));
    pool.fences.next(&[Fault::Held]);
    let broker =
        Broker::start(catalogue, &one_pool(pool.clone()), replica(), lives.clock.clone(), Limits::ZAQAR)
            .await
            .unwrap();
    until("nobody cleans up", async || pool.fences.is_done()).await;
    let post = async |broker: &Broker| {
        let message = NewMessage { body: "1".into(), ttl: None, delay: None, ..NewMessage::default() };
        broker.messages_post(&queue("q"), vec![message], None).await
    };
    let mut posting = JoinSet::new();
    let other = broker.clone();
    posting.spawn(async move { post(&other).await });
    // Time for the other caller to interfere.
    tokio::time::sleep(Duration::from_millis(200)).await;
    pool.fences.release();
    posting.join_next().await.unwrap().unwrap().unwrap();
    post(&broker).await.unwrap();
    let slot = queue("q").slot();
    assert_eq!(pool.fenced().iter().filter(|fenced| **fenced == slot).count(), 1);
}

/// With a clock behind the clock of the previous owner, new ids still sort behind the ids of that owner (P3).
#[tokio::test(flavor = "multi_thread")]
async fn new_ids_follow_greatest_id_despite_clock() {
    let lives = Lives::new();
    let (first, _) = lives.whole().await;
    let ids = first.post(&queue("q"), 1, 3_600).await;
    first.broker.stop().await;
    let at_queue = id_of(&lives.catalogue(), "q").await.unwrap();
    // A message of an owner whose clock was a day ahead. An id begins with the milliseconds of its time.
    let mut ahead = *ids[0].as_bytes();
    let millis = u64::from_be_bytes([0, 0, ahead[0], ahead[1], ahead[2], ahead[3], ahead[4], ahead[5]]);
    ahead[..6].copy_from_slice(&(millis + 86_400_000).to_be_bytes()[2..]);
    let ahead = MessageId::from_bytes(ahead);
    let pool = EmbeddedPool::new(lives.journal.clone());
    let found = pool.get(at_queue, &ids).await.unwrap().remove(0);
    let message = Message { header: Header { id: ahead, ..found.header }, body: found.body };
    let slot = queue("q").slot();
    let tree = EmbeddedTree::open(lives.journal.clone()).await.unwrap();
    let taken = tree.get(&format!("/meta/slots/{slot}")).await.unwrap().unwrap().modified;
    drop(tree);
    let epoch = Epoch { generation: 1, transaction: taken };
    pool.fence(slot, epoch).await.unwrap();
    let changes = changes(at_queue, Changes::appends(vec![message]));
    let batch = Batch { slot, epoch, seq: 1, durability: Durability::Sync, queues: vec![changes] };
    pool.commit(&batch).await.unwrap();
    let (second, _) = lives.whole().await;
    let fresh = second.post(&queue("q"), 1, 3_600).await;
    assert!(fresh[0] > ahead);
    assert_eq!(second.claim(&queue("q"), 3, 60).await, [ids[0], ahead, fresh[0]]);
}

/// An owner that knows an earlier epoch than its pool: the slot is recovered until its epoch is later.
#[tokio::test(flavor = "multi_thread")]
async fn slot_with_later_owner_in_pool_is_reacquired() {
    const AHEAD: u64 = 3;
    let lives = Lives::new();
    let (whole, _) = lives.whole().await;
    let slot = queue("q").slot();
    let tree = EmbeddedTree::open(lives.journal.clone()).await.unwrap();
    let taken = async || tree.get(&format!("/meta/slots/{slot}")).await.unwrap().unwrap().modified;
    let before = taken().await;
    let pool = EmbeddedPool::new(lives.journal.clone());
    pool.fence(slot, Epoch { generation: 1, transaction: before + AHEAD }).await.unwrap();
    let post = async || {
        let message = NewMessage { body: "1".into(), ttl: None, delay: None, ..NewMessage::default() };
        whole.broker.messages_post(&queue("q"), vec![message], None).await
    };
    assert!(post().await.is_err());
    until("the slot is not served again", async || post().await.is_ok()).await;
    assert!(taken().await >= before + AHEAD);
}

/// Starts a broker over a queue `q` that another one has left with a ready message and a claimed one.
async fn next_life(lives: &Lives) -> (Whole, Arc<FaultyPool>, Vec<MessageId>) {
    let (first, _) = lives.whole().await;
    let ids = first.post(&queue("q"), 2, 3_600).await;
    assert_eq!(first.claim(&queue("q"), 1, 43_200).await, ids[..1]);
    first.broker.stop().await;
    let catalogue = Catalogue::new(Arc::new(EmbeddedTree::open(lives.journal.clone()).await.unwrap()));
    let pool = Arc::new(FaultyPool::new(Arc::new(EmbeddedPool::new(lives.journal.clone())), Plan::default()));
    let clock = lives.clock.clone();
    let broker = Broker::start(catalogue, &one_pool(pool.clone()), replica(), clock.clone(), Limits::ZAQAR)
        .await
        .unwrap();
    (Whole { broker, clock, _data: tempfile::tempdir().unwrap() }, pool, ids)
}

/// Returns how often the pool was fenced for the slot of `q`.
fn fences_of_q(pool: &FaultyPool) -> usize {
    pool.fenced().iter().filter(|fenced| **fenced == queue("q").slot()).count()
}

/// A fence whose caller is canceled arrives after the next fence and the batches behind that.
#[tokio::test(flavor = "multi_thread")]
async fn abandoned_fence_keeps_numbering() {
    let lives = Lives::new();
    let (whole, pool, ids) = next_life(&lives).await;
    pool.fences.next(&[Fault::Held]);
    let broker = whole.broker.clone();
    let mut leaving = JoinSet::new();
    leaving.spawn(async move { broker.queue_stats(&queue("q")).await });
    until("nobody fences the pool", async || pool.fences.is_done()).await;
    leaving.abort_all();
    while leaving.join_next().await.is_some() {}
    let broker = whole.broker.clone();
    let mut posting = JoinSet::new();
    posting.spawn(async move {
        let message = NewMessage { body: "1".into(), ..NewMessage::default() };
        broker.messages_post(&queue("q"), vec![message], None).await
    });
    // Time for the fence to arrive first.
    tokio::time::sleep(Duration::from_millis(300)).await;
    pool.fences.release();
    posting.join_next().await.unwrap().unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    whole.post(&queue("q"), 1, 3_600).await;
    assert_eq!(fences_of_q(&pool), 1, "it is fenced again");
    assert_eq!(whole.claim(&queue("q"), 20, 60).await[0], ids[1]);
}

/// An opening whose request is canceled ends once, at each point where it waits.
#[tokio::test(flavor = "multi_thread")]
async fn abandoned_opening_ends_once() {
    let mut hung = 0;
    for calls in 0.. {
        let lives = Lives::new();
        let (whole, pool, ids) = next_life(&lives).await;
        pool.hang_after(calls);
        let broker = whole.broker.clone();
        let mut leaving = JoinSet::new();
        leaving.spawn(async move { broker.queue_stats(&queue("q")).await });
        until("it neither hangs nor answers", async || {
            pool.is_hanging() || leaving.try_join_next().is_some()
        })
        .await;
        if !pool.is_hanging() {
            break;
        }
        hung += 1;
        leaving.abort_all();
        while leaving.join_next().await.is_some() {}
        pool.hang(false);
        whole.post(&queue("q"), 1, 3_600).await;
        assert_eq!(fences_of_q(&pool), 1, "it left at call {calls}");
        assert_eq!(whole.claim(&queue("q"), 20, 60).await[0], ids[1], "it left at call {calls}");
        whole.broker.stop().await;
    }
    assert!(hung > 2, "{hung} calls");
}
