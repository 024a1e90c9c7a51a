//! Holds of queues: nothing is granted after the answer, nothing is lost, and restarts and new owners keep them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use angarium_broker::{Broker, HoldTerms, PoolSettings, SendEntry};
use angarium_catalogue::{Catalogue, OwnedSlot, Schema};
use angarium_clock::Clock;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::claim::{ClaimWait, Claimer};
use angarium_core::error::Error;
use angarium_core::group::{DedupId, GroupName};
use angarium_core::hold::{Hold, HoldEffects, HoldReason};
use angarium_core::limits::Limits;
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_journal::Journal;
use angarium_storage::embedded::EmbeddedPool;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::faulty::{Fault, FaultyPool, FaultyTree, Plan};
use super::{MAX_WAIT, limit, metadata, one_pool, other_replica, queue, replica, terms, whole};

pub fn effects(claim: bool, post: bool, discard: bool) -> HoldEffects {
    HoldEffects::new(claim, post, discard).unwrap()
}

pub fn hold_terms(effects: HoldEffects) -> HoldTerms {
    let reason = HoldReason::new("bad deploy").unwrap();
    HoldTerms { effects, reason, by: Some("ops".to_owned()), until: None }
}

pub fn claims_held() -> HoldTerms {
    hold_terms(effects(true, false, false))
}

fn message() -> NewMessage {
    NewMessage { body: "\"x\"".into(), ..NewMessage::default() }
}

/// A broker on a journal of its own that outlives it.
pub struct Scene {
    journal: Journal,
    pub clock: Clock,
    plan: Plan,
    /// The faults of the pool.
    pub pool: Plan,
    _data: TempDir,
}

impl Scene {
    pub fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let clock = Clock::manual(1_700_000_000_000);
        let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
        Self { journal, clock, plan: Plan::default(), pool: Plan::default(), _data: data }
    }

    pub async fn tree(&self) -> EmbeddedTree {
        EmbeddedTree::open(self.journal.clone()).await.unwrap()
    }

    /// Number of records of holds in the slot of a queue.
    async fn stored_holds(&self, at: &QueueRef) -> usize {
        let catalogue = Catalogue::new(Arc::new(self.tree().await));
        catalogue.holds(&OwnedSlot::new(at.slot(), 0, 0)).await.unwrap().len()
    }

    fn pools(&self) -> PoolSettings {
        let pool = Arc::new(EmbeddedPool::new(self.journal.clone()));
        one_pool(Arc::new(FaultyPool::new(pool, self.pool.clone())))
    }

    pub async fn start(&self) -> Broker {
        let tree = FaultyTree::new(Arc::new(self.tree().await), self.plan.clone());
        let catalogue = Catalogue::new(Arc::new(tree));
        Broker::start(catalogue, &self.pools(), replica(), self.clock.clone(), Limits::ZAQAR).await.unwrap()
    }
}

