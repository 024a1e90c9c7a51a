//! A pool is fenced once for a slot, whoever needs it first: a second fence would begin the numbering of batches anew.

use std::sync::Arc;
use std::time::Duration;

use angarium::broker::Broker;
use angarium::catalogue::{Catalogue, OwnedSlot, QueueRecord};
use angarium::coordination::Coordination;
use angarium::coordination::embedded::EmbeddedTree;
use angarium::domain::ids::QueueId;
use angarium::domain::limits::Limits;
use angarium::domain::message::NewMessage;
use angarium::domain::queue::Metadata;
use angarium::storage::embedded::EmbeddedPool;

use super::deadletters::Lives;
use super::faulty::{Fault, FaultyPool, Plan};
use super::moves::until;
use super::{one_pool, queue, replica};

/// Leaves the note of a deleted queue in the slot of `q`: whoever owns the slot next cleans it away, beside all else.
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
    catalogue.queue_delete(&owned, &gone, &record).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_those_who_need_a_pool_at_the_same_time_one_fences_it() {
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
        let message = NewMessage { body: "1".into(), ttl: None, delay: None };
        broker.messages_post(&queue("q"), vec![message], None).await
    };
    let posting = tokio::spawn({
        let broker = broker.clone();
        async move { post(&broker).await }
    });
    // It has its chance to come between.
    for _ in 0..40 {
        if posting.is_finished() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    pool.fences.release();
    posting.await.unwrap().unwrap();
    post(&broker).await.unwrap();
    let slot = queue("q").slot();
    assert_eq!(pool.fenced().iter().filter(|fenced| **fenced == slot).count(), 1);
}
