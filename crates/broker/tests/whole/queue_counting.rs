//! Unused queues are counted after the recovery of their slots, without being opened, and stay counted exactly.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use angarium_broker::{Broker, QueueFilter};
use angarium_catalogue::Catalogue;
use angarium_clock::Clock;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_coordination::{Coordination, Op};
use angarium_core::delay::Delay;
use angarium_core::ids::QueueId;
use angarium_core::limits::Limits;
use angarium_core::message::NewMessage;
use angarium_core::names::{ProjectId, QueueRef};
use angarium_core::page::PageLimit;
use angarium_journal::Journal;
use angarium_storage::embedded::EmbeddedPool;
use tempfile::TempDir;

use super::counting::{CountingPool, Hold};
use super::metrics::value;
use super::queue_list::filter;
use super::{MAX_WAIT, Whole, limit, metadata, one_pool, queue, replica, start, terms};

/// A store, and the brokers that are started on it one after the other.
pub struct House {
    journal: Journal,
    pub clock: Clock,
    pub hold: Arc<Hold>,
    data: TempDir,
}

impl House {
    pub fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let clock = Clock::manual(1_700_000_000_000);
        let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
        Self { journal, clock, hold: Arc::default(), data }
    }

    pub async fn start(&self) -> Whole {
        let broker = start(self.journal.clone(), self.journal.clone(), self.clock.clone()).await;
        self.whole(broker)
    }

    /// Starts a broker whose reads of totals can be held.
    pub async fn start_held(&self) -> Whole {
        let pool = Arc::new(EmbeddedPool::new(self.journal.clone()));
        let hold = self.hold.clone();
        let (totals, looks, shown, pages) = <(Arc<_>, Arc<_>, Arc<_>, Arc<_>)>::default();
        let pool = CountingPool { pool, totals, looks, shown, pages, hold };
        let settings = one_pool(Arc::new(pool));
        let catalogue = self.catalogue().await;
        let broker = Broker::start(catalogue, &settings, replica(), self.clock.clone(), Limits::ZAQAR).await;
        self.whole(broker.unwrap())
    }

    async fn catalogue(&self) -> Catalogue {
        Catalogue::new(Arc::new(EmbeddedTree::open(self.journal.clone()).await.unwrap()))
    }

    /// Returns the id of a queue, while no broker runs.
    pub async fn queue_id(&self, at: &QueueRef) -> QueueId {
        let records = self.catalogue().await.queue_records(std::slice::from_ref(at)).await.unwrap();
        records.into_iter().flatten().next().unwrap().id
    }

    /// Replaces the record of a queue with invalid bytes, while no broker runs.
    async fn spoil_record(&self, at: &QueueRef) {
        let (tree, directory) = self.directory(at).await;
        let path = format!("{directory}/{}", at.name);
        let data = "{".into();
        tree.commit(&[], &[Op::Set { path, data, version: None }]).await.unwrap();
    }

    /// Creates nodes with invalid names beside the record of a queue and beside its project, while no broker runs.
    async fn add_foreign_nodes(&self, at: &QueueRef) {
        let (tree, directory) = self.directory(at).await;
        let (slot, _) = directory.rsplit_once('/').unwrap();
        let names = ["%zz", "%ff", "%61"].map(|name| format!("{directory}/{name}"));
        let paths = names.into_iter().chain([format!("{slot}/%zz")]);
        let paths: Vec<String> = paths.collect();
        let made: Vec<Op> = paths.into_iter().map(|path| Op::create(path, "{")).collect();
        tree.commit(&[], &made).await.unwrap();
    }

    /// Returns the tree, and the path of the node above the record of a queue.
    async fn directory(&self, at: &QueueRef) -> (EmbeddedTree, String) {
        let tree = EmbeddedTree::open(self.journal.clone()).await.unwrap();
        let slot = format!("/queues/{:02x}", at.slot().0);
        let project = tree.children(&slot).await.unwrap().pop().unwrap();
        (tree, format!("{slot}/{project}"))
    }

    fn whole(&self, broker: Broker) -> Whole {
        let _ = self.data.path();
        Whole { broker, clock: self.clock.clone(), _data: tempfile::tempdir().unwrap() }
    }
}

/// Returns the sums of a page over all queues: ready, claimed, delayed and in transfer.
pub async fn sums(whole: &Whole) -> [u64; 4] {
    let page = whole.broker.metrics_page().await;
    ["ready", "claimed", "delayed", "in_transfer"].map(|state| {
        let labels = format!("state=\"{state}\"");
        let has = |line: &&str| line.starts_with("angarium_messages{") && line.contains(&labels);
        let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        page.lines().filter(has).map(value).sum()
    })
}

/// Returns the value of a metric without labels.
pub async fn gauge(whole: &Whole, name: &str) -> f64 {
    value(&whole.broker.metrics_page().await, name, &[])
}

pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < MAX_WAIT, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub async fn until_counted(whole: &Whole) {
    until("the queues are not counted", async || gauge(whole, "angarium_slots_counted").await == 256.0).await;
}

/// Returns the sums of the statistics of these queues, each of which it opens.
async fn truth(whole: &Whole, queues: &[QueueRef]) -> [u64; 4] {
    let mut sums = [0; 4];
    for at in queues {
        let stats = whole.broker.queue_stats(at).await.unwrap();
        let ready = stats.free - stats.delayed;
        for (sum, more) in sums.iter_mut().zip([ready, stats.claimed, stats.delayed, stats.in_transfer]) {
            *sum += more;
        }
    }
    sums
}

pub fn open_queues(whole: &Whole) -> usize {
    whole.broker.close_idle_round().1
}

pub async fn post_delayed(whole: &Whole, at: &QueueRef, seconds: i64) {
    let delay = Some(Delay::seconds(seconds, "delay", &Limits::ZAQAR).unwrap());
    let message = NewMessage { body: "\"later\"".into(), delay, ..NewMessage::default() };
    whole.broker.messages_post(at, vec![message], None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_queues_are_counted_after_a_restart() {
    let house = House::new();
    let before = house.start().await;
    for (name, messages) in [("a", 3), ("b", 5), ("empty", 1)] {
        before.post(&queue(name), messages, 3_600).await;
    }
    before.broker.queue_purge(&queue("empty")).await.unwrap();
    house.clock.advance(7_000);
    before.post(&queue("b"), 1, 3_600).await;
    assert_eq!(before.claim(&queue("b"), 2, 600).await.len(), 2);
    post_delayed(&before, &queue("a"), 600).await;
    before.broker.stop().await;
    let after = house.start().await;
    until_counted(&after).await;
    assert_eq!(open_queues(&after), 0, "nothing was opened for it");
    let page = after.broker.metrics_page().await;
    let messages = |name, state| value(&page, "angarium_messages", &[("queue", name), ("state", state)]);
    assert_eq!([messages("a", "ready"), messages("a", "delayed")], [3.0, 1.0], "{page}");
    assert_eq!([messages("b", "ready"), messages("b", "claimed")], [4.0, 2.0], "{page}");
    let of = |name, queue| value(&page, name, &[("queue", queue)]);
    assert_eq!(of("angarium_oldest_message_age_seconds", "b"), 7.0);
    assert_eq!([of("angarium_message_bytes", "a"), of("angarium_message_bytes", "b")], [16.0, 18.0]);
    assert!(!page.contains("\"empty\""), "{page}");
    for (name, expected) in
        [("angarium_queues", 3.0), ("angarium_queues_counted", 3.0), ("angarium_claims", 1.0)]
    {
        assert_eq!(value(&page, name, &[]), expected, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_stay_exact_as_queues_change() {
    let house = House::new();
    let before = house.start().await;
    let queues: Vec<QueueRef> = (0..12).map(|number| queue(&format!("q{number}"))).collect();
    for at in &queues {
        before.post(at, 4, 3_600).await;
    }
    before.claim(&queues[3], 2, 3_600).await;
    before.broker.stop().await;
    let after = house.start().await;
    after.broker.meter().name_queues(2);
    until_counted(&after).await;
    assert_eq!(sums(&after).await, [46, 2, 0, 0]);
    // They are opened, changed, closed before a page has seen them and after, deleted and created.
    after.post(&queues[0], 1, 3_600).await;
    after.claim(&queues[1], 1, 3_600).await;
    after.broker.queue_purge(&queues[2]).await.unwrap();
    after.broker.queue_delete(&queues[4]).await.unwrap();
    after.broker.queue_delete(&queues[5]).await.unwrap();
    after.broker.queue_create(&queues[5], metadata("{}")).await.unwrap();
    assert_eq!(sums(&after).await, [34, 3, 0, 0]);
    assert_eq!(gauge(&after, "angarium_queues").await, 11.0);
    after.post(&queues[6], 2, 3_600).await;
    let closed: usize =
        (0..2 * angarium_broker::limits::IDLE_ROUNDS).map(|_| after.broker.close_idle_round().0).sum();
    assert!(closed > 0);
    until_counted(&after).await;
    assert_eq!(sums(&after).await, [36, 3, 0, 0]);
    let left: Vec<QueueRef> = queues.iter().filter(|at| **at != queues[4]).cloned().collect();
    assert_eq!(truth(&after, &left).await, [36, 3, 0, 0]);
    assert_eq!(sums(&after).await, [36, 3, 0, 0], "they are open");
    assert_eq!(gauge(&after, "angarium_claims").await, 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_closed_before_any_page_is_counted() {
    let house = House::new();
    let whole = house.start().await;
    whole.post(&queue("q"), 3, 3_600).await;
    let closed: usize =
        (0..angarium_broker::limits::IDLE_ROUNDS).map(|_| whole.broker.close_idle_round().0).sum();
    assert_eq!(closed, 1);
    until_counted(&whole).await;
    assert_eq!(sums(&whole).await, [3, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_messages_of_idle_queues_leave_the_sums() {
    let house = House::new();
    let before = house.start().await;
    let short = (0..).map(|number| queue(&format!("n{number}"))).find(|at| at.slot().0 < 8).unwrap();
    before.post(&short, 2, 60).await;
    house.clock.advance(9_000);
    before.post(&short, 3, 86_400).await;
    before.broker.stop().await;
    let after = house.start().await;
    until_counted(&after).await;
    assert_eq!(sums(&after).await, [5, 0, 0, 0]);
    house.clock.advance(100_000);
    until("they are in the sums", async || sums(&after).await == [3, 0, 0, 0]).await;
    let age = async || {
        let page = after.broker.metrics_page().await;
        value(&page, "angarium_oldest_message_age_seconds", &[("queue", short.name.as_str())])
    };
    until("the oldest one that is left is not found", async || age().await == 100.0).await;
    assert_eq!(open_queues(&after), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_messages_of_idle_queues_become_ready() {
    let house = House::new();
    let before = house.start().await;
    for (name, seconds) in [("soon", 60), ("late", 600)] {
        post_delayed(&before, &queue(name), seconds).await;
    }
    before.broker.stop().await;
    house.clock.advance(61_000);
    let after = house.start().await;
    until("the first is not ready", async || sums(&after).await == [1, 0, 1, 0]).await;
    house.clock.advance(600_000);
    until("the second is not ready", async || sums(&after).await == [2, 0, 0, 0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deepest_idle_queues_have_names() {
    let house = House::new();
    let before = house.start().await;
    for number in 1..=6 {
        before.post(&queue(&format!("q{number}")), 5 << number, 3_600).await;
    }
    before.broker.stop().await;
    let after = house.start().await;
    after.broker.meter().name_queues(2);
    until_counted(&after).await;
    let shown = async || {
        let page = after.broker.metrics_page().await;
        let ready = |name| value(&page, "angarium_messages", &[("queue", name), ("state", "ready")]);
        let names = ["q4", "q5", "q6", "_other"];
        names.map(ready)
    };
    assert_eq!(shown().await, [0.0, 160.0, 320.0, 150.0]);
    // An empty queue makes room for the next one.
    after.post(&queue("q5"), 1, 3_600).await;
    after.broker.queue_purge(&queue("q5")).await.unwrap();
    assert_eq!(after.broker.meter().deep_queues().0.len(), 2);
    assert_eq!(shown().await, [80.0, 0.0, 320.0, 70.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_claim_does_not_wait_for_counting() {
    const QUEUES: usize = 400;
    let house = House::new();
    let before = house.start().await;
    for number in 0..QUEUES {
        before.post(&queue(&format!("q{number}")), 1, 3_600).await;
    }
    before.broker.stop().await;
    let at = queue("q7");
    // No other queue can be counted, however much time passes.
    house.hold.all_but(vec![house.queue_id(&at).await]);
    let after = house.start_held().await;
    until("nothing is counted", async || house.hold.held() > 0).await;
    assert_eq!(after.claim(&at, 1, 600).await.len(), 1);
    // A line reads a bounded number at once, and one other task reads queues one by one.
    assert!(house.hold.held() < QUEUES / 2, "{}", house.hold.held());
    let uncounted = QUEUES - 1;
    assert!(gauge(&after, "angarium_queues").await >= gauge(&after, "angarium_queues_counted").await);
    assert!(gauge(&after, "angarium_slots_counted").await < 256.0);
    house.hold.release();
    until_counted(&after).await;
    assert_eq!(sums(&after).await, [uncounted as u64, 1, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_queue_is_passed_by_and_read_later() {
    const QUEUES: usize = 40;
    let house = House::new();
    let before = house.start().await;
    for number in 0..QUEUES {
        before.post(&queue(&format!("q{number}")), 1, 3_600).await;
    }
    before.broker.stop().await;
    house.hold.refuse(Some(house.queue_id(&queue("q7")).await));
    let after = house.start_held().await;
    let others = QUEUES as f64 - 1.0;
    let counted = async || gauge(&after, "angarium_queues_counted").await;
    until("the others are not counted", async || counted().await == others).await;
    // A queue that is closed uncounted later is read too.
    after.post(&queue("late"), 1, 3_600).await;
    let closed: usize =
        (0..angarium_broker::limits::IDLE_ROUNDS).map(|_| after.broker.close_idle_round().0).sum();
    assert_eq!(closed, 1);
    until("the late one is not counted", async || counted().await == others + 1.0).await;
    assert!(gauge(&after, "angarium_slots_counted").await < 256.0);
    house.hold.refuse(None);
    until_counted(&after).await;
    assert_eq!(sums(&after).await, [QUEUES as u64 + 1, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn undecodable_record_is_left_out_alone() {
    let house = House::new();
    let before = house.start().await;
    let spoilt = (0..).map(|number| queue(&format!("s{number}"))).find(|at| at.slot().0 < 8).unwrap();
    let mut names = (0..).map(|number| queue(&format!("n{number}")));
    let neighbour = names.find(|at| at.slot() == spoilt.slot()).unwrap();
    let others: Vec<QueueRef> = (0..20).map(|number| queue(&format!("q{number}"))).collect();
    for at in others.iter().chain([&spoilt, &neighbour]) {
        before.post(at, 1, 3_600).await;
    }
    before.broker.stop().await;
    house.spoil_record(&spoilt).await;
    let after = house.start().await;
    let counted = async || gauge(&after, "angarium_queues_counted").await;
    until("the others are not counted", async || counted().await == 21.0).await;
    assert_eq!(gauge(&after, "angarium_queues").await, 22.0);
    assert_eq!(gauge(&after, "angarium_slots_counted").await, 255.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_without_name_of_queue_is_left_out() {
    let house = House::new();
    let before = house.start().await;
    for at in ["a", "b"].map(queue) {
        before.post(&at, 1, 3_600).await;
    }
    before.broker.stop().await;
    house.add_foreign_nodes(&queue("a")).await;
    let after = house.start().await;
    until_counted(&after).await;
    assert_eq!(gauge(&after, "angarium_queues_counted").await, 2.0);
    let page = after.broker.queues_list(&queue("a").project, &filter()).await.unwrap();
    let names: Vec<&str> = page.queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
}

/// Compares the numbers of a page of queues with the statistics of each queue.
#[tokio::test(flavor = "multi_thread")]
async fn page_of_closed_queues_counts_as_their_stats() {
    let house = House::new();
    let before = house.start().await;
    let fifo = queue("f.fifo");
    before.broker.queue_create(&fifo, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    before.post(&fifo, 4, 3_600).await;
    before.claim(&fifo, 1, 600).await;
    for (name, messages) in [("a", 5), ("b", 2), ("empty", 0), ("due", 1)] {
        before.broker.queue_create(&queue(name), metadata("{}")).await.unwrap();
        if messages > 0 {
            before.post(&queue(name), messages, 3_600).await;
        }
    }
    before.claim(&queue("a"), 3, 600).await;
    post_delayed(&before, &queue("b"), 600).await;
    post_delayed(&before, &queue("due"), 30).await;
    // A claimed message that was deleted while the record of its claim still exists.
    let claim = before.broker.claim_create(&queue("a"), terms(600), limit(1)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    before.broker.message_delete(&queue("a"), view.messages[0].id, Some(view.id)).await.unwrap();
    before.broker.stop().await;
    house.clock.advance(40_000);
    let after = house.start().await;
    let project = ProjectId::new("").unwrap();
    let wanted = QueueFilter {
        has_counts: true,
        limit: PageLimit::new(Some(20), Limits::ZAQAR.queues_page).unwrap(),
        ..filter()
    };
    let read = async || {
        let page = after.broker.queues_list(&project, &wanted).await.unwrap();
        let counts = page.queues.into_iter().map(|queue| {
            let counts = queue.counts.unwrap();
            let ages = (counts.ready + counts.claimed > 0).then_some(counts.oldest_age).flatten();
            let numbers = [counts.ready, counts.claimed, counts.delayed, counts.in_transfer];
            (queue.name.as_str().to_owned(), (numbers, ages))
        });
        counts.collect::<BTreeMap<_, _>>()
    };
    let due = async || read().await["due"].0 == [2, 0, 0, 0];
    until("what is due is not ready", due).await;
    let counted = read().await;
    assert!(open_queues(&after) <= 1, "the one with the due message alone");
    assert_eq!(counted["a"].0, [1, 3, 0, 0]);
    assert_eq!(counted["f.fifo"].0, [3, 1, 0, 0]);
    for (name, (numbers, age)) in &counted {
        let at = if name == "f.fifo" { fifo.clone() } else { queue(name) };
        let stats = after.broker.queue_stats(&at).await.unwrap();
        let ready = stats.free - stats.delayed;
        assert_eq!(*numbers, [ready, stats.claimed, stats.delayed, stats.in_transfer], "{name}");
        assert_eq!(*age, stats.oldest.map(|oldest| oldest.age), "{name}");
    }
    assert_eq!(read().await, counted, "they are open");
}
