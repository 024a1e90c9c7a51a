//! Secrets in the tree are sealed under a key that is not there: from the first record of a new tree, and by one command
//! in an existing tree, whatever runs beside it and wherever it is interrupted.

use std::sync::Arc;

use angarium_catalogue::{
    Catalogue, Component, DataKeyChange, OwnedSlot, PoolEntry, QueueRecord, Schema, SealedSecrets,
    SubscriptionRecord,
};
use angarium_clock::Clock;
use angarium_cluster::replicas::join;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_coordination::{Coordination, Op};
use angarium_core::error::Error;
use angarium_core::ids::{QueueId, SubscriptionId};
use angarium_core::names::PoolName;
use angarium_core::pool::{Pool, PoolUri};
use angarium_core::subscription::{Subscriber, Subscription, SubscriptionOptions};
use angarium_core::time::Timestamp;
use angarium_core::webhook::WebhookSecret;
use angarium_journal::Journal;
use angarium_sealing::KeyRing;
use angarium_testbed::faulty_tree::{Fault, FaultyTree, Plan};
use tempfile::TempDir;
use uuid::Uuid;

use super::{metadata, other_replica, queue};

const OLD: &str = "old 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
const NEW: &str = "new ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

/// The secrets of [`fill`], as they are in the tree in the clear: a pool's password, the secret of older replicas, the
/// key of the receipts, and what a webhook has.
const SECRETS: [&str; 5] = ["pass-of-pool", "peer-secret-text", "9,9,9,9", "whsec_", "token-in-address"];

struct Scene {
    tree: Arc<EmbeddedTree>,
    _data: TempDir,
}

impl Scene {
    async fn new() -> Self {
        let data = TempDir::new().unwrap();
        let journal = Journal::open(&data.path().join("journal"), &Clock::manual(1)).unwrap();
        Self { tree: Arc::new(EmbeddedTree::open(journal).await.unwrap()), _data: data }
    }

    /// A process with these keys on the tree.
    fn catalogue(&self, keys: &str) -> Catalogue {
        with_keys(self.tree.clone(), keys)
    }

    /// As [`Scene::catalogue`], after its start.
    async fn begun(&self, keys: &str) -> Result<Catalogue, Error> {
        let catalogue = self.catalogue(keys);
        catalogue.system(Uuid::from_u128(7)).await?;
        Ok(catalogue)
    }

    fn faulty(&self, keys: &str, plan: &Plan) -> Catalogue {
        with_keys(Arc::new(FaultyTree::new(self.tree.clone(), plan.clone())), keys)
    }

    /// Every node as it is stored.
    async fn dump(&self) -> Vec<(String, String)> {
        let (mut nodes, mut waiting) =
            (Vec::new(), vec!["/meta".to_owned(), "/queues".into(), "/run".into()]);
        while let Some(path) = waiting.pop() {
            let Some(node) = self.tree.get(&path).await.unwrap() else { continue };
            let names = self.tree.children(&path).await.unwrap();
            waiting.extend(names.iter().map(|name| format!("{path}/{name}")));
            nodes.push((path, String::from_utf8(node.data.to_vec()).unwrap()));
        }
        nodes
    }

    /// The paths of the nodes with a secret in the clear.
    async fn clear(&self) -> Vec<String> {
        let shows = |data: &str| SECRETS.iter().any(|secret| data.contains(secret));
        self.dump().await.into_iter().filter(|(_, data)| shows(data)).map(|(path, _)| path).collect()
    }

    async fn put(&self, path: &str, data: &[u8]) {
        let set = Op::Set { path: path.into(), data: data.to_vec().into(), version: None };
        self.tree.commit(&[], &[set]).await.unwrap();
    }
}

fn with_keys(tree: Arc<dyn Coordination>, keys: &str) -> Catalogue {
    Catalogue::with_keys(tree, (!keys.is_empty()).then(|| KeyRing::parse(keys).unwrap()))
}

fn uri(name: &str) -> PoolUri {
    PoolUri::new(&format!("redis://:pass-of-pool@{name}")).unwrap()
}

async fn add_pool(catalogue: &Catalogue, name: &str) -> PoolEntry {
    let registry = catalogue.registry().await.unwrap();
    let pool = Pool::new(Uuid::from_u128(3), uri(name), 1);
    catalogue.pool_add(&registry, &PoolName::new(name).unwrap(), &pool).await.unwrap().unwrap()
}

