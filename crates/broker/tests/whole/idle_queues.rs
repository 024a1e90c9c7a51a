//! Unused queues are closed, and open again without any difference.

use std::time::Instant;

use angarium_core::delay::Delay;
use angarium_core::message::NewMessage;

use super::{MAX_WAIT, queue, whole};

/// Runs the rounds after which every unused queue is closed. Returns how many were.
fn rounds(whole: &super::Whole) -> usize {
    (0..angarium_broker::limits::IDLE_ROUNDS).map(|_| whole.broker.close_idle_round().0).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_queues_are_closed_and_open_again_whole() {
    let whole = whole().await;
    let mut posted = Vec::new();
    for number in 0..300 {
        posted.push(whole.post(&queue(&format!("idle-{number}")), 2, 3_600).await);
    }
    assert_eq!(whole.broker.close_idle_round(), (0, 300));
    // On a busy machine the end of a post may come after the first round, which counts as a use.
    let begun = Instant::now();
    while whole.broker.close_idle_round() != (0, 0) {
        assert!(begun.elapsed() < MAX_WAIT, "a queue stays open");
        tokio::task::yield_now().await;
    }
    let stats = whole.broker.queue_stats(&queue("idle-7")).await.unwrap();
    assert_eq!((stats.free, stats.claimed), (2, 0));
    for (number, ids) in (0..).zip(posted) {
        let at = queue(&format!("idle-{number}"));
        assert_eq!(whole.claim(&at, 5, 60).await, ids, "{number}");
        let more = whole.post(&at, 1, 3_600).await;
        assert!(more[0] > ids[1], "ids grow");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_with_a_claim_or_a_waiter_or_a_delay_stays_open() {
    let whole = whole().await;
    let ids = whole.post(&queue("claimed"), 1, 3_600).await;
    assert_eq!(whole.claim(&queue("claimed"), 1, 60).await, ids);
    let delay = Delay::Seconds(60);
    let delayed = NewMessage { body: "1".into(), delay: Some(delay), ..NewMessage::default() };
    whole.broker.messages_post(&queue("delayed"), vec![delayed], None).await.unwrap();
    assert_eq!(rounds(&whole), 0);
    assert_eq!(whole.broker.close_idle_round(), (0, 2));
    // The claim expires at its time, which opens no queue and loses no message.
    whole.clock.advance(60_000);
    assert_eq!(whole.claim_soon(&queue("claimed"), 1).await, ids);
    assert_eq!(whole.claim_soon(&queue("delayed"), 1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_in_use_is_not_closed() {
    let whole = whole().await;
    whole.post(&queue("used"), 1, 3_600).await;
    for _ in 0..3 * angarium_broker::limits::IDLE_ROUNDS {
        assert_eq!(whole.broker.close_idle_round(), (0, 1));
        whole.broker.queue_stats(&queue("used")).await.unwrap();
    }
    assert!(rounds(&whole) == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_queues_stay_on_the_page_of_metrics() {
    let whole = whole().await;
    whole.post(&queue("kept"), 3, 3_600).await;
    let line = |page: &str| {
        let is_ready = |line: &&str| {
            line.starts_with("angarium_messages{") && line.contains("kept") && line.contains("ready")
        };
        page.lines().find(is_ready).map(ToOwned::to_owned)
    };
    let before = line(&whole.broker.metrics_page().await).expect("it is on the page");
    assert_eq!(rounds(&whole), 1);
    assert_eq!(line(&whole.broker.metrics_page().await), Some(before));
    whole.broker.queue_delete(&queue("kept")).await.unwrap();
    let page = whole.broker.metrics_page().await;
    assert_eq!(line(&page), None, "{page}");
}
