//! A fresh storage of each driver, which tests can open repeatedly. This module never reads the storage.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use uuid::Uuid;

use angarium_clock::Clock;
use angarium_journal::JournalOptions;
use angarium_storage::open::PoolOpener;
use angarium_storage::{PoolStore, Stamp, StoreError};

use crate::held::START;
use crate::postgres::Postgres;
use crate::redis::{Redis, RedisCluster, SYNCED};

/// An empty storage. An opened pool must be dropped before the storage is opened again.
#[async_trait]
pub trait Storage: Send {
    async fn open(&mut self) -> Arc<dyn PoolStore>;

    /// Opens it below its reserve.
    async fn open_without_room(&mut self) -> Arc<dyn PoolStore>;
}

/// A storage of the embedded driver, in a directory that is removed with the value.
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
        let all_reserved = JournalOptions { reserve: u64::MAX, ..JournalOptions::default() };
        self.opener().with_options(all_reserved).open("embedded:pool").expect("the pool opens")
    }
}

impl Embedded {
    fn opener(&self) -> PoolOpener {
        PoolOpener::new(self.0.path(), Clock::manual(0), [])
    }
}

/// A storage of the PostgreSQL driver, on the server that tests share, with its own schema.
pub fn postgres_server() -> impl Storage {
    Schema(Postgres::shared().fresh_uri())
}

/// A URI with a schema.
struct Schema(String);

#[async_trait]
impl Storage for Schema {
    async fn open(&mut self) -> Arc<dyn PoolStore> {
        registered(&self.0).await
    }

    async fn open_without_room(&mut self) -> Arc<dyn PoolStore> {
        let store = registered(&format!("{}&quota=1", self.0)).await;
        // The driver measures its room in the health check.
        store.health().await.expect("it answers");
        store
    }
}

/// A storage of the Redis driver, on its own server.
pub fn redis_server() -> impl Storage {
    Alone(Redis::start(SYNCED))
}

struct Alone(Redis);

#[async_trait]
impl Storage for Alone {
    async fn open(&mut self) -> Arc<dyn PoolStore> {
        registered(&self.0.uri("")).await
    }

    async fn open_without_room(&mut self) -> Arc<dyn PoolStore> {
        self.0.set("maxmemory", "1");
        self.open().await
    }
}

/// A storage of the Redis driver, on the cluster that tests share, with its own prefix.
pub fn redis_cluster() -> impl Storage {
    let cluster = RedisCluster::shared();
    Shared { cluster, uri: cluster.fresh_uri(), room: Room::Unused }
}

/// The URI of a pool on that cluster, and a guard that keeps room there while it is held.
pub async fn shared_cluster() -> (String, OwnedRwLockReadGuard<()>) {
    let uri = RedisCluster::shared().fresh_uri();
    (uri, Arc::clone(&ROOM).read_owned().await)
}

/// Held for reading by all users of the cluster, and for writing by a test that takes away its room.
static ROOM: LazyLock<Arc<RwLock<()>>> = LazyLock::new(Arc::default);

enum Room {
    Unused,
    #[expect(dead_code, reason = "it is held")]
    InUse(OwnedRwLockReadGuard<()>),
    #[expect(dead_code, reason = "it is held")]
    Exclusive(OwnedRwLockWriteGuard<()>),
}

struct Shared {
    cluster: &'static RedisCluster,
    uri: String,
    room: Room,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if matches!(self.room, Room::Exclusive(_)) {
            self.cluster.nodes.iter().for_each(|node| node.set("maxmemory", "0"));
        }
    }
}

#[async_trait]
impl Storage for Shared {
    async fn open(&mut self) -> Arc<dyn PoolStore> {
        if matches!(self.room, Room::Unused) {
            self.room = Room::InUse(Arc::clone(&ROOM).read_owned().await);
        }
        registered(&self.uri).await
    }

    async fn open_without_room(&mut self) -> Arc<dyn PoolStore> {
        self.room = Room::Unused;
        self.room = Room::Exclusive(Arc::clone(&ROOM).write_owned().await);
        self.cluster.nodes.iter().for_each(|node| node.set("maxmemory", "1"));
        registered(&self.uri).await
    }
}

/// Opens the pool at a URI, and registers it if needed.
pub async fn registered(uri: &str) -> Arc<dyn PoolStore> {
    let (store, deadline) = (opened(uri), Instant::now() + START);
    // A busy machine may exceed the timeout of a connection.
    while let Err(error) = store.register(STAMP).await {
        let may_retry = matches!(error, StoreError::NotSent(_)) && Instant::now() < deadline;
        assert!(may_retry, "the storage is unregistered, or has this stamp: {error}");
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    store
}

pub fn opened(uri: &str) -> Arc<dyn PoolStore> {
    PoolOpener::new(Path::new(""), Clock::manual(0), []).open(uri).expect("it is a URI")
}

/// The stamp of the pools of these tests.
pub const STAMP: Stamp = Stamp { system: Uuid::from_u128(1), pool: Uuid::from_u128(2) };
