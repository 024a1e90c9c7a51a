//! What the answers of a journal promise, under all faults at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use angarium_core::durability::Durability;
use angarium_journal::{Journal, JournalError, Space};
use parking_lot::Mutex;
use tokio::time::sleep;

use super::tests::{Scene, put, stored};
use crate::faults::Fault;

/// What a client learnt of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Synced,
    Relaxed,
    Refused,
    Unknown,
}

/// The outcomes of writes by their numbers, which grow from one write to the next.
#[derive(Default)]
struct History {
    outcomes: BTreeMap<u64, Outcome>,
    /// Numbers that were not there when a process started.
    gone: BTreeSet<u64>,
}

impl History {
    /// Judges the numbers that the next process finds.
    fn judge(&mut self, found: &BTreeSet<u64>, was_power_cut: bool) {
        let last = found.last().copied().unwrap_or(0);
        for (number, outcome) in &self.outcomes {
            let is_found = found.contains(number);
            match outcome {
                Outcome::Synced => assert!(is_found, "{number} was synced"),
                Outcome::Refused => assert!(!is_found, "{number} was refused"),
                Outcome::Relaxed if !is_found => {
                    assert!(was_power_cut && *number > last, "{number} was lost, {last} was not");
                }
                Outcome::Relaxed | Outcome::Unknown => {}
            }
            if !is_found {
                self.gone.insert(*number);
            }
        }
        assert!(self.gone.is_disjoint(found), "a write came back");
        let gone = &self.gone;
        self.outcomes.retain(|number, _| !gone.contains(number));
    }
}

/// Writes numbers from `from` on until the process ends.
async fn write(journal: Journal, history: Arc<Mutex<History>>, from: u64) {
    for number in from.. {
        let durability = if number % 3 == 0 { Durability::Sync } else { Durability::Relaxed };
        history.lock().outcomes.insert(number, Outcome::Unknown);
        let outcome = match (put(&journal, durability, number).await, durability) {
            (Ok(()), Durability::Sync) => Outcome::Synced,
            (Ok(()), Durability::Relaxed) => Outcome::Relaxed,
            (Err(JournalError::Busy | JournalError::Closed(_)), _) => Outcome::Refused,
            (Err(_), _) => Outcome::Unknown,
        };
        history.lock().outcomes.insert(number, outcome);
        // The read may fail, and changes nothing.
        drop(journal.read(|journal| journal.get(Space::Tree, &[])).await);
        if outcome == Outcome::Refused {
            sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_hold_under_all_faults() {
    let (mut lost, mut counts) = (0, BTreeMap::new());
    for seed in 0..20 {
        let scene = Scene::new(seed);
        let history = Arc::new(Mutex::new(History::default()));
        let faults = [
            (Fault::DiskWriteFailed, 400),
            (Fault::DiskSyncFailed, 400),
            (Fault::DiskStalled, 400),
            (Fault::DiskExhausted, 100),
            (Fault::DiskReadFailed, 400),
            (Fault::DiskCrash, 100),
        ];
        for start in 1..8_u64 {
            scene.begin(&faults);
            let (process, opened) = scene.start(&format!("a.{start}"));
            let writing = write(opened.journal(), Arc::clone(&history), start * 1_000_000);
            drop(process.tasks().spawn(writing));
            sleep(Duration::from_millis(500 + scene.world.below(20_000))).await;
            process.crash();
            let was_power_cut = scene.world.below(2) == 0;
            if was_power_cut {
                scene.disk.cut_power();
            }
            scene.begin(&[]);
            let (process, opened) = scene.start(&format!("a.{start}.judge"));
            let found = stored(&opened.journal()).into_iter().collect();
            let mut history = history.lock();
            let relaxed = |history: &History| {
                history.outcomes.values().filter(|outcome| **outcome == Outcome::Relaxed).count()
            };
            let before = relaxed(&history);
            history.judge(&found, was_power_cut);
            lost += before - relaxed(&history);
            process.crash();
        }
        for (fault, count) in scene.world.faults().0 {
            *counts.entry(fault).or_insert(0) += count;
        }
    }
    assert!(lost > 0, "no write was lost by a power cut");
    assert!(counts.len() == 7 && counts.values().all(|count| *count > 10), "{counts:?}");
}
