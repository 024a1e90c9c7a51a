//! Tasks that move dead letters back: with a crash at any point, each message arrives once, and the task ends.

use std::collections::BTreeSet;
use std::time::Duration;

use angarium_broker::MoveRefusal;
use angarium_core::ids::MessageId;
use angarium_core::move_task::{MoveRate, MoveStatus, MoveTask};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::deadletters::{FOR_EVER, Lives, ONCE, claim_once};
use super::faulty::Fault;
use super::transfers::until;
use super::{Whole, limit, metadata, queue, terms};
use angarium_testbed::settings;

/// Creates a queue whose messages are all dead letters.
async fn dead_letters(whole: &Whole, count: usize) -> BTreeSet<MessageId> {
    whole.broker.queue_create(&queue("q"), metadata(ONCE)).await.unwrap();
    let mut ids = BTreeSet::new();
    for some in (0..count).step_by(20) {
        ids.extend(whole.post(&queue("q"), (count - some).min(20), 3_600).await);
        claim_once(whole, &queue("q")).await;
        assert!(whole.claim(&queue("q"), 20, 300).await.is_empty());
    }
    // Messages that are only prepared there cannot be moved on yet.
    let ready = async || whole.broker.queue_describe(&queue("dead")).await.ok()?.map(|dead| dead.ready);
    until("they do not die", async || ready().await == Some(ids.len() as u64)).await;
    ids
}

async fn free(whole: &Whole, name: &str) -> u64 {
    whole.broker.queue_stats(&queue(name)).await.map_or(u64::MAX, |stats| stats.free)
}

async fn newest(whole: &Whole) -> Option<MoveTask> {
    whole.broker.move_tasks_list(&queue("dead")).await.unwrap().unwrap().into_iter().next()
}

