//! The form of records: no record is written that a running replica would misread, and no program starts on a form that
//! it does not know.

use std::sync::Arc;
use std::time::{Duration, Instant};

use angarium_broker::{Broker, SendEntry};
use angarium_catalogue::{Catalogue, OwnedSlot, Schema};
use angarium_clock::Clock;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_coordination::{Coordination, Op};
use angarium_core::error::{Error, Part};
use angarium_core::ids::MessageId;
use angarium_core::limits::Limits;
use angarium_core::message::{Header, Life, NewMessage};
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::outcome::{Keep, Tags};
use angarium_core::patch::Change;
use angarium_core::queue::CreateResult;
use angarium_journal::Journal;
use angarium_storage::PoolReads;
use angarium_storage::embedded::EmbeddedPool;
use tempfile::TempDir;

use super::{MAX_WAIT, metadata, one_pool, other_replica, queue, replica};

struct Scene {
    tree: Arc<EmbeddedTree>,
    catalogue: Catalogue,
    journal: Journal,
    _data: TempDir,
}

async fn scene() -> Scene {
    let data = TempDir::new().unwrap();
    let journal = Journal::open(&data.path().join("journal"), &Clock::manual(1)).unwrap();
    let tree = Arc::new(EmbeddedTree::open(journal.clone()).await.unwrap());
    Scene { catalogue: Catalogue::new(tree.clone()), tree, journal, _data: data }
}

impl Scene {
    async fn start(&self) -> Result<Broker, Error> {
        self.start_at(Clock::manual(1)).await
    }

    /// The header of a message of queue `q`, as the pool has it.
    async fn stored(&self, id: MessageId) -> Header {
        let at = queue("q");
        let record = self.catalogue.queue(&OwnedSlot::new(at.slot(), 0, 0), &at).await.unwrap().unwrap();
        let found = EmbeddedPool::new(self.journal.clone()).get(record.id, &[id]).await.unwrap();
        found.into_iter().next().unwrap().header
    }

    async fn start_at(&self, clock: Clock) -> Result<Broker, Error> {
        let settings = one_pool(Arc::new(EmbeddedPool::new(self.journal.clone())));
        let catalogue = Catalogue::new(self.tree.clone());
        Broker::start(catalogue, &settings, replica(), clock, Limits::ZAQAR).await
    }

    /// Registers a replica whose program knows records up to this form. Returns its node.
    async fn join(&self, schema: Schema) -> String {
        let component = other_replica(schema);
        let seen = self.catalogue.registry().await.unwrap();
        self.catalogue.component_join(&seen, "elsewhere", &component).await.unwrap().unwrap()
    }
}

