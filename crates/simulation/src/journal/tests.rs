//! The promises of the simulated journal and of its disk.

#![allow(clippy::panic, reason = "a test fails by it")]

use std::sync::Arc;
use std::time::Duration;

use angarium_clock::Clock;
use angarium_coordination::{Coordination, Op};
use angarium_core::durability::Durability;
use angarium_core::limits::RELAXED_SYNC;
use angarium_core::maps::HashKeys;
use angarium_journal::{Journal, JournalError, JournalOptions, OpenError, Room, Space};
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::{Batch, PoolStore, PoolWrites, Recount};
use angarium_testbed::owner::{Owner, SLOT, appends, epoch, messages, queue};
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::{Disk, ProcessJournal};
use crate::faults::{Fault, FaultRates};
use crate::process::Process;
use crate::scheduler::Policy;
use crate::trace::Trace;
use crate::world::World;

const ALWAYS: u32 = 100_000;

/// A world with one disk.
pub(super) struct Scene {
    pub(super) world: World,
    pub(super) disk: Disk,
}

impl Scene {
    pub(super) fn new(seed: u64) -> Self {
        HashKeys::fix([1, 2]);
        let world = World::new(seed, Policy::Equal, Trace::kept());
        let disk = Disk::new(world.clone(), "a");
        Self { world, disk }
    }

    pub(super) fn begin(&self, faults: &[(Fault, u32)]) {
        let mut rates = FaultRates::default();
        faults.iter().for_each(|(fault, rate)| rates.set(*fault, *rate));
        self.world.begin_faults(rates);
    }

    pub(super) fn start(&self, name: &str) -> (Process, ProcessJournal) {
        let process = Process::start(self.world.clone(), name.to_owned());
        let opened = ProcessJournal::open(&self.disk, &process, &clock(), JournalOptions::default());
        (process, opened.unwrap())
    }
}

fn clock() -> Clock {
    Clock::of_runtime(1_800_000_000_000)
}

