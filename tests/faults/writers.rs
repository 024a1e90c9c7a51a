//! Owns the load on a pool's driver while a fault strikes: owners that repeat a batch under its number until its outcome is
//! known, as the service does, and the judgement of what is there in the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use angarium_core::ids::Slot;
use angarium_core::message::Message;
use angarium_storage::{Batch, Changes, PoolStore, StoreError};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;

use angarium_testbed::owner::{Owner, appends, both, id, message, queue};

/// More than a fail-over takes.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Repeats a batch until its outcome is known. Returns how often it was not.
pub async fn settle(store: &dyn PoolStore, batch: &Batch) -> u64 {
    let mut doubts = 0;
    let settled = tokio::time::timeout(MAX_WAIT, async {
        loop {
            match store.commit(batch).await {
                Ok(()) => return,
                Err(StoreError::NotSent(_)) => {}
                Err(StoreError::Unknown(_)) => doubts += 1,
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    settled.await.unwrap_or_else(|_| panic!("no outcome after {MAX_WAIT:?}"));
    doubts
}

/// An owner that appends and removes at random.
pub struct Writer {
    owner: Owner,
    dice: StdRng,
    last: u64,
    /// What must be there.
    held: BTreeMap<u64, Message>,
    doubts: u64,
}

impl Writer {
    async fn new(store: &Arc<dyn PoolStore>, slot: u8, dice: StdRng) -> Self {
        let owner = Owner::fence(store, Slot(slot), 1).await;
        Self { owner, dice, last: 0, held: BTreeMap::new(), doubts: 0 }
    }

    async fn step(&mut self) {
        let at = queue(self.owner.slot, 1);
        let count = self.dice.random_range(1..20);
        let sent: Vec<Message> =
            (self.last + 1..=self.last + count).map(|rank| message(rank, &rank.to_string())).collect();
        let gone: Vec<u64> =
            self.held.keys().copied().filter(|_| self.dice.random_ratio(1, 4)).take(20).collect();
        let removes = gone.iter().map(|rank| id(*rank)).collect();
        let batch =
            self.owner.batch(self.owner.seq + 1, vec![both(appends(at, &sent), Changes::removes(removes))]);
        self.doubts += settle(&*self.owner.store, &batch).await;
        self.owner.seq += 1;
        self.last += count;
        gone.iter().for_each(|rank| drop(self.held.remove(rank)));
        self.held.extend((self.last - count + 1..=self.last).zip(sent));
    }

    async fn assert_kept(&self) {
        let found = self.owner.all(queue(self.owner.slot, 1)).await;
        let wanted: Vec<&Message> = self.held.values().collect();
        assert!(found.iter().eq(wanted), "{} are there, {} must be", found.len(), self.held.len());
        let bytes = found.iter().map(|message| message.body.len() as u64).sum();
        assert_eq!(self.owner.totals(queue(self.owner.slot, 1)).await, (found.len() as u64, bytes));
    }
}

/// Owners of some slots that write until `over`.
pub async fn load(store: &Arc<dyn PoolStore>, seed: u64, over: &Arc<AtomicBool>) -> JoinSet<Writer> {
    let mut load = JoinSet::new();
    for slot in [0, 1, 100, 200, 255] {
        let dice = StdRng::seed_from_u64(seed.wrapping_add(slot));
        let mut writer = Writer::new(store, u8::try_from(slot).unwrap(), dice).await;
        let over = Arc::clone(over);
        load.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                writer.step().await;
            }
            writer
        });
    }
    load
}

/// Lets the load end, and looks whether everything is there that must be, and nothing else.
pub async fn judge(test: &str, load: JoinSet<Writer>, over: &AtomicBool) {
    over.store(true, Ordering::SeqCst);
    let (mut batches, mut doubts) = (0, 0);
    for writer in load.join_all().await {
        writer.assert_kept().await;
        (batches, doubts) = (batches + writer.owner.seq, doubts + writer.doubts);
    }
    eprintln!("{test}: {batches} batches, {doubts} without an outcome at first");
    assert!(batches > 0);
}
