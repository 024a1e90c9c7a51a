//! Transfers between queues that are deleted, whose slots are recovered, or that no caller opens (P5).

use std::sync::Arc;
use std::time::{Duration, Instant};

use angarium_catalogue::{Catalogue, OwnedSlot};
use angarium_coordination::Coordination;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::durability::Durability;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::State;
use angarium_core::queue::CreateResult;
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::{Batch, Changes, Epoch, PoolReads, PoolWrites, StoreError};
use angarium_testbed::owner::changes;
use tokio::task::JoinSet;

use super::deadletters::{FOR_EVER, Lives, ONCE, claim_once};
use super::faulty::Fault;
use super::metrics::value;
use super::outcomes::{Faulty, faulty};
use super::recovery::{claim_when_served, take_slot_of};
use super::topics::topic;
use super::{MAX_WAIT, metadata, queue};

/// The id of a queue, as its record has it.
pub(super) async fn id_of(catalogue: &Catalogue, name: &str) -> Option<QueueId> {
    let slot = OwnedSlot::new(queue(name).slot(), 0, 0);
    catalogue.queue(&slot, &queue(name)).await.unwrap().map(|record| record.id)
}

/// Creates queues `q` and `dead` in two slots; the next claim of the message in `q` transfers it.
async fn about_to_move(attributes: &str) -> (Faulty, Vec<MessageId>) {
    assert_ne!(queue("q").slot(), queue("dead").slot());
    let faulty = faulty().await;
    let whole = &faulty.whole;
    whole.broker.queue_create(&queue("dead"), metadata("{}")).await.unwrap();
    whole.broker.queue_create(&queue("q"), metadata(attributes)).await.unwrap();
    let ids = whole.post(&queue("q"), 1, 3_600).await;
    claim_once(whole, &queue("q")).await;
    (faulty, ids)
}

/// Begins the transfer and holds the batch of one step: 0 marks the message in transfer, 1 prepares it, 2 removes it
/// from the source, 3 publishes it.
async fn move_until(faulty: &Faulty, step: usize) {
    faulty.pool.next(&[Fault::Held]);
    faulty.pool.skip(step);
    assert!(faulty.whole.claim(&queue("q"), 1, 60).await.is_empty());
    until("the step is not tried", async || faulty.pool.is_done()).await;
}

pub(super) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < MAX_WAIT, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Deletes `dead`, and returns whether the source still has the message when the deletion is answered.
async fn begin_deletion(faulty: &Faulty, id: MessageId) -> JoinSet<bool> {
    let (broker, store) = (faulty.whole.broker.clone(), Arc::clone(&faulty.store));
    let source = id_of(&faulty.catalogue, "q").await.unwrap();
    let mut deleting = JoinSet::new();
    deleting.spawn(async move {
        broker.queue_delete(&queue("dead")).await.unwrap();
        !store.get(source, &[id]).await.unwrap().is_empty()
    });
    // Time for the deletion to act too early.
    tokio::time::sleep(Duration::from_millis(200)).await;
    deleting
}

