//! Backups of the running service: one moment of all journals, written to one client.
//!
//! ```text
//! request ──▶ one at a time, room on the disk ──▶ moment of all journals ──▶ answer: 200 and a stream
//!                                                        │ views
//!                                                        ▼
//!                             a thread reads the views, piece after piece ──▶ channel ──▶ client
//! ```
//!
//! Scans of the views keep removed data on the disk, and a journal that has failed cannot be opened again while one
//! is there. So the thread looks around all the time, also while its client is slow, and breaks the backup off.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::limits;
use angarium_backup::{BackupReceiver, BackupWriter, FORM, Head, WriteError};
use angarium_broker::{BackupPool, BackupSource, BackupStream};
use angarium_catalogue::System;
use angarium_clock::Clock;
use angarium_coordination::nodes_on_disk;
use angarium_core::error::{Error, Part};
use angarium_core::limits as core_limits;
use angarium_core::time::millis;
use angarium_journal::{Journal, Moment, MomentError, Space, View, moment};
use angarium_metrics::{BackupMeter, RunningBackup};
use angarium_storage::open::PoolOpener;

/// Makes backups of an embedded tree and of all embedded pools, one at a time.
pub(super) struct HotBackups {
    /// The journal of the tree, and its path below the data directory.
    tree: (String, Journal),
    opener: Arc<PoolOpener>,
    clock: Clock,
    meter: BackupMeter,
    turn: Arc<Semaphore>,
    threads: TaskTracker,
    stop: CancellationToken,
}

impl fmt::Debug for HotBackups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HotBackups")
    }
}

/// The journals of a backup, with their paths, and the pools that are stored elsewhere.
struct BackedStores {
    journals: Vec<(String, Journal)>,
    outside: Vec<String>,
}

impl HotBackups {
    pub(super) fn new(
        tree: (String, Journal),
        opener: Arc<PoolOpener>,
        clock: Clock,
        meter: BackupMeter,
    ) -> Self {
        let (turn, threads, stop) =
            (Arc::new(Semaphore::new(1)), TaskTracker::new(), CancellationToken::new());
        Self { tree, opener, clock, meter, turn, threads, stop }
    }

    /// Breaks off a running backup, and begins no other one.
    pub(super) fn stop(&self) {
        self.stop.cancel();
        self.threads.close();
    }

    /// Returns when no backup uses the stores any more.
    pub(super) async fn ended(&self) {
        self.threads.wait().await;
    }

    /// Finds the journals of the tree and of these pools.
    fn stores(&self, pools: Vec<BackupPool>) -> Result<BackedStores, Error> {
        let (path, journal) = &self.tree;
        let mut stores =
            BackedStores { journals: vec![(path.clone(), journal.clone())], outside: Vec::new() };
        for BackupPool { name, uri } in pools {
            if !uri.is_embedded() {
                stores.outside.push(name.to_string());
                continue;
            }
            let closed = || Error::unavailable(Part::Pool(name.clone()), "its storage is not open");
            let (path, journal) = self.opener.open_journal(uri.as_str()).ok_or_else(closed)?;
            // As a URI may not spell it: `a//b` and `a/./b` are `a/b`.
            let path: PathBuf = path.components().collect();
            let path = path.to_string_lossy().into_owned();
            if stores.journals.iter().all(|(known, _)| *known != path) {
                stores.journals.push((path, journal));
            }
        }
        Ok(stores)
    }
}

