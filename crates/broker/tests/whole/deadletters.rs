//! Messages that are claimed too often move to another queue, with any fault in between (P5).

use std::sync::Arc;
use std::time::{Duration, Instant};

use angarium_broker::Broker;
use angarium_catalogue::{Catalogue, OwnedSlot};
use angarium_clock::Clock;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits::Limits;
use angarium_core::names::QueueRef;
use angarium_journal::Journal;
use angarium_storage::PoolReads;
use angarium_storage::embedded::EmbeddedPool;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::faulty::{Fault, FaultyPool, Plan};
use super::{MAX_WAIT, Whole, limit, metadata, one_pool, queue, replica, terms};

/// More attempts than any caller makes.
pub(super) const FOR_EVER: usize = 100_000;

/// One store, over which brokers start one after the other, each with a plan of faults.
pub(super) struct Lives {
    pub(super) journal: Journal,
    pub(super) clock: Clock,
    /// The catalogue of the broker that was started last.
    catalogue: Mutex<Option<Catalogue>>,
    _data: TempDir,
}

impl Lives {
    pub(super) fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let clock = Clock::manual(1_700_000_000_000);
        let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
        Self { journal, clock, catalogue: Mutex::default(), _data: data }
    }

    /// Returns the catalogue of the broker that was started last.
    pub(super) fn catalogue(&self) -> Catalogue {
        self.catalogue.lock().clone().expect("one was started")
    }

    async fn start(&self) -> (Broker, Plan) {
        let plan = Plan::default();
        let catalogue = Catalogue::new(Arc::new(EmbeddedTree::open(self.journal.clone()).await.unwrap()));
        *self.catalogue.lock() = Some(catalogue.clone());
        let pool = Arc::new(EmbeddedPool::new(self.journal.clone()));
        let settings = one_pool(Arc::new(FaultyPool::new(pool, plan.clone())));
        let broker =
            Broker::start(catalogue, &settings, replica(), self.clock.clone(), Limits::ZAQAR).await.unwrap();
        (broker, plan)
    }

    /// Returns the pool's own count of a queue, without opening it.
    pub(super) async fn stored(&self, at: &QueueRef) -> u64 {
        self.stored_of(self.id_of(at).await).await
    }

    /// As `stored`, of a queue that may have been deleted.
    pub(super) async fn stored_of(&self, id: QueueId) -> u64 {
        EmbeddedPool::new(self.journal.clone()).totals(id).await.unwrap().messages
    }

    pub(super) async fn id_of(&self, at: &QueueRef) -> QueueId {
        self.catalogue().queue(&OwnedSlot::new(at.slot(), 0, 0), at).await.unwrap().unwrap().id
    }

    pub(super) async fn whole(&self) -> (Whole, Plan) {
        let (broker, plan) = self.start().await;
        (Whole { broker, clock: self.clock.clone(), _data: tempfile::tempdir().unwrap() }, plan)
    }
}

pub(super) const ONCE: &str = r#"{"_dead_letter_queue": "dead", "_max_claim_count": 1}"#;

