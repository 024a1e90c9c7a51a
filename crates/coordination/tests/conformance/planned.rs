//! Tests of any tree when commits, connections and sessions fail: an unknown outcome is one of two, a late commit meets
//! its fence, and a process that was disconnected is told to read again.

use std::sync::Arc;

use angarium_coordination::Refusal::BadVersion;
use angarium_coordination::TreeError::{Fenced, NotSent, Refused, Unknown};
use angarium_coordination::{Event, Link, Mode};
use tokio::task::JoinSet;

use super::watches::{expect_event_of, next};
use super::{
    Fresh, Tree, assert_error, commit, create, create_as, create_with, fence, refused, set, set_at, version,
};
use angarium_testbed::faulty_tree::{Fault, FaultyTree, LinkOutage, Plan};

/// A tree with planned faults, and the tree behind it, as another process sees it.
struct PlannedFaults {
    tree: Tree,
    link: Arc<FaultyTree>,
    plan: Plan,
    witness: Tree,
}

impl PlannedFaults {
    fn of(fresh: &Fresh) -> Self {
        let plan = Plan::default();
        let link = Arc::new(FaultyTree::new(Arc::clone(&fresh.tree), plan.clone()));
        Self { tree: link.clone(), link, plan, witness: Arc::clone(&fresh.tree) }
    }
}

async fn unsent_commit_is_absent_and_repeatable(planned: PlannedFaults) {
    let PlannedFaults { tree, plan, .. } = planned;
    plan.next(&[Fault::NotSent]);
    assert_error!(refused(&tree, &[], &[create("/t")]).await, NotSent(_));
    assert_eq!(version(&tree, "/t").await, None);
    commit(&tree, &[create("/t")]).await;
}

async fn a_commit_without_an_outcome_is_there_whole_or_not_at_all(planned: PlannedFaults) {
    let PlannedFaults { tree, plan, .. } = planned;
    for (fault, directory, is_applied) in
        [(Fault::UnknownBefore, "/a", false), (Fault::UnknownAfter, "/b", true)]
    {
        commit(&tree, &[create(directory)]).await;
        plan.next(&[fault]);
        let ops = [set(directory, "new"), create_with(format!("{directory}/x"), "x")];
        let error = refused(&tree, &[], &ops).await;
        assert!(matches!(error, Unknown(_)) && !error.nothing_written(), "{error:?}");
        // The next read shows it, like an acknowledged commit.
        assert_eq!(version(&tree, directory).await, Some(u32::from(is_applied)));
        assert_eq!(version(&tree, &format!("{directory}/x")).await, is_applied.then_some(0));
    }
}

async fn repeated_versioned_commit_reveals_first_outcome(planned: PlannedFaults) {
    let PlannedFaults { tree, plan, .. } = planned;
    commit(&tree, &[create("/t")]).await;
    plan.next(&[Fault::UnknownBefore]);
    refused(&tree, &[], &[set_at("/t", 0)]).await;
    commit(&tree, &[set_at("/t", 0)]).await;
    plan.next(&[Fault::UnknownAfter]);
    refused(&tree, &[], &[set_at("/t", 1)]).await;
    assert_error!(refused(&tree, &[], &[set_at("/t", 1)]).await, Refused { op: 0, why: BadVersion });
    assert_eq!(version(&tree, "/t").await, Some(2));
}

async fn late_commit_meets_its_fence(planned: PlannedFaults) {
    let PlannedFaults { tree, plan, witness, .. } = planned;
    commit(&tree, &[create("/slot"), create("/t")]).await;
    plan.next(&[Fault::Held]);
    let mut late = JoinSet::new();
    let caller = Arc::clone(&tree);
    late.spawn(async move { caller.commit(&[fence("/slot", 0)], &[create("/t/late")]).await });
    while !plan.is_done() {
        tokio::task::yield_now().await;
    }
    commit(&witness, &[set("/slot", "taken")]).await;
    plan.release();
    assert_error!(late.join_next().await.unwrap().unwrap().unwrap_err(), Fenced(0));
    assert_eq!(witness.children("/t").await.unwrap(), [""; 0]);
}

async fn without_a_connection_nothing_is_sent_and_the_session_lasts(planned: PlannedFaults) {
    let PlannedFaults { tree, link, witness, .. } = planned;
    commit(&tree, &[create("/t"), create_as("/t/e", Mode::Ephemeral)]).await;
    let before = *tree.session().borrow();
    link.suspend(LinkOutage::Refused);
    assert_error!(refused(&tree, &[], &[create("/t/a")]).await, NotSent(_));
    assert_error!(tree.get("/t").await.unwrap_err(), NotSent(_));
    assert_error!(tree.children("/t").await.unwrap_err(), NotSent(_));
    assert_error!(tree.check_open().unwrap_err(), NotSent(_));
    assert_error!(tree.check_lease().unwrap_err(), NotSent(_));
    assert_eq!(tree.session().borrow().link, Link::Suspended);
    assert_eq!(witness.children("/t").await.unwrap(), ["e"]);
    link.connect();
    assert_eq!(*tree.session().borrow(), before);
    assert_eq!(tree.children("/t").await.unwrap(), ["e"]);
    tree.check_lease().unwrap();
}

