//! Deleted queues: gone at once and cleaned away in the end, also when an owner is killed or cut off in between.

use std::sync::Arc;
use std::time::{Duration, Instant};

use angarium_broker::Broker;
use angarium_catalogue::{Catalogue, HeldRecords, OwnedSlot, QueueRecord};
use angarium_clock::Clock;
use angarium_cluster::replicas::Replica;
use angarium_coordination::Coordination;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits::Limits;
use angarium_core::message::NewMessage;
use angarium_core::names::{ProjectId, QueueRef};
use angarium_core::queue::Metadata;
use angarium_journal::Journal;
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::{DropResult, Epoch, Order, PoolReads, PoolWrites, Totals};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::faulty::{Fault, FaultyPool, FaultyTree, Plan};
use super::recovery::claim_when_served;
use super::transfers::until;
use super::{MAX_WAIT, Whole, limit, one_pool, queue, replica, terms};

/// A broker whose tree and pool the test reads directly.
struct InspectedBroker {
    whole: Whole,
    tree: Arc<EmbeddedTree>,
    catalogue: Catalogue,
    pool: Arc<EmbeddedPool>,
    /// The same pool as the broker uses it.
    faulty: Arc<FaultyPool>,
    plan: Plan,
    replica: Replica,
}

async fn seen() -> InspectedBroker {
    let data: TempDir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(1_700_000_000_000);
    let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
    let tree = Arc::new(EmbeddedTree::open(journal.clone()).await.unwrap());
    let (pool, plan) = (Arc::new(EmbeddedPool::new(journal)), Plan::default());
    let faulty = Arc::new(FaultyPool::new(pool.clone(), Plan::default()));
    let replica = replica();
    let settings = one_pool(faulty.clone());
    let tried = Catalogue::new(Arc::new(FaultyTree::new(tree.clone(), plan.clone())));
    let broker =
        Broker::start(tried, &settings, replica.clone(), clock.clone(), Limits::ZAQAR).await.unwrap();
    let catalogue = Catalogue::new(tree.clone());
    let whole = Whole { broker, clock, _data: data };
    InspectedBroker { whole, tree, catalogue, pool, faulty, plan, replica }
}

impl InspectedBroker {
    /// Returns the slot of the queue as its owner has it.
    async fn slot(&self) -> OwnedSlot {
        let slot = queue("q").slot();
        let node = self.tree.get(&format!("/meta/slots/{slot}")).await.unwrap().unwrap();
        OwnedSlot::new(slot, node.version, node.modified)
    }

    async fn record(&self) -> Option<QueueRecord> {
        self.catalogue.queue(&self.slot().await, &queue("q")).await.unwrap()
    }

    /// Returns the claims of a queue whose records are in the tree.
    async fn claims_of(&self, record: &QueueRecord) -> Vec<ClaimId> {
        let all = self.catalogue.claims(&self.slot().await).await.unwrap().claims;
        all.into_iter().filter(|(_, claim)| claim.queue == record.id).map(|(id, _)| id).collect()
    }

    /// Messages that the pool has of a queue, claims of it in the tree, and notes of deleted queues.
    async fn left(&self, record: &QueueRecord) -> (Totals, usize, usize) {
        let slot = self.slot().await;
        let claims = self.claims_of(record).await.len();
        let notes = self.catalogue.dropped(&slot).await.unwrap().len();
        (self.pool.totals(record.id).await.unwrap(), claims, notes)
    }