#[async_trait]
impl BackupSource for HotBackups {
    async fn begin(&self, pools: Vec<BackupPool>) -> Result<BackupStream, Error> {
        if self.stop.is_cancelled() {
            return Err(Error::unavailable(Part::Server, "it stops"));
        }
        let turn = Arc::clone(&self.turn).try_acquire_owned();
        let turn = turn.map_err(|_| Error::Conflict("another backup is being made".to_owned()))?;
        let BackedStores { journals, outside } = self.stores(pools)?;
        let (paths, journals): (Vec<String>, Vec<Journal>) = journals.into_iter().unzip();
        check_stores(&journals).map_err(|why| Error::unavailable(Part::Storage, why))?;
        let begun = self.clock.now().as_millis();
        let taken = journals.clone();
        let taken = tokio::task::spawn_blocking(move || moment(&taken)).await;
        let taken = taken.map_err(|error| Error::unavailable(Part::Server, error))?.map_err(unavailable)?;
        let head = Head {
            form: FORM,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            begun,
            point: self.clock.now().as_millis(),
            clock: self.clock.wall().as_millis(),
            stopped_us: u64::try_from(taken.stopped.as_micros()).unwrap_or(u64::MAX),
            journals: paths,
            spaces: Space::contents().map(|space| space.name().to_owned()).collect(),
            outside,
            ..installation(&taken)?
        };
        head.check().map_err(|why| Error::unavailable(Part::Storage, why))?;
        let (sender, receiver) = channel(limits::BACKUP_PIECES);
        let sending = BackupSending {
            journals,
            running: Some(self.meter.begin()),
            clock: self.clock.clone(),
            sender,
            runtime: Handle::current(),
            stop: self.stop.clone(),
            began: Instant::now(),
            looked: None,
            bytes: 0,
            is_ending: false,
        };
        self.threads.spawn_blocking(move || sending.run(&head, taken.views, turn));
        Ok(receiver)
    }
}

fn unavailable(error: MomentError) -> Error {
    match error {
        MomentError::Journal(error) => Error::unavailable(Part::Storage, error),
        error @ MomentError::Apart(_) => Error::unavailable(Part::Storage, error),
    }
}

/// Returns a head with the installation as it was at that moment.
fn installation(taken: &Moment) -> Result<Head, Error> {
    let (depth, path) = System::PATH;
    let node = taken.views.first().and_then(|view| nodes_on_disk(view, depth, path).into_iter().next());
    let system = node.and_then(|(_, data)| System::decode(&data));
    let unread = || Error::unavailable(Part::Coordination, "the record of the installation cannot be read");
    let System { id, generation, schema, .. } = system.ok_or_else(unread)?;
    Ok(Head {
        form: FORM,
        program: String::new(),
        installation: id,
        generation,
        schema,
        point: 0,
        begun: 0,
        clock: 0,
        stopped_us: 0,
        journals: Vec::new(),
        spaces: Vec::new(),
        outside: Vec::new(),
    })
}

/// Checks that all journals are open and that their disks have room for what a backup keeps.
fn check_stores(journals: &[Journal]) -> Result<(), String> {
    for journal in journals {
        journal.check_open().map_err(|error| error.to_string())?;
        let (space, reserve) = (journal.disk_space(), journal.reserve());
        let needed = reserve.saturating_add(limits::BACKUP_MARGIN);
        if let Some(space) = space.filter(|space| space.free < needed) {
            return Err(format!(
                "the disk is near its reserve: {} bytes are free, and a backup needs {needed}",
                space.free
            ));
        }
    }
    Ok(())
}

/// Why a backup ends early.
enum BackupEnd {
    /// Its client has left.
    ClientLeft,
    /// The service breaks it off.
    BrokenOff(String),
}

impl fmt::Display for BackupEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientLeft => f.write_str("the client has left"),
            Self::BrokenOff(why) => f.write_str(why),
        }
    }
}

/// A backup on its way to its client.
struct BackupSending {
    journals: Vec<Journal>,
    /// None once its outcome is counted.
    running: Option<RunningBackup>,
    clock: Clock,
    sender: Sender<Bytes>,
    runtime: Handle,
    stop: CancellationToken,
    began: Instant,
    /// When the thread last looked around.
    looked: Option<Instant>,
    /// Bytes that were sent.
    bytes: u64,
    /// Whether its last piece is sent, or only the reason of its end is still to be sent.
    is_ending: bool,
}

