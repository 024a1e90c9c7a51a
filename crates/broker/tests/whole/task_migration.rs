//! Tasks with a filter in a queue that migrates to another pool meanwhile, and crashes at any point of both.

use std::collections::BTreeSet;
use std::time::Duration;

use angarium_broker::Destination;
use angarium_core::ids::MessageId;
use angarium_core::move_task::{MoveRate, MoveStatus, TaskRequest, TaskVerb};
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::settle::{MessageState, Retry};
use futures_util::future::join_all;

use super::deadletters::FOR_EVER;
use super::faulty::{Fault, Plan};
use super::migration::{Pools, to};
use super::settle::{entry, fail, settle_one, status};
use super::tasks::{tagged, with_tag};
use super::transfers::until;
use super::{Whole, limit, metadata, queue, terms};

/// Messages with each of the two tags.
const OF_EACH: usize = 120;

/// A queue with messages of two tags, and the task that changes those of one.
struct Redrive {
    pools: Pools,
    at: QueueRef,
    target: QueueRef,
    verb: TaskVerb,
    selected: BTreeSet<MessageId>,
    others: BTreeSet<MessageId>,
}

impl Redrive {
    async fn begin(verb: TaskVerb) -> (Self, Whole, Plan) {
        let pools = Pools::new();
        let (whole, plan) = pools.start().await;
        let (at, target) = (queue("q"), queue("target"));
        whole.broker.queue_create(&target, metadata("{}")).await.unwrap();
        let (mut selected, mut others) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..OF_EACH / 10 {
            let messages = (0..20).map(|number| tagged(if number % 2 == 0 { "eu" } else { "us" }));
            let ids = whole.post_these(&at, messages.collect()).await;
            for (number, id) in ids.into_iter().enumerate() {
                if number % 2 == 0 { &mut selected } else { &mut others }.insert(id);
            }
        }
        if verb == TaskVerb::Requeue {
            whole.fail_all(&at).await;
        }
        (Self { pools, at, target, verb, selected, others }, whole, plan)
    }

    fn request(&self) -> TaskRequest {
        let state = match self.verb {
            TaskVerb::Requeue => MessageState::Failed,
            TaskVerb::Move | TaskVerb::Delete => MessageState::Ready,
        };
        let target = (self.verb == TaskVerb::Move).then(|| self.target.clone());
        let rate = Some(MoveRate::new(400, "").unwrap());
        TaskRequest { verb: self.verb, selection: with_tag("eu", &[state]), target, rate, max: None }
    }

    /// Waits for the ends of task and migration. Each message must be where the task leaves it, once.
    async fn end(&self, whole: &Whole, pool: usize, case: &str) {
        let task = whole.ended_task(&self.at).await;
        assert_eq!(task.status, MoveStatus::Completed, "{case}");
        whole.arrived(&self.at).await;
        let (mut held, all) = ([0, 0], 2 * OF_EACH as u64);
        held[pool] = if self.verb == TaskVerb::Requeue { all } else { all / 2 };
        // What an interrupted owner had in transfer leaves a moment after the end of the task.
        until(case, async || self.pools.held(&self.at).await == held).await;
        let claimed = whole.drain(&self.at).await;
        let ready: BTreeSet<MessageId> = claimed.iter().copied().collect();
        assert_eq!(claimed.len(), ready.len(), "one is there twice: {case}");
        match self.verb {
            TaskVerb::Requeue => {
                assert_eq!(ready, self.selected, "{case}");
                for id in &self.others {
                    let seen = status(&whole.broker, &self.at, *id).await.unwrap();
                    assert_eq!(seen.state, MessageState::Failed, "{case}");
                }
            }
            TaskVerb::Delete | TaskVerb::Move => assert_eq!(ready, self.others, "{case}"),
        }
        let expected = if self.verb == TaskVerb::Move { OF_EACH } else { 0 };
        let mut arrived = 0;
        until(case, async || {
            arrived += whole.drain(&self.target).await.len();
            arrived >= expected
        })
        .await;
        assert_eq!(arrived, expected, "{case}");
    }
}

impl Whole {
    async fn fail_all(&self, at: &QueueRef) {
        while let Some((view, mut guard)) = self.broker.claim_create(at, terms(300), limit(20)).await.unwrap()
        {
            guard.done();
            for message in view.messages {
                let failed = entry(message.id, fail("no space", Retry::Never));
                settle_one(&self.broker, at, view.id, failed).await.unwrap();
            }
        }
    }
}

/// A migration that lasts about half as long as the task.
fn slowly(pool: &str) -> Destination {
    Destination::new(PoolName::new(pool).unwrap(), Some(1_000)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn task_beside_a_migration_changes_each_selected_message_once() {
    for verb in TaskVerb::ALL {
        for is_task_first in [true, false] {
            let (redrive, whole, _) = Redrive::begin(verb).await;
            if is_task_first {
                whole.begin_task(&redrive.at, redrive.request()).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            whole.broker.queue_migrate(&redrive.at, slowly("b")).await.unwrap();
            if !is_task_first {
                tokio::time::sleep(Duration::from_millis(100)).await;
                whole.begin_task(&redrive.at, redrive.request()).await;
            }
            redrive.end(&whole, 1, &format!("{verb:?}, task first: {is_task_first}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn task_beside_canceled_migration_changes_each_message_once() {
    for verb in TaskVerb::ALL {
        let (redrive, whole, _) = Redrive::begin(verb).await;
        // It has not ended when it is canceled, however busy the machine is.
        let slow = Destination::new(PoolName::new("b").unwrap(), Some(20)).unwrap();
        whole.broker.queue_migrate(&redrive.at, slow).await.unwrap();
        whole.begin_task(&redrive.at, redrive.request()).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
        whole.broker.migration_cancel(&redrive.at).await.unwrap();
        redrive.end(&whole, 0, &format!("{verb:?}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn task_and_migration_interrupted_together_are_both_continued() {
    for verb in TaskVerb::ALL {
        join_all((0..10).map(|batches| cut_short(verb, batches))).await;
    }
}

async fn cut_short(verb: TaskVerb, batches: usize) {
    let (redrive, whole, plan) = Redrive::begin(verb).await;
    whole.broker.queue_migrate(&redrive.at, to("b")).await.unwrap();
    whole.begin_task(&redrive.at, redrive.request()).await;
    plan.next(&vec![Fault::NotSent; FOR_EVER]);
    plan.skip(batches);
    tokio::time::sleep(Duration::from_millis(300)).await;
    whole.broker.stop().await;
    let (whole, _) = redrive.pools.start().await;
    redrive.end(&whole, 1, &format!("{verb:?} {batches}")).await;
}
