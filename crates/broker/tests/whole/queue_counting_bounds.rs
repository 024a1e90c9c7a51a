//! Counting has a bounded rate, and counts all queues of a slot, also those without figures of their own. A page of
//! counts opens none.

use std::time::Instant;

use angarium_broker::QueueFilter;
use angarium_core::limits::Limits;
use angarium_core::names::QueueRef;
use angarium_core::page::PageLimit;
use futures_util::future::join_all;

use super::metrics::value;
use super::queue_counting::{House, gauge, open_queues, post_delayed, sums, until, until_counted};
use super::queue_list::filter;
use super::{MAX_WAIT, Whole, queue};

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_counted_no_faster_than_the_rate() {
    const QUEUES: usize = 2_000;
    let house = House::new();
    let before = house.start().await;
    let queues: Vec<QueueRef> = (0..QUEUES).map(|number| queue(&format!("q{number}"))).collect();
    post_to_each(&before, &queues).await;
    before.broker.stop().await;
    let begun = Instant::now();
    let after = house.start().await;
    let mut seen = Vec::new();
    until("the queues are not counted", async || {
        seen.push(gauge(&after, "angarium_queues_counted").await);
        gauge(&after, "angarium_slots_counted").await == 256.0
    })
    .await;
    let step = angarium_broker::limits::COUNTING_STEP;
    // No pause follows the last step.
    let steps = u32::try_from(QUEUES / angarium_broker::limits::COUNTING_QUEUES).unwrap() - 1;
    assert!(begun.elapsed() >= step * steps, "{:?}", begun.elapsed());
    assert!(begun.elapsed() < MAX_WAIT, "{:?}", begun.elapsed());
    assert!(seen.iter().any(|counted| (1.0..QUEUES as f64).contains(counted)), "no progress: {seen:?}");
    assert_eq!(gauge(&after, "angarium_queues_counted").await, QUEUES as f64);
    assert_eq!(sums(&after).await, [QUEUES as u64, 0, 0, 0]);
}

/// Posts a message to each.
async fn post_to_each(whole: &Whole, queues: &[QueueRef]) {
    for some in queues.chunks(400) {
        join_all(some.iter().map(|at| whole.post(at, 1, 3_600))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_beyond_those_kept_one_by_one_are_in_the_sums() {
    let kept = angarium_broker::limits::SLOT_COUNTED;
    let queues = kept + 120;
    let names = (0..).map(|number| queue(&format!("q{number:08}"))).filter(|at| at.slot().0 == 3);
    let names: Vec<QueueRef> = names.take(queues).collect();
    let house = House::new();
    let before = house.start().await;
    post_to_each(&before, &names).await;
    // The queues behind are counted last: they are in the sum.
    let beyond = &names[kept..];
    for at in &beyond[..5] {
        before.post(at, 2, 60).await;
    }
    assert_eq!(before.claim(&beyond[5], 1, 3_600).await.len(), 1);
    before.broker.stop().await;
    let after = house.start().await;
    // As many names as deep queues: of queues of the same depth those have names that were counted first.
    after.broker.meter().name_queues(5);
    until_counted(&after).await;
    assert_eq!(gauge(&after, "angarium_queues_counted").await, queues as f64);
    let posted = queues as u64;
    assert_eq!(sums(&after).await, [posted + 9, 1, 0, 0]);
    assert_eq!(open_queues(&after), 0);
    // The deepest queues have names, although they were counted last.
    let page = after.broker.metrics_page().await;
    let deep = beyond[..5]
        .iter()
        .map(|at| value(&page, "angarium_messages", &[("queue", at.name.as_str()), ("state", "ready")]));
    assert_eq!(deep.collect::<Vec<_>>(), [3.0; 5]);
    after.post(&beyond[6], 3, 3_600).await;
    assert_eq!(after.claim(&beyond[7], 1, 3_600).await.len(), 1);
    after.broker.queue_delete(&beyond[8]).await.unwrap();
    after.broker.queue_purge(&beyond[9]).await.unwrap();
    after.broker.queue_delete(&names[0]).await.unwrap();
    assert_eq!(sums(&after).await, [posted + 9 + 3 - 1 - 3, 2, 0, 0]);
    house.clock.advance(100_000);
    let left = [posted - 1 - 1, 2, 0, 0];
    until("expired messages are in the sums", async || sums(&after).await == left).await;
    for _ in 0..2 * angarium_broker::limits::IDLE_ROUNDS {
        after.broker.close_idle_round();
    }
    until_counted(&after).await;
    assert_eq!(sums(&after).await, left);
    // It may follow the sums by a moment.
    let counted = posted as f64 - 2.0;
    until("all are counted", async || gauge(&after, "angarium_queues_counted").await == counted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_counts_opens_no_queue() {
    let house = House::new();
    let before = house.start().await;
    let in_slot = |from: &str, is_in: fn(u8) -> bool| {
        let names = (0..).map(|number| queue(&format!("{from}{number}")));
        names.filter(|at| is_in(at.slot().0)).take(200).collect::<Vec<_>>()
    };
    post_to_each(&before, &in_slot("q", |slot| slot < 250)).await;
    let due = in_slot("a", |slot| slot == 255).remove(0);
    post_delayed(&before, &due, 30).await;
    before.broker.stop().await;
    // The reads of the others, which are before it in the line of their pool, are held.
    house.hold.all_but(vec![house.queue_id(&due).await]);
    house.clock.advance(40_000);
    let after = house.start_held().await;
    until("nothing is counted", async || house.hold.held() > 0).await;
    let first = QueueFilter {
        has_counts: true,
        limit: PageLimit::new(Some(1), Limits::ZAQAR.queues_page).unwrap(),
        ..filter()
    };
    let read = async || {
        let page = after.broker.queues_list(&due.project, &first).await.unwrap();
        let counts = page.queues[0].counts.unwrap();
        (counts.ready, counts.delayed)
    };
    assert_eq!(read().await, (0, 1));
    assert_eq!(open_queues(&after), 0, "it is due, and the background opens it");
    house.hold.release();
    until("it is not ready", async || read().await == (1, 0)).await;
}
