//! Tasks over the messages that a filter selects: what each verb does, what stays, and crashes at any point.

use std::collections::BTreeSet;
use std::time::Duration;

use angarium_broker::{MessageSelection, MoveRefusal, SelectionCount};
use angarium_core::delay::Delay;
use angarium_core::error::Error;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::limits::PEEK_ENTRIES;
use angarium_core::message::NewMessage;
use angarium_core::move_task::{MoveFailure, MoveRate, MoveStatus, MoveTask, TaskRequest, TaskVerb};
use angarium_core::names::QueueRef;
use angarium_core::outcome::{EventKind, Keep, Tags};
use angarium_core::settle::{MessageState, Requeue, Retry};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::deadletters::{FOR_EVER, Lives, ONCE, claim_once};
use super::faulty::Fault;
use super::outcomes::faulty;
use super::settle::{entry, fail, hold, settle_one, status};
use super::transfers::until;
use super::{Whole, limit, metadata, queue, terms, whole};
use angarium_testbed::settings;

pub fn tagged(tag: &str) -> NewMessage {
    NewMessage {
        body: format!("{{\"of\":\"{tag}\"}}").into(),
        keep: Some(Keep::stored(3_600)),
        tags: Tags::new(vec![tag.to_owned()], "tags").unwrap(),
        ..NewMessage::default()
    }
}

fn of_states(states: &[MessageState]) -> MessageSelection {
    MessageSelection { states: states.to_vec(), ..MessageSelection::default() }
}

pub fn with_tag(tag: &str, states: &[MessageState]) -> MessageSelection {
    MessageSelection { tag: Some(tag.to_owned()), ..of_states(states) }
}

fn request(verb: TaskVerb, selection: MessageSelection) -> TaskRequest {
    TaskRequest { verb, selection, target: None, rate: None, max: None }
}

fn moving(to: &str, selection: MessageSelection) -> TaskRequest {
    TaskRequest { target: Some(queue(to)), ..request(TaskVerb::Move, selection) }
}

/// Counts the messages that a deletion would change.
pub async fn dry_run(
    whole: &Whole,
    at: &QueueRef,
    selection: MessageSelection,
) -> Result<SelectionCount, Error> {
    let counted = whole.broker.task_dry_run(at, &request(TaskVerb::Delete, selection)).await?;
    Ok(counted.expect("a deletion of an existing queue is not refused"))
}

impl Whole {
    pub async fn post_these(&self, at: &QueueRef, messages: Vec<NewMessage>) -> Vec<MessageId> {
        self.broker.messages_post(at, messages, None).await.unwrap().ids
    }

    pub async fn begin_task(&self, at: &QueueRef, request: TaskRequest) -> Uuid {
        self.broker.task_start(at, request).await.unwrap().unwrap()
    }

    async fn newest_task(&self, at: &QueueRef) -> MoveTask {
        self.broker.move_tasks_list(at).await.unwrap().unwrap().remove(0)
    }

    /// Waits until the newest task of a queue has ended.
    pub async fn ended_task(&self, at: &QueueRef) -> MoveTask {
        until("the task does not end", async || !self.newest_task(at).await.is_active()).await;
        self.newest_task(at).await
    }

    async fn run_task(&self, at: &QueueRef, request: TaskRequest) -> MoveTask {
        self.begin_task(at, request).await;
        self.ended_task(at).await
    }

    /// The ids of at most 20 messages of a queue that a selection accepts.
    async fn ids_of(&self, at: &QueueRef, selection: MessageSelection) -> Vec<MessageId> {
        self.peek(at, selection).await.messages.iter().map(|message| message.view.id).collect()
    }

    /// Posts messages with these tags, each in turn, and fails them for good.
    async fn failed(&self, at: &QueueRef, tags: &[&str]) -> Vec<MessageId> {
        let ids = self.post_these(at, tags.iter().map(|tag| tagged(tag)).collect()).await;
        let (claim, _) = hold(&self.broker, at).await;
        for id in &ids {
            settle_one(&self.broker, at, claim, entry(*id, fail("no space", Retry::Never))).await.unwrap();
        }
        ids
    }
}

