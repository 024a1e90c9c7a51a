//! Holds of pools and projects: nothing is granted or stored after the answer, nothing is lost, and each owner knows them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use angarium_broker::{Broker, HoldTerms};
use angarium_catalogue::{Catalogue, Schema};
use angarium_coordination::embedded::EmbeddedTree;
use angarium_coordination::{Coordination, Op};
use angarium_core::access::Role;
use angarium_core::claim::{ClaimWait, Claimer};
use angarium_core::error::Error;
use angarium_core::hold::{HoldEffects, HoldReason, HoldTarget};
use angarium_core::limits::Limits;
use angarium_core::message::NewMessage;
use angarium_core::names::{PoolName, ProjectId, QueueRef};
use angarium_core::page::PopCount;
use angarium_core::pool::{PoolChange, PoolUri};
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::{Epoch, PoolWrites, StoreError};
use tokio::task::JoinSet;

use super::deadletters::Lives;
use super::faulty::{Fault, FaultyTree, Plan};
use super::migration::{Pools, to};
use super::transfers::until;
use super::{limit, one_pool, other_replica, queue, replica, terms, whole};

fn pool(name: &str) -> HoldTarget {
    HoldTarget::Pool(PoolName::new(name).unwrap())
}

fn project(name: &str) -> HoldTarget {
    HoldTarget::Project(ProjectId::new(name).unwrap())
}

fn hold_terms(claim: bool, post: bool, discard: bool) -> HoldTerms {
    let effects = HoldEffects::new(claim, post, discard).unwrap();
    HoldTerms { effects, reason: HoldReason::new("bad deploy").unwrap(), by: None, until: None }
}

fn claims_held() -> HoldTerms {
    hold_terms(true, false, false)
}

async fn post(broker: &Broker, at: &QueueRef) -> Result<(), Error> {
    let message = NewMessage { body: "1".into(), ..NewMessage::default() };
    broker.messages_post(at, vec![message], None).await.map(drop)
}

