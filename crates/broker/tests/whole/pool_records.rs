//! Records of pools that another caller changes, and storages that are opened again.

use std::collections::HashSet;
use std::sync::Arc;

use angarium_broker::{Broker, PoolSettings};
use angarium_catalogue::{Catalogue, OwnedSlot, PoolUsers, QueueRecord};
use angarium_clock::Clock;
use angarium_coordination::Coordination;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::error::Error;
use angarium_core::ids::{QueueId, Slot};
use angarium_core::limits::Limits;
use angarium_core::message::NewMessage;
use angarium_core::names::PoolName;
use angarium_core::pool::{Pool, PoolChange, PoolUri};
use angarium_core::queue::Metadata;
use angarium_engine::placement::Algorithm;
use angarium_journal::Journal;
use angarium_storage::open::{Opener, PoolOpenError, PoolOpener};
use angarium_storage::{PoolStore, Stamp};
use parking_lot::Mutex;
use tempfile::TempDir;
use uuid::Uuid;

use super::transfers::until;
use super::{queue, replica};

/// Opens storages below a directory, except unreachable ones. It records the closed ones.
struct Doors {
    opener: PoolOpener,
    shut: Mutex<HashSet<String>>,
    closed: Mutex<Vec<String>>,
}

impl Opener for Doors {
    fn open(&self, uri: &str) -> Result<Arc<dyn PoolStore>, PoolOpenError> {
        if self.shut.lock().contains(uri) {
            return Err(PoolOpenError::Interrupted("it is shut".into()));
        }
        self.opener.open(uri)
    }

    fn close(&self, uri: &str) {
        self.closed.lock().push(uri.to_owned());
        self.opener.close(uri);
    }
}

/// One installation, over which brokers start one after the other.
struct Installation {
    doors: Arc<Doors>,
    settings: PoolSettings,
    tree: Arc<EmbeddedTree>,
    catalogue: Catalogue,
    clock: Clock,
    _data: TempDir,
}

impl Installation {
    async fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let clock = Clock::manual(1_700_000_000_000);
        let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
        let tree = Arc::new(EmbeddedTree::open(journal).await.unwrap());
        let opener = PoolOpener::new(data.path(), clock.clone(), []);
        let doors = Arc::new(Doors { opener, shut: Mutex::default(), closed: Mutex::default() });
        let (opener, placement): (Arc<dyn Opener>, _) = (doors.clone(), Algorithm::default());
        let settings = PoolSettings { first: None, opener, placement };
        let catalogue = Catalogue::new(tree.clone());
        Self { doors, settings, tree, catalogue, clock, _data: data }
    }

    /// Returns a slot as its owner has it.
    async fn owned(&self, slot: Slot) -> OwnedSlot {
        let node = self.tree.get(&format!("/meta/slots/{slot}")).await.unwrap().unwrap();
        OwnedSlot::new(slot, node.version, node.modified)
    }

    async fn start(&self) -> Broker {
        Broker::start(self.catalogue.clone(), &self.settings, replica(), self.clock.clone(), Limits::ZAQAR)
            .await
            .unwrap()
    }
}