fn key(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

/// Puts a key whose value is the key.
pub(super) async fn put(journal: &Journal, durability: Durability, number: u64) -> Result<(), JournalError> {
    journal.commit_as(durability, move |txn| txn.put(Space::Tree, key(number), key(number))).await
}

/// The numbers of the stored keys.
pub(super) fn stored(journal: &Journal) -> Vec<u64> {
    let view = journal.view().unwrap();
    let pairs = view.scan(Space::Tree, &[0; 4], &[]);
    pairs.map(|pair| u64::from_be_bytes(pair.unwrap().0[..].try_into().unwrap())).collect()
}

#[tokio::test(start_paused = true)]
async fn view_is_of_one_moment_and_read_from_both_ends() {
    let scene = Scene::new(1);
    let (_process, opened) = scene.start("a.1");
    let journal = opened.journal();
    for number in 1..=4 {
        put(&journal, Durability::Sync, number).await.unwrap();
    }
    let view = journal.view().unwrap();
    let remove = journal.commit(|txn| {
        txn.remove(Space::Tree, key(2));
        txn.put(Space::Tree, key(3), "changed".into());
    });
    remove.await.unwrap();
    put(&journal, Durability::Relaxed, 9).await.unwrap();
    assert_eq!(view.get(Space::Tree, &key(2)).unwrap(), Some(key(2)));
    let numbers: Vec<_> = view.range(Space::Tree, &key(2), &key(9)).map(|pair| pair.unwrap().1).collect();
    assert_eq!(numbers, [2, 3, 4].map(key));
    let mut range = view.range(Space::Tree, &key(1), &key(4));
    let ends = [range.next_back(), range.next(), range.next_back(), range.next_back(), range.next()];
    let ends = ends.map(|pair| pair.map(|pair| pair.unwrap().0));
    assert_eq!(ends, [Some(key(4)), Some(key(1)), Some(key(3)), Some(key(2)), None]);
    assert_eq!(stored(&journal), [1, 3, 4, 9]);
    assert!(view.range(Space::Tree, &key(5), &key(4)).next().is_none());
    drop((range, view));
    put(&journal, Durability::Sync, 10).await.unwrap();
    assert_eq!(scene.disk.versions(), 6, "one of each key, and the time of the last group");
}

#[tokio::test(start_paused = true)]
async fn power_cut_takes_relaxed_suffix_only() {
    let mut kept = Vec::new();
    for seed in 0..20 {
        let scene = Scene::new(seed);
        let (process, opened) = scene.start("a.1");
        let journal = opened.journal();
        for number in 1..=3 {
            put(&journal, Durability::Sync, number).await.unwrap();
        }
        for number in 4..=8 {
            put(&journal, Durability::Relaxed, number).await.unwrap();
        }
        process.crash();
        scene.disk.cut_power();
        let (_process, opened) = scene.start("a.2");
        let after = stored(&opened.journal());
        assert_eq!(after, (1..=after.len() as u64).collect::<Vec<_>>());
        assert!((3..=8).contains(&after.len()), "{after:?}");
        kept.push(after.len());
    }
    kept.sort_unstable();
    kept.dedup();
    assert!(kept.len() > 3, "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn crash_of_process_keeps_relaxed_writes() {
    let scene = Scene::new(2);
    let (process, opened) = scene.start("a.1");
    for number in 1..=5 {
        put(&opened.journal(), Durability::Relaxed, number).await.unwrap();
    }
    process.crash();
    let (_process, opened) = scene.start("a.2");
    assert_eq!(stored(&opened.journal()), [1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn relaxed_write_is_synced_in_time() {
    let scene = Scene::new(3);
    let (process, opened) = scene.start("a.1");
    put(&opened.journal(), Durability::Relaxed, 1).await.unwrap();
    assert_eq!(scene.disk.groups().1, 0);
    sleep(RELAXED_SYNC + Duration::from_millis(20)).await;
    let (written, synced) = scene.disk.groups();
    assert_eq!(written, synced);
    process.crash();
    scene.disk.cut_power();
    let (_process, opened) = scene.start("a.2");
    assert_eq!(stored(&opened.journal()), [1]);
}

#[tokio::test(start_paused = true)]
async fn waiting_work_shares_a_group() {
    let scene = Scene::new(4);
    let (_process, opened) = scene.start("a.1");
    let journal = opened.journal();
    let pieces = (1..=50).map(|number| {
        let journal = journal.clone();
        async move { put(&journal, Durability::Sync, number).await }
    });
    let answers = futures_util::future::join_all(pieces).await;
    assert!(answers.iter().all(Result::is_ok));
    assert!(scene.disk.groups().0 <= 2, "{:?}", scene.disk.groups());
}

#[tokio::test(start_paused = true)]
async fn stalled_sync_refuses_and_recovers() {
    let mut stalls = 0;
    for seed in 0..10 {
        let scene = Scene::new(seed);
        let (_process, opened) = scene.start("a.1");
        let journal = opened.journal();
        scene.begin(&[(Fault::DiskStalled, ALWAYS)]);
        let began = Instant::now();
        let answer = put(&journal, Durability::Sync, 1).await;
        scene.begin(&[]);
        let deadline = JournalOptions::default().commit_deadline;
        if answer.is_ok() {
            assert!(began.elapsed() < deadline + Duration::from_secs(1), "{:?}", began.elapsed());
            continue;
        }
        assert!(matches!(answer, Err(JournalError::Unknown(_))), "{answer:?}");
        assert!(began.elapsed() >= deadline);
        if journal.check_open().is_err() {
            stalls += 1;
            assert!(journal.check_alive().is_ok());
            assert!(matches!(put(&journal, Durability::Sync, 2).await, Err(JournalError::Closed(_))));
            assert!(matches!(journal.get(Space::Tree, &key(1)), Err(JournalError::Closed(_))));
        }
        sleep(Duration::from_secs(60)).await;
        put(&journal, Durability::Sync, 3).await.unwrap();
        assert_eq!(stored(&journal), [1, 3], "the late write is a commit, the refused one is not");
    }
    assert!(stalls > 3, "{stalls}");
}

#[tokio::test(start_paused = true)]
async fn failed_write_is_unknown_and_journal_reopens() {
    for fault in [Fault::DiskWriteFailed, Fault::DiskSyncFailed, Fault::DiskExhausted] {
        let mut lengths = Vec::new();
        for seed in 0..10 {
            let scene = Scene::new(seed);
            let (_process, opened) = scene.start("a.1");
            let journal = opened.journal();
            put(&journal, Durability::Sync, 1).await.unwrap();
            put(&journal, Durability::Relaxed, 2).await.unwrap();
            scene.begin(&[(fault, ALWAYS)]);
            let answer = put(&journal, Durability::Sync, 3).await;
            assert!(matches!(answer, Err(JournalError::Unknown(_))), "{answer:?}");
            assert!(matches!(put(&journal, Durability::Sync, 4).await, Err(JournalError::Closed(_))));
            scene.begin(&[]);
            sleep(Duration::from_secs(120)).await;
            let after = stored(&journal);
            assert!(after == [1, 2] || after == [1, 2, 3], "{fault:?}: {after:?}");
            put(&journal, Durability::Sync, 5).await.unwrap();
            lengths.push(after.len());
        }
        let is_in_doubt = lengths.contains(&2) && lengths.contains(&3);
        assert_eq!(is_in_doubt, fault != Fault::DiskExhausted, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn view_delays_the_reopening() {
    let scene = Scene::new(5);
    let (_process, opened) = scene.start("a.1");
    let journal = opened.journal();
    let view = journal.view().unwrap();
    scene.begin(&[(Fault::DiskSyncFailed, ALWAYS)]);
    put(&journal, Durability::Sync, 1).await.unwrap_err();
    scene.begin(&[]);
    sleep(Duration::from_secs(60)).await;
    assert!(journal.check_open().is_err());
    drop(view);
    sleep(Duration::from_secs(10)).await;
    journal.check_open().unwrap();
}

#[tokio::test(start_paused = true)]
async fn full_disk_has_the_reserve_only() {
    let scene = Scene::new(6);
    let (_process, opened) = scene.start("a.1");
    let journal = opened.journal();
    assert_eq!(journal.room(), Room::Free);
    scene.begin(&[(Fault::DiskFull, ALWAYS)]);
    let room = journal.commit(|txn| {
        txn.put(Space::Tree, key(1), key(1));
        txn.room()
    });
    assert_eq!(room.await.unwrap(), Room::Reserved);
    assert_eq!(journal.room(), Room::Reserved);
    scene.begin(&[]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(journal.room(), Room::Free);
}

#[tokio::test(start_paused = true)]
async fn crash_after_each_operation_loses_no_answered_write() {
    for every in 1..12 {
        let scene = Scene::new(every);
        scene.disk.crash_every(Some(every));
        let mut answered = Vec::new();
        for start in 0..8 {
            let (process, opened) = scene.start(&format!("a.{start}"));
            let journal = opened.journal();
            let work = process.tasks().spawn(async move {
                let mut answered = Vec::new();
                for rank in 0..4 {
                    let number = start * 10 + rank;
                    let durability = if rank % 2 == 0 { Durability::Sync } else { Durability::Relaxed };
                    match put(&journal, durability, number).await {
                        Ok(()) => answered.push(number),
                        Err(_) => break,
                    }
                }
                answered
            });
            answered.extend(work.await.unwrap_or_default());
            if process.is_alive() {
                sleep(Duration::from_secs(10)).await;
                process.crash();
            }
        }
        scene.disk.crash_every(None);
        let (_process, opened) = scene.start("a.last");
        let after = stored(&opened.journal());
        assert!(answered.iter().all(|number| after.contains(number)), "{every}: {answered:?}, {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_living_process_has_the_journal() {
    let scene = Scene::new(7);
    let (first, opened) = scene.start("a.1");
    put(&opened.journal(), Durability::Relaxed, 1).await.unwrap();
    let second = Process::start(scene.world.clone(), "a.2".into());
    let open = || ProcessJournal::open(&scene.disk, &second, &clock(), JournalOptions::default());
    assert!(matches!(open().map(drop), Err(OpenError::InUse(_))));
    opened.close().await;
    let opened = open().unwrap();
    assert_eq!(stored(&opened.journal()), [1]);
    let (written, synced) = scene.disk.groups();
    assert_eq!(written, synced, "an orderly end syncs");
    assert!(first.is_alive());
}

#[tokio::test(start_paused = true)]
async fn clean_close_needs_no_recount_and_a_crash_does() {
    let scene = Scene::new(8);
    let batch = |seq, rank| Batch { seq, ..post(rank) };
    let (_process, opened) = scene.start("a.1");
    let pool: Arc<dyn PoolStore> = Arc::new(EmbeddedPool::new(opened.journal()));
    assert!(opened.journal().is_checked(), "it is new");
    pool.fence(SLOT, epoch(1)).await.unwrap();
    pool.commit(&batch(1, 1)).await.unwrap();
    drop(pool);
    opened.close().await;
    let (process, opened) = scene.start("a.2");
    assert!(opened.journal().is_checked());
    let pool = EmbeddedPool::new(opened.journal());
    pool.commit(&batch(2, 2)).await.unwrap();
    process.crash();
    let (_process, opened) = scene.start("a.3");
    assert!(!opened.journal().is_checked());
    let pool = EmbeddedPool::new(opened.journal());
    while pool.recount().await.unwrap() != Recount::Done {}
    assert!(opened.journal().is_checked());
}

/// The first batch of the first owner, with one message.
fn post(rank: u64) -> Batch {
    Batch {
        slot: SLOT,
        epoch: epoch(1),
        seq: 1,
        durability: Durability::Sync,
        queues: vec![appends(queue(SLOT, 1), &messages([rank]))],
    }
}

/// Processes one after the other with a tree and a pool under all faults. Returns the trace and its hash.
async fn course(seed: u64) -> (Vec<String>, u64) {
    let scene = Scene::new(seed);
    let often = [Fault::DiskWriteFailed, Fault::DiskSyncFailed, Fault::DiskFull, Fault::DiskStalled];
    let mut rates: Vec<_> = often.map(|fault| (fault, 4_000)).into();
    rates.extend([(Fault::DiskExhausted, 1_000), (Fault::DiskCrash, 1_000), (Fault::DiskReadFailed, 1_000)]);
    scene.begin(&rates);
    for start in 1..=6_u64 {
        let (process, opened) = scene.start(&format!("a.{start}"));
        let opened = Arc::new(opened);
        for client in 0..3_u64 {
            let opened = Arc::clone(&opened);
            drop(process.tasks().spawn(serve(opened, scene.world.clone(), start, client)));
        }
        drop(opened);
        sleep(Duration::from_secs(300)).await;
        process.crash();
        if scene.world.below(2) == 0 {
            scene.disk.cut_power();
        }
    }
    let hash = scene.world.trace_hash();
    (scene.world.take_lines(), hash)
}

async fn serve(opened: Arc<ProcessJournal>, world: World, start: u64, client: u64) {
    let tree = if client == 0 { opened.tree().await.ok() } else { None };
    let store: Arc<dyn PoolStore> = Arc::new(EmbeddedPool::new(opened.journal()));
    let slot = angarium_core::ids::Slot(u8::try_from(client).unwrap());
    for rank in 1..40 {
        let transaction = start * 10 + rank / 8;
        let fenced = store.fence(slot, epoch(transaction)).await;
        let owner = Owner { store: Arc::clone(&store), slot, epoch: epoch(transaction), seq: 0 };
        let batch = owner.batch(1, vec![appends(queue(slot, 1), &messages([start * 100 + rank]))]);
        let durability = if rank % 3 == 0 { Durability::Relaxed } else { Durability::Sync };
        let committed = store.commit(&Batch { durability, ..batch }).await;
        let totals = store.totals(queue(slot, 1)).await;
        world.note(|| format!("client {client}: {fenced:?}, {committed:?}, {totals:?}"));
        if let Some(tree) = &tree {
            let made = tree.commit(&[], &[Op::create(format!("/n{start}-{rank}"), Bytes::new())]).await;
            let children = tree.children("/").await.map(|names| names.len());
            world.note(|| format!("tree: {made:?}, {children:?}"));
        }
        sleep(Duration::from_millis(world.below(2_000))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn same_seed_gives_same_trace() {
    let one = course(7).await;
    let again = course(7).await;
    assert!(one.0.len() > 500, "{}", one.0.len());
    assert_eq!(one, again);
    assert_ne!(one.1, course(8).await.1);
}
