//! Owns a fresh storage of each driver, and how it is opened again. It never looks into the storage.

use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;

use angarium::clock::Clock;
use angarium::storage::PoolStore;
use angarium::storage::open::PoolOpener;

/// An empty storage of its own. What was opened before must be dropped before it is opened again.
#[async_trait]
pub trait Storage: Send {
    async fn open(&mut self) -> Arc<dyn PoolStore>;

    /// The same, below its reserve.
    async fn open_without_room(&mut self) -> Arc<dyn PoolStore>;
}

/// The embedded driver, in a directory that goes with its value.
pub fn embedded() -> impl Storage {
    Embedded(tempfile::tempdir().expect("a directory for the test"))
}

struct Embedded(TempDir);

#[async_trait]
impl Storage for Embedded {
    async fn open(&mut self) -> Arc<dyn PoolStore> {
        self.opener().open("embedded:pool").expect("the pool opens")
    }

    async fn open_without_room(&mut self) -> Arc<dyn PoolStore> {
        self.opener().reserving(u64::MAX).open("embedded:pool").expect("the pool opens")
    }
}

impl Embedded {
    fn opener(&self) -> PoolOpener {
        PoolOpener::new(self.0.path(), Clock::manual(0), [])
    }
}
