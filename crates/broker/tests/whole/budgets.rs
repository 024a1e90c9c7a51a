//! Bounds of memory: an unused queue costs next to nothing.

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use angarium_broker::Broker;
use angarium_catalogue::{Catalogue, QueueRecord};
use angarium_clock::Clock;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_coordination::{CommitResult, Coordination, Fence, Node, Op, Session, TreeError, Watch};
use angarium_core::ids::QueueId;
use angarium_core::limits::Limits;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::queue::Metadata;
use angarium_core::time::Timestamp;
use angarium_journal::Journal;
use angarium_storage::embedded::EmbeddedPool;
use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::runtime::Runtime;
use tokio::sync::watch::Receiver;

use super::{MAX_WAIT, limit, one_pool, queue, replica, terms};

/// The number of queues; set for the child process that measures.
const QUEUES: &str = "ANGARIUM_TEST_IDLE_QUEUES";
/// Queues that are used at one time, before they rest.
const AT_ONCE: usize = 100;
/// Maximum of bytes that an unused queue may cost: a million of them stay below 200 MB, with the memory of the service.
const IDLE_BYTES: usize = 100;
/// Number of measurements at most: one within the bound is enough.
const ROUNDS: usize = 3;

/// A tree in which every requested queue has a record. So memory grows only with the state that the broker keeps of
/// queues; the cache of recent writes of a store has a bound of its own.
struct EndlessTree(Arc<dyn Coordination>);

impl EndlessTree {
    fn recorded(path: &str) -> Option<Node> {
        let (number, rest) = path.strip_prefix("/queues/")?.split_once('/')?;
        let number = u8::from_str_radix(number, 16).ok()?;
        let mut id = [0; 16];
        id[0] = number;
        rest.bytes().rev().zip(&mut id[1..]).for_each(|(byte, place)| *place = byte);
        let (pool, created) = (PoolName::new("default").unwrap(), Timestamp::from_millis(1));
        let record = QueueRecord::new(QueueId::from_bytes(id), &pool, &Metadata::empty(), created);
        let data = serde_json::to_vec(&record).unwrap().into();
        Some(Node { data, version: 0, modified: 1, children: 0, time: created })
    }
}

#[async_trait]
impl Coordination for EndlessTree {
    async fn get(&self, path: &str) -> Result<Option<Node>, TreeError> {
        match Self::recorded(path) {
            Some(node) => Ok(Some(node)),
            None => self.0.get(path).await,
        }
    }

    async fn get_many(&self, paths: &[String]) -> Result<Vec<Option<Node>>, TreeError> {
        self.0.get_many(paths).await
    }

    async fn children(&self, path: &str) -> Result<Vec<String>, TreeError> {
        self.0.children(path).await
    }

    async fn children_behind(
        &self,
        path: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<String>, TreeError> {
        self.0.children_behind(path, after, most).await
    }

    async fn sync(&self) -> Result<(), TreeError> {
        self.0.sync().await
    }

    async fn commit(&self, fences: &[Fence], ops: &[Op]) -> Result<CommitResult, TreeError> {
        self.0.commit(fences, ops).await
    }

    fn watch_tree(&self, path: &str) -> Result<Watch, TreeError> {
        self.0.watch_tree(path)
    }

    fn session(&self) -> Receiver<Session> {
        self.0.session()
    }

    fn check_open(&self) -> Result<(), TreeError> {
        self.0.check_open()
    }

    fn check_lease(&self) -> Result<(), TreeError> {
        self.0.check_lease()
    }

    fn keeps_time(&self) -> bool {
        self.0.keeps_time()
    }

    fn check_alive(&self) -> Result<(), TreeError> {
        self.0.check_alive()
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

/// Bytes of memory that this process uses.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says it");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("it is a number") * 1024
}

/// Uses this number of queues once, and lets them rest.
async fn use_all(broker: &Broker, kind: &str, queues: usize) {
    let mut done = 0;
    while done < queues {
        let last = queues.min(done + AT_ONCE);
        let names: Vec<QueueRef> = (done..last).map(|number| queue(&format!("{kind}{number}"))).collect();
        join_all(names.iter().map(async |at| {
            assert_eq!(broker.queue_stats(at).await.unwrap().free, 0);
            assert!(broker.claim_create(at, terms(60), limit(1)).await.unwrap().is_none());
        }))
        .await;
        assert!(broker.close_idle_round().1 >= names.len(), "they are open");
        let start = Instant::now();
        while broker.close_idle_round().1 > 0 {
            assert!(start.elapsed() < MAX_WAIT, "queues stay open");
            // Work that was begun may end a little later.
            tokio::task::yield_now().await;
        }
        // A monitoring client reads the metrics.
        if done.is_multiple_of(50 * AT_ONCE) {
            broker.metrics_page().await;
        }
        done = last;
    }
    assert_eq!(broker.close_idle_round(), (0, 0), "all are closed");
}

fn measure(queues: usize) {
    Runtime::new().unwrap().block_on(async {
        let data = tempfile::tempdir().unwrap();
        let clock = Clock::manual(1_700_000_000_000);
        let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
        let pool = one_pool(Arc::new(EmbeddedPool::new(journal.clone())));
        let tree = EndlessTree(Arc::new(EmbeddedTree::open(journal).await.unwrap()));
        let catalogue = Catalogue::new(Arc::new(tree));
        let broker = Broker::start(catalogue, &pool, replica(), clock, Limits::ZAQAR).await.unwrap();
        // More queues than have names in metrics, or gates.
        use_all(&broker, "warm", 20_000).await;
        let before = resident();
        use_all(&broker, "idle", queues).await;
        let grown = resident().saturating_sub(before);
        eprintln!("measured {queues} queues: {grown} bytes more, {} in all", before + grown);
    });
}

#[test]
fn idle_queue_costs_little_memory() {
    if let Some(queues) = std::env::var_os(QUEUES) {
        return measure(queues.to_str().unwrap().parse().unwrap());
    }
    let queues = 20_000;
    // The kernel counts a process in pages that are shared or not yet given back too, so a single figure may be too high.
    let test = "budgets::idle_queue_costs_little_memory";
    let measured: Vec<usize> = (0..ROUNDS)
        .map(|_| measured(test, QUEUES, queues) / queues)
        .take_while(|bytes| *bytes >= IDLE_BYTES)
        .collect();
    assert!(measured.len() < ROUNDS, "{measured:?} bytes a queue");
}

/// Bytes that a process of its own measures, which runs a test with so many things in a variable: otherwise other tests
/// would be measured too.
pub(super) fn measured(test: &str, variable: &str, count: usize) -> usize {
    let measured = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(variable, count.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&measured.stderr).into_owned();
    assert!(measured.status.success(), "{said}{}", String::from_utf8_lossy(&measured.stdout));
    let line = said.lines().find_map(|line| line.split_once("measured ")?.1.split_once(": "));
    let (_, rest) = line.unwrap_or_else(|| panic!("{said}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}
