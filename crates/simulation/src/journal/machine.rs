//! The journal of one process, and what a broker needs over it.
//!
//! A replica with an embedded tree has one [`Disk`] for all of its processes. Each process opens its journal there by
//! [`ProcessJournal::open`]; [`ProcessJournal::tree`] is its coordination, and [`ProcessJournal::opener`] opens the
//! pool `embedded:journal` beside the simulated storages. In order, a process ends by [`ProcessJournal::close`]; at a
//! crash its tasks end, and all that was written is on the disk. Then [`Disk::cut_power`] may take the unsynced groups.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use angarium_clock::Clock;
use angarium_coordination::TreeError;
use angarium_coordination::embedded::{EmbeddedTree, TaskSpawn};
use angarium_core::time::Timestamp;
use angarium_journal::{Journal, JournalOptions, OpenError, Space};
use angarium_storage::PoolStore;
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::open::{Opener, PoolOpenError};
use bytes::Bytes;
use tokio::runtime::Handle;

use super::backend::SimulatedJournal;
use super::committer::Committer;
use super::disk::Disk;
use super::shared::Shared;
use super::versions::{self, Writes};
use super::{CHECKED_KEY, CrashHook, TIME_KEY};
use crate::pool::SimulatedOpener;
use crate::process::Process;

/// The URI of the pool in the journal of a process.
pub const EMBEDDED: &str = "embedded:journal";

/// The open journal of a process.
pub struct ProcessJournal {
    journal: Journal,
    shared: Arc<Shared>,
}

impl ProcessJournal {
    /// Opens the journal on a disk for a process, which ends by `Process::crash` if an operation on the disk is its
    /// last one. `clock` continues from the last write. [`OpenError::InUse`] while another living process has it open.
    pub fn open(
        disk: &Disk,
        process: &Process,
        clock: &Clock,
        options: JournalOptions,
    ) -> Result<Self, OpenError> {
        let ending = process.clone();
        Self::open_with(disk, process, clock, options, Arc::new(move || ending.crash()))
    }

    /// Opens the journal like [`Self::open`], with another way to end the process: `crash` must end it at once, and may
    /// start the next one.
    pub fn open_with(
        disk: &Disk,
        process: &Process,
        clock: &Clock,
        options: JournalOptions,
        crash: CrashHook,
    ) -> Result<Self, OpenError> {
        if disk.is_in_use() {
            return Err(OpenError::InUse(PathBuf::from(disk.name())));
        }
        disk.begin_use();
        let (is_checked, last_write) = take_checked(disk);
        clock.resume(last_write);
        let shared = Shared::open(disk.clone(), process.clone(), clock.clone(), options, is_checked);
        let shared = Arc::new(shared);
        disk.note_user(process, Arc::downgrade(&shared));
        shared.note(|| format!("is open at {:?}, checked: {is_checked}", disk.groups()));
        let committer = Committer::new(Arc::clone(&shared), crash);
        drop(process.tasks().spawn(committer.run()));
        Ok(Self { journal: Journal::over(SimulatedJournal(Arc::clone(&shared))), shared })
    }

    /// Returns a handle to the journal.
    pub fn journal(&self) -> Journal {
        self.journal.clone()
    }

    /// Opens the tree in the journal. Open it once.
    pub async fn tree(&self) -> Result<EmbeddedTree, TreeError> {
        let process = self.shared.process.clone();
        let spawn: TaskSpawn = Arc::new(move |task: Pin<Box<dyn Future<Output = ()> + Send>>| {
            // At the end of a run nothing is started any more.
            if Handle::try_current().is_ok() {
                drop(process.tasks().spawn(task));
            }
        });
        Ok(EmbeddedTree::open(self.journal()).await?.with_spawn(spawn))
    }

    /// Returns the opener of the pool in the journal, and of the storages that `others` opens.
    pub fn opener(&self, others: SimulatedOpener) -> EmbeddedOpener {
        EmbeddedOpener { journal: self.journal(), others }
    }

    /// Closes the journal as a process does that ends in order: waiting work is written and synced, other work is
    /// refused. Returns once the next process can open it.
    pub async fn close(&self) {
        self.shared.begin_close();
        self.shared.disk.released().await;
    }
}

/// Returns whether the contents need no check, and the time of the last group. Removes the record of a check.
fn take_checked(disk: &Disk) -> (bool, Timestamp) {
    let (written, _) = disk.groups();
    let time = disk.peek(Space::Meta, TIME_KEY, written);
    let millis = time.as_ref().and_then(|time| Some(u64::from_be_bytes(time[..].try_into().ok()?)));
    let has_record = disk.peek(Space::Meta, CHECKED_KEY, written).is_some();
    if has_record {
        let record = (versions::number(Space::Meta), Bytes::from_static(CHECKED_KEY));
        disk.write(Writes::from([(record, None)]));
        disk.sync();
    }
    (has_record || time.is_none(), Timestamp::from_millis(millis.unwrap_or(0)))
}

/// Opens the pool in the journal of a process, and simulated storages.
pub struct EmbeddedOpener {
    journal: Journal,
    others: SimulatedOpener,
}

impl Opener for EmbeddedOpener {
    fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        if uri == EMBEDDED {
            return Ok(Arc::new(EmbeddedPool::new(self.journal.clone())));
        }
        self.others.open(uri)
    }

    fn open_registered(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        if uri == EMBEDDED { self.open(uri) } else { self.others.open_registered(uri) }
    }

    fn close(&self, uri: &str) {
        self.others.close(uri);
    }

    fn never_blocks(&self) -> bool {
        true
    }
}
