//! Tasks of a slot at its next owner: a queue that cannot be opened stops no task of another queue.

use angarium_core::move_task::{MoveStatus, TaskRequest, TaskVerb};

use super::deadletters::FOR_EVER;
use super::faulty::Fault;
use super::hanging::{Pools, neighbours};
use super::tasks::{tagged, with_tag};

/// The tree lists the tasks of a slot by the ids of their queues, which are random: so each of two queues is the
/// unreadable one in its turn, and in one of the two cases its task is the first.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_queue_stops_no_other_task_of_its_slot() {
    for unreadable in 0..2 {
        let pools = Pools::new();
        let (one, other) = neighbours();
        let (queues, mut ids) = ([one, other], Vec::new());
        let first = pools.start().await;
        for at in &queues {
            first.post_these(at, vec![tagged("eu"); 3]).await;
            ids.push(pools.stores[0].given().last().unwrap().queues[0].queue);
        }
        assert_ne!(ids[0], ids[1]);
        // Both tasks are active at the end of this owner.
        pools.plan_of_a.next(&vec![Fault::NotSent; FOR_EVER]);
        for at in &queues {
            let (verb, selection) = (TaskVerb::Delete, with_tag("eu", &[]));
            let deletion = TaskRequest { verb, selection, target: None, rate: None, max: None };
            first.begin_task(at, deletion).await;
        }
        first.broker.stop().await;
        drop(first);
        pools.plan_of_a.clear();
        *pools.stores[0].totals_of.lock() = Some(ids[unreadable]);
        pools.stores[0].totals.next(&vec![Fault::NotSent; FOR_EVER]);
        let second = pools.start().await;
        let task = second.ended_task(&queues[1 - unreadable]).await;
        assert_eq!((task.status, task.moved), (MoveStatus::Completed, 3), "{unreadable}");
        assert!(second.broker.queue_stats(&queues[unreadable]).await.is_err(), "it can be opened");
        second.broker.stop().await;
    }
}