    async fn nothing_is_left_soon(&self, record: &QueueRecord) {
        let start = Instant::now();
        loop {
            let left = self.left(record).await;
            if left == (Totals::default(), 0, 0) {
                return;
            }
            assert!(start.elapsed() < MAX_WAIT, "{left:?} is left");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The next process on the same stores.
    async fn start_again(&mut self) {
        self.whole.broker.stop().await;
        let settings = one_pool(self.pool.clone());
        let broker = Broker::start(
            self.catalogue.clone(),
            &settings,
            self.replica.clone(),
            self.whole.clock.clone(),
            Limits::ZAQAR,
        )
        .await;
        self.whole.broker = broker.unwrap();
    }
}

fn message() -> Vec<NewMessage> {
    vec![NewMessage { body: "1".into(), ttl: None, delay: None, ..NewMessage::default() }]
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_queue_vanishes_at_once_and_leaves_nothing() {
    let seen = seen().await;
    seen.whole.post(&queue("q"), 3_000, 3_600).await;
    for _ in 0..5 {
        assert_eq!(seen.whole.claim(&queue("q"), 20, 300).await.len(), 20);
    }
    let record = seen.record().await.unwrap();
    seen.whole.broker.queue_delete(&queue("q")).await.unwrap();
    assert!(seen.record().await.is_none());
    assert!(seen.whole.claim(&queue("q"), 20, 300).await.is_empty());
    assert_eq!(seen.whole.broker.queue_stats(&queue("q")).await.unwrap(), Default::default());
    seen.nothing_is_left_soon(&record).await;
    seen.whole.broker.queue_delete(&queue("q")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn recreated_queue_has_new_id_and_no_old_messages() {
    let seen = seen().await;
    let mut ids = Vec::new();
    for round in 0..5 {
        let posted = seen.whole.post(&queue("q"), 30, 3_600).await;
        assert_eq!(seen.whole.claim(&queue("q"), 20, 300).await, posted[..20], "round {round}");
        ids.push(seen.record().await.unwrap().id);
        seen.whole.broker.queue_delete(&queue("q")).await.unwrap();
    }
    let last = seen.whole.post(&queue("q"), 1, 3_600).await;
    assert_eq!(seen.whole.claim(&queue("q"), 20, 300).await, last);
    ids.push(seen.record().await.unwrap().id);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_deletion_is_cleaned_by_next_process() {
    // Killed after the commit, after a part of the messages, after all of them, and after the claims too.
    for step in 0..4 {
        let mut seen = seen().await;
        seen.whole.post(&queue("q"), 100, 3_600).await;
        seen.whole.claim(&queue("q"), 20, 300).await;
        let record = seen.record().await.unwrap();
        seen.whole.broker.stop().await;
        let slot = seen.slot().await;
        seen.catalogue.queue_delete(&slot, &queue("q"), &record, HeldRecords::default()).await.unwrap();
        let epoch = Epoch { generation: 1, transaction: slot.transaction };
        let part = |limit| seen.pool.drop_queue(slot.slot, epoch, record.id, limit);
        match step {
            0 => {}
            1 => assert_eq!(part(10).await.unwrap(), DropResult::More),
            _ => assert_eq!(part(1_000).await.unwrap(), DropResult::Done),
        }
        if step == 3 {
            let claims = seen.claims_of(&record).await;
            assert_eq!(claims.len(), 1);
            seen.catalogue.claims_delete(&slot, &claims).await.unwrap();
        }
        assert_eq!(seen.left(&record).await.2, 1);
        seen.start_again().await;
        assert!(seen.whole.claim(&queue("q"), 20, 300).await.is_empty());
        seen.nothing_is_left_soon(&record).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_doubt_deletion_leaves_queue_whole_or_absent() {
    for (fault, is_gone) in
        [(Fault::NotSent, false), (Fault::UnknownBefore, false), (Fault::UnknownAfter, true)]
    {
        let seen = seen().await;
        let ids = seen.whole.post(&queue("q"), 3, 3_600).await;
        assert_eq!(seen.whole.claim(&queue("q"), 1, 3_600).await, ids[..1]);
        let record = seen.record().await.unwrap();
        seen.plan.next(&[fault]);
        let failed = seen.whole.broker.queue_delete(&queue("q")).await.unwrap_err();
        assert_eq!(failed.nothing_written(), fault == Fault::NotSent, "{fault:?}");
        if is_gone {
            assert!(claim_when_served(&seen.whole, "q").await.is_empty());
            seen.nothing_is_left_soon(&record).await;
        } else {
            // Claimed messages stay claimed.
            assert_eq!(claim_when_served(&seen.whole, "q").await, ids[1..], "{fault:?}");
            seen.whole.broker.queue_delete(&queue("q")).await.unwrap();
            seen.nothing_is_left_soon(&record).await;
        }
    }
}

/// A claim that waits for the deletion does not see the queue without its claims.
#[tokio::test(flavor = "multi_thread")]
async fn failed_deletion_makes_no_claimed_message_ready() {
    let seen = seen().await;
    let ids = seen.whole.post(&queue("q"), 3, 3_600).await;
    assert_eq!(seen.whole.claim(&queue("q"), 1, 3_600).await, ids[..1]);
    seen.plan.next(&[Fault::HeldAndLost]);
    let broker = seen.whole.broker.clone();
    let mut deletion = JoinSet::new();
    deletion.spawn(async move { broker.queue_delete(&queue("q")).await });
    until("the deletion is not sent", async || seen.plan.is_done()).await;
    let broker = seen.whole.broker.clone();
    let mut claim = JoinSet::new();
    claim.spawn(async move {
        match broker.claim_create(&queue("q"), terms(300), limit(20)).await {
            Ok(Some((view, mut delivery_guard))) => {
                delivery_guard.done();
                view.messages.iter().map(|message| message.id).collect()
            }
            Ok(None) | Err(_) => Vec::new(),
        }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(claim.try_join_next().is_none(), "it waits for the deletion");
    seen.plan.release();
    deletion.join_next().await.unwrap().unwrap().unwrap_err();
    let mut claimed: Vec<MessageId> = claim.join_next().await.unwrap().unwrap();
    claimed.extend(seen.whole.claim(&queue("q"), 20, 300).await);
    assert_eq!(claimed, ids[1..]);
}

/// A purge meets the closed queue of a deletion that then has no effect.
#[tokio::test(flavor = "multi_thread")]
async fn failed_deletion_acknowledges_no_purge() {
    let seen = seen().await;
    let ids = seen.whole.post(&queue("q"), 3, 3_600).await;
    *seen.faulty.held_order.lock() = Some(Order::Ready);
    seen.faulty.pages.next(&[Fault::Held]);
    let (purger, deleter) = (seen.whole.broker.clone(), seen.whole.broker.clone());
    let (mut purge, mut deletion) = (JoinSet::new(), JoinSet::new());
    purge.spawn(async move { purger.queue_purge(&queue("q")).await });
    until("the purge reads nothing", async || seen.faulty.pages.is_done()).await;
    seen.plan.next(&[Fault::HeldAndLost]);
    deletion.spawn(async move { deleter.queue_delete(&queue("q")).await });
    until("the deletion is not sent", async || seen.plan.is_done()).await;
    seen.faulty.pages.release();
    let purged = purge.join_next().await.unwrap().unwrap();
    seen.plan.release();
    deletion.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(purged.unwrap_err().code(), "unavailable");
    assert_eq!(seen.whole.claim(&queue("q"), 20, 300).await, ids);
}

/// A message gets a time of its own while its queue is deleted without effect: its new claim is in force.
#[tokio::test(flavor = "multi_thread")]
async fn failed_deletion_keeps_both_claims_of_split() {
    let seen = seen().await;
    let q = queue("q");
    let ids = seen.whole.post(&q, 2, 36_000).await;
    let (view, mut guard) = seen.whole.broker.claim_create(&q, terms(300), limit(2)).await.unwrap().unwrap();
    guard.done();
    let record = seen.record().await.unwrap();
    seen.plan.next(&[Fault::Held, Fault::HeldAndLost]);
    let (hider, deleter, hidden) = (seen.whole.broker.clone(), seen.whole.broker.clone(), ids[0]);
    let (mut split, mut deletion) = (JoinSet::new(), JoinSet::new());
    split.spawn(async move { hider.message_hide(&queue("q"), view.id, hidden, terms(600)).await });
    until("the split is not sent", async || seen.plan.left() == 1).await;
    deletion.spawn(async move { deleter.queue_delete(&queue("q")).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(seen.plan.left(), 1, "the deletion waits for the split");
    seen.plan.release();
    split.join_next().await.unwrap().unwrap().unwrap_err();
    until("the deletion is not sent", async || seen.plan.is_done()).await;
    // Longer than the pause between two removals of spent claims.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    seen.plan.release();
    deletion.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(seen.claims_of(&record).await.len(), 2);
    assert!(seen.whole.claim(&q, 20, 300).await.is_empty());
    seen.whole.clock.advance(301_000);
    assert_eq!(seen.whole.claim_soon(&q, 20).await, ids[1..]);
    seen.whole.broker.queue_delete(&q).await.unwrap();
    seen.nothing_is_left_soon(&record).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn post_after_deletion_is_never_acked_into_old_queue() {
    let seen = Arc::new(seen().await);
    let mut posters = JoinSet::new();
    let stop = tokio_util::sync::CancellationToken::new();
    for _ in 0..4 {
        let (broker, stop) = (seen.whole.broker.clone(), stop.clone());
        posters.spawn(async move {
            while !stop.is_cancelled() {
                // The post may be refused while the queue is being closed.
                if let Err(error) = broker.messages_post(&queue("q"), message(), None).await {
                    assert!(error.nothing_written(), "{error:?}");
                }
                let claim = broker.claim_create(&queue("q"), terms(60), limit(2)).await;
                if let Ok(Some((_, mut delivery_guard))) = claim {
                    delivery_guard.done();
                }
            }
        });
    }
    for round in 0..60 {
        seen.whole.broker.queue_delete(&queue("q")).await.unwrap();
        let ids = seen.whole.broker.messages_post(&queue("q"), message(), None).await.unwrap().ids;
        let found = seen.whole.broker.message_get(&queue("q"), ids[0]).await;
        assert!(found.is_ok(), "round {round}: {found:?}");
    }
    stop.cancel();
    posters.join_all().await;
    let record = seen.record().await.unwrap();
    seen.whole.broker.queue_delete(&queue("q")).await.unwrap();
    // Nothing is left of any incarnation once the ticks have cleaned up: no claim was recorded after its queue had been
    // cleaned away.
    seen.nothing_is_left_soon(&record).await;
    let claims = async || seen.catalogue.claims(&seen.slot().await).await.unwrap().claims.len();
    let start = Instant::now();
    while claims().await > 0 {
        assert!(start.elapsed() < MAX_WAIT, "{} claims are left", claims().await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn project_directory_vanishes_with_last_queue() {
    let seen = seen().await;
    let broker = &seen.whole.broker;
    let project = |name: &str| ProjectId::new(name).unwrap();
    let at = |region: &str| QueueRef { project: project(&format!("a@{region}")), name: queue("q").name };
    // Two queues of one project in one slot, and one of each of two others.
    let regions = ["r-1", "r-2"].map(at);
    let kept = regions[0].clone();
    let mut names = (0..).map(|number| queue(&format!("q-{number}")).name);
    let beside = names.find_map(|name| {
        let other = QueueRef { project: kept.project.clone(), name };
        (other.slot() == kept.slot()).then_some(other)
    });
    let beside = beside.unwrap();
    let projects = async |of: &QueueRef| seen.catalogue.slot_projects(of.slot()).await.unwrap();
    for _ in 0..2 {
        for queue in regions.iter().chain([&beside]) {
            broker.queue_create(queue, Metadata::empty()).await.unwrap();
        }
        for queue in &regions {
            broker.queue_delete(queue).await.unwrap();
        }
        assert!(projects(&kept).await.contains(&kept.project), "it has another queue");
        assert!(!projects(&regions[1]).await.contains(&regions[1].project));
        broker.queue_delete(&beside).await.unwrap();
        assert!(!projects(&kept).await.contains(&kept.project));
    }
}
