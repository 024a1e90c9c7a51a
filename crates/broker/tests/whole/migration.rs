//! Migrations of queues to another pool while they are used, and crashes at every step (P6).

use std::sync::Arc;
use std::time::{Duration, Instant};

use angarium_broker::{Broker, Destination, FirstPool, PoolSettings};
use angarium_catalogue::{Catalogue, OwnedSlot};
use angarium_clock::Clock;
use angarium_coordination::Coordination;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::delay::Delay;
use angarium_core::group::DedupId;
use angarium_core::ids::{ClaimId, MessageId, QueueId};
use angarium_core::limits::Limits;
use angarium_core::message::NewMessage;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::pool::{PoolChange, PoolUri};
use angarium_core::quota::Quota;
use angarium_engine::placement::Algorithm;
use angarium_journal::Journal;
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::open::{Opener, PoolOpenError};
use angarium_storage::{PoolReads, PoolStore};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::watch;

use super::deadletters::FOR_EVER;
use super::explain::explain;
use super::faulty::{Fault, FaultyPool, Plan};
use super::groups::in_group;
use super::quotas::table;
use super::transfers::{id_of, until};
use super::{MAX_WAIT, Whole, hanging, limit, metadata, queue, replica, terms};

/// Two pools, `a` and `b`, and a tree, over which brokers start one after the other. Their pools fail by one plan.
pub(super) struct Pools {
    tree: Journal,
    stores: [Journal; 2],
    clock: Clock,
    catalogue: Mutex<Option<Catalogue>>,
    _data: TempDir,
}

struct Opening {
    stores: [Journal; 2],
    plan: Plan,
}

impl Opener for Opening {
    fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        let journal = self.stores[usize::from(uri == "embedded:b")].clone();
        Ok(Arc::new(FaultyPool::new(Arc::new(EmbeddedPool::new(journal)), self.plan.clone())))
    }

    fn close(&self, _: &str) {}
}

fn uri(pool: &str) -> PoolUri {
    PoolUri::new(&format!("embedded:{pool}")).unwrap()
}

pub(super) fn to(pool: &str) -> Destination {
    Destination::new(PoolName::new(pool).unwrap(), None).unwrap()
}

impl Pools {
    pub(super) fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let clock = Clock::manual(1_700_000_000_000);
        let open = |name| Journal::open(&data.path().join(name), &clock).unwrap();
        let (tree, stores) = (open("tree"), [open("a"), open("b")]);
        Self { tree, stores, clock, catalogue: Mutex::default(), _data: data }
    }

    /// Starts a broker. Returns it with the plan of faults of its pools.
    pub(super) async fn start(&self) -> (Whole, Plan) {
        self.start_within(Quota::NONE).await
    }

    /// As `start`, with a quota for each project.
    pub(super) async fn start_within(&self, quota: Quota) -> (Whole, Plan) {
        let plan = Plan::default();
        let catalogue = Catalogue::new(Arc::new(EmbeddedTree::open(self.tree.clone()).await.unwrap()));
        *self.catalogue.lock() = Some(catalogue.clone());
        let opener = Arc::new(Opening { stores: self.stores.clone(), plan: plan.clone() });
        let first = Some(FirstPool { name: PoolName::new("a").unwrap(), uri: uri("a"), weight: 1 });
        let settings = PoolSettings { first, opener, placement: Algorithm::default() };
        let (clock, limits) = (self.clock.clone(), Limits::ZAQAR);
        let quotas = watch::Sender::new(Arc::new(table(quota))).subscribe();
        let broker = Broker::start_within(catalogue, &settings, replica(), clock.clone(), limits, quotas);
        let broker = broker.await.unwrap();
        let second = PoolChange { uri: Some(uri("b")), weight: Some(0), ..PoolChange::default() };
        broker.pool_put(&PoolName::new("b").unwrap(), second).await.unwrap();
        (Whole { broker, clock, _data: tempfile::tempdir().unwrap() }, plan)
    }

    /// Returns the number of messages that each pool has of a queue.
    pub(super) async fn held(&self, at: &QueueRef) -> [u64; 2] {
        let catalogue = self.catalogue.lock().clone().unwrap();
        let id = id_of(&catalogue, at.name.as_str()).await.unwrap();
        self.held_by(id).await
    }

    /// As `held`, by the id of the queue, which may have been deleted.
    pub(super) async fn held_by(&self, id: QueueId) -> [u64; 2] {
        let mut held = [0; 2];
        for (held, store) in held.iter_mut().zip(&self.stores) {
            *held = EmbeddedPool::new(store.clone()).totals(id).await.unwrap().messages;
        }
        held
    }

    /// Returns the catalogue of the broker that was started last.
    pub(super) fn catalogue(&self) -> Catalogue {
        self.catalogue.lock().clone().unwrap()
    }

    /// Returns the versions of the records of all subscriptions.
    pub(super) async fn versions_of_subscriptions(&self) -> Vec<u32> {
        let tree = EmbeddedTree::open(self.tree.clone()).await.unwrap();
        let mut directories = vec!["/queues".to_owned()];
        let mut versions = Vec::new();
        while let Some(directory) = directories.pop() {
            for name in tree.children(&directory).await.unwrap() {
                let path = format!("{directory}/{name}");
                // One that is being deleted may be gone meanwhile.
                if name.contains("%7e")
                    && let Some(node) = tree.get(&path).await.unwrap()
                {
                    versions.push(node.version);
                }
                directories.push(path);
            }
        }
        versions
    }
}