/// Writes a secret of each kind: four nodes.
async fn fill(scene: &Scene, catalogue: &Catalogue) {
    let pool = add_pool(catalogue, "a").await;
    catalogue.peer_secret("peer-secret-text").await.unwrap();
    catalogue.receipt_key([9; 32]).await.unwrap();
    let (at, id) = (queue("q"), QueueId::from_bytes([1; 16]));
    let record = QueueRecord::new(id, &pool.name, &metadata("{}"), Timestamp::from_millis(1));
    let slot = slot(scene).await;
    assert!(catalogue.queue_create(&slot, &at, &record, &pool, None).await.unwrap());
    let source = catalogue.queue_entry(&slot, &at).await.unwrap().unwrap();
    let subscription = subscription();
    let mut own = QueueRecord::new(subscription.id.0, &pool.name, &metadata("{}"), Timestamp::from_millis(1));
    own.subscription = Some(SubscriptionRecord::from(&subscription));
    assert!(catalogue.subscription_create(&slot, (&at, &source), &own, &pool).await.unwrap());
}

async fn slot(scene: &Scene) -> OwnedSlot {
    let slot = queue("q").slot();
    let node = scene.tree.get(&format!("/meta/slots/{slot}")).await.unwrap().unwrap();
    OwnedSlot::new(slot, node.version, node.modified)
}

fn subscription() -> Subscription {
    Subscription {
        id: SubscriptionId(QueueId::from_bytes([2; 16])),
        source: QueueId::from_bytes([1; 16]),
        subscriber: Subscriber::new("https://example.com/token-in-address").unwrap(),
        options: SubscriptionOptions::empty(),
        ttl: 60,
        renewed: Timestamp::from_millis(1),
        secrets: vec![WebhookSecret::of_bytes([5; 32])],
        is_from_oldest: false,
        confirmation: None,
    }
}

/// Whether a process reads the secrets as they were written.
async fn check(scene: &Scene, catalogue: &Catalogue) {
    let pools = catalogue.pools().await.unwrap();
    assert!(pools.iter().any(|entry| entry.pool.uri == uri("a")));
    assert_eq!(catalogue.peer_secret("another").await.unwrap(), "peer-secret-text");
    let source = QueueId::from_bytes([1; 16]);
    let found = catalogue.subscriptions(&slot(scene).await, &queue("q"), source).await.unwrap();
    assert_eq!(found[0].subscriber.to_string(), "https://example.com/token-in-address");
    assert_eq!(found[0].secrets, subscription().secrets);
    let read = format!("{:?}", catalogue.receipt_key([1; 32]).await.map(|key| key.seal(&receipt())));
    let written = angarium_core::receipt::ReceiptKey::new([9; 32]).seal(&receipt());
    assert!(read.contains(&written), "{read}");
}

fn receipt() -> angarium_core::receipt::Receipt {
    angarium_core::receipt::Receipt {
        queue: QueueId::from_bytes([1; 16]),
        message: angarium_core::ids::MessageId::from_bytes([2; 16]),
        attempt: 1,
        received: Timestamp::from_millis(1),
    }
}

async fn seal(catalogue: &Catalogue) -> Result<SealedSecrets, Error> {
    catalogue.seal(&mut |_| {}).await
}

fn replica(schema: Schema, keys: &str) -> Component {
    let secret_keys = if keys.is_empty() { Vec::new() } else { KeyRing::parse(keys).unwrap().ids() };
    Component { secret_keys, ..other_replica(schema) }
}

#[tokio::test]
async fn new_tree_with_a_key_shows_no_secret() {
    let scene = Scene::new().await;
    let catalogue = scene.begun(OLD).await.unwrap();
    fill(&scene, &catalogue).await;
    assert_eq!(scene.clear().await, [""; 0]);
    check(&scene, &catalogue).await;
    check(&scene, &scene.begun(&format!("{NEW}{OLD}")).await.unwrap()).await;
    assert!(catalogue.is_in_force(Schema::SEALED) && catalogue.sealing_warning().is_none());
    for (keys, why) in [("", "name the file with this key by --secret-key-file"), (NEW, "has only: new (id")]
    {
        let refused = scene.begun(keys).await.err().unwrap().detail();
        assert!(refused.contains("sealed under the key 'old' (id") && refused.contains(why), "{refused}");
    }
}

