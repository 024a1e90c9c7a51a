//! Holds of the transfers of a pool, for copies of several pools at different moments: no message leaves after the
//! answer, and clients notice nothing.

use std::time::Duration;

use angarium_broker::HoldTerms;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_coordination::{Coordination, Op};
use angarium_core::error::Error;
use angarium_core::hold::{HoldEffects, HoldReason, HoldTarget};
use angarium_core::names::{PoolName, ProjectId};
use tokio::task::JoinSet;

use super::deadletters::{Lives, ONCE, check_moved, claim_once};
use super::faulty::Fault;
use super::migration::{Pools, to};
use super::transfers::until;
use super::{metadata, queue};

/// Longer than a transfer takes.
const LONG: Duration = Duration::from_millis(400);

fn pool(name: &str) -> HoldTarget {
    HoldTarget::Pool(PoolName::new(name).unwrap())
}

fn transfers_held() -> HoldTerms {
    let reason = HoldReason::new("backup").unwrap();
    HoldTerms { effects: HoldEffects::TRANSFERS, reason, by: None, until: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_wait_for_release_and_clients_do_not() {
    let lives = Lives::new();
    let (whole, _) = lives.whole().await;
    let at = queue("q");
    whole.broker.queue_create(&at, metadata(ONCE)).await.unwrap();
    let ids = whole.post(&at, 3, 3_600).await;
    claim_once(&whole, &at).await;
    whole.broker.hold_make(&pool("default"), transfers_held()).await.unwrap();
    // They are used up, and marked in transfer.
    assert!(whole.claim(&at, 20, 300).await.is_empty());
    tokio::time::sleep(LONG).await;
    assert_eq!(lives.stored(&at).await, 3);
    assert!(whole.claim(&queue("dead"), 20, 300).await.is_empty());
    // The pool takes new queues, and its messages are claimed.
    let others = whole.post(&queue("other"), 2, 3_600).await;
    assert_eq!(whole.claim(&queue("other"), 20, 300).await, others);
    // The next owner knows the hold.
    whole.broker.stop().await;
    let (whole, _) = lives.whole().await;
    assert!(whole.claim(&at, 20, 300).await.is_empty());
    tokio::time::sleep(LONG).await;
    assert_eq!(lives.stored(&at).await, 3);
    whole.broker.hold_release(&pool("default"), None).await.unwrap();
    check_moved(&whole, &ids).await;
}

/// A record that no program writes has all effects.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_hold_of_pool_keeps_dead_letters() {
    let lives = Lives::new();
    let (first, _) = lives.whole().await;
    let at = queue("q");
    first.broker.queue_create(&at, metadata(ONCE)).await.unwrap();
    let ids = first.post(&at, 3, 3_600).await;
    first.broker.hold_make(&pool("default"), transfers_held()).await.unwrap();
    claim_once(&first, &at).await;
    assert!(first.claim(&at, 20, 300).await.is_empty());
    first.broker.stop().await;
    for data in ["{", r#"{"reason": "x", "since": 0}"#] {
        let tree = EmbeddedTree::open(lives.journal.clone()).await.unwrap();
        let path = "/meta/holds/pools/default".to_owned();
        tree.commit(&[], &[Op::Set { path, data: data.into(), version: None }]).await.unwrap();
        let (next, _) = lives.whole().await;
        tokio::time::sleep(LONG).await;
        assert_eq!(lives.stored(&at).await, 3);
        next.broker.stop().await;
    }
    let (last, _) = lives.whole().await;
    last.broker.hold_release(&pool("default"), None).await.unwrap();
    check_moved(&last, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_waits_while_either_pool_is_held() {
    for held in ["a", "b"] {
        let (pools, at) = (Pools::new(), queue("q"));
        let (whole, _) = pools.start().await;
        let ids = whole.post(&at, 700, 3_600).await;
        whole.broker.hold_make(&pool(held), transfers_held()).await.unwrap();
        whole.broker.queue_migrate(&at, to("b")).await.unwrap();
        tokio::time::sleep(LONG).await;
        assert_eq!(pools.held(&at).await, [700, 0], "{held}");
        whole.broker.hold_release(&pool(held), None).await.unwrap();
        whole.arrived(&at).await;
        assert_eq!(pools.held(&at).await, [0, 700]);
        assert_eq!(whole.drain(&at).await, ids);
    }
}

/// A removal that was sent before the hold must not be carried out after its answer.
#[tokio::test(flavor = "multi_thread")]
async fn hold_of_transfers_waits_for_removal_in_progress() {
    let lives = Lives::new();
    let (whole, plan) = lives.whole().await;
    let at = queue("q");
    whole.broker.queue_create(&at, metadata(ONCE)).await.unwrap();
    let ids = whole.post(&at, 3, 3_600).await;
    claim_once(&whole, &at).await;
    // Marked in transfer, prepared, removed.
    plan.next(&[Fault::Held]);
    plan.skip(2);
    assert!(whole.claim(&at, 20, 300).await.is_empty());
    until("the removal is not sent", async || plan.is_done()).await;
    let mut holding = JoinSet::new();
    let broker = whole.broker.clone();
    holding.spawn(async move { broker.hold_make(&pool("default"), transfers_held()).await });
    tokio::time::sleep(LONG).await;
    assert!(holding.try_join_next().is_none(), "it is answered while a removal is in progress");
    plan.release();
    holding.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(lives.stored(&at).await, 0);
    whole.broker.hold_release(&pool("default"), None).await.unwrap();
    check_moved(&whole, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_of_pools_alone_are_held() {
    let (whole, _) = Lives::new().whole().await;
    let at = queue("q");
    whole.post(&at, 1, 3_600).await;
    let project = HoldTarget::Project(ProjectId::new("").unwrap());
    let of_project = whole.broker.hold_make(&project, transfers_held()).await.unwrap_err();
    let of_queue = whole.broker.queue_hold(&at, transfers_held()).await.unwrap_err();
    for refused in [of_project, of_queue] {
        assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
    }
}