impl BackupSending {
    /// Sends the whole backup, or a part of it and the reason why there is no more. `turn` is held until the client has
    /// it.
    fn run(self, head: &Head, views: Vec<View>, turn: OwnedSemaphorePermit) {
        let (began, stopped_us) = (self.began, head.stopped_us);
        info!(stopped_us, journals = views.len(), "backup begun");
        let mut writer = BackupWriter::new(self);
        let written = writer.write(head, views);
        writer.receiver().journals.clear();
        let sent = written.and_then(|manifest| {
            writer.receiver().await_sent().map(|()| manifest).map_err(WriteError::Ended)
        });
        let (bytes, place, took_ms) =
            (writer.receiver().bytes, writer.place().to_owned(), millis(began.elapsed()));
        match sent {
            Ok(manifest) => {
                info!(bytes, pairs = manifest.pairs(), stopped_us, took_ms, "backup written");
                let seconds = writer.receiver().clock.wall().as_millis() / 1_000;
                if let Some(running) = writer.receiver().running.take() {
                    running.end_written(seconds);
                }
            }
            Err(error) => {
                let why = match error {
                    WriteError::Ended(end) => end.to_string(),
                    error => error.to_string(),
                };
                warn!(error = why, bytes, place, took_ms, "backup broken off");
                // Nothing may follow a manifest.
                if !writer.receiver().is_ending {
                    writer.receiver().is_ending = true;
                    // A client that has left learns it from the missing manifest.
                    let _ = writer.abort(&format!("{why}; {bytes} bytes were written, up to {place}"));
                }
            }
        }
        drop(turn);
    }

    /// Waits until the connection of the client has taken all pieces, behind the manifest. Nothing is sent after it: a
    /// client that is too slow may still get what waits.
    fn await_sent(&mut self) -> Result<(), BackupEnd> {
        self.is_ending = true;
        let begun = Instant::now();
        loop {
            let is_stopping = self.stop.is_cancelled() && begun.elapsed() > limits::BACKUP_LAST_WORD;
            if is_stopping || self.began.elapsed() > core_limits::BACKUP_DEADLINE {
                return Err(BackupEnd::BrokenOff("the client has not taken the end of it".to_owned()));
            }
            let all = self.sender.reserve_many(limits::BACKUP_PIECES);
            match self.runtime.block_on(timeout(limits::BACKUP_LOOK, all)) {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(_)) => return Err(BackupEnd::ClientLeft),
                Err(_) => {}
            }
        }
    }

    /// Looks around, unless the last look was a moment ago.
    fn look(&mut self) -> Result<(), BackupEnd> {
        if self.looked.is_some_and(|looked| looked.elapsed() < limits::BACKUP_LOOK) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        if self.stop.is_cancelled() {
            return Err(BackupEnd::BrokenOff("the service stops".to_owned()));
        }
        if self.began.elapsed() > core_limits::BACKUP_DEADLINE {
            let hours = core_limits::BACKUP_DEADLINE.as_secs() / 3_600;
            return Err(BackupEnd::BrokenOff(format!("the client has not read it within {hours} hours")));
        }
        check_stores(&self.journals).map_err(BackupEnd::BrokenOff)
    }
}

impl BackupReceiver for BackupSending {
    type End = BackupEnd;

    /// Waits for the client, and looks around meanwhile.
    fn take(&mut self, bytes: Bytes) -> Result<(), BackupEnd> {
        let began = Instant::now();
        loop {
            if self.is_ending {
                if began.elapsed() > limits::BACKUP_LAST_WORD {
                    return Err(BackupEnd::ClientLeft);
                }
            } else {
                self.look()?;
            }
            match self.runtime.block_on(timeout(limits::BACKUP_LOOK, self.sender.reserve())) {
                Ok(Ok(place)) => {
                    self.bytes += bytes.len() as u64;
                    self.running.iter().for_each(|running| running.note_sent(bytes.len() as u64));
                    place.send(bytes);
                    return Ok(());
                }
                Ok(Err(_)) => return Err(BackupEnd::ClientLeft),
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn backup_is_sent_when_its_client_has_every_piece() {
        for is_read in [true, false] {
            let (sender, mut receiver) = channel(limits::BACKUP_PIECES);
            sender.send(Bytes::from_static(b"the manifest")).await.unwrap();
            let mut sending = BackupSending {
                journals: Vec::new(),
                running: None,
                clock: Clock::manual(1_000),
                sender,
                runtime: Handle::current(),
                stop: CancellationToken::new(),
                began: Instant::now(),
                looked: None,
                bytes: 0,
                is_ending: false,
            };
            let waiting = tokio::task::spawn_blocking(move || sending.await_sent().is_ok());
            if is_read {
                assert!(receiver.recv().await.is_some());
                assert!(waiting.await.unwrap());
            } else {
                drop(receiver);
                assert!(!waiting.await.unwrap());
            }
        }
    }
}