/// Claims and releases all messages of the queue once.
pub(super) async fn claim_once(whole: &Whole, at: &QueueRef) {
    let claim = whole.broker.claim_create(at, terms(300), limit(20)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    whole.broker.claim_release(at, view.id).await.unwrap();
}

async fn total(whole: &Whole, name: &str) -> u64 {
    let stats = whole.broker.queue_stats(&queue(name)).await.unwrap();
    stats.claimed + stats.free + stats.in_transfer
}

/// Checks that the messages are in the dead letter queue, each once, and nowhere else.
pub(super) async fn check_moved(whole: &Whole, ids: &[MessageId]) {
    let mut found = Vec::new();
    while found.len() < ids.len() {
        let claimed = whole.claim_soon(&queue("dead"), 20).await;
        assert!(!claimed.is_empty(), "{} of {} have come", found.len(), ids.len());
        found.extend(claimed);
    }
    found.sort_unstable();
    assert_eq!(found, ids);
    let start = Instant::now();
    while total(whole, "q").await > 0 {
        assert!(start.elapsed() < MAX_WAIT, "they are in both queues");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(whole.claim(&queue("q"), 20, 300).await.is_empty());
    assert!(whole.claim(&queue("dead"), 20, 300).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn message_over_claim_limit_becomes_dead_letter() {
    let (whole, _) = Lives::new().whole().await;
    let at = queue("q");
    let twice =
        r#"{"_dead_letter_queue": "dead", "_max_claim_count": 2, "_dead_letter_queue_messages_ttl": 100}"#;
    whole.broker.queue_create(&at, metadata(twice)).await.unwrap();
    let ids = whole.post(&at, 2, 3_600).await;
    claim_once(&whole, &at).await;
    assert_eq!(whole.claim(&at, 20, 60).await, ids, "the second time");
    let fresh = whole.post(&at, 1, 3_600).await;
    whole.clock.advance(60_000);
    let start = Instant::now();
    while whole.broker.queue_stats(&at).await.unwrap().claimed > 0 {
        assert!(start.elapsed() < MAX_WAIT, "the claim does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(whole.claim(&at, 20, 300).await, fresh, "the claim gets what comes behind them");
    let claim = loop {
        if let Some((view, mut delivery_guard)) =
            whole.broker.claim_create(&queue("dead"), terms(60), limit(20)).await.unwrap()
        {
            delivery_guard.done();
            break view;
        }
        assert!(start.elapsed() < MAX_WAIT, "they do not come");
    };
    let seen: Vec<_> = claim.messages.iter().map(|m| (m.id, m.ttl, m.attempts)).collect();
    assert_eq!(seen, [(ids[0], 100, 1), (ids[1], 100, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_transfer_is_completed_after_any_step() {
    // The steps: marked in transfer, prepared, removed, published. With the last number all of them happen.
    for steps in 0..=4 {
        let lives = Lives::new();
        let (first, plan) = lives.whole().await;
        let at = queue("q");
        first.broker.queue_create(&at, metadata(ONCE)).await.unwrap();
        let ids = first.post(&at, 3, 3_600).await;
        claim_once(&first, &at).await;
        plan.next(&vec![Fault::NotSent; FOR_EVER]);
        plan.skip(steps);
        assert!(first.claim(&at, 20, 300).await.is_empty(), "{steps}");
        let start = Instant::now();
        while plan.left() >= FOR_EVER && steps < 4 {
            assert!(start.elapsed() < MAX_WAIT, "step {steps} is not tried");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // From here on all its writes fail.
        first.broker.stop().await;
        let (second, _) = lives.whole().await;
        assert!(second.claim(&at, 20, 300).await.is_empty(), "{steps}");
        check_moved(&second, &ids).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_queue_alone_after_restart_completes_transfer() {
    let lives = Lives::new();
    let (first, plan) = lives.whole().await;
    first.broker.queue_create(&queue("q"), metadata(ONCE)).await.unwrap();
    let ids = first.post(&queue("q"), 1, 3_600).await;
    claim_once(&first, &queue("q")).await;
    plan.next(&vec![Fault::NotSent; FOR_EVER]);
    plan.skip(2);
    assert!(first.claim(&queue("q"), 20, 300).await.is_empty());
    while plan.left() >= FOR_EVER {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    first.broker.stop().await;
    let (second, _) = lives.whole().await;
    assert_eq!(second.claim_soon(&queue("dead"), 20).await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_on_its_way_is_neither_deleted_nor_claimed_nor_lost() {
    let lives = Lives::new();
    let (whole, plan) = lives.whole().await;
    let at = queue("q");
    whole.broker.queue_create(&at, metadata(ONCE)).await.unwrap();
    let ids = whole.post(&at, 1, 3_600).await;
    claim_once(&whole, &at).await;
    // It is marked in transfer, and then nothing is written for a while.
    plan.next(&vec![Fault::NotSent; FOR_EVER]);
    plan.skip(1);
    assert!(whole.claim(&at, 20, 300).await.is_empty());
    let refused = whole.broker.message_delete(&at, ids[0], None).await.unwrap_err();
    assert!(refused.nothing_written() && refused.may_retry());
    plan.clear();
    check_moved(&whole, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_dead_letters_all_come_and_none_twice() {
    let (whole, _) = Lives::new().whole().await;
    let at = queue("q");
    whole.broker.queue_create(&at, metadata(ONCE)).await.unwrap();
    let ids = whole.post(&at, 1_000, 3_600).await;
    while !whole.claim(&at, 20, 60).await.is_empty() {}
    whole.clock.advance(60_000);
    let start = Instant::now();
    while total(&whole, "q").await > 0 {
        assert!(start.elapsed() < MAX_WAIT, "{} stay", total(&whole, "q").await);
        assert!(whole.claim(&at, 20, 300).await.is_empty());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    check_moved(&whole, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_survive_renewal_restart_and_lost_claims() {
    let lives = Lives::new();
    let (first, _) = lives.whole().await;
    let at = queue("q");
    let thrice = r#"{"_dead_letter_queue": "dead", "_max_claim_count": 3}"#;
    first.broker.queue_create(&at, metadata(thrice)).await.unwrap();
    let ids = first.post(&at, 1, 3_600).await;
    let claim = first.broker.claim_create(&at, terms(300), limit(1)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    first.broker.claim_renew(&at, view.id, terms(600)).await.unwrap();
    first.broker.claim_release(&at, view.id).await.unwrap();
    // The claim was not delivered, so it does not count.
    drop(first.broker.claim_create(&at, terms(300), limit(1)).await.unwrap());
    assert_eq!(first.claim_soon(&at, 1).await, ids);
    first.broker.stop().await;
    let (second, _) = lives.whole().await;
    second.clock.advance(600_000);
    assert_eq!(second.claim_soon(&at, 1).await, ids, "the third time");
    second.clock.advance(600_000);
    let start = Instant::now();
    while total(&second, "q").await > 0 {
        assert!(start.elapsed() < MAX_WAIT, "it stays");
        assert!(second.claim(&at, 1, 300).await.is_empty(), "the fourth time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    check_moved(&second, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_cannot_take_its_own_dead_letters() {
    let (whole, _) = Lives::new().whole().await;
    let refused = whole.broker.queue_create(&queue("dead"), metadata(ONCE)).await.unwrap_err();
    assert_eq!(refused.code(), "invalid");
}