impl Whole {
    async fn is_moving(&self, at: &QueueRef) -> bool {
        match self.broker.migration_get(at).await {
            Ok(_) => true,
            Err(error) if error.code() == "not_found" => false,
            // Its slot is being recovered.
            Err(_) => true,
        }
    }

    pub(super) async fn arrived(&self, at: &QueueRef) {
        until("the queue does not arrive", async || !self.is_moving(at).await).await;
    }

    /// Claims all messages. Returns them in the order of arrival. A slot that is being recovered refuses claims.
    pub(super) async fn drain(&self, at: &QueueRef) -> Vec<MessageId> {
        let (mut found, start) = (Vec::new(), Instant::now());
        loop {
            let claim = match self.broker.claim_create(at, terms(300), limit(20)).await {
                Err(error) if error.nothing_written() && start.elapsed() < MAX_WAIT => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
                claim => claim.unwrap(),
            };
            let Some((view, mut delivery_guard)) = claim else { return found };
            delivery_guard.done();
            found.extend(view.messages.iter().map(|message| message.id));
        }
    }

    async fn hold(&self, at: &QueueRef, messages: i64) -> (ClaimId, Vec<MessageId>) {
        let claim = self.broker.claim_create(at, terms(300), limit(messages)).await.unwrap();
        let (view, mut delivery_guard) = claim.unwrap();
        delivery_guard.done();
        (view.id, view.messages.iter().map(|message| message.id).collect())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_migrates_whole_and_in_order_and_back() {
    let (pools, at) = (Pools::new(), queue("q"));
    let (whole, _) = pools.start().await;
    let mut ids = whole.post(&at, 700, 3_600).await;
    whole.broker.queue_migrate(&at, to("b")).await.unwrap();
    ids.extend(whole.post(&at, 50, 3_600).await);
    whole.arrived(&at).await;
    assert_eq!(pools.held(&at).await, [0, 750]);
    whole.broker.queue_migrate(&at, to("a")).await.unwrap();
    whole.arrived(&at).await;
    assert_eq!(pools.held(&at).await, [750, 0]);
    assert_eq!(whole.drain(&at).await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn migrating_queue_is_counted_listed_and_claimed_in_order() {
    let (pools, at) = (Pools::new(), queue("q"));
    let (whole, _) = pools.start().await;
    let ids = whole.post(&at, 2_000, 3_600).await;
    // It lasts until it has been looked at, however busy the machine is.
    let slow = Destination::new(PoolName::new("b").unwrap(), Some(300)).unwrap();
    whole.broker.queue_migrate(&at, slow).await.unwrap();
    let mut claimed = Vec::new();
    let mut looks = 0;
    while whole.is_moving(&at).await {
        let stats = whole.broker.queue_stats(&at).await.unwrap();
        assert_eq!(stats.claimed + stats.free, 2_000);
        let got = whole.broker.message_get(&at, ids[1_999]).await.unwrap();
        assert_eq!(got.id, ids[1_999]);
        claimed.extend(whole.claim(&at, 5, 300).await);
        looks += 1;
        if claimed.len() > 100 {
            break;
        }
    }
    assert!(looks > 3, "it was over before it was looked at");
    assert_eq!(claimed, ids[..claimed.len()]);
    assert_eq!(whole.drain(&at).await, ids[claimed.len()..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_survives_migration_and_its_messages_follow() {
    let (pools, at) = (Pools::new(), queue("q"));
    let (whole, _) = pools.start().await;
    let ids = whole.post(&at, 10, 3_600).await;
    let (claim, held) = whole.hold(&at, 3).await;
    whole.broker.queue_migrate(&at, to("b")).await.unwrap();
    let left = async || whole.broker.migration_get(&at).await.unwrap().left;
    until("the others go over", async || left().await == 3).await;
    assert_eq!(whole.broker.claim_get(&at, claim).await.unwrap().view.messages.len(), 3);
    whole.broker.message_delete(&at, held[0], Some(claim)).await.unwrap();
    assert!(whole.broker.message_delete(&at, held[1], None).await.is_err(), "it is claimed");
    // A new owner keeps the claim too.
    whole.broker.stop().await;
    let (whole, _) = pools.start().await;
    assert_eq!(whole.broker.claim_get(&at, claim).await.unwrap().view.messages.len(), 2);
    whole.broker.claim_release(&at, claim).await.unwrap();
    whole.arrived(&at).await;
    assert_eq!(pools.held(&at).await, [0, 9]);
    let seen = whole.broker.message_get(&at, held[1]).await.unwrap();
    assert_eq!(seen.attempts, 1, "what its first claim changed went over");
    assert_eq!(whole.drain(&at).await, ids[1..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canceled_migration_brings_everything_back() {
    let (pools, at) = (Pools::new(), queue("q"));
    let (whole, _) = pools.start().await;
    let mut ids = whole.post(&at, 900, 3_600).await;
    // It has not ended when it is canceled, however busy the machine is.
    let slow = Destination::new(PoolName::new("b").unwrap(), Some(100)).unwrap();
    whole.broker.queue_migrate(&at, slow).await.unwrap();
    ids.extend(whole.post(&at, 20, 3_600).await);
    until("some go over", async || pools.held(&at).await[1] > 100).await;
    let view = whole.broker.migration_cancel(&at).await.unwrap();
    assert_eq!((view.from.as_str(), view.to.as_str(), view.is_canceled), ("b", "a", true));
    assert!(whole.broker.migration_cancel(&at).await.unwrap().is_canceled, "the same again changes nothing");
    ids.extend(whole.post(&at, 20, 3_600).await);
    whole.arrived(&at).await;
    assert_eq!(pools.held(&at).await, [940, 0]);
    assert_eq!(whole.drain(&at).await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_messages_migrate_and_become_ready_in_time() {
    let (pools, at) = (Pools::new(), queue("q"));
    let (whole, _) = pools.start().await;
    let delayed = NewMessage { body: "1".into(), delay: Some(Delay::Seconds(60)), ..NewMessage::default() };
    let ids = whole.broker.messages_post(&at, vec![delayed; 3], None).await.unwrap().ids;
    whole.broker.queue_migrate(&at, to("b")).await.unwrap();
    whole.arrived(&at).await;
    assert_eq!(pools.held(&at).await, [0, 3]);
    assert!(whole.claim(&at, 20, 300).await.is_empty());
    whole.clock.advance(60_000);
    assert_eq!(whole.claim_soon(&at, 20).await, ids);
}

/// A FIFO queue whose migration is interrupted again and again.
#[tokio::test(flavor = "multi_thread")]
async fn migration_keeps_group_order_and_dedup_ids() {
    let (pools, at) = (Pools::new(), queue("q.fifo"));
    let (mut whole, mut plan) = pools.start().await;
    whole.broker.queue_create(&at, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let post = async |whole: &Whole, number: usize| {
        let dedup = Some(DedupId::new(&number.to_string(), "dedup_id").unwrap());
        let message = NewMessage { dedup, ..in_group(["a", "b", "c"][number % 3], "1") };
        whole.broker.messages_post(&at, vec![message], None).await.unwrap().ids[0]
    };
    let mut ids = Vec::new();
    for number in 0..90 {
        ids.push(post(&whole, number).await);
    }
    whole.broker.queue_migrate(&at, to("b")).await.unwrap();
    for batches in [1, 2, 3, 4] {
        plan.next(&vec![Fault::NotSent; FOR_EVER]);
        plan.skip(batches);
        tokio::time::sleep(Duration::from_millis(50)).await;
        whole.broker.stop().await;
        (whole, plan) = pools.start().await;
    }
    whole.arrived(&at).await;
    whole.broker.stop().await;
    (whole, _) = pools.start().await;
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(post(&whole, number).await, *id, "it was posted before");
    }
    assert_eq!(pools.held(&at).await, [0, 90]);
    let mut seen = [0, 1, 2];
    for _ in 0..90 {
        let (claim, got) = whole.hold(&at, 1).await;
        let number = ids.iter().position(|id| *id == got[0]).unwrap();
        assert_eq!(number, seen[number % 3], "the first of its group");
        seen[number % 3] += 3;
        whole.broker.message_delete(&at, got[0], Some(claim)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_migration_continues_without_loss() {
    // With the last number all of it happens.
    join_all((0..=8).map(cut_short)).await;
}

async fn cut_short(batches: usize) {
    let (pools, at) = (Pools::new(), queue("q"));
    let (whole, plan) = pools.start().await;
    let ids = whole.post(&at, 300, 3_600).await;
    let (claim, held) = whole.hold(&at, 2).await;
    plan.next(&vec![Fault::NotSent; FOR_EVER]);
    plan.skip(batches);
    whole.broker.queue_migrate(&at, to("b")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    whole.broker.stop().await;
    let (whole, _) = pools.start().await;
    until("it does not go on", async || pools.held(&at).await == [2, 298]).await;
    assert_eq!(whole.broker.claim_get(&at, claim).await.unwrap().view.messages.len(), 2, "{batches}");
    for id in held {
        whole.broker.message_delete(&at, id, Some(claim)).await.unwrap();
    }
    whole.arrived(&at).await;
    assert_eq!(pools.held(&at).await, [0, 298], "{batches}");
    assert_eq!(whole.drain(&at).await, ids[2..], "{batches}");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_doubt_migration_batch_is_neither_lost_nor_doubled() {
    let faults = [Fault::UnknownBefore, Fault::UnknownAfter];
    join_all((0..=6).flat_map(|batches| faults.map(|fault| unknown(batches, fault)))).await;
}

async fn unknown(batches: usize, fault: Fault) {
    let (pools, at) = (Pools::new(), queue("q"));
    let (whole, plan) = pools.start().await;
    let ids = whole.post(&at, 300, 3_600).await;
    // As often as a slot writer tries: then the slot is recovered.
    plan.next(&[fault; 6]);
    plan.skip(batches);
    whole.broker.queue_migrate(&at, to("b")).await.unwrap();
    whole.arrived(&at).await;
    assert_eq!(pools.held(&at).await, [0, 300], "{batches} {fault:?}");
    assert_eq!(whole.drain(&at).await, ids, "{batches} {fault:?}");
}

/// A queue moves until its record names one pool, whichever batch the migration waits for.
#[tokio::test(flavor = "multi_thread")]
async fn migration_is_shown_until_record_names_one_pool() {
    for batches in 0.. {
        let (pools, at) = (Pools::new(), queue("q"));
        let (whole, plan) = pools.start().await;
        whole.post(&at, 2, 3_600).await;
        plan.next(&[Fault::Held]);
        plan.skip(batches);
        whole.broker.queue_migrate(&at, to("b")).await.unwrap();
        until("no batch is held", async || plan.is_done() || !whole.is_moving(&at).await).await;
        if !plan.is_done() {
            assert!(batches > 3, "a barrier, copies, removals and the last ones: {batches}");
            return;
        }
        // Time for memory to be ahead of the record.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let slot = OwnedSlot::new(at.slot(), 0, 0);
        let record = pools.catalogue().queue(&slot, &at).await.unwrap().unwrap();
        let in_two = record.placement().unwrap().older.is_some();
        assert_eq!(whole.is_moving(&at).await, in_two, "batch {batches}");
        assert_eq!(explain(&whole, &at).await.older_pool.is_some(), in_two, "batch {batches}");
        plan.release();
        whole.arrived(&at).await;
    }
}

/// The pool that the queue leaves gives no answer, removes its data much later, and is by then the pool of the queue.
#[tokio::test(flavor = "multi_thread")]
async fn late_removal_from_left_pool_takes_no_returned_message() {
    let (pools, at) = (hanging::Pools::new(), queue("q"));
    let whole = pools.start().await;
    let ids = whole.post(&at, 30, 3_600).await;
    let left = &pools.stores[0];
    left.drops.next(&[Fault::Held]);
    whole.broker.queue_migrate(&at, to("b")).await.unwrap();
    until("nothing is removed", async || left.drops.is_done()).await;
    let returns = async || {
        let is_canceled = whole.broker.migration_cancel(&at).await.is_ok();
        is_canceled || whole.broker.queue_migrate(&at, to("a")).await.is_ok()
    };
    until("the queue does not return", returns).await;
    whole.arrived(&at).await;
    left.drops.release();
    left.late_drops.close();
    left.late_drops.wait().await;
    assert_eq!(whole.drain(&at).await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_during_copy_removes_from_both_pools() {
    let (pools, at) = (Pools::new(), queue("q"));
    let (whole, plan) = pools.start().await;
    let ids = whole.post(&at, 10, 3_600).await;
    // The barrier, and the copies, which are held while messages are removed.
    plan.next(&[Fault::None, Fault::Held]);
    whole.broker.queue_migrate(&at, to("b")).await.unwrap();
    until("they are copied", async || plan.left() == 0).await;
    let gone = ids[4];
    let got = whole.broker.message_get(&at, ids[5]).await.unwrap();
    assert_eq!(got.claim, None, "it can be looked at");
    let release = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        plan.release();
    };
    let (removal, ()) = tokio::join!(whole.broker.message_delete(&at, gone, None), release);
    removal.unwrap();
    whole.arrived(&at).await;
    assert_eq!(pools.held(&at).await, [0, 9]);
    let rest: Vec<MessageId> = ids.iter().copied().filter(|id| *id != gone).collect();
    assert_eq!(whole.drain(&at).await, rest);
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_migration_is_refused_with_reason() {
    let (pools, at) = (Pools::new(), queue("q"));
    let (whole, _) = pools.start().await;
    let code = async |at: &QueueRef, destination| {
        whole.broker.queue_migrate(at, destination).await.map(drop).unwrap_err().code()
    };
    assert_eq!(code(&at, to("b")).await, "not_found", "the queue");
    whole.post(&at, 600, 3_600).await;
    assert_eq!(code(&at, to("c")).await, "invalid", "the pool");
    assert_eq!(code(&at, to("a")).await, "conflict", "it is there");
    assert_eq!(whole.broker.migration_cancel(&at).await.unwrap_err().code(), "not_found");
    let slow = Destination::new(PoolName::new("b").unwrap(), Some(1)).unwrap();
    whole.broker.queue_migrate(&at, slow).await.unwrap();
    for pool in ["a", "b"] {
        assert_eq!(code(&at, to(pool)).await, "conflict", "it moves already");
        let deleted = whole.broker.pool_delete(&PoolName::new(pool).unwrap()).await;
        assert_eq!(deleted.unwrap_err().code(), "in_use", "{pool}");
    }
    for rate in [0, -1, 1_000_001] {
        assert!(Destination::new(PoolName::new("b").unwrap(), Some(rate)).is_err(), "{rate}");
    }
    whole.broker.queue_delete(&at).await.unwrap();
    let free = async || {
        let name = PoolName::new("b").unwrap();
        whole.broker.pool_delete(&name).await.is_ok()
    };
    until("nothing is left in either pool", free).await;
}
