//! Owns a fresh storage of each driver, and how it is opened again. It never looks into the storage.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;
use uuid::Uuid;

use angarium::clock::Clock;
use angarium::storage::open::PoolOpener;
use angarium::storage::{PoolStore, Stamp};

use crate::support::postgres::Postgres;

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

/// The PostgreSQL driver, on the server that tests share, each in a schema of its own.
pub fn postgres_server() -> impl Storage {
    Schema(Postgres::shared().fresh_uri())
}

/// A URI.
struct Schema(String);

#[async_trait]
impl Storage for Schema {
    async fn open(&mut self) -> Arc<dyn PoolStore> {
        registered(&self.0).await
    }

    async fn open_without_room(&mut self) -> Arc<dyn PoolStore> {
        let store = registered(&format!("{}&quota=1", self.0)).await;
        // Where it learns how much there is.
        store.health().await.expect("it answers");
        store
    }
}

/// The pool at a URI, registered for the tests.
pub async fn registered(uri: &str) -> Arc<dyn PoolStore> {
    let store = PoolOpener::new(Path::new(""), Clock::manual(0), []).open(uri).expect("it is a URI");
    let stamp = Stamp { system: Uuid::from_u128(1), pool: Uuid::from_u128(2) };
    store.register(stamp).await.expect("the storage is nobody's, or registered already");
    store
}
