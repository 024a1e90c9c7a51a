//! The drivers by the scheme of a pool's URI. A new driver is one folder and one arm here.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error as ThisError;

use super::PoolStore;
use super::embedded::EmbeddedPool;
use crate::clock::Clock;
use crate::journal::{Journal, OpenError};

/// Why a pool's storage could not be opened.
#[derive(Debug, ThisError)]
pub enum PoolOpenError {
    /// No driver has this scheme.
    #[error("no driver for {0:?}: a pool's URI begins with embedded:")]
    Scheme(String),
    /// The path leads out of the data directory.
    #[error("{0:?} is not a path below the data directory")]
    Path(String),
    /// The embedded store.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// The opening did not come to its end.
    #[error("the opening was interrupted: {0}")]
    Interrupted(String),
}

/// Opens pools, each storage once: pools with the same path share a journal with the tree or each other.
pub struct PoolOpener {
    data: PathBuf,
    clock: Clock,
    /// Held while one is opened, which happens once.
    journals: Mutex<HashMap<PathBuf, Open>>,
}

struct Open {
    journal: Journal,
    /// Whether somebody else opened it, so that it is not ours to close.
    is_given: bool,
}

impl PoolOpener {
    /// An opener for embedded paths below `data`, where the journals given are open already.
    pub fn new(data: &Path, clock: Clock, open: impl IntoIterator<Item = (PathBuf, Journal)>) -> Self {
        let given = |(path, journal)| (path, Open { journal, is_given: true });
        Self { data: data.to_owned(), clock, journals: Mutex::new(open.into_iter().map(given).collect()) }
    }

    /// Opens the storage at `uri`. Blocks while an embedded store replays its log.
    pub fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        match uri.split_once(':') {
            Some(("embedded", path)) => Ok(Arc::new(EmbeddedPool::new(self.journal(path)?))),
            _ => Err(PoolOpenError::Scheme(uri.to_owned())),
        }
    }

    /// Forgets the storage at `uri`, which then closes with the last handle of it. Its data stays.
    pub fn close(&self, uri: &str) {
        let Some(("embedded", path)) = uri.split_once(':') else { return };
        let Ok(full) = self.path(path) else { return };
        let mut journals = self.journals.lock();
        if journals.get(&full).is_some_and(|open| !open.is_given) {
            journals.remove(&full);
        }
    }

    fn journal(&self, path: &str) -> Result<Journal, PoolOpenError> {
        let full = self.path(path)?;
        let mut journals = self.journals.lock();
        if let Some(open) = journals.get(&full) {
            return Ok(open.journal.clone());
        }
        let journal = Journal::open(&full, &self.clock)?;
        journals.insert(full, Open { journal: journal.clone(), is_given: false });
        Ok(journal)
    }

    fn path(&self, path: &str) -> Result<PathBuf, PoolOpenError> {
        let relative = Path::new(path);
        let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if path.is_empty() || !plain {
            return Err(PoolOpenError::Path(path.to_owned()));
        }
        Ok(self.data.join(relative))
    }
}
