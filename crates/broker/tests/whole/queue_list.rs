//! Costs of pages of queues: the calls to a tree with a hundred thousand queues, counted.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use angarium_broker::{Broker, QueueFilter, QueuePage};
use angarium_catalogue::Catalogue;
use angarium_clock::Clock;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_coordination::{CommitResult, Coordination, Fence, Node, Op, Session, TreeError, Watch};
use angarium_core::limits::Limits;
use angarium_core::names::{ProjectId, QueueKind};
use angarium_core::page::PageLimit;
use angarium_core::time::Timestamp;
use angarium_storage::embedded::EmbeddedPool;
use async_trait::async_trait;
use tempfile::TempDir;

use super::{one_pool, open_journal, queue, replica};

const QUEUES: usize = 100_000;
const DIRECTORIES: usize = 256;

/// A tree in which a project has many queues, each with the metadata `{"number": …}`, beside its real content.
struct Crowded {
    tree: EmbeddedTree,
    /// Names of queues, by the directory that they are in.
    names: BTreeMap<String, BTreeMap<String, usize>>,
    calls: Arc<Calls>,
}

/// Numbers of reads about queues.
#[derive(Default)]
struct Calls {
    directories: AtomicUsize,
    records: AtomicUsize,
}

impl Calls {
    /// Returns how many directories, and how many records, were read since the last call.
    fn take(&self) -> (usize, usize) {
        (self.directories.swap(0, Ordering::Relaxed), self.records.swap(0, Ordering::Relaxed))
    }
}