#[tokio::test]
async fn existing_tree_is_sealed_beside_its_users() {
    let scene = Scene::new().await;
    let plain = scene.begun("").await.unwrap();
    fill(&scene, &plain).await;
    assert!(plain.sealing_warning().is_none());
    let running = scene.begun(OLD).await.unwrap();
    assert_eq!(scene.clear().await.len(), 4);
    assert!(running.sealing_warning().unwrap().contains("run `angarium tree seal`"));
    let mut named = Vec::new();
    let done = scene.catalogue(OLD).seal(&mut |path| named.push(path.to_owned())).await.unwrap();
    assert_eq!((done.nodes, done.sealed, done.data_key), (4, 4, DataKeyChange::Created));
    assert_eq!((done.generation.as_str(), named.len()), ("old", 4));
    assert_eq!(scene.clear().await, [""; 0]);
    // A process from before learns of it, and writes sealed records.
    check(&scene, &running).await;
    assert_eq!(running.sealing_warning(), None);
    add_pool(&running, "b").await;
    assert_eq!(scene.clear().await, [""; 0]);
    let again = seal(&running).await.unwrap();
    assert_eq!((again.nodes, again.sealed, again.data_key), (5, 0, DataKeyChange::Unchanged));
    // A process without the key gets no secret any more.
    assert!(plain.pools().await.unwrap_err().detail().contains("'old'"));
    assert!(running.is_in_force(Schema::SEALED_WHOLE));
}

/// A client that may write the tree replaces a sealed record by one of its own.
#[tokio::test]
async fn secret_in_the_clear_is_refused_in_a_sealed_tree() {
    let scene = Scene::new().await;
    let plain = scene.begun("").await.unwrap();
    fill(&scene, &plain).await;
    let clear: Vec<(String, String)> = scene.dump().await;
    let running = scene.begun(OLD).await.unwrap();
    seal(&running).await.unwrap();
    let source = QueueId::from_bytes([1; 16]);
    let (mut refused, slot) = (0, slot(&scene).await);
    for (path, data) in clear.iter().filter(|(_, data)| SECRETS.iter().any(|secret| data.contains(secret))) {
        let sealed = scene.tree.get(path).await.unwrap().unwrap();
        scene.put(path, data.as_bytes()).await;
        for process in [&running, &scene.begun(OLD).await.unwrap()] {
            let errors = [
                process.pools().await.err(),
                process.peer_secret("another").await.err(),
                process.receipt_key([1; 32]).await.err(),
                process.subscriptions(&slot, &queue("q"), source).await.err(),
            ];
            let [error] = &errors.into_iter().flatten().collect::<Vec<_>>()[..] else { panic!("{path}") };
            let why = error.detail();
            assert!(why.contains(&format!("the node {path} is in the clear although every secret")), "{why}");
            assert!(error.is_damaged() && process.damage().is_some_and(|(_, text)| text.contains(path)));
        }
        refused += 1;
        // An operator takes it over, and the one before again.
        assert_eq!(seal(&scene.catalogue(OLD)).await.unwrap().sealed, 1);
        check(&scene, &running).await;
        scene.put(path, &sealed.data).await;
    }
    assert_eq!(refused, 4);
    check(&scene, &running).await;
    // The record of the data key does not say again that secrets may be in the clear.
    let record = scene.tree.get("/meta/seal").await.unwrap().unwrap();
    let mut record: serde_json::Value = serde_json::from_slice(&record.data).unwrap();
    assert_eq!(record.as_object_mut().unwrap().remove("whole"), Some(true.into()));
    scene.put("/meta/seal", record.to_string().as_bytes()).await;
    let refused = scene.begun(OLD).await.err().unwrap().detail();
    assert!(refused.contains("does not open with the key 'old': it was changed"), "{refused}");
}