/// Until every replica knows retained messages, messages are stored in the old form, with the retention at the time of
/// sending.
#[tokio::test(flavor = "multi_thread")]
async fn sent_message_waits_with_its_new_form_for_older_replicas() {
    let scene = scene().await;
    let clock = Clock::manual(1_700_000_000_000);
    let broker = scene.start_at(clock.clone()).await.unwrap();
    let older = scene.join(Schema::MIGRATIONS).await;
    broker.queue_create(&queue("q"), metadata(r#"{"_default_message_ttl": 100}"#)).await.unwrap();
    let first = send(&broker).await;
    assert_eq!(broker.components().await.unwrap().schema, Schema::FIRST);
    assert!(matches!(scene.stored(first).await.life, Life::Own { ttl: 100, .. }));

    scene.tree.commit(&[], &[Op::Delete { path: older }]).await.unwrap();
    // The replicas are asked for their forms at an interval, and not for each message.
    let start = Instant::now();
    while broker.components().await.unwrap().schema < Schema::RETENTION {
        assert!(start.elapsed() < MAX_WAIT, "it is never asked again");
        send(&broker).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let last = send(&broker).await;
    assert_eq!(scene.stored(last).await.life, Life::Retained { since: clock.now() });
    // Stored messages keep the lifetime that they got.
    let change = Change::new(0, "add", "/metadata/_default_message_ttl", Some(seconds(1_000))).unwrap();
    broker.queue_patch(&queue("q"), vec![change]).await.unwrap();
    clock.advance(100_000);
    assert!(broker.message_get(&queue("q"), first).await.is_err());
    assert!(broker.message_get(&queue("q"), last).await.is_ok());
}

fn seconds(seconds: u32) -> Box<serde_json::value::RawValue> {
    serde_json::value::to_raw_value(&seconds).unwrap()
}

async fn send(broker: &Broker) -> MessageId {
    let message = NewMessage { body: "1".into(), ..NewMessage::default() };
    broker.messages_send(&queue("q"), vec![SendEntry { message, size: 1 }]).await.unwrap().remove(0).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn ordered_queue_waits_until_all_replicas_know_it() {
    let scene = scene().await;
    let broker = scene.start().await.unwrap();
    let older = scene.join(Schema::FIRST).await;
    let refused = broker.queue_create(&queue("q"), metadata(r#"{"_fifo": true}"#)).await.unwrap_err();
    assert!(matches!(&refused, Error::Unavailable { part: Part::Coordination, .. }), "{refused:?}");
    let told = std::error::Error::source(&refused).unwrap().to_string();
    assert!(told.contains("127.0.0.1:2") && told.contains("0.0.9"), "{told}");
    assert!(broker.queue_metadata(&queue("q")).await.unwrap().is_none());
    // Records that every program knows are not affected.
    assert_eq!(broker.queue_create(&queue("plain"), metadata("{}")).await.unwrap(), CreateResult::New);
    assert_eq!(broker.components().await.unwrap().schema, Schema::FIRST);

    scene.tree.commit(&[], &[Op::Delete { path: older }]).await.unwrap();
    let created = broker.queue_create(&queue("q"), metadata(r#"{"_fifo": true}"#)).await.unwrap();
    assert_eq!(created, CreateResult::New);
    assert_eq!(broker.components().await.unwrap().schema, Schema::GROUPS);
}

#[tokio::test(flavor = "multi_thread")]
async fn program_refuses_unknown_record_schema() {
    let scene = scene().await;
    scene.start().await.unwrap().stop().await;
    let node = scene.tree.get("/meta/system").await.unwrap().unwrap();
    let mut system: serde_json::Value = serde_json::from_slice(&node.data).unwrap();
    system["schema"] = (Schema::KNOWN.0 + 1).into();
    let data = system.to_string().into();
    let newer = Op::Set { path: "/meta/system".into(), data, version: None };
    scene.tree.commit(&[], &[newer]).await.unwrap();
    let Err(refused) = scene.start().await else { panic!("it started") };
    let told = std::error::Error::source(&refused).unwrap().to_string();
    assert!(told.contains("start a newer one"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tagged_or_kept_message_waits_for_older_replicas() {
    let scene = scene().await;
    let broker = scene.start().await.unwrap();
    let older = scene.join(Schema::RETENTION).await;
    let plain = || NewMessage { body: "1".into(), ..NewMessage::default() };
    let tagged = || NewMessage { tags: Tags::new(vec!["a".to_owned()], "tags").unwrap(), ..plain() };
    let kept = || NewMessage { keep: Some(Keep::stored(60)), ..plain() };
    for extra in [tagged(), kept()] {
        let messages = || vec![plain(), extra.clone()];
        let refused = broker.messages_post(&queue("q"), messages(), None).await.unwrap_err();
        let each = broker.messages_post_each(&queue("q"), messages(), None).await.unwrap_err();
        for error in [refused, each] {
            assert!(matches!(&error, Error::Unavailable { part: Part::Coordination, .. }), "{error:?}");
            assert!(std::error::Error::source(&error).unwrap().to_string().contains("0.0.9"));
        }
    }
    assert!(broker.queue_metadata(&queue("q")).await.unwrap().is_none(), "no queue was created for them");
    // Messages that every program knows are not affected, nor are the attributes.
    broker.queue_create(&queue("q"), metadata(r#"{"_keep": 60, "_backoff": {"first": 5}}"#)).await.unwrap();
    let id = broker.messages_post(&queue("q"), vec![plain()], None).await.unwrap().ids[0];
    assert_eq!(scene.stored(id).await.extras, None);
    assert_eq!(broker.components().await.unwrap().schema, Schema::FIRST);

    scene.tree.commit(&[], &[Op::Delete { path: older }]).await.unwrap();
    broker.messages_post(&queue("q"), vec![tagged()], None).await.unwrap();
    assert_eq!(broker.components().await.unwrap().schema, Schema::OUTCOMES);
}

/// Two queues are the first of their form at the same time; the form is raised once, and stays.
#[tokio::test(flavor = "multi_thread")]
async fn schema_in_force_rises_once_and_never_falls() {
    let scene = scene().await;
    let broker = scene.start().await.unwrap();
    let fifo = || metadata(r#"{"_fifo": true}"#);
    let (one, other) = (queue("one"), queue("other"));
    let (one, other) = tokio::join!(broker.queue_create(&one, fifo()), broker.queue_create(&other, fifo()));
    assert_eq!((one.unwrap(), other.unwrap()), (CreateResult::New, CreateResult::New));
    broker.stop().await;
    let again = scene.start().await.unwrap();
    assert_eq!(again.components().await.unwrap().schema, Schema::GROUPS);
}

/// An older replica would make a queue with the name of the topic.
#[tokio::test(flavor = "multi_thread")]
async fn topic_waits_for_older_replicas() {
    let scene = scene().await;
    let broker = scene.start().await.unwrap();
    let older = scene.join(Schema::SHARED_HOLDS).await;
    let project = queue("q").project;
    let topic = QueueRef { project, name: QueueName::topic("news").unwrap() };
    let refused = broker.queue_create(&topic, metadata("{}")).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { part: Part::Coordination, .. }), "{refused}");
    assert!(scene.catalogue.queue_record_now(&topic).await.unwrap().is_none());
    scene.tree.commit(&[], &[Op::Delete { path: older }]).await.unwrap();
    assert_eq!(broker.queue_create(&topic, metadata("{}")).await.unwrap(), CreateResult::New);
    assert_eq!(broker.components().await.unwrap().schema, Schema::SUBSCRIPTIONS);
}
