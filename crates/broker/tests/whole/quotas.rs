//! Holdings of projects: counted correctly after any fault, and never beyond the quota.

use std::sync::Arc;
use std::time::{Duration, Instant};

use angarium_broker::Broker;
use angarium_catalogue::Catalogue;
use angarium_clock::Clock;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::error::{Error, Part};
use angarium_core::ids::MessageId;
use angarium_core::limits::Limits;
use angarium_core::maps::HashMap;
use angarium_core::message::NewMessage;
use angarium_core::names::{ProjectId, QueueRef};
use angarium_core::page::PopCount;
use angarium_core::quota::{Amount, Holdings, Quota, QuotaTable};
use angarium_journal::Journal;
use angarium_storage::embedded::EmbeddedPool;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::faulty::Fault::{NotSent, UnknownAfter, UnknownBefore};
use super::faulty::{FaultyPool, FaultyTree, Plan};
use super::{MAX_WAIT, Whole, limit, metadata, one_pool, queue, replica, terms};
use angarium_testbed::settings;

/// Number of times that a slot writer sends a batch before it gives up.
pub(super) const TRIES: usize = 6;

/// An installation, over which brokers start one after the other.
pub(super) struct Bounded {
    journal: Journal,
    clock: Clock,
    pub(super) quotas: watch::Sender<Arc<QuotaTable>>,
    tree: Plan,
    pub(super) pool: Plan,
    _data: TempDir,
}

impl Bounded {
    pub(super) fn new(quota: Quota) -> Self {
        let data = tempfile::tempdir().unwrap();
        let clock = Clock::manual(1_700_000_000_000);
        let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
        let quotas = watch::Sender::new(Arc::new(table(quota)));
        Self { journal, clock, quotas, tree: Plan::default(), pool: Plan::default(), _data: data }
    }

    pub(super) async fn start(&self) -> Whole {
        let tree = Arc::new(EmbeddedTree::open(self.journal.clone()).await.unwrap());
        let catalogue = Catalogue::new(Arc::new(FaultyTree::new(tree, self.tree.clone())));
        let pool = Arc::new(EmbeddedPool::new(self.journal.clone()));
        let pools = one_pool(Arc::new(FaultyPool::new(pool, self.pool.clone())));
        let (clock, quotas) = (self.clock.clone(), self.quotas.subscribe());
        let broker =
            Broker::start_within(catalogue, &pools, replica(), clock, Limits::ZAQAR, quotas).await.unwrap();
        Whole { broker, clock: self.clock.clone(), _data: tempfile::tempdir().unwrap() }
    }
}

pub(super) fn table(quota: Quota) -> QuotaTable {
    QuotaTable::new(quota, HashMap::default())
}

fn messages(quota: u64) -> Quota {
    Quota { messages: Some(quota), ..Quota::NONE }
}

pub(super) fn project() -> ProjectId {
    queue("q").project
}

/// Returns the holdings of a project: queues, messages, bytes. Retries while they are being counted or a slot is being
/// recovered, which takes longer than a request waits on a busy machine.
pub(super) async fn used(whole: &Whole) -> (u64, u64, u64) {
    let start = Instant::now();
    let view = loop {
        match whole.broker.quota(&project()).await {
            Err(Error::Unavailable { .. }) if start.elapsed() < MAX_WAIT => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            view => break view.unwrap(),
        }
    };
    let Holdings { queues, amount: Amount { messages, bytes } } = view.used.unwrap();
    (queues, messages, bytes)
}

