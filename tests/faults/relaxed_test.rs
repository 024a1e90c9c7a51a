//! Owns the tests of the two classes of durability under SIGKILL and power cuts. A child process under the switch writes
//! to a pool as it is told; what is left is read here. The child is this same test program.

use std::io::{BufRead, BufReader, Lines, Write, stdin};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use angarium_clock::Clock;
use angarium_core::durability::Durability;
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Life, Message, State};
use angarium_core::time::Timestamp;
use angarium_storage::open::PoolOpener;
use angarium_storage::{Batch, Changes, Direction, Epoch, Order, PoolStore, QueueChanges};

use super::powercut::PowerCut;
use super::rollback::Survival;
use angarium_testbed::settings;

const CHILD: &str = "faults::relaxed_test::child_writes_as_instructed";
const EPOCH: Epoch = Epoch { generation: 1, transaction: 1 };
const QUEUE: QueueId = QueueId::from_bytes([1; 16]);
/// How long something may take that takes a moment, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

fn open(data: &Path) -> Arc<dyn PoolStore> {
    PoolOpener::new(data, Clock::manual(1_000), []).open("embedded:pool").expect("the pool opens")
}

fn message(rank: u64) -> Message {
    let (created, expires) = (Timestamp::from_millis(1_000), Timestamp::from_millis(61_000));
    let header = Header {
        id: MessageId::from_bytes(u128::from(rank).to_be_bytes()),
        created,
        ready: created,
        life: Life::Own { ttl: 60, expires },
        attempts: 0,
        client: None,
        size: 4,
        state: State::Ready,
        group: None,
        first_claimed: None,
        extras: None,
    };
    Message { header, body: Bytes::from_static(b"\"ab\"") }
}

/// A child that writes batches, numbered from 1.
struct Writer {
    child: Child,
    told: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
    last: u64,
}

impl Writer {
    fn start(cut: &PowerCut) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
            .args(["--exact", CHILD, "--nocapture"])
            .envs(cut.env())
            .env("RELAXED_CHILD", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("this program can be started");
        let told = child.stdin.take().expect("it is piped");
        let says = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut writer = Self { child, told, says, last: 0 };
        writer.await_line("open");
        writer
    }

    /// Has a batch written and waits until it is acknowledged. Its number.
    fn write(&mut self, durability: Durability) -> u64 {
        self.last += 1;
        writeln!(self.told, "{durability}").expect("the child reads");
        self.await_line(&format!("done {}", self.last));
        self.last
    }

    fn await_line(&mut self, expected: &str) {
        let line =
            self.says.by_ref().map(|line| line.expect("it is text")).find(|line| line.ends_with(expected));
        assert!(line.is_some(), "the child ended before it said {expected:?}");
    }

    fn kill9(mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }
}

/// The child's side. In the test program proper no process tells it anything.
#[tokio::test]
async fn child_writes_as_instructed() {
    if settings::number("RELAXED_CHILD", 0) == 0 {
        return;
    }
    let data = std::env::var_os("POWERCUT_DIR").expect("the child is under the switch");
    let store = open(&PathBuf::from(data));
    store.fence(Slot(1), EPOCH).await.unwrap();
    say("open");
    for (line, seq) in stdin().lines().zip(1..) {
        let durability = line.unwrap().parse().unwrap();
        let changes = QueueChanges::of(QUEUE, MessageId::ZERO);
        let queues = vec![QueueChanges { changes: Changes::appends(vec![message(seq)]), ..changes }];
        let batch = Batch { slot: Slot(1), epoch: EPOCH, seq, durability, queues };
        store.commit(&batch).await.unwrap();
        say(&format!("done {seq}"));
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").expect("the parent reads");
    out.flush().expect("the parent reads");
}

/// How many batches are left. They are the first ones.
async fn left(cut: &PowerCut) -> u64 {
    let store = open(&cut.data());
    let page = store.scan(QUEUE, Order::Ready, Direction::Up, None, usize::MAX, usize::MAX).await.unwrap();
    let ranks: Vec<Message> = (1..=page.messages.len() as u64).map(message).collect();
    assert_eq!(page.messages, ranks, "a batch is gone from the middle");
    ranks.len() as u64
}

fn strike(cut: &PowerCut) {
    cut.strike(Survival::Nothing, &mut StdRng::seed_from_u64(0));
}

#[tokio::test]
async fn relaxed_batch_is_acked_early_and_survives_kill_9() {
    let cut = PowerCut::new();
    let mut writer = Writer::start(&cut);
    cut.close_gate();
    writer.write(Durability::Relaxed);
    writer.kill9();
    assert_eq!(left(&cut).await, 1);
}

#[tokio::test]
async fn power_cut_loses_unsynced_relaxed_batch_alone() {
    let cut = PowerCut::new();
    let mut writer = Writer::start(&cut);
    writer.write(Durability::Relaxed);
    let synced = writer.write(Durability::Sync);
    cut.close_gate();
    writer.write(Durability::Relaxed);
    writer.kill9();
    strike(&cut);
    assert_eq!(left(&cut).await, synced);
}

#[tokio::test]
async fn lone_relaxed_batch_is_synced_soon() {
    let cut = PowerCut::new();
    let mut writer = Writer::start(&cut);
    writer.write(Durability::Sync);
    // The first batch has its witness by then, which is synced too.
    thread::sleep(Duration::from_secs(2));
    let before = cut.syncs();
    let relaxed = writer.write(Durability::Relaxed);
    let start = Instant::now();
    while cut.syncs() == before {
        assert!(start.elapsed() < SOON, "no sync covers the batch");
        thread::sleep(Duration::from_millis(5));
    }
    writer.kill9();
    strike(&cut);
    assert_eq!(left(&cut).await, relaxed);
}

#[tokio::test]
async fn closing_syncs_relaxed_writes() {
    let cut = PowerCut::new();
    let mut writer = Writer::start(&cut);
    let relaxed = writer.write(Durability::Relaxed);
    let Writer { mut child, told, .. } = writer;
    drop(told);
    assert!(child.wait().expect("it is our child").success());
    strike(&cut);
    assert_eq!(left(&cut).await, relaxed);
}

#[tokio::test]
async fn power_cut_takes_no_synced_batch_whatever_came_between() {
    let mut dice = StdRng::seed_from_u64(settings::seed("relaxed"));
    for _ in 0..3 {
        let cut = PowerCut::new();
        let mut writer = Writer::start(&cut);
        let mut synced = 0;
        for _ in 0..dice.random_range(1..60) {
            if dice.random_ratio(1, 4) {
                synced = writer.write(Durability::Sync);
            } else {
                writer.write(Durability::Relaxed);
            }
        }
        let written = writer.last;
        writer.kill9();
        strike(&cut);
        let left = left(&cut).await;
        assert!((synced..=written).contains(&left), "{left} left of {written}, {synced} synced");
    }
}
