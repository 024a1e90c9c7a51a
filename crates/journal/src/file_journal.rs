//! The journal in files: a fjall database, its committer's thread, and what watches both.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tracing::warn;

use super::backend::{Backend, ReadPlace, Snapshot};
use super::committer::Committer;
use super::current::Current;
use super::disk::RoomWatch;
use super::log::Witness;
use super::snapshot::StoreSnapshot;
use super::store::{Acceptance, Store};
use super::{DiskSpace, JournalError, JournalOptions, MetDamage, OpenError, Space, Work, reclaim};
use crate::limits;
use angarium_clock::Clock;

/// An open journal below a path. Dropping it writes the queued work and closes the files.
pub(super) struct FileJournal {
    path: PathBuf,
    reserve: u64,
    pub(super) current: Arc<Current>,
    committer: Committer,
    /// See [`Backend::is_checked`].
    is_checked: Arc<AtomicBool>,
}

impl FileJournal {
    /// Opens the journal below `path`. `clock` continues from its last write.
    pub(super) fn open(path: &Path, clock: &Clock, options: JournalOptions) -> Result<Self, OpenError> {
        let store = Store::open(path, Acceptance::of(options), clock.wall())?;
        store.apply_restore(path, clock)?;
        clock.resume(store.last_write(path)?);
        Self::start(path, clock, options, store)
    }

    /// Opens the journal below `path`. Its last write only moves `clock` forward.
    pub(super) fn open_beside(
        path: &Path,
        clock: &Clock,
        options: JournalOptions,
    ) -> Result<Self, OpenError> {
        let store = Store::open(path, Acceptance::of(options), clock.wall())?;
        store.apply_restore_beside(path)?;
        clock.not_before(store.last_write(path)?);
        Self::start(path, clock, options, store)
    }

    fn start(path: &Path, clock: &Clock, options: JournalOptions, store: Store) -> Result<Self, OpenError> {
        let failed = |source| OpenError::File { path: path.to_owned(), source };
        let mark = store.mark.clone();
        let is_checked = Arc::new(AtomicBool::new(store.take_checked(path)?));
        let (current, path) = (Arc::new(Current::new(store)), path.to_owned());
        let witness = Witness::start(path.clone(), mark, Arc::clone(&current)).map_err(failed)?;
        let (reserve, checked) = (options.reserve, Arc::clone(&is_checked));
        if reserve < limits::SMALL_RESERVE {
            warn!(path = %path.display(), reserve, enough = limits::SMALL_RESERVE, "disk reserve may not suffice");
        }
        let room = RoomWatch::new(path.clone(), reserve);
        let committer =
            Committer::start(Arc::clone(&current), path.clone(), clock.clone(), room, checked, witness);
        committer.set_deadline(options.commit_deadline);
        Ok(Self { path, reserve, current, committer, is_checked })
    }
}

impl Backend for FileJournal {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, JournalError> {
        self.current.store()?.get(space, key)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, JournalError> {
        Ok(Box::new(StoreSnapshot::of(self.current.store()?)))
    }

    fn flush(&self) {
        if let (Ok(store), Some(space)) = (self.current.store(), self.disk_space()) {
            reclaim::flush(&store, space.free);
        }
    }

    fn read_place(&self) -> ReadPlace {
        ReadPlace::BlockingThread
    }

    fn submit(&self, work: Box<dyn Work>) -> Result<(), JournalError> {
        self.committer.submit(work)
    }

    fn lost(&self) -> JournalError {
        self.committer.lost()
    }

    fn damage(&self) -> Option<MetDamage> {
        self.current.damage().met()
    }

    fn disk_space(&self) -> Option<DiskSpace> {
        DiskSpace::at(&self.path)
    }

    fn reserve(&self) -> u64 {
        self.reserve
    }

    fn is_checked(&self) -> bool {
        self.is_checked.load(Ordering::Relaxed)
    }

    fn note_checked(&self) {
        self.is_checked.store(true, Ordering::Relaxed);
    }

    fn check_open(&self) -> Result<(), JournalError> {
        self.current.check_open()
    }

    fn check_alive(&self) -> Result<(), JournalError> {
        self.current.check_alive()
    }
}