/// Checks that a message in the source at the deletion of the target is not lost.
async fn check_kept(faulty: &Faulty, mut deleting: JoinSet<bool>, ids: &[MessageId], step: usize) {
    if deleting.join_next().await.unwrap().unwrap() {
        assert_eq!(faulty.whole.claim_soon(&queue("dead"), 20).await, ids, "step {step}");
    }
    until("the message stays at its source", async || {
        faulty.whole.broker.queue_stats(&queue("q")).await.unwrap().free == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_deleted_during_transfer_keeps_no_message() {
    for step in 0..=3 {
        let (faulty, ids) = about_to_move(ONCE).await;
        move_until(&faulty, step).await;
        let deleting = begin_deletion(&faulty, ids[0]).await;
        faulty.pool.release();
        check_kept(&faulty, deleting, &ids, step).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slot_recovered_during_transfer_keeps_messages() {
    for step in 1..=3 {
        let (faulty, ids) = about_to_move(ONCE).await;
        move_until(&faulty, step).await;
        take_slot_of(&faulty, "dead").await;
        // A commit notices that the slot was taken away.
        faulty.whole.broker.queue_patch(&queue("dead"), Vec::new()).await.unwrap_err();
        assert!(claim_when_served(&faulty.whole, "dead").await.is_empty());
        let deleting = begin_deletion(&faulty, ids[0]).await;
        faulty.pool.release();
        check_kept(&faulty, deleting, &ids, step).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_owner_removes_nothing_after_target_deletion() {
    // On a busy machine the next owner may end the transfer before the deletion: then once more.
    until("the deletion is always the later one", async || delete_during_transfer().await).await;
}

/// Deletes a target before the next owner of the source ends a transfer there. Returns false when it has ended before.
async fn delete_during_transfer() -> bool {
    let lives = Lives::new();
    let (first, plan) = lives.whole().await;
    first.broker.queue_create(&queue("q"), metadata(ONCE)).await.unwrap();
    let ids = first.post(&queue("q"), 1, 3_600).await;
    claim_once(&first, &queue("q")).await;
    // The message is marked in transfer and prepared, and then its owner is cut off.
    plan.next(&vec![Fault::NotSent; FOR_EVER]);
    plan.skip(2);
    assert!(first.claim(&queue("q"), 20, 300).await.is_empty());
    until("the removal is not tried", async || plan.left() < FOR_EVER).await;
    first.broker.stop().await;
    let slot = queue("q").slot();
    let tree = EmbeddedTree::open(lives.journal.clone()).await.unwrap();
    let taken = tree.get(&format!("/meta/slots/{slot}")).await.unwrap().unwrap();
    drop(tree);
    let (second, _) = lives.whole().await;
    second.broker.queue_delete(&queue("dead")).await.unwrap();
    let source = id_of(&lives.catalogue(), "q").await.unwrap();
    let late = EmbeddedPool::new(lives.journal.clone());
    if late.get(source, &ids).await.unwrap().is_empty() {
        return false;
    }
    for seq in 1..20 {
        let changes = changes(source, Changes::removes(ids.clone()));
        let epoch = Epoch { generation: 1, transaction: taken.modified };
        let batch = Batch { slot, epoch, seq, durability: Durability::Sync, queues: vec![changes] };
        let refused = late.commit(&batch).await.unwrap_err();
        assert!(matches!(refused, StoreError::Fenced(_)), "{refused:?}");
    }
    assert_eq!(second.claim_soon(&queue("dead"), 20).await, ids);
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_transfers_of_unused_queues_are_finished() {
    for steps in 1..=3 {
        let lives = Lives::new();
        let (first, plan) = lives.whole().await;
        first.broker.queue_create(&queue("q"), metadata(ONCE)).await.unwrap();
        let ids = first.post(&queue("q"), 2, 3_600).await;
        claim_once(&first, &queue("q")).await;
        plan.next(&vec![Fault::NotSent; FOR_EVER]);
        plan.skip(steps);
        assert!(first.claim(&queue("q"), 20, 300).await.is_empty());
        until("the step is not tried", async || plan.left() < FOR_EVER).await;
        first.broker.stop().await;
        let (_second, _) = lives.whole().await;
        // Read directly from the pool: a request would open the queues.
        let pool = EmbeddedPool::new(lives.journal.clone());
        let catalogue = lives.catalogue();
        until("the move is not brought to its end", async || {
            let Some(dead) = id_of(&catalogue, "dead").await else { return false };
            let found = pool.get(dead, &ids).await.unwrap();
            found.len() == ids.len() && found.iter().all(|message| message.header.state == State::Ready)
        })
        .await;
        let source = id_of(&catalogue, "q").await.unwrap();
        assert_eq!(pool.totals(source).await.unwrap().messages, 0, "{steps}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_of_recovered_unused_slot_are_finished() {
    let (faulty, ids) = about_to_move(ONCE).await;
    move_until(&faulty, 3).await;
    take_slot_of(&faulty, "dead").await;
    faulty.whole.broker.queue_patch(&queue("dead"), Vec::new()).await.unwrap_err();
    until("it is not served", async || faulty.whole.broker.queue_metadata(&queue("dead")).await.is_ok())
        .await;
    let dead = id_of(&faulty.catalogue, "dead").await.unwrap();
    faulty.pool.release();
    until("the message is not published", async || {
        let found = faulty.store.get(dead, &ids).await.unwrap();
        found.first().is_some_and(|message| message.header.state == State::Ready)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_out_of_a_relaxed_queue_is_synced_at_each_step() {
    let relaxed = r#"{"_dead_letter_queue": "dead", "_max_claim_count": 1, "_durability": "relaxed"}"#;
    let (faulty, ids) = about_to_move(relaxed).await;
    let before = faulty.given.given().len();
    assert!(faulty.given.given().iter().any(|batch| batch.durability == Durability::Relaxed), "the post is");
    assert!(faulty.whole.claim(&queue("q"), 1, 60).await.is_empty());
    assert_eq!(faulty.whole.claim_soon(&queue("dead"), 1).await, ids);
    let moved: Vec<Durability> =
        faulty.given.given()[before..].iter().map(|batch| batch.durability).collect();
    assert_eq!(moved, [Durability::Sync; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_published_when_its_source_is_deleted_on_the_way() {
    let (faulty, ids) = about_to_move(ONCE).await;
    move_until(&faulty, 1).await;
    let broker = faulty.whole.broker.clone();
    let mut deleting = JoinSet::new();
    deleting.spawn(async move { broker.queue_delete(&queue("q")).await });
    until("the source is not closed", async || id_of(&faulty.catalogue, "q").await.is_none()).await;
    deleting.join_next().await.unwrap().unwrap().unwrap();
    faulty.pool.release();
    assert_eq!(faulty.whole.claim_soon(&queue("dead"), 1).await, ids);
}

/// The topic is created while the message is prepared in its target, and its source is gone.
#[tokio::test(flavor = "multi_thread")]
async fn topic_with_name_of_deleted_source_delays_no_arrival() {
    let (faulty, ids) = about_to_move(ONCE).await;
    move_until(&faulty, 1).await;
    let broker = &faulty.whole.broker;
    broker.queue_delete(&queue("q")).await.unwrap();
    assert_eq!(broker.queue_create(&topic("q"), metadata("{}")).await.unwrap(), CreateResult::New);
    faulty.pool.release();
    assert_eq!(faulty.whole.claim_soon(&queue("dead"), 1).await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_entry_is_not_taken_for_a_prepared_one() {
    let lives = Lives::new();
    let (first, _) = lives.whole().await;
    first.broker.queue_create(&queue("dead"), metadata("{}")).await.unwrap();
    first.broker.queue_create(&queue("q"), metadata(ONCE)).await.unwrap();
    let ids = first.post(&queue("q"), 2, 3_600).await;
    claim_once(&first, &queue("q")).await;
    first.broker.stop().await;
    let (source, target) = (id_of(&lives.catalogue(), "q").await, id_of(&lives.catalogue(), "dead").await);
    let pool = EmbeddedPool::new(lives.journal.clone());
    // The target has an entry of the first id, which no transfer has prepared.
    let foreign = pool.get(source.unwrap(), &ids[..1]).await.unwrap();
    let slot = queue("dead").slot();
    let tree = EmbeddedTree::open(lives.journal.clone()).await.unwrap();
    let transaction = tree.get(&format!("/meta/slots/{slot}")).await.unwrap().unwrap().modified;
    drop(tree);
    let queues = vec![changes(target.unwrap(), Changes::appends(foreign))];
    let epoch = Epoch { generation: 1, transaction };
    pool.fence(slot, epoch).await.unwrap();
    pool.commit(&Batch { slot, epoch, seq: 1, durability: Durability::Sync, queues }).await.unwrap();
    let (second, _) = lives.whole().await;
    assert!(second.claim(&queue("q"), 20, 300).await.is_empty());
    let mut arrived = Vec::new();
    until("the other message does not arrive", async || {
        arrived.extend(second.claim(&queue("dead"), 20, 300).await);
        arrived.contains(&ids[1])
    })
    .await;
    assert_eq!(second.broker.queue_stats(&queue("q")).await.unwrap().in_transfer, 1, "it stays");
    let claimed = second.broker.queue_stats(&queue("dead")).await.unwrap().claimed;
    assert_eq!((arrived.len(), claimed), (2, 2), "the foreign entry keeps its claim");
    let dead_letters = "angarium_messages_dead_lettered_total";
    let counted = value(&second.broker.metrics_page().await, dead_letters, &[("queue", "q")]);
    assert!((counted - 1.0).abs() < f64::EPSILON, "{counted} dead letters and not the one that left");
}