/// A client that may write the tree deletes the record of the data key, and puts secrets of its own in the tree.
#[tokio::test]
async fn sealed_value_without_its_data_key_is_refused() {
    let scene = Scene::new().await;
    fill(&scene, &scene.begun("").await.unwrap()).await;
    let shows = |data: &str| SECRETS.iter().any(|secret| data.contains(secret));
    let clear: Vec<(String, String)> =
        scene.dump().await.into_iter().filter(|(_, data)| shows(data)).collect();
    seal(&scene.begun(OLD).await.unwrap()).await.unwrap();
    let record = scene.tree.get("/meta/seal").await.unwrap().unwrap();
    scene.tree.commit(&[], &[Op::Delete { path: "/meta/seal".into() }]).await.unwrap();
    let mut sealed = Vec::new();
    for (path, data) in &clear {
        sealed.push(scene.tree.get(path).await.unwrap().unwrap());
        scene.put(path, data.as_bytes()).await;
    }
    assert_eq!(sealed.len(), 4);
    // A single value that is left shows it.
    for ((path, data), node) in clear.iter().zip(&sealed) {
        scene.put(path, &node.data).await;
        let errors = [scene.begun(OLD).await.err().unwrap(), seal(&scene.catalogue(OLD)).await.unwrap_err()];
        for refused in errors {
            let why = refused.detail();
            assert!(
                refused.is_damaged() && why.contains(path) && why.contains("/meta/seal, is missing"),
                "{why}"
            );
        }
        assert!(scene.tree.get("/meta/seal").await.unwrap().is_none());
        scene.put(path, data.as_bytes()).await;
    }
    // The tree from a backup.
    scene.tree.commit(&[], &[Op::create("/meta/seal", record.data)]).await.unwrap();
    for ((path, _), node) in clear.iter().zip(&sealed) {
        scene.put(path, &node.data).await;
    }
    check(&scene, &scene.begun(OLD).await.unwrap()).await;
}

#[tokio::test]
async fn interrupted_sealing_continues_after_any_commit() {
    for fault in [Fault::NotSent, Fault::UnknownAfter] {
        // The beginning, four nodes, and the end.
        for commits in 0..6 {
            let scene = Scene::new().await;
            let plain = scene.begun("").await.unwrap();
            fill(&scene, &plain).await;
            let plan = Plan::default();
            plan.next(&[fault]);
            plan.skip(commits);
            let faulty = scene.faulty(OLD, &plan);
            assert!(seal(&faulty).await.is_err(), "{commits}");
            assert!(plan.is_done());
            check(&scene, &scene.begun(OLD).await.unwrap()).await;
            seal(&scene.catalogue(OLD)).await.unwrap();
            assert_eq!(scene.clear().await, [""; 0]);
            check(&scene, &scene.begun(OLD).await.unwrap()).await;
        }
    }
}

#[tokio::test]
async fn secret_written_during_the_beginning_is_sealed() {
    let scene = Scene::new().await;
    scene.begun("").await.unwrap();
    let plan = Plan::default();
    let late = scene.faulty(OLD, &plan);
    late.system(Uuid::from_u128(7)).await.unwrap();
    plan.next(&[Fault::Held]);
    let seal_meanwhile = async {
        while !plan.is_done() {
            tokio::task::yield_now().await;
        }
        seal(&scene.catalogue(OLD)).await.unwrap();
        plan.release();
    };
    let (written, ()) = tokio::join!(late.receipt_key([9; 32]), seal_meanwhile);
    written.unwrap();
    assert_eq!(scene.clear().await, [""; 0]);
    assert!(scene.tree.get("/meta/receipts").await.unwrap().is_some());
}

#[tokio::test]
async fn sealing_waits_for_replicas_without_the_key() {
    for (older, why) in [
        (replica(Schema::KNOWN, ""), "started without the key old (id"),
        (replica(Schema::KNOWN, NEW), "started without the key old (id"),
        (
            replica(Schema::SUBSCRIPTIONS, OLD),
            "version 0.0.9, which does not know sealed records: upgrade it",
        ),
    ] {
        let scene = Scene::new().await;
        let plain = scene.begun("").await.unwrap();
        fill(&scene, &plain).await;
        let node = join(&plain, "elsewhere", &older).await.unwrap().node;
        let refused = seal(&scene.catalogue(OLD)).await.unwrap_err().detail();
        assert!(refused.contains("replica 00000000-0000-0000-0000-000000000002 at 127.0.0.1:2"), "{refused}");
        assert!(refused.contains(why), "{refused}");
        assert!(scene.clear().await.len() == 4 && scene.tree.get("/meta/seal").await.unwrap().is_none());
        scene.tree.commit(&[], &[Op::Delete { path: node }]).await.unwrap();
        join(&scene.begun(OLD).await.unwrap(), "here", &replica(Schema::KNOWN, OLD)).await.unwrap();
        assert_eq!(seal(&scene.catalogue(OLD)).await.unwrap().sealed, 4);
    }
}

