//! The metrics count every event exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use angarium_broker::{Broker, ClaimView};
use angarium_catalogue::Catalogue;
use angarium_clock::Clock;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::claim::{ClaimWait, Claimer, Holdings};
use angarium_core::limits::Limits;
use angarium_core::names::QueueRef;
use angarium_core::page::PopCount;
use angarium_journal::Journal;
use angarium_storage::embedded::EmbeddedPool;

use super::counting::CountingPool;
use super::{MAX_WAIT, Whole, limit, metadata, one_pool, queue, replica, start, terms, whole};

/// Returns the value of the line with this name and these labels; zero when there is none.
pub fn value(page: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |line: &&str| {
        let (found, rest) = line.split_once(['{', ' ']).unwrap_or_default();
        found == name && labels.iter().all(|(key, value)| rest.contains(&format!("{key}=\"{value}\"")))
    };
    let lines: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).filter(has).collect();
    assert!(lines.len() <= 1, "{name}: {lines:?}");
    lines.first().map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// The counters of a queue, in the order in which they are named here.
async fn counters(whole: &Whole, name: &str) -> [u64; 7] {
    let page = whole.broker.metrics_page().await;
    ["sent", "claimed", "acked", "nacked", "lapsed", "expired", "dead_lettered"].map(|what| {
        let name_of_all = format!("angarium_messages_{what}_total");
        whole_number(value(&page, &name_of_all, &[("queue", name)]))
    })
}