async fn claimed(broker: &Broker, at: &QueueRef) -> usize {
    let claim = broker.claim_create(at, terms(300), limit(10)).await.unwrap();
    claim.map_or(0, |(view, mut guard)| {
        guard.done();
        view.messages.len()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn held_queue_grants_nothing_until_its_release() {
    let whole = whole().await;
    let at = queue("q");
    let ids = whole.post(&at, 20, 300).await;
    whole.claim(&at, 2, 300).await;
    let hold = whole.broker.queue_hold(&at, claims_held()).await.unwrap();
    assert_eq!((hold.reason.as_str(), hold.by.as_deref()), ("bad deploy", Some("ops")));
    assert_eq!(whole.broker.queue_hold_get(&at).await.unwrap(), hold);
    assert!(whole.claim(&at, 5, 300).await.is_empty());
    // Posts are stored.
    let more = whole.post(&at, 1, 300).await;
    whole.broker.queue_release(&at, None).await.unwrap();
    let after = whole.claim(&at, 20, 300).await;
    assert_eq!(after, [&ids[2..], &more].concat());
    let missing = whole.broker.queue_hold_get(&at).await.unwrap_err();
    assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    whole.broker.queue_release(&at, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_claim_gets_messages_of_released_queue() {
    let whole = whole().await;
    let at = queue("q");
    whole.broker.queue_create(&at, metadata("{}")).await.unwrap();
    whole.broker.queue_hold(&at, claims_held()).await.unwrap();
    whole.post(&at, 1, 300).await;
    let (broker, named) = (whole.broker.clone(), at.clone());
    let mut waiting = JoinSet::new();
    waiting.spawn(async move {
        let wait = ClaimWait::new(Some(20)).unwrap();
        let claim = broker.claim_wait(&named, terms(300), limit(1), wait, Claimer::default()).await.unwrap();
        claim.map(|(view, mut guard)| {
            guard.done();
            view.messages.len()
        })
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(waiting.try_join_next().is_none());
    whole.broker.queue_release(&at, None).await.unwrap();
    assert_eq!(waiting.join_next().await.unwrap().unwrap(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_and_its_record_end_at_their_time() {
    let scene = Scene::new();
    let at = queue("q");
    let broker = scene.start().await;
    broker.messages_post(&at, vec![message()], None).await.unwrap();
    let past = HoldTerms { until: Some(Timestamp::from_millis(1)), ..claims_held() };
    let refused = broker.queue_hold(&at, past).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
    let until = scene.clock.now().plus_seconds(60);
    broker.queue_hold(&at, HoldTerms { until: Some(until), ..claims_held() }).await.unwrap();
    scene.clock.advance(59_000);
    assert_eq!(claimed(&broker, &at).await, 0);
    assert_eq!(scene.stored_holds(&at).await, 1);
    scene.clock.advance(1_000);
    assert_eq!(claimed(&broker, &at).await, 1);
    assert!(broker.queue_hold_get(&at).await.is_err());
    let start = Instant::now();
    while scene.stored_holds(&at).await > 0 {
        assert!(start.elapsed() < MAX_WAIT);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_broker_keeps_holds() {
    let scene = Scene::new();
    let at = queue("q");
    let broker = scene.start().await;
    broker.messages_post(&at, vec![message()], None).await.unwrap();
    let hold = broker.queue_hold(&at, claims_held()).await.unwrap();
    broker.stop().await;
    let broker = scene.start().await;
    assert_eq!(claimed(&broker, &at).await, 0);
    assert_eq!(broker.queue_hold_get(&at).await.unwrap(), hold);
    broker.queue_release(&at, None).await.unwrap();
    broker.stop().await;
    assert_eq!(claimed(&scene.start().await, &at).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn recreated_queue_is_not_held() {
    let scene = Scene::new();
    let at = queue("q");
    let broker = scene.start().await;
    broker.messages_post(&at, vec![message()], None).await.unwrap();
    broker.queue_hold(&at, hold_terms(effects(true, true, false))).await.unwrap();
    broker.queue_delete(&at).await.unwrap();
    broker.messages_post(&at, vec![message()], None).await.unwrap();
    assert_eq!(claimed(&broker, &at).await, 1);
    broker.stop().await;
    let broker = scene.start().await;
    assert!(broker.queue_hold_get(&at).await.is_err());
    broker.messages_post(&at, vec![message()], None).await.unwrap();
    assert_eq!(claimed(&broker, &at).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_posts_store_nothing_and_no_id_of_deduplication() {
    let whole = whole().await;
    let at = queue("q.fifo");
    let fifo = metadata(r#"{"_fifo": true}"#);
    whole.broker.queue_create(&at, fifo).await.unwrap();
    let sent = || {
        let dedup = Some(DedupId::new("once", "").unwrap());
        let message = NewMessage { dedup, group: Some(GroupName::new("g", "").unwrap()), ..message() };
        vec![SendEntry { message, size: 3 }]
    };
    for discard in [false, true] {
        whole.broker.queue_hold(&at, hold_terms(effects(false, !discard, discard))).await.unwrap();
        let refused = whole.broker.messages_send(&at, sent()).await.unwrap_err();
        assert!(
            matches!(&refused, Error::Held { is_discarded, .. } if *is_discarded == discard),
            "{refused}"
        );
        assert!(whole.claim(&at, 1, 300).await.is_empty());
    }
    whole.broker.queue_release(&at, None).await.unwrap();
    whole.broker.messages_send(&at, sent()).await.unwrap();
    assert_eq!(whole.claim(&at, 10, 300).await.len(), 1);
}

/// Claims race with a hold. Each claim that begins after the answer to the hold gets nothing.
#[tokio::test(flavor = "multi_thread")]
async fn claims_begun_after_the_answer_get_nothing() {
    let whole = Arc::new(whole().await);
    let at = queue("q");
    whole.post(&at, 2_000, 3_600).await;
    for _ in 0..20 {
        let mut tasks = JoinSet::new();
        let held = Arc::new(AtomicBool::new(false));
        for _ in 0..8 {
            let (whole, at, held) = (Arc::clone(&whole), at.clone(), Arc::clone(&held));
            tasks.spawn(async move {
                let mut late = 0;
                for _ in 0..20 {
                    let is_late = held.load(Ordering::SeqCst);
                    let messages = whole.claim(&at, 1, 300).await.len();
                    late += if is_late { messages } else { 0 };
                }
                late
            });
        }
        whole.broker.queue_hold(&at, claims_held()).await.unwrap();
        held.store(true, Ordering::SeqCst);
        while let Some(late) = tasks.join_next().await {
            assert_eq!(late.unwrap(), 0);
        }
        whole.broker.queue_release(&at, None).await.unwrap();
    }
    assert!(!whole.claim(&at, 1, 300).await.is_empty());
}

/// The outcome of the commit of a hold is unknown. Memory agrees with the tree afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn hold_with_unknown_outcome_is_read_again() {
    let scene = Scene::new();
    let at = queue("q");
    let broker = scene.start().await;
    broker.messages_post(&at, vec![message()], None).await.unwrap();
    for (fault, is_new) in
        [(Fault::UnknownAfter, true), (Fault::UnknownBefore, false), (Fault::NotSent, false)]
    {
        let old = broker.queue_hold(&at, hold_terms(effects(false, true, false))).await.unwrap();
        scene.plan.next(&[fault]);
        let failed = broker.queue_hold(&at, claims_held()).await.unwrap_err();
        assert_eq!(failed.nothing_written(), fault == Fault::NotSent, "{failed}");
        let held = hold_of(&broker, &at).await;
        assert_eq!(held.effects == claims_held().effects, is_new, "{fault:?}");
        assert_eq!(held.effects == old.effects, !is_new, "{fault:?}");
        assert_eq!(claimed(&broker, &at).await, usize::from(!is_new), "{fault:?}");
        broker.queue_purge(&at).await.unwrap();
        broker.queue_release(&at, None).await.unwrap();
        broker.messages_post(&at, vec![message()], None).await.unwrap();
    }
}

/// Returns the hold of a queue, once its slot is recovered.
async fn hold_of(broker: &Broker, at: &QueueRef) -> Hold {
    let start = Instant::now();
    loop {
        match broker.queue_hold_get(at).await {
            Ok(hold) => return hold,
            Err(error) => assert!(start.elapsed() < MAX_WAIT, "{error}"),
        }
    }
}

/// While a replica runs that would deliver the messages of a held queue, no queue is held.
#[tokio::test(flavor = "multi_thread")]
async fn hold_waits_for_older_replicas() {
    let scene = Scene::new();
    let at = queue("q");
    let broker = scene.start().await;
    broker.messages_post(&at, vec![message()], None).await.unwrap();
    let catalogue = Catalogue::new(Arc::new(scene.tree().await));
    let component = other_replica(Schema::OUTCOMES);
    let seen = catalogue.registry().await.unwrap();
    catalogue.component_join(&seen, "elsewhere", &component).await.unwrap().unwrap();
    let refused = broker.queue_hold(&at, claims_held()).await.unwrap_err();
    assert_eq!((refused.code(), refused.nothing_written()), ("unavailable", true), "{refused}");
    assert_eq!(claimed(&broker, &at).await, 1);
}