#[tokio::test]
async fn replica_without_the_key_joins_no_sealed_tree() {
    let scene = Scene::new().await;
    scene.begun("").await.unwrap();
    let plan = Plan::default();
    let late = scene.faulty("", &plan);
    let registry = late.registry().await.unwrap();
    plan.next(&[Fault::Held]);
    let me = replica(Schema::KNOWN, "");
    let seal_meanwhile = async {
        while !plan.is_done() {
            tokio::task::yield_now().await;
        }
        // The other one has looked for the key, and commits behind the beginning.
        seal(&scene.catalogue(OLD)).await.unwrap();
        plan.release();
    };
    let (joined, ()) = tokio::join!(late.component_join(&registry, "late", &me), seal_meanwhile);
    assert_eq!(joined.unwrap(), None);
    let refused = join(&late, "late", &me).await.unwrap_err().detail();
    assert!(refused.contains("sealed under the key 'old'"), "{refused}");
    assert_eq!(scene.catalogue(OLD).registry().await.unwrap().all().count(), 0);
}

#[tokio::test]
async fn changed_or_swapped_value_is_refused_by_its_path() {
    let scene = Scene::new().await;
    let catalogue = scene.begun(OLD).await.unwrap();
    fill(&scene, &catalogue).await;
    add_pool(&catalogue, "b").await;
    let [first, second] = ["/meta/pools/a", "/meta/pools/b"];
    let (a, b) =
        (scene.tree.get(first).await.unwrap().unwrap(), scene.tree.get(second).await.unwrap().unwrap());
    scene.put(first, &b.data).await;
    let refused = catalogue.pools().await.unwrap_err();
    assert!(refused.is_damaged() && refused.detail().contains(&format!("the node {first} does not open")));
    assert!(seal(&scene.catalogue(OLD)).await.unwrap_err().detail().contains(first));
    scene.put(first, &a.data).await;
    check(&scene, &catalogue).await;
    let mut changed = b.data.to_vec();
    let middle = changed.len() / 2;
    changed[middle] = if changed[middle] == b'A' { b'B' } else { b'A' };
    scene.put(second, &changed).await;
    assert!(
        catalogue.pools().await.unwrap_err().detail().contains(&format!("the node {second} does not open"))
    );
    let (reads, text) = catalogue.damage().unwrap();
    assert!(reads == 2 && text.contains(second), "{reads} {text}");
    // The data key of another installation is no key here.
    let other = Scene::new().await;
    other.begun(OLD).await.unwrap();
    let key = other.tree.get("/meta/seal").await.unwrap().unwrap();
    let third = Scene::new().await;
    third.catalogue(OLD).system(Uuid::from_u128(8)).await.unwrap();
    third.put("/meta/seal", &key.data).await;
    let refused = third.begun(OLD).await.err().unwrap().detail();
    assert!(refused.contains("is from another installation"), "{refused}");
}

#[tokio::test]
async fn key_is_replaced_under_running_replicas() {
    let scene = Scene::new().await;
    let both = format!("{NEW}{OLD}");
    let running = scene.begun(OLD).await.unwrap();
    fill(&scene, &running).await;
    let node = join(&running, "here", &replica(Schema::KNOWN, OLD)).await.unwrap().node;
    let refused = seal(&scene.catalogue(&both)).await.unwrap_err().detail();
    assert!(refused.contains("started without the key new (id"), "{refused}");
    scene.tree.commit(&[], &[Op::Delete { path: node }]).await.unwrap();
    join(&scene.begun(&both).await.unwrap(), "here", &replica(Schema::KNOWN, &both)).await.unwrap();
    // The answer about the change is lost: the command is repeated.
    let plan = Plan::default();
    plan.next(&[Fault::UnknownAfter]);
    assert!(seal(&scene.faulty(&both, &plan)).await.is_err());
    let done = seal(&scene.catalogue(&both)).await.unwrap();
    assert_eq!((done.generation.as_str(), done.data_key), ("new", DataKeyChange::Unchanged));
    check(&scene, &scene.begun(NEW).await.unwrap()).await;
    // A replica from before the change continues.
    check(&scene, &running).await;
    add_pool(&running, "b").await;
    assert_eq!(scene.clear().await, [""; 0]);
    let refused = scene.begun(OLD).await.err().unwrap().detail();
    assert!(refused.contains("'new'") && refused.contains("has only: old (id"), "{refused}");
    // Back to the old key, in one call.
    let registry = scene.catalogue(NEW).registry().await.unwrap();
    assert_eq!(registry.all().count(), 1);
    let back = seal(&scene.catalogue(&format!("{OLD}{NEW}"))).await.unwrap();
    assert_eq!((back.data_key, back.sealed), (DataKeyChange::Resealed, 0));
    check(&scene, &scene.begun(OLD).await.unwrap()).await;
}