/// Returns the numbers of ready, claimed, delayed messages and of those in transfer, and the age of the oldest one.
async fn states(whole: &Whole, name: &str) -> [u64; 5] {
    let page = whole.broker.metrics_page().await;
    let state = |state| whole_number(value(&page, "angarium_messages", &[("queue", name), ("state", state)]));
    let oldest = whole_number(value(&page, "angarium_oldest_message_age_seconds", &[("queue", name)]));
    [state("ready"), state("claimed"), state("delayed"), state("in_transfer"), oldest]
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are small and positive")]
fn whole_number(value: f64) -> u64 {
    assert!(value >= 0.0 && value.fract() == 0.0, "{value}");
    value as u64
}

fn pop(messages: i64) -> PopCount {
    PopCount::new(messages, &Limits::ZAQAR).unwrap()
}

/// Waits for the result of a background task.
async fn soon<const N: usize>(expected: [u64; N], mut ask: impl AsyncFnMut() -> [u64; N]) {
    let start = Instant::now();
    loop {
        let found = ask().await;
        if found == expected {
            return;
        }
        assert!(start.elapsed() < MAX_WAIT, "{found:?} and not {expected:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn claimed(whole: &Whole, at: &QueueRef, messages: i64) -> ClaimView {
    let claim = whole.broker.claim_create(at, terms(60), limit(messages)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    view
}

#[tokio::test(flavor = "multi_thread")]
async fn message_is_counted_once_per_event() {
    let whole = whole().await;
    let at = queue("q");
    whole.post(&at, 10, 60).await;
    whole.post(&at, 10, 3_600).await;
    assert_eq!(counters(&whole, "q").await, [20, 0, 0, 0, 0, 0, 0]);

    let claim = claimed(&whole, &at, 4).await;
    for message in &claim.messages[..3] {
        whole.broker.message_delete(&at, message.id, Some(claim.id)).await.unwrap();
        // A repetition changes nothing.
        whole.broker.message_delete(&at, message.id, None).await.unwrap();
    }
    whole.broker.claim_release(&at, claim.id).await.unwrap();
    assert_eq!(counters(&whole, "q").await, [20, 4, 3, 1, 0, 0, 0]);

    let popped = whole.broker.messages_pop(&at, pop(2)).await.unwrap();
    assert_eq!(popped.len(), 2);
    assert_eq!(counters(&whole, "q").await, [20, 6, 5, 1, 0, 0, 0]);

    // The five remaining short-lived messages are expired, and a claim finds them first.
    whole.clock.advance(61_000);
    let ids = claimed(&whole, &at, 2).await.messages.len();
    assert_eq!(ids, 2);
    soon([20, 8, 5, 1, 0, 5, 0], async || counters(&whole, "q").await).await;

    whole.clock.advance(61_000);
    soon([20, 8, 5, 1, 2, 5, 0], async || counters(&whole, "q").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unclaimed_deletion_and_purge_are_not_acknowledged() {
    let whole = whole().await;
    let at = queue("q");
    let ids = whole.post(&at, 5, 3_600).await;
    whole.broker.message_delete(&at, ids[0], None).await.unwrap();
    whole.broker.messages_delete(&at, ids[1..3].to_vec(), Holdings::of_claims(&[])).await.unwrap();
    claimed(&whole, &at, 1).await;
    whole.broker.queue_purge(&at).await.unwrap();
    assert_eq!(counters(&whole, "q").await, [5, 1, 0, 0, 0, 0, 0]);
    assert_eq!(states(&whole, "q").await, [0; 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bulk_deletion_under_claim_counts_as_acknowledged() {
    let whole = whole().await;
    let at = queue("q");
    whole.post(&at, 5, 3_600).await;
    let claim = claimed(&whole, &at, 3).await;
    let ids = claim.messages.iter().map(|message| message.id).collect();
    whole.broker.messages_delete(&at, ids, Holdings::of_claims(&[claim.id])).await.unwrap();
    assert_eq!(counters(&whole, "q").await, [5, 3, 3, 0, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn undelivered_claim_counts_as_neither_released_nor_expired() {
    let whole = whole().await;
    let at = queue("q");
    whole.post(&at, 1, 3_600).await;
    drop(whole.broker.claim_create(&at, terms(60), limit(1)).await.unwrap());
    soon([1, 0, 0, 0, 0], async || states(&whole, "q").await).await;
    assert_eq!(counters(&whole, "q").await, [1, 1, 0, 0, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_is_counted_at_its_source() {
    let whole = whole().await;
    let at = queue("q");
    let once = metadata(r#"{"_dead_letter_queue": "dead", "_max_claim_count": 1}"#);
    whole.broker.queue_create(&at, once).await.unwrap();
    whole.post(&at, 3, 3_600).await;
    let claim = claimed(&whole, &at, 3).await;
    whole.broker.claim_release(&at, claim.id).await.unwrap();
    assert!(whole.claim(&at, 20, 60).await.is_empty());
    soon([3, 3, 0, 3, 0, 0, 3], async || counters(&whole, "q").await).await;
    soon([3, 0, 0, 0, 0], async || states(&whole, "dead").await).await;
    assert_eq!(counters(&whole, "dead").await, [0; 7], "they were not posted there");
    assert_eq!(states(&whole, "q").await, [0; 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn states_say_where_each_message_is_and_how_old_the_oldest_is() {
    let whole = whole().await;
    let at = queue("q");
    whole.post(&at, 3, 3_600).await;
    whole.clock.advance(5_000);
    whole.post(&at, 4, 3_600).await;
    assert_eq!(states(&whole, "q").await, [7, 0, 0, 0, 5]);
    let claim = claimed(&whole, &at, 5).await;
    assert_eq!(states(&whole, "q").await, [2, 5, 0, 0, 5]);
    for message in &claim.messages[..3] {
        whole.broker.message_delete(&at, message.id, Some(claim.id)).await.unwrap();
    }
    whole.clock.advance(2_000);
    assert_eq!(states(&whole, "q").await, [2, 2, 0, 0, 2], "the oldest was posted two seconds ago");
    whole.broker.queue_delete(&at).await.unwrap();
    let page = whole.broker.metrics_page().await;
    assert!(!page.contains("queue=\"q\""), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_message_is_found_where_only_the_pool_has_it() {
    let data = tempfile::tempdir().unwrap();
    let clock = Clock::manual(1_700_000_000_000);
    let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
    let broker = start(journal.clone(), journal.clone(), clock.clone()).await;
    let before = Whole { broker, clock: clock.clone(), _data: tempfile::tempdir().unwrap() };
    before.post(&queue("q"), 3, 3_600).await;
    before.broker.stop().await;
    clock.advance(9_000);
    let after = Whole { broker: start(journal.clone(), journal, clock.clone()).await, ..before };
    after.post(&queue("q"), 1, 3_600).await;
    assert_eq!(states(&after, "q").await, [4, 0, 0, 0, 9]);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_page_reads_only_changed_queues() {
    let data = tempfile::tempdir().unwrap();
    let clock = Clock::manual(1_700_000_000_000);
    let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let pool = Arc::new(EmbeddedPool::new(journal.clone()));
    let (totals, hold) = (asked.clone(), Arc::default());
    let pool = CountingPool {
        pool,
        totals,
        looks: Arc::default(),
        shown: Arc::default(),
        pages: Arc::default(),
        hold,
    };
    let catalogue = Catalogue::new(Arc::new(EmbeddedTree::open(journal).await.unwrap()));
    let settings = one_pool(Arc::new(pool));
    let broker = Broker::start(catalogue, &settings, replica(), clock.clone(), Limits::ZAQAR).await.unwrap();
    let whole = Whole { broker, clock, _data: data };
    for name in ["a", "b", "c"] {
        whole.post(&queue(name), 2, 3_600).await;
    }
    let mut asked_since = asked.load(Ordering::Relaxed);
    for (changed, questions) in [(None, 3), (None, 0), (Some("b"), 1), (None, 0)] {
        if let Some(name) = changed {
            whole.post(&queue(name), 1, 3_600).await;
        }
        whole.broker.metrics_page().await;
        let before = std::mem::replace(&mut asked_since, asked.load(Ordering::Relaxed));
        assert_eq!(asked_since - before, questions, "{changed:?}");
    }
    assert_eq!(states(&whole, "b").await, [3, 0, 0, 0, 0]);
}

/// Returns the number of queues that a page has read, and the ready and claimed messages of all queues.
async fn looked_at(whole: &Whole) -> (u64, [u64; 2]) {
    let page = whole.broker.metrics_page().await;
    let messages = |state: &str| {
        let has = |line: &&str| line.starts_with("angarium_messages{") && line.contains(state);
        let lines = page.lines().filter(has);
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    let looked_at = whole_number(value(&page, "angarium_page_queues", &[]));
    (looked_at, ["\"ready\"", "\"claimed\""].map(messages))
}

/// Some queues that share the name `_other`.
async fn unnamed(whole: &Whole) -> Vec<QueueRef> {
    let page = whole.broker.metrics_page().await;
    let names = (0..).map(|number| format!("q{number}"));
    names
        .filter(|name| !page.contains(&format!("queue=\"{name}\"")))
        .take(3)
        .map(|name| queue(&name))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn page_looks_at_queues_at_work_and_with_names() {
    const QUEUES: u64 = 400;
    // The queues that were used first, and as many of the deepest others.
    const NAMES: u64 = 2 * 5;
    let whole = whole().await;
    whole.broker.meter().name_queues(5);
    for number in 0..QUEUES {
        whole.post(&queue(&format!("q{number}")), 2, 3_600).await;
    }
    let ready = 2 * QUEUES;
    assert_eq!(looked_at(&whole).await, (QUEUES + NAMES, [ready, 0]), "all of them are new");
    // Queues that got a name for their depth are read once more.
    assert_eq!(looked_at(&whole).await, (NAMES + NAMES / 2, [ready, 0]));
    assert_eq!(looked_at(&whole).await, (NAMES, [ready, 0]), "nothing was at work");
    // One queue with claimed messages, which is read as long as it has some, and one that has changed. None is much
    // deeper then.
    let [changed, at_work, other] = &unnamed(&whole).await[..] else { panic!("there are many") };
    let claim = claimed(&whole, at_work, 2).await;
    assert_eq!(looked_at(&whole).await, (NAMES + 1, [ready - 2, 2]));
    assert_eq!(whole.broker.messages_pop(changed, pop(1)).await.unwrap().len(), 1);
    assert_eq!(looked_at(&whole).await, (NAMES + 2, [ready - 3, 2]));
    assert_eq!(looked_at(&whole).await, (NAMES + 1, [ready - 3, 2]));
    whole.broker.claim_release(at_work, claim.id).await.unwrap();
    assert_eq!(looked_at(&whole).await.1, [ready - 1, 0]);
    assert_eq!(looked_at(&whole).await, (NAMES, [ready - 1, 0]));
    // They are closed, opened again and deleted.
    let closed: usize =
        (0..angarium_broker::limits::IDLE_ROUNDS).map(|_| whole.broker.close_idle_round().0).sum();
    assert_eq!(closed as u64, QUEUES);
    assert_eq!(looked_at(&whole).await, (NAMES, [ready - 1, 0]));
    whole.post(changed, 1, 3_600).await;
    for deleted in [changed, at_work, other] {
        whole.broker.queue_delete(deleted).await.unwrap();
    }
    assert_eq!(looked_at(&whole).await, (NAMES, [ready - 6, 0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_waiting_claims_are_timed() {
    let whole = whole().await;
    let at = queue("q");
    whole.post(&at, 2, 3_600).await;
    assert_eq!(whole.claim(&at, 1, 60).await.len(), 1);
    let page = whole.broker.metrics_page().await;
    assert_eq!(value(&page, "angarium_claim_wait_seconds_count", &[]), 0.0);
    let wait = ClaimWait::new(Some(1)).unwrap();
    drop(whole.broker.claim_wait(&at, terms(60), limit(1), wait, Claimer::default()).await.unwrap());
    let page = whole.broker.metrics_page().await;
    assert_eq!(value(&page, "angarium_claim_wait_seconds_count", &[]), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_is_measured_with_its_size() {
    let whole = whole().await;
    whole.post(&queue("q"), 7, 3_600).await;
    whole.post(&queue("q"), 1, 3_600).await;
    let page = whole.broker.metrics_page().await;
    assert_eq!(value(&page, "angarium_messages_per_commit_sum", &[("pool", "default")]), 8.0);
    assert_eq!(value(&page, "angarium_commit_duration_seconds_count", &[("pool", "default")]), 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_parts_of_the_service_show_how_they_do() {
    let whole = whole().await;
    whole.post(&queue("q"), 1, 3_600).await;
    let up = [("pool", "default")];
    let start = Instant::now();
    // The background task asks the pools later.
    while value(&whole.broker.metrics_page().await, "angarium_pool_up", &up) == 0.0 {
        assert!(start.elapsed() < MAX_WAIT, "the pool is not up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let page = whole.broker.metrics_page().await;
    assert_eq!(value(&page, "angarium_pool_writable", &up), 1.0);
    assert!(value(&page, "angarium_pool_free_bytes", &up) <= value(&page, "angarium_pool_size_bytes", &up));
    assert_eq!(value(&page, "angarium_slots_owned", &[]), 256.0);
    assert_eq!(value(&page, "angarium_ready", &[]), 1.0);
    assert_eq!(value(&page, "angarium_coordination_session", &[("state", "connected")]), 1.0);
    assert_eq!(value(&page, "angarium_coordination_session", &[("state", "lost")]), 0.0);
    assert!(value(&page, "process_resident_memory_bytes", &[]) > 1e6);
    assert!(value(&page, "process_open_fds", &[]) >= 3.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_service_is_not_ready() {
    let whole = whole().await;
    assert!(whole.broker.check_ready().is_ok());
    whole.broker.stop_waiters();
    assert!(whole.broker.check_ready().is_err());
    assert_eq!(value(&whole.broker.metrics_page().await, "angarium_ready", &[]), 0.0);
}