fn looked_at(task: &MoveTask) -> u64 {
    task.selected.as_ref().unwrap().looked_at
}

fn skipped(task: &MoveTask) -> u64 {
    task.selected.as_ref().unwrap().skipped
}

#[tokio::test(flavor = "multi_thread")]
async fn requeue_task_frees_selected_failed_messages() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.failed(&q, &["eu", "us", "eu"]).await;
    let task = whole.run_task(&q, request(TaskVerb::Requeue, with_tag("eu", &[MessageState::Failed]))).await;
    assert_eq!((task.status, task.moved, looked_at(&task)), (MoveStatus::Completed, 2, 3));
    assert!(task.ended.is_some());
    assert_eq!(whole.ids_of(&q, of_states(&[MessageState::Ready])).await, [ids[0], ids[2]]);
    assert_eq!(whole.ids_of(&q, of_states(&[MessageState::Failed])).await, [ids[1]]);
    let view = status(&whole.broker, &q, ids[0]).await.unwrap();
    assert_eq!((view.attempts, view.extras.unwrap().reason), (0, None));
    assert_eq!(whole.claim(&q, 20, 300).await, [ids[0], ids[2]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_task_spares_others_and_claimed_ones() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.post_these(&q, ["eu", "us", "eu", "eu"].map(tagged).to_vec()).await;
    assert_eq!(whole.claim(&q, 1, 300).await, ids[..1]);
    let delayed = NewMessage { delay: Some(Delay::Seconds(30)), ..tagged("eu") };
    whole.post_these(&q, vec![delayed]).await;
    let task = whole.run_task(&q, request(TaskVerb::Delete, with_tag("eu", &[]))).await;
    assert_eq!((task.status, task.moved, skipped(&task)), (MoveStatus::Completed, 3, 1));
    assert_eq!(whole.ids_of(&q, MessageSelection::default()).await, ids[..2]);
    assert_eq!(whole.claim(&q, 20, 300).await, ids[1..2]);
    let stats = whole.broker.queue_stats(&q).await.unwrap();
    assert_eq!((stats.claimed, stats.free, stats.kept), (2, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_message_moves_with_its_fields_and_history() {
    let (whole, q) = (whole().await, queue("q"));
    whole.broker.queue_create(&queue("next"), metadata("{}")).await.unwrap();
    let message = NewMessage { group: Some(GroupName::new("g", "group").unwrap()), ..tagged("eu") };
    let id = whole.post_these(&q, vec![message]).await[0];
    let (claim, _) = hold(&whole.broker, &q).await;
    settle_one(&whole.broker, &q, claim, entry(id, fail("no space", Retry::Never))).await.unwrap();
    let task = whole.run_task(&q, moving("next", of_states(&[MessageState::Failed]))).await;
    assert_eq!((task.status, task.moved), (MoveStatus::Completed, 1));
    assert!(whole.ids_of(&q, MessageSelection::default()).await.is_empty());
    let view = status(&whole.broker, &queue("next"), id).await.unwrap();
    assert_eq!((view.state, view.attempts), (MessageState::Ready, 0));
    assert_eq!(view.body, "{\"of\":\"eu\"}");
    assert_eq!(view.group.unwrap().as_str(), "g");
    assert!(view.envelope.is_none_or(|envelope| envelope.source.is_none()), "it is no dead letter");
    let extras = view.extras.unwrap();
    assert_eq!(extras.tags.as_slice(), ["eu"]);
    assert_eq!((extras.reason, extras.by, extras.life), (None, None, None));
    let events: Vec<_> = extras.history.iter().map(|event| event.what).collect();
    assert_eq!(events, [EventKind::Failed, EventKind::Moved]);
    assert_eq!(whole.claim(&queue("next"), 20, 300).await, [id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_return_to_origin_and_others_are_counted() {
    let (whole, _) = Lives::new().whole().await;
    let dead = queue("dead");
    whole.broker.queue_create(&queue("q"), metadata(ONCE)).await.unwrap();
    let ids = whole.post_these(&queue("q"), vec![tagged("eu"), tagged("us")]).await;
    claim_once(&whole, &queue("q")).await;
    assert!(whole.claim(&queue("q"), 20, 300).await.is_empty());
    until("they do not die", async || {
        whole.ids_of(&dead, of_states(&[MessageState::Ready])).await.len() == ids.len()
    })
    .await;
    let own = whole.post_these(&dead, vec![tagged("eu")]).await;
    let request = request(TaskVerb::Move, with_tag("eu", &[MessageState::Ready]));
    let count = whole.broker.task_dry_run(&dead, &request).await.unwrap().unwrap();
    assert_eq!((count.matches, count.looked_at, count.sample.len()), (1, 3, 1));
    assert_eq!(count.failed.into_iter().collect::<Vec<_>>(), [(MoveFailure::NoOrigin, 1)]);
    let task = whole.run_task(&dead, request).await;
    assert_eq!((task.status, task.moved), (MoveStatus::Completed, 1));
    let failed = task.selected.unwrap().failed;
    assert_eq!(failed.into_iter().collect::<Vec<_>>(), [(MoveFailure::NoOrigin, 1)]);
    assert_eq!(whole.ids_of(&dead, MessageSelection::default()).await, [ids[1], own[0]]);
    assert_eq!(whole.claim(&dead, 20, 300).await, [ids[1], own[0]], "both can be claimed");
    assert_eq!(whole.claim(&queue("q"), 20, 300).await, ids[..1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn task_ends_with_messages_from_before_its_begin() {
    let (whole, q) = (whole().await, queue("q"));
    whole.broker.queue_create(&queue("next"), metadata("{}")).await.unwrap();
    whole.post(&q, 30, 3_600).await;
    let rate = Some(MoveRate::new(20, "").unwrap());
    let request = TaskRequest { rate, ..moving("next", of_states(&[MessageState::Ready])) };
    whole.begin_task(&q, request).await;
    let later = whole.post(&q, 5, 3_600).await;
    let task = whole.ended_task(&q).await;
    assert_eq!((task.status, task.moved), (MoveStatus::Completed, 30));
    assert_eq!(whole.ids_of(&q, MessageSelection::default()).await, later);
}

/// A message that fails again while the task runs is not requeued a second time.
#[tokio::test(flavor = "multi_thread")]
async fn requeue_task_ends_while_messages_fail_again() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.failed(&q, &["a", "b", "c", "d"]).await;
    whole.clock.advance(1_000);
    let rate = Some(MoveRate::new(2, "").unwrap());
    let failed = of_states(&[MessageState::Failed]);
    whole.begin_task(&q, TaskRequest { rate, ..request(TaskVerb::Requeue, failed.clone()) }).await;
    whole.clock.advance(1_000);
    until("the task does not end", async || {
        if let Some((view, mut guard)) = whole.broker.claim_create(&q, terms(300), limit(20)).await.unwrap() {
            guard.done();
            for message in view.messages {
                let again = entry(message.id, fail("again", Retry::Never));
                settle_one(&whole.broker, &q, view.id, again).await.unwrap();
            }
        }
        !whole.newest_task(&q).await.is_active()
    })
    .await;
    assert_eq!(whole.newest_task(&q).await.moved, ids.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn task_changes_no_more_than_its_max() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.post(&q, 10, 3_600).await;
    let delete = request(TaskVerb::Delete, of_states(&[MessageState::Ready]));
    let task = whole.run_task(&q, TaskRequest { max: Some(4), ..delete }).await;
    assert_eq!((task.status, task.moved), (MoveStatus::Completed, 4));
    assert_eq!(whole.ids_of(&q, MessageSelection::default()).await, ids[4..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_task_is_refused_until_first_is_cancelled() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.post(&q, 200, 3_600).await;
    let rate = Some(MoveRate::new(1, "").unwrap());
    let delete = request(TaskVerb::Delete, of_states(&[MessageState::Ready]));
    let first = whole.begin_task(&q, TaskRequest { rate, ..delete.clone() }).await;
    let second = whole.broker.task_start(&q, delete.clone()).await.unwrap();
    assert_eq!(second, Err(MoveRefusal::Active));
    until("it does not begin", async || whole.newest_task(&q).await.moved > 0).await;
    assert!(whole.broker.move_task_cancel(&q, first).await.unwrap().is_some());
    let task = whole.ended_task(&q).await;
    assert_eq!(task.status, MoveStatus::Cancelled);
    let stats = whole.broker.queue_stats(&q).await.unwrap();
    assert_eq!(
        stats.free,
        ids.len() as u64 - task.moved,
        "the deleted ones stay deleted, the others are there"
    );
    assert_eq!(whole.run_task(&q, delete).await.moved, stats.free);
}

#[tokio::test(flavor = "multi_thread")]
async fn unfit_targets_are_refused() {
    let (whole, q) = (whole().await, queue("q"));
    let ready = || of_states(&[MessageState::Ready]);
    let refusal = async |at: &QueueRef, to: &str| {
        let task = moving(to, ready());
        let counted = whole.broker.task_dry_run(at, &task).await.unwrap().map(|count| count.matches);
        let refusal = whole.broker.task_start(at, task).await.unwrap().unwrap_err();
        assert_eq!(counted, Err(refusal), "the dry run is refused as the task is");
        refusal
    };
    assert_eq!(refusal(&q, "next").await, MoveRefusal::NoSource);
    whole.post(&q, 1, 60).await;
    assert_eq!(refusal(&q, "q").await, MoveRefusal::Itself);
    assert_eq!(refusal(&q, "next").await, MoveRefusal::NoTarget);
    whole.broker.queue_create(&queue("next.fifo"), metadata("{\"_fifo\": true}")).await.unwrap();
    assert_eq!(refusal(&q, "next.fifo").await, MoveRefusal::OtherKind);
}

#[tokio::test(flavor = "multi_thread")]
async fn filter_without_match_reads_queue_once_and_completes() {
    let (whole, q) = (whole().await, queue("q"));
    let ids = whole.post(&q, 600, 3_600).await;
    let task = whole.run_task(&q, request(TaskVerb::Delete, with_tag("absent", &[]))).await;
    assert_eq!((task.status, task.moved, looked_at(&task)), (MoveStatus::Completed, 0, 600));
    assert_eq!(whole.broker.queue_stats(&q).await.unwrap().free, ids.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn few_of_many_messages_are_found_in_bounded_steps() {
    let (whole, q) = (whole().await, queue("q"));
    let mut wanted = Vec::new();
    for _ in 0..10 {
        whole.post(&q, PEEK_ENTRIES / 5, 3_600).await;
        wanted.extend(whole.post_these(&q, vec![tagged("eu")]).await);
    }
    let all = 10 * (PEEK_ENTRIES as u64 / 5 + 1);
    let selection = with_tag("eu", &[MessageState::Ready]);
    let count = dry_run(&whole, &q, selection.clone()).await.unwrap();
    let sample: Vec<_> = count.sample.iter().map(|message| message.view.id).collect();
    // A busy machine may not read all of it in the time of a dry run.
    if count.is_whole {
        assert_eq!((count.matches, count.looked_at), (10, all));
    } else {
        assert!(count.looked_at < all, "{count:?}");
    }
    assert_eq!(sample, wanted[..usize::try_from(count.matches).unwrap()]);
    let before = whole.broker.queue_stats(&q).await.unwrap();
    whole.begin_task(&q, request(TaskVerb::Delete, selection.clone())).await;
    let mut steps = BTreeSet::new();
    until("the task does not end", async || {
        let task = whole.newest_task(&q).await;
        steps.insert(looked_at(&task));
        !task.is_active()
    })
    .await;
    let task = whole.newest_task(&q).await;
    assert_eq!((task.moved, looked_at(&task)), (10, all));
    assert!(steps.len() > 1, "its position was kept on the way: {steps:?}");
    assert!(whole.ids_of(&q, selection).await.is_empty());
    assert_eq!(whole.broker.queue_stats(&q).await.unwrap().free, before.free - 10);
}

/// The transfer is in progress when its target is deleted: no queue is made again, and the messages stay as they were.
#[tokio::test(flavor = "multi_thread")]
async fn target_deleted_in_the_middle_is_not_made_again() {
    for state in [MessageState::Ready, MessageState::Failed] {
        let faulty = faulty().await;
        let (whole, q, next) = (&faulty.whole, queue("q"), queue("next"));
        whole.broker.queue_create(&next, metadata("{}")).await.unwrap();
        let ids = match state {
            MessageState::Failed => whole.failed(&q, &["eu", "us"]).await,
            _ => whole.post_these(&q, vec![tagged("eu"), tagged("us")]).await,
        };
        faulty.pool.next(&[Fault::NotSent; 1_000]);
        faulty.pool.skip(1);
        whole.begin_task(&q, moving("next", of_states(&[state]))).await;
        let in_transfer = of_states(&[MessageState::InTransfer]);
        until("they do not leave", async || whole.ids_of(&q, in_transfer.clone()).await == ids).await;
        whole.broker.queue_delete(&next).await.unwrap();
        faulty.pool.clear();
        let task = whole.ended_task(&q).await;
        assert_eq!((task.status, task.moved), (MoveStatus::Failed(MoveFailure::NoTarget), 0), "{state:?}");
        let failed = task.selected.unwrap().failed;
        assert_eq!(failed.into_iter().collect::<Vec<_>>(), [(MoveFailure::NoTarget, 2)]);
        assert!(whole.broker.queue_metadata(&next).await.unwrap().is_none(), "{state:?}");
        assert_eq!(whole.ids_of(&q, of_states(&[state])).await, ids);
        if state == MessageState::Ready {
            assert_eq!(whole.claim(&q, 20, 300).await, ids);
        } else {
            let view = status(&whole.broker, &q, ids[0]).await.unwrap();
            assert_eq!(view.extras.unwrap().reason.unwrap().as_str(), "no space");
        }
    }
}

/// Also the whole-queue task of SQS makes no deleted target again.
#[tokio::test(flavor = "multi_thread")]
async fn task_without_filter_makes_no_target_again() {
    let faulty = faulty().await;
    let (whole, q, next) = (&faulty.whole, queue("dead"), queue("next"));
    whole.broker.queue_create(&queue("q"), metadata(ONCE)).await.unwrap();
    whole.broker.queue_create(&next, metadata("{}")).await.unwrap();
    let ids = whole.post(&q, 3, 3_600).await;
    faulty.pool.next(&[Fault::NotSent; 1_000]);
    faulty.pool.skip(1);
    whole.broker.move_task_start(&q, Some(next.clone()), None).await.unwrap().unwrap();
    let in_transfer = of_states(&[MessageState::InTransfer]);
    until("they do not leave", async || whole.ids_of(&q, in_transfer.clone()).await == ids).await;
    whole.broker.queue_delete(&next).await.unwrap();
    faulty.pool.clear();
    let task = whole.ended_task(&q).await;
    assert_eq!((task.status, task.moved), (MoveStatus::Failed(MoveFailure::NoTarget), 0));
    assert!(whole.broker.queue_metadata(&next).await.unwrap().is_none());
    assert_eq!(whole.claim(&q, 20, 300).await, ids);
}

/// The request that changes the message fails long after the task has met it.
#[tokio::test(flavor = "multi_thread")]
async fn task_waits_for_a_change_in_progress() {
    let faulty = faulty().await;
    let (whole, q) = (&faulty.whole, queue("q"));
    let ids = whole.failed(&q, &["eu"]).await;
    // The batch is sent again, as often as a slot does.
    let again = [Fault::NotSent; 5];
    faulty.pool.next(&[Fault::HeldAndLost]);
    faulty.pool.next(&again);
    let (broker, at, id) = (whole.broker.clone(), q.clone(), ids[0]);
    let mut change = JoinSet::new();
    change.spawn(async move { broker.message_requeue(&at, id, Requeue::Never).await });
    until("nothing is written", async || faulty.pool.left() == again.len()).await;
    whole.begin_task(&q, request(TaskVerb::Requeue, of_states(&[MessageState::Failed]))).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(whole.newest_task(&q).await.is_active(), "it has not requeued the message");
    faulty.pool.release();
    change.join_next().await.unwrap().unwrap().unwrap_err();
    let task = whole.ended_task(&q).await;
    assert_eq!((task.status, task.moved, skipped(&task)), (MoveStatus::Completed, 1, 0));
    assert_eq!(looked_at(&task), 1);
    assert_eq!(whole.claim(&q, 20, 300).await, ids);
}

/// A step that is repeated because of one message counts the others once.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_step_counts_staying_messages_once() {
    let faulty = faulty().await;
    let (whole, q) = (&faulty.whole, queue("q"));
    let ids = whole.failed(&q, &["eu", "eu"]).await;
    let again = [Fault::NotSent; 5];
    faulty.pool.next(&[Fault::HeldAndLost]);
    faulty.pool.next(&again);
    let (broker, at, id) = (whole.broker.clone(), q.clone(), ids[0]);
    let mut change = JoinSet::new();
    change.spawn(async move { broker.message_requeue(&at, id, Requeue::Never).await });
    until("nothing is written", async || faulty.pool.left() == again.len()).await;
    // They are no dead letters, so they have no origin.
    whole.begin_task(&q, request(TaskVerb::Move, of_states(&[MessageState::Failed]))).await;
    tokio::time::sleep(Duration::from_millis(900)).await;
    faulty.pool.release();
    change.join_next().await.unwrap().unwrap().unwrap_err();
    let task = whole.ended_task(&q).await;
    assert_eq!((task.status, task.moved, skipped(&task), looked_at(&task)), (MoveStatus::Completed, 0, 0, 2));
    assert_eq!(task.selected.unwrap().failed.into_values().collect::<Vec<_>>(), [2]);
}

/// A process ends at any point of a task; the next one finishes it. No message is changed twice, none that the filter
/// leaves out, and no more than the max.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_task_with_filter_is_continued() {
    let mut dice = StdRng::seed_from_u64(settings::seed("filtered tasks"));
    for _ in 0..settings::number("ANGARIUM_TASK_HISTORIES", 8) {
        for verb in TaskVerb::ALL {
            let (lives, q, next) = (Lives::new(), queue("q"), queue("next"));
            let (first, plan) = lives.whole().await;
            first.broker.queue_create(&next, metadata("{}")).await.unwrap();
            first.failed(&q, &["eu"; 8]).await;
            first.failed(&q, &["us"; 4]).await;
            let max = dice.random_bool(0.5).then_some(6);
            let rate = Some(MoveRate::new(dice.random_range(1..5) * 100, "").unwrap());
            let target = (verb == TaskVerb::Move).then(|| next.clone());
            let selection = with_tag("eu", &[MessageState::Failed]);
            plan.next(&vec![Fault::NotSent; FOR_EVER]);
            plan.skip(dice.random_range(0..7));
            first.begin_task(&q, TaskRequest { verb, selection, target, rate, max }).await;
            tokio::time::sleep(Duration::from_millis(dice.random_range(0..60))).await;
            first.broker.stop().await;
            let (second, _) = lives.whole().await;
            let task = second.ended_task(&q).await;
            assert_eq!(task.status, MoveStatus::Completed, "{verb:?}");
            let eu = async |at: &QueueRef, state| second.ids_of(at, with_tag("eu", &[state])).await.len();
            let (mut left, mut changed) = (0, 0);
            // A message whose target was interrupted in the last step arrives when that queue is next looked at.
            until("some are lost", async || {
                left = eu(&q, MessageState::Failed).await;
                changed = match verb {
                    TaskVerb::Move => eu(&next, MessageState::Ready).await,
                    TaskVerb::Requeue => eu(&q, MessageState::Ready).await,
                    TaskVerb::Delete => 8 - left,
                };
                left + changed == 8
            })
            .await;
            let most = max.map_or(8, |max| usize::try_from(max).unwrap());
            assert!(
                changed <= most && task.moved <= changed as u64,
                "{verb:?}: {changed} of {most}, {task:?}"
            );
            assert!(max.is_some() || changed == 8, "{verb:?}: {changed}");
            assert_eq!(second.ids_of(&q, with_tag("us", &[MessageState::Failed])).await.len(), 4);
        }
    }
}