async fn waiting_calls_are_answered_on_reconnection(planned: PlannedFaults) {
    let PlannedFaults { tree, link, witness, .. } = planned;
    commit(&tree, &[create("/t"), create("/slot")]).await;
    link.suspend(LinkOutage::Held);
    let mut waiting = JoinSet::new();
    for (slot, path) in [(0, "/t/good"), (1, "/t/fenced")] {
        let caller = Arc::clone(&tree);
        waiting.spawn(async move { caller.commit(&[fence("/slot", slot)], &[create(path)]).await.is_ok() });
    }
    assert!(waiting.try_join_next().is_none());
    assert_eq!(witness.children("/t").await.unwrap(), [""; 0]);
    link.connect();
    assert_eq!(waiting.join_all().await.into_iter().filter(|is_done| *is_done).count(), 1);
    assert_eq!(witness.children("/t").await.unwrap(), ["good"]);
}

async fn watcher_resyncs_after_suspension(planned: PlannedFaults) {
    let PlannedFaults { tree, link, witness, .. } = planned;
    commit(&tree, &[create("/t")]).await;
    let mut watch = tree.watch_tree("/t").unwrap();
    assert_eq!(next(&mut watch).await, Event::Resync);
    link.suspend(LinkOutage::Refused);
    commit(&witness, &[create("/t/unheard")]).await;
    link.connect();
    assert_eq!(next(&mut watch).await, Event::Resync);
    assert_eq!(tree.children("/t").await.unwrap(), ["unheard"]);
    commit(&witness, &[create("/t/heard")]).await;
    expect_event_of(&mut watch, "/t/heard").await;
}

async fn lost_session_removes_ephemerals_and_next_number_is_greater(planned: PlannedFaults) {
    let PlannedFaults { tree, link, witness, .. } = planned;
    commit(&tree, &[create("/t"), create("/t/kept"), create_as("/t/e", Mode::Ephemeral)]).await;
    commit(&tree, &[create_as("/t/n", Mode::Numbered)]).await;
    let first = tree.session().borrow().generation;
    link.lose(LinkOutage::Refused).await;
    assert_eq!(tree.session().borrow().link, Link::Lost);
    assert_eq!(witness.children("/t").await.unwrap(), ["kept"]);
    assert_error!(refused(&tree, &[], &[create("/t/a")]).await, NotSent(_));
    link.connect();
    assert!(tree.session().borrow().generation > first);
    commit(&tree, &[create_as("/t/e", Mode::Ephemeral)]).await;
    // A node of this session is not removed together with the session before.
    link.suspend(LinkOutage::Refused);
    link.connect();
    assert_eq!(tree.children("/t").await.unwrap(), ["e", "kept"]);
}

async fn watcher_gets_session_loss_before_later_events(planned: PlannedFaults) {
    let PlannedFaults { tree, link, .. } = planned;
    commit(&tree, &[create("/t"), create_as("/t/e", Mode::Ephemeral)]).await;
    let mut watch = tree.watch_tree("/t").unwrap();
    assert_eq!(next(&mut watch).await, Event::Resync);
    link.lose(LinkOutage::Refused).await;
    assert_eq!(next(&mut watch).await, Event::Lost);
    link.connect();
    assert_eq!(next(&mut watch).await, Event::Resync);
    assert_eq!(tree.children("/t").await.unwrap(), [""; 0]);
    commit(&tree, &[create("/t/a")]).await;
    expect_event_of(&mut watch, "/t/a").await;
}

/// Generates a test for each fact and each implementation behind the faults.
macro_rules! planned {
    ($($fact:ident)+) => {
        planned!(@ embedded $($fact)+);
        planned!(@ zookeeper $($fact)+);
    };
    (@ $implementation:ident $($fact:ident)+) => {
        mod $implementation {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $fact() {
                    let fresh = super::super::$implementation().await;
                    super::$fact(super::PlannedFaults::of(&fresh)).await;
                    fresh.tree.close().await;
                }
            )+
        }
    };
}

planned! {
    unsent_commit_is_absent_and_repeatable
    a_commit_without_an_outcome_is_there_whole_or_not_at_all
    repeated_versioned_commit_reveals_first_outcome
    late_commit_meets_its_fence
    without_a_connection_nothing_is_sent_and_the_session_lasts
    waiting_calls_are_answered_on_reconnection
    watcher_resyncs_after_suspension
    lost_session_removes_ephemerals_and_next_number_is_greater
    watcher_gets_session_loss_before_later_events
}