fn name(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

fn at(path: &str) -> PoolChange {
    let uri = PoolUri::new(&format!("embedded:{path}")).unwrap();
    PoolChange { uri: Some(uri), weight: Some(1), ..PoolChange::default() }
}

async fn post(broker: &Broker, at: &str) -> Result<(), Error> {
    let message = NewMessage { body: "1".into(), ttl: None, delay: None, ..NewMessage::default() };
    broker.messages_post(&queue(at), vec![message], None).await.map(|_| ())
}

/// Returns the weights of the pools that the broker knows.
async fn known(broker: &Broker) -> Vec<(String, u32)> {
    let pools = broker.health().await.pools;
    pools.iter().map(|health| (health.name.to_string(), health.pool.weight)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_changes_of_others_are_followed() {
    let here = Installation::new().await;
    let broker = here.start().await;
    broker.pool_put(&name("own"), at("own")).await.unwrap();
    let own = ("own".to_owned(), 1);
    // As another replica would do it.
    let system = here.catalogue.system(Uuid::new_v4()).await.unwrap();
    let id = Uuid::new_v4();
    let store = here.doors.opener.open("embedded:theirs").unwrap();
    store.register(Stamp { system: system.id, pool: id }).await.unwrap();
    let pool = Pool::new(id, PoolUri::new("embedded:theirs").unwrap(), 5);
    let registry = here.catalogue.registry().await.unwrap();
    let entry = here.catalogue.pool_add(&registry, &name("theirs"), &pool).await.unwrap().unwrap();
    until("it is not seen", async || known(&broker).await == [own.clone(), ("theirs".to_owned(), 5)]).await;
    let lighter = Pool { weight: 0, ..pool };
    let entry = here.catalogue.pool_set(&entry, &lighter).await.unwrap().unwrap();
    until("it stays", async || known(&broker).await == [own.clone(), ("theirs".to_owned(), 0)]).await;
    assert!(here.catalogue.pool_delete(&entry).await.unwrap());
    until("it stays", async || known(&broker).await == [own.clone()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_opened_pool_is_used_and_stays_open() {
    let here = Installation::new().await;
    let first = here.start().await;
    first.pool_put(&name("a"), at("a")).await.unwrap();
    post(&first, "q").await.unwrap();
    first.pool_put(&name("b"), at("b")).await.unwrap();
    first.stop().await;
    here.doors.shut.lock().insert("embedded:a".into());
    let second = here.start().await;
    post(&second, "q").await.unwrap_err();
    // Also an attempt that fails closes no storage: none was open.
    second.pool_patch(&name("a"), PoolChange { weight: Some(3), ..PoolChange::default() }).await.unwrap();
    here.doors.shut.lock().clear();
    let change = PoolChange { weight: Some(2), ..PoolChange::default() };
    second.pool_patch(&name("a"), change).await.unwrap();
    post(&second, "q").await.unwrap();
    assert_eq!(here.doors.closed.lock().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_pool_closes_no_storage_of_another() {
    let here = Installation::new().await;
    let broker = here.start().await;
    broker.pool_put(&name("a"), at("dir/a")).await.unwrap();
    for path in ["dir/a", "dir/a/", "dir//a", "dir/./a"] {
        broker.pool_put(&name("b"), at(path)).await.unwrap_err();
    }
    // The same pool by another spelling of its place.
    broker.pool_patch(&name("a"), at("dir/a/")).await.unwrap();
    // An open storage is shared: if the pool were removed, its directory would be found locked.
    here.doors.opener.open("embedded:dir/a").unwrap();
    post(&broker, "q").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_of_many_queues_of_a_slot_keeps_its_pool() {
    let here = Installation::new().await;
    let broker = here.start().await;
    for pool in ["many", "one"] {
        broker.pool_put(&name(pool), at(pool)).await.unwrap();
    }
    let slot = Slot(7);
    let names = (0..).map(|n| format!("q{n:05}")).filter(|at| queue(at).slot() == slot).take(70);
    let names: Vec<String> = names.collect();
    let pools = here.catalogue.pools().await.unwrap();
    let owned = here.owned(slot).await;
    for (number, at) in names.iter().enumerate() {
        let pool = &pools[usize::from(number == 69)];
        let id = QueueId::new(slot, &mut rand::rng());
        let record = QueueRecord::new(id, &pool.name, &Metadata::empty(), here.clock.now());
        assert!(here.catalogue.queue_create(&owned, &queue(at), &record, pool, None).await.unwrap());
    }
    for pool in ["many", "one"] {
        assert_eq!(
            here.catalogue.slot_uses_pool(slot, &name(pool)).await.unwrap(),
            PoolUsers::Queues,
            "{pool}"
        );
    }
    broker.queue_delete(&queue(&names[69])).await.unwrap();
    until("it is not cleaned away", async || {
        here.catalogue.slot_uses_pool(slot, &name("one")).await.unwrap() == PoolUsers::Nothing
    })
    .await;
}