async fn claimed(broker: &Broker, at: &QueueRef) -> usize {
    let claim = broker.claim_create(at, terms(300), limit(10)).await.unwrap();
    claim.map_or(0, |(view, mut guard)| {
        guard.done();
        view.messages.len()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn held_pool_and_project_grant_nothing_until_their_release() {
    let whole = whole().await;
    let other = QueueRef { project: ProjectId::new("other").unwrap(), ..queue("q") };
    for target in [pool("default"), project("")] {
        let at = queue("q");
        let ids = whole.post(&at, 3, 3_600).await;
        let hold = whole.broker.hold_make(&target, claims_held()).await.unwrap();
        assert_eq!(whole.broker.hold_get(&target).await.unwrap(), hold);
        assert!(whole.claim(&at, 5, 300).await.is_empty());
        assert!(
            whole
                .broker
                .messages_pop(&at, PopCount::new(1, &Limits::ZAQAR).unwrap())
                .await
                .unwrap()
                .is_empty()
        );
        post(&whole.broker, &other).await.unwrap();
        let is_other_held = matches!(target, HoldTarget::Pool(_));
        assert_eq!(claimed(&whole.broker, &other).await, if is_other_held { 0 } else { 2 });
        whole.broker.hold_release(&target, None).await.unwrap();
        assert_eq!(whole.claim(&at, 5, 300).await, ids);
        assert!(matches!(whole.broker.hold_get(&target).await, Err(Error::NotFound { .. })));
        whole.broker.hold_release(&target, None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_claim_gets_messages_of_released_project() {
    let whole = whole().await;
    let at = queue("q");
    whole.post(&at, 1, 3_600).await;
    whole.broker.hold_make(&project(""), claims_held()).await.unwrap();
    let (broker, named) = (whole.broker.clone(), at.clone());
    let mut waiting = JoinSet::new();
    waiting.spawn(async move {
        let wait = ClaimWait::new(Some(20)).unwrap();
        broker.claim_wait(&named, terms(300), limit(1), wait, Claimer::default()).await.unwrap().is_some()
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(waiting.try_join_next().is_none());
    let start = Instant::now();
    whole.broker.hold_release(&project(""), None).await.unwrap();
    assert!(waiting.join_next().await.unwrap().unwrap());
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn strictest_hold_of_queue_pool_and_project_counts() {
    let whole = whole().await;
    let at = queue("q");
    post(&whole.broker, &at).await.unwrap();
    let refusal = async || match post(&whole.broker, &at).await {
        Ok(()) => None,
        Err(Error::Held { is_discarded, .. }) => Some(is_discarded),
        Err(error) => panic!("{error}"),
    };
    whole.broker.queue_hold(&at, hold_terms(false, false, true)).await.unwrap();
    assert_eq!(refusal().await, Some(true));
    whole.broker.hold_make(&project(""), hold_terms(false, true, false)).await.unwrap();
    assert_eq!(refusal().await, Some(false));
    whole.broker.queue_release(&at, None).await.unwrap();
    assert_eq!(refusal().await, Some(false));
    whole.broker.hold_make(&pool("default"), hold_terms(true, false, true)).await.unwrap();
    whole.broker.hold_release(&project(""), None).await.unwrap();
    assert_eq!(refusal().await, Some(true));
    assert_eq!(claimed(&whole.broker, &at).await, 0);
    whole.broker.hold_release(&pool("default"), None).await.unwrap();
    assert_eq!(refusal().await, None);
    assert_eq!(claimed(&whole.broker, &at).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn held_project_without_queues_refuses_posts_and_gets_no_queue() {
    let whole = whole().await;
    whole.broker.hold_make(&project(""), hold_terms(true, true, false)).await.unwrap();
    let refused = post(&whole.broker, &queue("new")).await.unwrap_err();
    assert!(matches!(refused, Error::Held { .. }), "{refused}");
    assert!(whole.broker.queue_metadata(&queue("new")).await.unwrap().is_none());
    assert_eq!(claimed(&whole.broker, &queue("new")).await, 0);
    let missing = whole.broker.hold_make(&pool("missing"), claims_held()).await.unwrap_err();
    assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
}

/// Claims and posts race with holds of pools and projects. Each that begins after the answer gets or stores nothing.
#[tokio::test(flavor = "multi_thread")]
async fn requests_begun_after_the_answer_are_held() {
    let whole = Arc::new(whole().await);
    let at = queue("q");
    whole.post(&at, 2_000, 3_600).await;
    for target in [pool("default"), project("")].into_iter().cycle().take(10) {
        let (mut tasks, held) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
        for _ in 0..8 {
            let (whole, at, held) = (Arc::clone(&whole), at.clone(), Arc::clone(&held));
            tasks.spawn(async move {
                let mut late = 0;
                for _ in 0..20 {
                    let is_late = held.load(Ordering::SeqCst);
                    let messages = whole.claim(&at, 1, 300).await.len();
                    let stored = usize::from(post(&whole.broker, &at).await.is_ok());
                    late += if is_late { messages + stored } else { 0 };
                }
                late
            });
        }
        whole.broker.hold_make(&target, hold_terms(true, true, false)).await.unwrap();
        held.store(true, Ordering::SeqCst);
        while let Some(late) = tasks.join_next().await {
            assert_eq!(late.unwrap(), 0);
        }
        whole.broker.hold_release(&target, None).await.unwrap();
    }
    assert!(!whole.claim(&at, 1, 300).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn next_owner_knows_holds_and_ends_them_at_their_time() {
    let lives = Lives::new();
    let (first, _) = lives.whole().await;
    let at = queue("q");
    post(&first.broker, &at).await.unwrap();
    let end = lives.clock.now().plus_seconds(60);
    first.broker.hold_make(&pool("default"), claims_held()).await.unwrap();
    first.broker.hold_make(&project(""), HoldTerms { until: Some(end), ..claims_held() }).await.unwrap();
    first.broker.stop().await;
    let (second, _) = lives.whole().await;
    assert_eq!(claimed(&second.broker, &at).await, 0);
    second.broker.hold_release(&pool("default"), None).await.unwrap();
    lives.clock.advance(59_000);
    assert_eq!(claimed(&second.broker, &at).await, 0);
    lives.clock.advance(1_000);
    assert_eq!(claimed(&second.broker, &at).await, 1);
    assert!(second.broker.hold_get(&project("")).await.is_err());
    let catalogue = lives.catalogue();
    let is_removed = async || catalogue.shared_holds().await.unwrap().is_empty();
    until("its record stays", is_removed).await;
}

/// A hold fences the pool of the held queues in every slot, also where the owner has not used it: whatever an earlier
/// owner still sends there is refused once the hold is answered.
#[tokio::test(flavor = "multi_thread")]
async fn earlier_owner_writes_nothing_after_the_answer() {
    for target in [pool("default"), project("")] {
        let lives = Lives::new();
        let (first, _) = lives.whole().await;
        let at = queue("q");
        post(&first.broker, &at).await.unwrap();
        let slot = at.slot();
        let tree = EmbeddedTree::open(lives.journal.clone()).await.unwrap();
        let before = tree.get(&format!("/meta/slots/{slot}")).await.unwrap().unwrap().modified;
        first.broker.stop().await;
        // It has the slots and has not opened the queue.
        let (second, _) = lives.whole().await;
        let store = EmbeddedPool::new(lives.journal.clone());
        let stale = async || {
            let epoch = Epoch { generation: 1, transaction: before };
            store.fence(slot, epoch).await
        };
        assert!(stale().await.is_ok(), "no later owner has fenced the pool");
        second.broker.hold_make(&target, hold_terms(true, true, false)).await.unwrap();
        assert!(matches!(stale().await, Err(StoreError::Fenced(_))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_between_two_pools_is_held_by_either() {
    let pools = Pools::new();
    let (whole, plan) = pools.start().await;
    let at = queue("q");
    whole.post(&at, 100, 3_600).await;
    plan.next(&[Fault::Held]);
    whole.broker.queue_migrate(&at, to("b")).await.unwrap();
    until("the copy has begun", async || plan.is_done()).await;
    for name in ["a", "b"] {
        whole.broker.hold_make(&pool(name), claims_held()).await.unwrap();
        assert_eq!(claimed(&whole.broker, &at).await, 0, "{name}");
        let explained = whole.broker.queue_explain(&at, 100, Role::Admin).await.unwrap();
        assert_eq!(explained.holds.0.len(), 1, "{}", explained.says);
        whole.broker.hold_release(&pool(name), None).await.unwrap();
    }
    plan.release();
    whole.arrived(&at).await;
    whole.broker.hold_make(&pool("a"), claims_held()).await.unwrap();
    assert_eq!(claimed(&whole.broker, &at).await, 10);
    whole.broker.hold_make(&pool("b"), claims_held()).await.unwrap();
    assert_eq!(claimed(&whole.broker, &at).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_pool_takes_its_hold_with_it() {
    let pools = Pools::new();
    let (whole, _) = pools.start().await;
    let name = PoolName::new("b").unwrap();
    whole.broker.hold_make(&pool("b"), claims_held()).await.unwrap();
    whole.broker.pool_delete(&name).await.unwrap();
    let missing = whole.broker.hold_release(&pool("b"), None).await.unwrap_err();
    assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    let again = PoolChange {
        uri: Some(PoolUri::new("embedded:b").unwrap()),
        weight: Some(0),
        ..PoolChange::default()
    };
    whole.broker.pool_put(&name, again).await.unwrap();
    assert!(whole.broker.hold_get(&pool("b")).await.is_err());
}

/// A record that no program writes holds what its path names, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_hold_holds_its_project_alone() {
    let lives = Lives::new();
    let (first, _) = lives.whole().await;
    let (at, other) = (queue("q"), QueueRef { project: ProjectId::new("other").unwrap(), ..queue("q") });
    post(&first.broker, &at).await.unwrap();
    post(&first.broker, &other).await.unwrap();
    first.broker.hold_make(&project("other"), claims_held()).await.unwrap();
    first.broker.stop().await;
    let tree = EmbeddedTree::open(lives.journal.clone()).await.unwrap();
    let path = "/meta/holds/projects/other".to_owned();
    for data in ["{", r#"{"reason": "x", "since": 0}"#] {
        let damage = Op::Set { path: path.clone(), data: data.into(), version: None };
        tree.commit(&[], &[damage]).await.unwrap();
        let (next, _) = lives.whole().await;
        assert_eq!(claimed(&next.broker, &other).await, 0);
        assert!(matches!(post(&next.broker, &other).await, Err(Error::Held { .. })));
        post(&next.broker, &at).await.unwrap();
        assert!(claimed(&next.broker, &at).await > 0);
        next.broker.stop().await;
    }
    let (last, _) = lives.whole().await;
    last.broker.hold_release(&project("other"), None).await.unwrap();
    assert_eq!(claimed(&last.broker, &other).await, 1);
}

/// The outcome of the commit of a hold is unknown. Memory agrees with the tree afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn hold_with_unknown_commit_is_as_the_tree_has_it() {
    let lives = Lives::new();
    let plan = Plan::default();
    let tree =
        FaultyTree::new(Arc::new(EmbeddedTree::open(lives.journal.clone()).await.unwrap()), plan.clone());
    let settings = one_pool(Arc::new(EmbeddedPool::new(lives.journal.clone())));
    let catalogue = Catalogue::new(Arc::new(tree));
    let broker =
        Broker::start(catalogue, &settings, replica(), lives.clock.clone(), Limits::ZAQAR).await.unwrap();
    let at = queue("q");
    for (fault, is_held) in
        [(Fault::UnknownAfter, true), (Fault::UnknownBefore, false), (Fault::NotSent, false)]
    {
        // The directories exist, so that the next commit is the one of the record.
        broker.hold_make(&project("some"), claims_held()).await.unwrap();
        post(&broker, &at).await.unwrap();
        plan.next(&[fault]);
        let failed = broker.hold_make(&project(""), claims_held()).await.unwrap_err();
        assert_eq!(failed.nothing_written(), fault == Fault::NotSent, "{failed}");
        until("memory differs from the tree", async || {
            let stored = broker.hold_get(&project("")).await.is_ok();
            stored == is_held && (claimed(&broker, &at).await == 0) == is_held
        })
        .await;
        broker.hold_release(&project(""), None).await.unwrap();
    }
}

/// While a replica runs that would deliver the messages of a held pool, no pool and no project is held.
#[tokio::test(flavor = "multi_thread")]
async fn shared_hold_waits_for_older_replicas() {
    let lives = Lives::new();
    let (whole, _) = lives.whole().await;
    let at = queue("q");
    post(&whole.broker, &at).await.unwrap();
    let older = other_replica(Schema::TASKS);
    let seen = lives.catalogue().registry().await.unwrap();
    lives.catalogue().component_join(&seen, "elsewhere", &older).await.unwrap().unwrap();
    for target in [pool("default"), project("")] {
        let refused = whole.broker.hold_make(&target, claims_held()).await.unwrap_err();
        assert_eq!((refused.code(), refused.nothing_written()), ("unavailable", true), "{refused}");
    }
    assert_eq!(claimed(&whole.broker, &at).await, 1);
}
