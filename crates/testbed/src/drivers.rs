//! Owns a fresh storage of each driver, and how it is opened again. It never looks into the storage.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use uuid::Uuid;

use angarium_clock::Clock;
use angarium_journal::JournalOptions;
use angarium_storage::open::PoolOpener;
use angarium_storage::{PoolStore, Stamp};

use crate::postgres::Postgres;
use crate::redis::{Redis, RedisCluster, SYNCED};

/// An empty storage of its own. What was opened before must be dropped before it is opened again.
#[async_trait]
pub trait Storage: Send {
    async fn open(&mut self) -> Arc<dyn PoolStore>;

    /// The same, below its reserve.
    async fn open_without_room(&mut self) -> Arc<dyn PoolStore>;
}

/// The embedded driver, in a directory that is removed with its value.
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

/// The Redis driver, on a server of its own.
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

/// The Redis driver, on the cluster that tests share, each below a prefix of its own.
pub fn redis_cluster() -> impl Storage {
    let cluster = RedisCluster::shared();
    Shared { cluster, uri: cluster.fresh_uri(), room: Room::Nobodys }
}

/// The URI of a pool on that cluster, and what keeps room there while it is held.
pub async fn shared_cluster() -> (String, OwnedRwLockReadGuard<()>) {
    let uri = RedisCluster::shared().fresh_uri();
    (uri, Arc::clone(&ROOM).read_owned().await)
}

/// Held by all that use the cluster, or by the one that takes away its room.
static ROOM: LazyLock<Arc<RwLock<()>>> = LazyLock::new(Arc::default);

enum Room {
    Nobodys,
    #[expect(dead_code, reason = "it is held")]
    Ours(OwnedRwLockReadGuard<()>),
    #[expect(dead_code, reason = "it is held")]
    Taken(OwnedRwLockWriteGuard<()>),
}

struct Shared {
    cluster: &'static RedisCluster,
    uri: String,
    room: Room,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if matches!(self.room, Room::Taken(_)) {
            self.cluster.nodes.iter().for_each(|node| node.set("maxmemory", "0"));
        }
    }
}

#[async_trait]
impl Storage for Shared {
    async fn open(&mut self) -> Arc<dyn PoolStore> {
        if matches!(self.room, Room::Nobodys) {
            self.room = Room::Ours(Arc::clone(&ROOM).read_owned().await);
        }
        registered(&self.uri).await
    }

    async fn open_without_room(&mut self) -> Arc<dyn PoolStore> {
        self.room = Room::Nobodys;
        self.room = Room::Taken(Arc::clone(&ROOM).write_owned().await);
        self.cluster.nodes.iter().for_each(|node| node.set("maxmemory", "1"));
        registered(&self.uri).await
    }
}

/// The pool at a URI, registered if it is not yet.
pub async fn registered(uri: &str) -> Arc<dyn PoolStore> {
    let store = opened(uri);
    store.register(STAMP).await.expect("the storage is nobody's, or registered already");
    store
}

pub fn opened(uri: &str) -> Arc<dyn PoolStore> {
    PoolOpener::new(Path::new(""), Clock::manual(0), []).open(uri).expect("it is a URI")
}

/// What the pools of these tests are stamped with.
pub const STAMP: Stamp = Stamp { system: Uuid::from_u128(1), pool: Uuid::from_u128(2) };