impl Crowded {
    fn node(&self, path: &str) -> Option<Node> {
        if let Some(names) = self.names.get(path) {
            let children = u32::try_from(names.len()).unwrap();
            return Some(Node { children, ..node("{}".to_owned()) });
        }
        let (directory, name) = path.rsplit_once('/')?;
        let number = self.names.get(directory)?.get(name)?;
        self.calls.records.fetch_add(1, Ordering::Relaxed);
        let id = "00112233445566778899aabbccddeeff";
        let metadata = format!("{{\"number\":{number}}}");
        Some(node(format!(r#"{{"id":"{id}","placement":["default"],"metadata":{metadata},"created":0}}"#)))
    }
}

fn node(data: String) -> Node {
    Node { data: data.into(), version: 0, modified: 1, children: 0, time: Timestamp::default() }
}

#[async_trait]
impl Coordination for Crowded {
    async fn get(&self, path: &str) -> Result<Option<Node>, TreeError> {
        match self.node(path) {
            Some(node) => Ok(Some(node)),
            None => self.tree.get(path).await,
        }
    }

    async fn get_many(&self, paths: &[String]) -> Result<Vec<Option<Node>>, TreeError> {
        if paths.iter().all(|path| path.starts_with("/queues/")) {
            return Ok(paths.iter().map(|path| self.node(path)).collect());
        }
        self.tree.get_many(paths).await
    }

    async fn children(&self, path: &str) -> Result<Vec<String>, TreeError> {
        self.tree.children(path).await
    }

    async fn children_behind(
        &self,
        path: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<String>, TreeError> {
        let Some(names) = self.names.get(path) else {
            return self.tree.children_behind(path, after, most).await;
        };
        self.calls.directories.fetch_add(1, Ordering::Relaxed);
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.to_owned()));
        Ok(names.range((from, Bound::Unbounded)).take(most).map(|(name, _)| name.clone()).collect())
    }

    async fn commit(&self, fences: &[Fence], ops: &[Op]) -> Result<CommitResult, TreeError> {
        self.tree.commit(fences, ops).await
    }

    fn watch_tree(&self, path: &str) -> Result<Watch, TreeError> {
        self.tree.watch_tree(path)
    }

    fn session(&self) -> tokio::sync::watch::Receiver<Session> {
        self.tree.session()
    }

    fn check_open(&self) -> Result<(), TreeError> {
        self.tree.check_open()
    }

    fn check_lease(&self) -> Result<(), TreeError> {
        self.tree.check_lease()
    }

    fn keeps_time(&self) -> bool {
        self.tree.keeps_time()
    }

    fn check_alive(&self) -> Result<(), TreeError> {
        self.tree.check_alive()
    }

    async fn close(&self) {
        self.tree.close().await;
    }
}

/// Returns a broker over such a tree, and the counters of its calls.
async fn crowded() -> (Broker, Arc<Calls>, TempDir) {
    let data = tempfile::tempdir().unwrap();
    let (journal, calls) = (open_journal(data.path(), "journal"), Arc::new(Calls::default()));
    let mut names: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for number in 0..QUEUES {
        let name = format!("q{number:06}");
        let at = queue(&name);
        let directory = format!("/queues/{}/{}", at.slot(), at.project.as_str());
        names.entry(directory).or_default().insert(name, number);
    }
    assert_eq!(names.len(), DIRECTORIES);
    let tree = EmbeddedTree::open(journal.clone()).await.unwrap();
    let catalogue = Catalogue::new(Arc::new(Crowded { tree, names, calls: Arc::clone(&calls) }));
    let pools = one_pool(Arc::new(EmbeddedPool::new(journal)));
    let clock = Clock::manual(1_700_000_000_000);
    let broker = Broker::start(catalogue, &pools, replica(), clock, Limits::ZAQAR).await.unwrap();
    calls.take();
    (broker, calls, data)
}

pub fn filter() -> QueueFilter {
    QueueFilter {
        kind: QueueKind::Queue,
        after: None,
        limit: PageLimit::new(Some(20), Limits::ZAQAR.queues_page).unwrap(),
        name_part: None,
        prefix: None,
        metadata: Vec::new(),
        is_detailed: false,
        is_counted: false,
        has_counts: false,
    }
}

async fn list(broker: &Broker, filter: &QueueFilter) -> QueuePage {
    broker.queues_list(&ProjectId::new("").unwrap(), filter).await.unwrap()
}

fn names(page: &QueuePage) -> Vec<&str> {
    page.queues.iter().map(|queue| queue.name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn unfiltered_page_reads_each_directory_once() {
    let (broker, calls, _data) = crowded().await;
    let page = list(&broker, &QueueFilter { is_counted: true, ..filter() }).await;
    assert_eq!((names(&page)[0], page.queues.len(), page.count), ("q000000", 20, Some(100_000)));
    assert_eq!(calls.take(), (DIRECTORIES, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_with_metadata_reads_the_records_of_its_queues_alone() {
    let (broker, calls, _data) = crowded().await;
    let detailed = QueueFilter { is_detailed: true, name_part: Some("q0".into()), ..filter() };
    assert_eq!(list(&broker, &detailed).await.queues.len(), 20);
    assert_eq!(calls.take(), (DIRECTORIES, 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn name_among_hundred_thousand_costs_four_directory_reads() {
    let (broker, calls, _data) = crowded().await;
    for (part, found) in [("099999", vec!["q099999"]), ("nobody", vec![])] {
        let page = list(&broker, &QueueFilter { name_part: Some(part.into()), ..filter() }).await;
        assert_eq!(names(&page), found);
        let (directories, records) = calls.take();
        assert!(directories <= 4 * DIRECTORIES && records == 0, "{part}: {directories} and {records}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_read_only_for_wanted_names() {
    let (broker, calls, _data) = crowded().await;
    let both = QueueFilter {
        name_part: Some("99".into()),
        metadata: vec![("number".into(), "99000".into())],
        ..filter()
    };
    let (mut found, mut asked) = (Vec::new(), both.clone());
    let mut records = 0;
    // No page reads more than a thousand records.
    for _ in 0..10 {
        let page = list(&broker, &asked).await;
        let (_, read) = calls.take();
        assert!(read <= 1_000, "{read}");
        records += read;
        found.extend(names(&page).into_iter().map(str::to_owned));
        let Some(next) = page.next else { break };
        asked = QueueFilter { after: Some(next.as_str().to_owned()), ..both.clone() };
    }
    assert_eq!(found, ["q099000"]);
    // As many as there are six-digit numbers below 100,000 with two adjacent nines.
    let wanted = (0..QUEUES).filter(|number| format!("{number:06}").contains("99")).count();
    assert_eq!(records, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn page_with_counts_opens_no_queue() {
    let (broker, calls, _data) = crowded().await;
    let page = list(&broker, &QueueFilter { has_counts: true, ..filter() }).await;
    let counted = page.queues.iter().filter(|queue| queue.counts.is_some_and(|counts| counts.ready == 0));
    assert_eq!((counted.count(), broker.close_idle_round().1), (20, 0));
    assert_eq!(calls.take(), (DIRECTORIES, 20));
}
