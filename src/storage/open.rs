//! The drivers by the scheme of a pool's URI. A new driver is one folder and one arm here.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use thiserror::Error as ThisError;

use super::PoolStore;
use super::embedded::EmbeddedPool;
use super::redis::{AddressError, RedisPool};
use crate::clock::Clock;
use crate::journal::{Journal, OpenError};

/// Why a pool's storage could not be opened.
#[derive(Debug, ThisError)]
pub enum PoolOpenError {
    /// No driver has this scheme.
    #[error(
        "no driver for {0:?}: a pool's URI begins with embedded:, redis://, rediss://, redis-cluster:// or redis-sentinel://"
    )]
    Scheme(String),
    /// The URI of a Redis pool.
    #[error(transparent)]
    Redis(#[from] AddressError),
    /// The path leads out of the data directory.
    #[error("{0:?} is not a path below the data directory")]
    Path(String),
    /// The embedded store.
    #[error(transparent)]
    Journal(#[from] OpenError),
}

/// Opens pools, each storage once: pools with the same path share a journal with the tree or each other.
pub struct PoolOpener {
    data: PathBuf,
    clock: Clock,
    journals: HashMap<PathBuf, Journal>,
}

impl PoolOpener {
    /// An opener for embedded paths below `data`, where the journals given are open already.
    pub fn new(data: &Path, clock: Clock, open: impl IntoIterator<Item = (PathBuf, Journal)>) -> Self {
        Self { data: data.to_owned(), clock, journals: open.into_iter().collect() }
    }

    /// Opens the storage at `uri`. Blocks while an embedded store replays its log.
    pub fn open(&mut self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        match uri.split_once(':') {
            Some(("embedded", path)) => Ok(Arc::new(EmbeddedPool::new(self.journal(path)?))),
            Some(("redis" | "rediss" | "redis-cluster" | "redis-sentinel", _)) => {
                Ok(Arc::new(RedisPool::new(uri.parse()?)))
            }
            // The rest may hold a password.
            Some((scheme, _)) => Err(PoolOpenError::Scheme(scheme.to_owned())),
            None => Err(PoolOpenError::Scheme(uri.to_owned())),
        }
    }

    fn journal(&mut self, path: &str) -> Result<Journal, PoolOpenError> {
        let relative = Path::new(path);
        let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if path.is_empty() || !plain {
            return Err(PoolOpenError::Path(path.to_owned()));
        }
        let full = self.data.join(relative);
        if let Some(journal) = self.journals.get(&full) {
            return Ok(journal.clone());
        }
        let journal = Journal::open(&full, &self.clock)?;
        self.journals.insert(full, journal.clone());
        Ok(journal)
    }
}