/// Waits until the project has these holdings, as long as a busy machine may need.
pub(super) async fn used_soon(whole: &Whole, expected: (u64, u64, u64)) {
    let start = Instant::now();
    loop {
        let found = used(whole).await;
        if found == expected {
            return;
        }
        assert!(start.elapsed() < MAX_WAIT, "{found:?} and not {expected:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Posts bodies, as `post_counted`.
pub(super) async fn try_post(
    whole: &Whole,
    name: &str,
    bodies: &[&'static str],
) -> Result<Vec<MessageId>, Error> {
    let message = |body: &&'static str| NewMessage { body: (*body).into(), ..NewMessage::default() };
    let messages: Vec<NewMessage> = bodies.iter().map(message).collect();
    post_counted(whole, &queue(name), &messages).await
}

/// Posts, and retries while the holdings of the project are being counted, which may take long on a busy machine.
pub(super) async fn post_counted(
    whole: &Whole,
    at: &QueueRef,
    messages: &[NewMessage],
) -> Result<Vec<MessageId>, Error> {
    let start = Instant::now();
    loop {
        match whole.broker.messages_post(at, messages.to_vec(), None).await {
            Err(Error::Unavailable { part: Part::Server, .. }) if start.elapsed().as_secs() < 60 => {}
            outcome => return outcome.map(|posted| posted.ids),
        }
    }
}

pub(super) fn assert_over<T: std::fmt::Debug>(outcome: Result<T, Error>, bound: (&str, u64)) {
    match outcome {
        Err(Error::OverQuota { what, bound: most, .. }) => assert_eq!((what, most), bound),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_beyond_the_quota_is_refused_and_nothing_is_written() {
    let bounded = Bounded::new(messages(3));
    let whole = bounded.start().await;
    let ids = try_post(&whole, "q", &["1", "2"]).await.unwrap();
    assert_over(try_post(&whole, "q", &["3", "4"]).await, ("messages", 3));
    assert_over(try_post(&whole, "other", &["3", "4"]).await, ("messages", 3));
    assert_eq!(used(&whole).await, (1, 2, 2), "no queue was made for what was refused");
    try_post(&whole, "q", &["3"]).await.unwrap();
    whole.broker.message_delete(&queue("q"), ids[0], None).await.unwrap();
    try_post(&whole, "other", &["4"]).await.unwrap();
    assert_over(try_post(&whole, "q", &["5"]).await, ("messages", 3));
    assert_eq!(used(&whole).await, (2, 3, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_those_of_bodies() {
    let bounded = Bounded::new(Quota { bytes: Some(10), ..Quota::NONE });
    let whole = bounded.start().await;
    try_post(&whole, "q", &["\"12345\"", "12"]).await.unwrap();
    assert_over(try_post(&whole, "q", &["12"]).await, ("bytes of messages", 10));
    try_post(&whole, "q", &["1"]).await.unwrap();
    assert_eq!(used(&whole).await, (1, 3, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_beyond_quota_is_refused_and_existing_ones_serve() {
    let bounded = Bounded::new(Quota { queues: Some(2), ..Quota::NONE });
    let whole = bounded.start().await;
    whole.broker.queue_create(&queue("a"), metadata("{}")).await.unwrap();
    try_post(&whole, "b", &["1"]).await.unwrap();
    assert_over(whole.broker.queue_create(&queue("c"), metadata("{}")).await, ("queues", 2));
    assert_over(try_post(&whole, "c", &["1"]).await, ("queues", 2));
    whole.broker.queue_create(&queue("a"), metadata("{}")).await.unwrap();
    try_post(&whole, "b", &["1"]).await.unwrap();
    assert_eq!(used(&whole).await, (2, 2, 2), "what was refused keeps no room");
    whole.broker.queue_delete(&queue("b")).await.unwrap();
    assert_eq!(used(&whole).await, (1, 0, 0));
    try_post(&whole, "c", &["1"]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unopened_queues_count() {
    let bounded = Bounded::new(messages(20));
    let whole = bounded.start().await;
    for name in 0..12 {
        try_post(&whole, &format!("q{name}"), &["\"x\""]).await.unwrap();
    }
    whole.broker.stop().await;
    drop(whole);
    let whole = bounded.start().await;
    assert_over(try_post(&whole, "new", &["1"; 9]).await, ("messages", 20));
    assert_eq!(used(&whole).await, (12, 12, 36));
    try_post(&whole, "new", &["1"; 8]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn posts_at_the_same_time_do_not_go_over_together() {
    let bounded = Bounded::new(messages(20));
    let whole = Arc::new(bounded.start().await);
    let mut posts = JoinSet::new();
    for number in 0..100 {
        let whole = Arc::clone(&whole);
        posts.spawn(async move { try_post(&whole, &format!("q{}", number % 7), &["1", "2"]).await });
    }
    let mut posted = 0;
    while let Some(outcome) = posts.join_next().await {
        match outcome.unwrap() {
            Ok(_) => posted += 1,
            refused => assert_over(refused, ("messages", 20)),
        }
    }
    assert_eq!(posted, 10);
    assert_eq!(used(&whole).await.1, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_messages_make_room_in_closed_queues_too() {
    let bounded = Bounded::new(messages(4));
    let whole = bounded.start().await;
    whole.post(&queue("unopened"), 2, 60).await;
    whole.broker.stop().await;
    drop(whole);
    let whole = bounded.start().await;
    whole.post(&queue("open"), 2, 60).await;
    assert_over(try_post(&whole, "open", &["1"]).await, ("messages", 4));
    // A bucket of expiry is read 8 seconds after its messages expire.
    whole.clock.advance(80_000);
    used_soon(&whole, (2, 0, 0)).await;
    try_post(&whole, "open", &["1"; 4]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_doubt_post_keeps_its_room_until_resolved() {
    for (fault, left) in [(UnknownBefore, 1), (UnknownAfter, 3)] {
        let bounded = Bounded::new(messages(3));
        let whole = bounded.start().await;
        try_post(&whole, "q", &["1"]).await.unwrap();
        bounded.pool.next(&[fault; TRIES]);
        let unknown = try_post(&whole, "q", &["2", "3"]).await.unwrap_err();
        assert!(!unknown.nothing_written(), "{unknown:?}");
        // No caller uses the queue: the recovery of its slot is enough.
        used_soon(&whole, (1, left, left)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_post_returns_its_room() {
    let bounded = Bounded::new(messages(2));
    let whole = bounded.start().await;
    try_post(&whole, "q", &["1"]).await.unwrap();
    bounded.pool.next(&[NotSent; TRIES]);
    assert!(try_post(&whole, "q", &["2"]).await.unwrap_err().nothing_written());
    assert_eq!(used(&whole).await, (1, 1, 1));
    try_post(&whole, "q", &["2"]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_doubt_queue_creation_counts_until_resolved() {
    for (fault, queues) in [(UnknownBefore, 1), (UnknownAfter, 2), (NotSent, 1)] {
        let bounded = Bounded::new(Quota { queues: Some(2), ..Quota::NONE });
        let whole = bounded.start().await;
        whole.broker.queue_create(&queue("a"), metadata("{}")).await.unwrap();
        bounded.tree.next(&[fault]);
        // The first commit finds that the project has no directory in the slot yet.
        bounded.tree.skip(1);
        let failed = whole.broker.queue_create(&queue("b"), metadata("{}")).await.unwrap_err();
        assert_eq!(failed.nothing_written(), fault == NotSent);
        used_soon(&whole, (queues, 0, 0)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_move_whatever_the_quota_and_count_once() {
    let bounded = Bounded::new(Quota { queues: Some(1), messages: Some(2), bytes: None });
    let whole = bounded.start().await;
    let once = r#"{"_dead_letter_queue": "dead", "_max_claim_count": 1}"#;
    whole.broker.queue_create(&queue("q"), metadata(once)).await.unwrap();
    try_post(&whole, "q", &["1", "2"]).await.unwrap();
    let claim = whole.broker.claim_create(&queue("q"), terms(300), limit(20)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    whole.broker.claim_release(&queue("q"), view.id).await.unwrap();
    assert!(whole.claim(&queue("q"), 20, 300).await.is_empty());
    assert_eq!(whole.claim_soon(&queue("dead"), 20).await.len(), 2);
    // Each dead letter stores the name of its source in 21 bytes.
    used_soon(&whole, (2, 2, 2 + 2 * 21)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purged_queue_holds_nothing() {
    let bounded = Bounded::new(messages(3));
    let whole = bounded.start().await;
    try_post(&whole, "q", &["1", "2", "3"]).await.unwrap();
    whole.claim(&queue("q"), 1, 300).await;
    whole.broker.queue_purge(&queue("q")).await.unwrap();
    assert_eq!(used(&whole).await, (1, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_quota_applies_to_next_post() {
    let bounded = Bounded::new(Quota::NONE);
    let whole = bounded.start().await;
    try_post(&whole, "q", &["1", "2", "3"]).await.unwrap();
    assert_eq!(used(&whole).await, (1, 3, 3), "it is counted for whoever asks");
    bounded.quotas.send_replace(Arc::new(table(messages(2))));
    assert_over(try_post(&whole, "q", &["4"]).await, ("messages", 2));
    bounded.quotas.send_replace(Arc::new(table(messages(4))));
    try_post(&whole, "q", &["4"]).await.unwrap();
    assert_eq!(used(&whole).await, (1, 4, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_interim_owner_are_counted_on_return() {
    let bounded = Bounded::new(messages(5));
    let first = bounded.start().await;
    assert_eq!(used(&first).await, (0, 0, 0));
    let second = bounded.start().await;
    second.post(&queue("q"), 4, 3_600).await;
    // A commit shows the first one that the slot is no longer its own.
    let same_slot = (0..).map(|number| queue(&number.to_string())).find(|at| at.slot() == queue("q").slot());
    first.broker.queue_create(&same_slot.unwrap(), metadata("{}")).await.unwrap_err();
    used_soon(&first, (1, 4, 12)).await;
    assert_over(try_post(&first, "q", &["1", "2"]).await, ("messages", 5));
}

/// After any history the ledger agrees with a new count.
#[tokio::test(flavor = "multi_thread")]
async fn the_books_of_any_history_are_those_of_a_fresh_count() {
    let mut dice = StdRng::seed_from_u64(settings::seed("books"));
    let bounded = Bounded::new(Quota { queues: Some(6), messages: Some(60), bytes: Some(400) });
    let whole = bounded.start().await;
    for _ in 0..400 {
        let at = queue(&format!("q{}", dice.random_range(0..8)));
        match dice.random_range(0..12) {
            0..=5 => {
                let count = dice.random_range(1..6);
                let _ = try_post(&whole, at.name.as_str(), &["\"twelve chars\""; 5][..count]).await;
            }
            6 | 7 => {
                whole.broker.messages_pop(&at, PopCount::new(3, &Limits::ZAQAR).unwrap()).await.unwrap();
            }
            8 => drop(whole.claim(&at, 3, 60).await),
            9 => whole.broker.queue_delete(&at).await.unwrap(),
            10 => whole.broker.queue_purge(&at).await.unwrap(),
            _ => whole.clock.advance(30_000),
        }
        // Fewer faults than attempts of a batch: no batch is given up.
        if dice.random_range(0..20) == 0 && bounded.pool.is_done() {
            bounded.pool.next(&[UnknownAfter, UnknownBefore, NotSent][..dice.random_range(1..=3)]);
        }
    }
    whole.broker.stop().await;
    let before = used(&whole).await;
    drop(whole);
    let fresh = used(&bounded.start().await).await;
    assert_eq!(before, fresh);
    assert!(fresh.0 <= 6 && fresh.1 <= 60 && fresh.2 <= 400, "{fresh:?}");
}