/// Waits until the task ends without a request, and checks that each message is in `q` once and nowhere else. What an
/// interrupted process has removed from its source arrives a moment after the end of the task.
async fn check_moved(whole: &Whole, ids: &BTreeSet<MessageId>, ends: MoveStatus) {
    until("the task does not end", async || newest(whole).await.is_some_and(|task| task.status == ends))
        .await;
    let all = ids.len() as u64;
    until("they are elsewhere", async || (free(whole, "dead").await, free(whole, "q").await) == (0, all))
        .await;
    let mut found = BTreeSet::new();
    until("some are lost", async || {
        let claim = whole.broker.claim_create(&queue("q"), terms(300), limit(20)).await.unwrap();
        let Some((view, mut delivery_guard)) = claim else { return found.len() == ids.len() };
        delivery_guard.done();
        for message in view.messages {
            assert!(found.insert(message.id), "it is there twice");
            assert_eq!((message.attempts, message.age), (1, 0), "it begins anew");
        }
        false
    })
    .await;
    assert_eq!(&found, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_task_is_continued_by_next_process() {
    let mut dice = StdRng::seed_from_u64(settings::seed("move tasks"));
    for _ in 0..settings::number("ANGARIUM_TASK_HISTORIES", 8) {
        let lives = Lives::new();
        let (first, plan) = lives.whole().await;
        let ids = dead_letters(&first, 40).await;
        let rate = dice.random_bool(0.5).then(|| MoveRate::new(500, "").unwrap());
        plan.next(&vec![Fault::NotSent; FOR_EVER]);
        plan.skip(dice.random_range(0..9));
        first.broker.move_task_start(&queue("dead"), None, rate).await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_millis(dice.random_range(0..60))).await;
        first.broker.stop().await;
        let (second, _) = lives.whole().await;
        check_moved(&second, &ids, MoveStatus::Completed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_task_is_stopped_by_next_process() {
    let lives = Lives::new();
    let (first, plan) = lives.whole().await;
    let ids = dead_letters(&first, 3).await;
    plan.next(&vec![Fault::NotSent; FOR_EVER]);
    let rate = Some(MoveRate::new(1, "").unwrap());
    let id = first.broker.move_task_start(&queue("dead"), None, rate).await.unwrap().unwrap();
    assert_eq!(first.broker.move_task_cancel(&queue("dead"), id).await.unwrap(), Some(0));
    first.broker.stop().await;
    let (second, _) = lives.whole().await;
    until("it is not stopped", async || {
        newest(&second).await.is_some_and(|task| task.status == MoveStatus::Cancelled)
    })
    .await;
    assert_eq!(second.broker.move_task_cancel(&queue("dead"), id).await.unwrap(), None);
    let left = free(&second, "dead").await + free(&second, "q").await;
    assert_eq!(left, ids.len() as u64, "what was not moved stays");
}

/// After a day and a half the remaining messages of a slow task stay, also if another process runs the task.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_stopped_after_a_day_and_a_half() {
    let lives = Lives::new();
    let (first, _) = lives.whole().await;
    let at = queue("dead");
    first.broker.queue_create(&queue("q"), metadata(ONCE)).await.unwrap();
    first.broker.queue_create(&at, metadata("{}")).await.unwrap();
    first.post(&at, 200, 1_000_000).await;
    let rate = Some(MoveRate::new(1, "").unwrap());
    let target = Some(queue("q"));
    first.broker.move_task_start(&at, target, rate).await.unwrap().unwrap();
    first.clock.advance(35 * 3_600_000);
    let before = newest(&first).await.unwrap().moved;
    until("it does not continue", async || newest(&first).await.unwrap().moved > before).await;
    assert_eq!(newest(&first).await.unwrap().status, MoveStatus::Running);
    first.broker.stop().await;
    let (second, _) = lives.whole().await;
    second.clock.advance(3_600_000);
    until("it is not stopped", async || {
        newest(&second).await.is_some_and(|task| task.status == MoveStatus::Cancelled)
    })
    .await;
    let stopped = newest(&second).await.unwrap();
    assert!(stopped.moved >= 1 && stopped.moved < stopped.to_move, "{stopped:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_has_a_hundred_active_tasks_at_most() {
    let lives = Lives::new();
    let (whole, _) = lives.whole().await;
    whole.broker.queue_create(&queue("target"), metadata("{}")).await.unwrap();
    let start = async |number: usize| {
        let name = format!("dead-{number}");
        let source = metadata(&format!(r#"{{"_dead_letter_queue": "{name}", "_max_claim_count": 1}}"#));
        whole.broker.queue_create(&queue(&format!("q-{number}")), source).await.unwrap();
        whole.broker.queue_create(&queue(&name), metadata("{}")).await.unwrap();
        // More than the tasks before the last one move until it is refused, also on a busy machine.
        whole.post(&queue(&name), 300, 1_000_000).await;
        let rate = Some(MoveRate::new(1, "").unwrap());
        whole.broker.move_task_start(&queue(&name), Some(queue("target")), rate).await.unwrap()
    };
    let mut first = None;
    for number in 0..100 {
        let id = start(number).await.unwrap();
        first.get_or_insert(id);
    }
    assert_eq!(start(100).await, Err(MoveRefusal::TooMany));
    let (at, id) = (queue("dead-0"), first.unwrap());
    assert!(whole.broker.move_task_cancel(&at, id).await.unwrap().is_some());
    until("it is not stopped", async || {
        let tasks = whole.broker.move_tasks_list(&at).await.unwrap().unwrap();
        tasks.first().is_some_and(|task| task.status == MoveStatus::Cancelled)
    })
    .await;
    start(101).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tasks_of_a_queue_go_with_it() {
    let lives = Lives::new();
    let (whole, _) = lives.whole().await;
    dead_letters(&whole, 2).await;
    whole.broker.move_task_start(&queue("dead"), None, None).await.unwrap().unwrap();
    until("it does not end", async || newest(&whole).await.is_some_and(|task| !task.is_active())).await;
    whole.broker.queue_delete(&queue("dead")).await.unwrap();
    assert!(whole.broker.move_tasks_list(&queue("dead")).await.unwrap().is_none());
    whole.broker.queue_create(&queue("dead"), metadata("{}")).await.unwrap();
    assert_eq!(newest(&whole).await, None);
}

/// A task does not move a message again that became a dead letter again meanwhile: the task would never end.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_moves_no_more_than_there_was_when_it_began() {
    let lives = Lives::new();
    let (whole, _) = lives.whole().await;
    let ids = dead_letters(&whole, 5).await;
    let rate = Some(MoveRate::new(50, "").unwrap());
    whole.broker.move_task_start(&queue("dead"), None, rate).await.unwrap().unwrap();
    until("it does not end", async || {
        attempt(&whole).await;
        newest(&whole).await.is_some_and(|task| task.status == MoveStatus::Completed)
    })
    .await;
    let task = newest(&whole).await.unwrap();
    assert_eq!((task.moved, task.to_move), (5, 5));
    until("they do not settle", async || {
        attempt(&whole).await;
        free(&whole, "dead").await + free(&whole, "q").await == ids.len() as u64
    })
    .await;
}

/// Claims the messages of `q` and releases them: after the second time each message is a dead letter.
async fn attempt(whole: &Whole) {
    let claim = whole.broker.claim_create(&queue("q"), terms(300), limit(20)).await;
    if let Ok(Some((view, mut delivery_guard))) = claim {
        delivery_guard.done();
        whole.broker.claim_release(&queue("q"), view.id).await.unwrap();
    }
}
