//! Queues that nobody uses are closed, and open again as if they never were; the budgets of memory are those that are written down.

use std::time::Duration;

use angarium::domain::delay::Delay;
use angarium::domain::limits;
use angarium::domain::message::NewMessage;

use super::{queue, whole};

/// Rounds after which whatever nobody uses was closed.
fn rounds(whole: &super::Whole) -> usize {
    (0..limits::REST_ROUNDS).map(|_| whole.broker.rest_round().0).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_queues_are_closed_and_open_again_whole() {
    let whole = whole().await;
    let mut posted = Vec::new();
    for number in 0..300 {
        posted.push(whole.post(&queue(&format!("idle-{number}")), 2, 3_600).await);
    }
    assert_eq!(whole.broker.rest_round(), (0, 300));
    assert_eq!(rounds(&whole), 300);
    assert_eq!(whole.broker.rest_round(), (0, 0));
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
    assert_eq!(whole.broker.rest_round(), (0, 2));
    // The claim ends at its time, which opens nothing and loses nothing.
    whole.clock.advance(60_000);
    assert_eq!(whole.claim_soon(&queue("claimed"), 1).await, ids);
    assert_eq!(whole.claim_soon(&queue("delayed"), 1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_in_use_is_not_closed() {
    let whole = whole().await;
    whole.post(&queue("used"), 1, 3_600).await;
    for _ in 0..3 * limits::REST_ROUNDS {
        assert_eq!(whole.broker.rest_round(), (0, 1));
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

#[test]
fn budgets_of_memory_are_as_written_down() {
    let page = include_str!("../../ARCHITECTURE.md");
    let table = page.split("## Budgets of memory").nth(1).expect("the section is there");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let budgets = [
        ("WINDOWS_BYTES", limits::WINDOWS_BYTES),
        ("WINDOW_BYTES", limits::WINDOW_BYTES),
        ("WINDOW_MESSAGES", limits::WINDOW_MESSAGES),
        ("AHEAD_MESSAGES", limits::AHEAD_MESSAGES),
        ("GROUPS_KNOWN", limits::GROUPS_KNOWN),
        ("FREED_GROUPS", limits::FREED_GROUPS),
        ("NOISY_KNOWN", limits::NOISY_KNOWN),
        ("DEDUP_KNOWN", limits::DEDUP_KNOWN),
        ("DEDUP_KNOWN_ALL", limits::DEDUP_KNOWN_ALL),
        ("ASIDE_KNOWN", limits::ASIDE_KNOWN),
        ("LANE_MESSAGES", limits::LANE_MESSAGES),
        ("LANE_BYTES", limits::LANE_BYTES),
        ("SLOT_CLAIMS", limits::SLOT_CLAIMS),
        ("QUEUE_WAITERS", limits::QUEUE_WAITERS),
        ("SLOT_WAITERS", limits::SLOT_WAITERS),
        ("NAMED_QUEUES_MOST", limits::NAMED_QUEUES_MOST),
        ("COUNTED_PROJECTS", limits::COUNTED_PROJECTS),
        ("RATED_PROJECTS", limits::RATED_PROJECTS),
        ("TREE_QUEUE", limits::TREE_QUEUE),
        ("TREE_READS", limits::TREE_READS),
        ("JOURNAL_QUEUE", limits::JOURNAL_QUEUE),
        ("REST_ROUNDS", usize::from(limits::REST_ROUNDS)),
    ];
    let written: Vec<(String, String)> =
        rows.iter().map(|row| (row[0].replace('`', ""), row[1].replace(',', ""))).collect();
    let real: Vec<(String, String)> =
        budgets.iter().map(|(name, most)| ((*name).to_owned(), most.to_string())).collect();
    assert_eq!(written, real);
    assert_eq!(limits::REST_TICK, Duration::from_secs(60));
}
