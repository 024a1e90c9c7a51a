//! Holds of groups: the group waits, the rest of its queue is delivered, and a release makes all of it available again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use angarium_broker::{Broker, HoldTerms};
use angarium_catalogue::{Catalogue, OwnedSlot};
use angarium_clock::Clock;
use angarium_coordination::Coordination;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::access::Role;
use angarium_core::delay::Delay;
use angarium_core::error::Error;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::limits as core_limits;
use angarium_core::limits::Limits;
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::settle::Requeue;
use angarium_journal::Journal;
use angarium_storage::embedded::EmbeddedPool;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::counting::CountingPool;
use super::deadletters::FOR_EVER;
use super::faulty::Fault;
use super::hanging::{Pools, SOON};
use super::holds::{Scene, claims_held, effects, hold_terms};
use super::transfers::until;
use super::{MAX_WAIT, Whole, limit, metadata, one_pool, queue, replica, terms, whole};

fn group(name: &str) -> GroupName {
    GroupName::new(name, "group").unwrap()
}

fn of_group(name: &str) -> NewMessage {
    NewMessage { group: Some(group(name)), body: "\"x\"".into(), ..NewMessage::default() }
}

async fn post(broker: &Broker, at: &QueueRef, groups: &[&str]) -> Vec<MessageId> {
    let messages = groups.iter().map(|name| of_group(name)).collect();
    broker.messages_post(at, messages, None).await.unwrap().ids
}

/// Claims until the queue has nothing more, and returns the ids with their attempts.
async fn claim_all(broker: &Broker, at: &QueueRef) -> Vec<(MessageId, u32)> {
    let mut all = Vec::new();
    while let Some((view, mut guard)) = broker.claim_create(at, terms(300), limit(20)).await.unwrap() {
        guard.done();
        all.extend(view.messages.iter().map(|message| (message.id, message.attempts)));
    }
    all
}

async fn ids(broker: &Broker, at: &QueueRef) -> Vec<MessageId> {
    claim_all(broker, at).await.into_iter().map(|(id, _)| id).collect()
}

/// Claims until as many messages were granted.
async fn claim_many(broker: &Broker, at: &QueueRef, count: usize) -> Vec<(MessageId, u32)> {
    let (mut all, start) = (Vec::new(), Instant::now());
    while all.len() < count {
        all.extend(claim_all(broker, at).await);
        assert!(start.elapsed() < MAX_WAIT, "{} of {count}", all.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    all
}

/// Number of queues with held groups in the record of a slot.
async fn stored(scene: &Scene, at: &QueueRef) -> usize {
    let catalogue = Catalogue::new(Arc::new(scene.tree().await));
    catalogue.group_holds(&OwnedSlot::new(at.slot(), 0, 0)).await.unwrap().len()
}

async fn delayed(whole: &Whole, at: &QueueRef) -> u64 {
    whole.broker.queue_stats(at).await.unwrap().delayed
}

#[tokio::test(flavor = "multi_thread")]
async fn held_group_of_fifo_queue_waits_in_place() {
    let whole = whole().await;
    let at = queue("q.fifo");
    whole.broker.queue_create(&at, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let posted = post(&whole.broker, &at, &["a", "b", "a", "b"]).await;
    whole.broker.group_hold(&at, &group("a"), claims_held()).await.unwrap();
    assert_eq!(ids(&whole.broker, &at).await, [posted[1], posted[3]]);
    let later = post(&whole.broker, &at, &["a"]).await;
    assert!(ids(&whole.broker, &at).await.is_empty());
    assert_eq!(delayed(&whole, &at).await, 0, "nothing is put aside");
    whole.broker.group_release(&at, &group("a"), None).await.unwrap();
    assert_eq!(ids(&whole.broker, &at).await, [posted[0], posted[2], later[0]]);
    assert!(whole.broker.group_hold_get(&at, &group("a")).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn held_messages_are_withheld_once_and_return_uncounted() {
    let whole = whole().await;
    let at = queue("q");
    let names: Vec<&str> = (0..600).map(|number| if number % 3 == 0 { "other" } else { "held" }).collect();
    let mut posted = Vec::new();
    for names in names.chunks(20) {
        posted.extend(post(&whole.broker, &at, names).await);
    }
    let of = |name: &str| -> Vec<MessageId> {
        posted.iter().zip(&names).filter(|(_, of)| **of == name).map(|(id, _)| *id).collect()
    };
    let hold = whole.broker.group_hold(&at, &group("held"), claims_held()).await.unwrap();
    assert_eq!(whole.broker.group_hold_get(&at, &group("held")).await.unwrap(), hold);
    assert_eq!(ids(&whole.broker, &at).await, of("other"));
    let start = Instant::now();
    while delayed(&whole, &at).await < 400 {
        assert!(start.elapsed() < MAX_WAIT);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(ids(&whole.broker, &at).await.is_empty());
    whole.broker.group_release(&at, &group("held"), None).await.unwrap();
    let mut returned = claim_many(&whole.broker, &at, 400).await;
    assert!(returned.iter().all(|(_, attempts)| *attempts == 1));
    returned.sort_unstable();
    assert_eq!(returned.into_iter().map(|(id, _)| id).collect::<Vec<_>>(), of("held"));
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_and_delayed_messages_stay_as_they_are() {
    let whole = whole().await;
    let at = queue("q");
    let posted = post(&whole.broker, &at, &["g", "g", "g"]).await;
    whole.broker.message_requeue(&at, posted[0], Requeue::Never).await.unwrap();
    whole.broker.message_requeue(&at, posted[1], Requeue::At(Delay::Seconds(900))).await.unwrap();
    whole.broker.group_hold(&at, &group("g"), claims_held()).await.unwrap();
    assert!(ids(&whole.broker, &at).await.is_empty());
    whole.broker.group_release(&at, &group("g"), None).await.unwrap();
    assert_eq!(claim_many(&whole.broker, &at, 1).await[0].0, posted[2]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(ids(&whole.broker, &at).await.is_empty());
    assert_eq!(delayed(&whole, &at).await, 2);
}

/// Claims race with holds and releases. Each message is delivered once, and none is left behind.
#[tokio::test(flavor = "multi_thread")]
async fn releases_beside_claims_leave_no_message_behind() {
    let whole = Arc::new(whole().await);
    let at = queue("q");
    let mut tasks = JoinSet::new();
    let count = 3_000;
    for _ in 0..count / 20 {
        post(&whole.broker, &at, &["a", "b"].repeat(10)).await;
    }
    for _ in 0..3 {
        let (whole, at) = (Arc::clone(&whole), at.clone());
        tasks.spawn(async move {
            let mut got = Vec::new();
            for _ in 0..40 {
                got.extend(whole.claim(&at, 10, 3_600).await);
            }
            got
        });
    }
    for round in 0..30 {
        let name = group(["a", "b"][round % 2]);
        whole.broker.group_hold(&at, &name, claims_held()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(3)).await;
        whole.broker.group_release(&at, &name, None).await.unwrap();
        if round % 3 == 0 {
            whole.broker.group_hold(&at, &name, claims_held()).await.unwrap();
            whole.broker.group_release(&at, &name, None).await.unwrap();
        }
    }
    let mut times: HashMap<MessageId, u32> = HashMap::new();
    while let Some(got) = tasks.join_next().await {
        got.unwrap().into_iter().for_each(|id| *times.entry(id).or_default() += 1);
    }
    let rest = claim_many(&whole.broker, &at, count - times.len()).await;
    rest.into_iter().for_each(|(id, _)| *times.entry(id).or_default() += 1);
    assert_eq!(times.len(), count);
    assert!(times.values().all(|times| *times == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn later_owner_continues_hold_and_release() {
    let scene = Scene::new();
    let at = queue("q");
    let broker = scene.start().await;
    for _ in 0..50 {
        post(&broker, &at, &["g"].repeat(20)).await;
    }
    let hold = broker.group_hold(&at, &group("g"), claims_held()).await.unwrap();
    assert!(ids(&broker, &at).await.is_empty());
    broker.stop().await;
    let broker = scene.start().await;
    assert!(ids(&broker, &at).await.is_empty());
    assert_eq!(broker.group_hold_get(&at, &group("g")).await.unwrap(), hold);
    // It stops when some messages have returned, and while the others are aside.
    scene.pool.next(&vec![Fault::NotSent; FOR_EVER]);
    scene.pool.skip(1);
    broker.group_release(&at, &group("g"), None).await.unwrap();
    until("the release does not continue", async || scene.pool.left() < FOR_EVER).await;
    broker.stop().await;
    scene.pool.clear();
    assert_eq!(stored(&scene, &at).await, 1);
    let broker = scene.start().await;
    assert!(broker.group_hold_get(&at, &group("g")).await.is_err());
    assert_eq!(claim_many(&broker, &at, 1_000).await.len(), 1_000);
    let start = Instant::now();
    while stored(&scene, &at).await > 0 {
        assert!(start.elapsed() < MAX_WAIT);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// So it is after the tree was restored from an export that is older than the hold.
#[tokio::test(flavor = "multi_thread")]
async fn release_without_record_returns_withheld_messages() {
    let scene = Scene::new();
    let at = queue("q");
    let broker = scene.start().await;
    let posted = post(&broker, &at, &["g", "g", "other"]).await;
    broker.group_hold(&at, &group("g"), claims_held()).await.unwrap();
    assert_eq!(ids(&broker, &at).await.len(), 1);
    broker.stop().await;
    let tree = Arc::new(scene.tree().await);
    let slot = at.slot();
    let node = tree.get(&format!("/meta/slots/{slot}")).await.unwrap().unwrap();
    let owned = OwnedSlot::new(slot, node.version, node.modified);
    Catalogue::new(tree).group_holds_write(&owned, &at, &[]).await.unwrap();
    let broker = scene.start().await;
    assert!(ids(&broker, &at).await.is_empty());
    let explained = broker.message_explain(&at, posted[0], Role::Member).await.unwrap().says;
    assert!(explained.contains("release of the group"), "{explained}");
    broker.group_release(&at, &group("g"), None).await.unwrap();
    let returned = claim_many(&broker, &at, 2).await;
    assert_eq!(returned.into_iter().map(|(id, _)| id).collect::<Vec<_>>(), posted[..2]);
    let start = Instant::now();
    while stored(&scene, &at).await > 0 {
        assert!(start.elapsed() < MAX_WAIT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Now nothing is aside, so a release writes nothing.
    broker.group_release(&at, &group("g"), None).await.unwrap();
    assert_eq!(stored(&scene, &at).await, 0);
}

/// The release opens the queue, whose gate it holds.
#[tokio::test(flavor = "multi_thread")]
async fn group_of_closed_queue_is_released() {
    let scene = Scene::new();
    let at = queue("q");
    let broker = scene.start().await;
    post(&broker, &at, &["g"]).await;
    broker.stop().await;
    let broker = scene.start().await;
    let released = timeout(MAX_WAIT, broker.group_release(&at, &group("g"), None)).await;
    released.expect("the release waits for its own gate").unwrap();
    assert_eq!(ids(&broker, &at).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn group_hold_ends_at_its_time() {
    let scene = Scene::new();
    let at = queue("q");
    let broker = scene.start().await;
    post(&broker, &at, &["g"]).await;
    let until = Some(scene.clock.now().plus_seconds(60));
    let terms = HoldTerms { until, ..claims_held() };
    broker.group_hold(&at, &group("g"), terms).await.unwrap();
    assert!(ids(&broker, &at).await.is_empty());
    scene.clock.advance(59_000);
    assert!(ids(&broker, &at).await.is_empty());
    scene.clock.advance(1_000);
    assert!(broker.group_hold_get(&at, &group("g")).await.is_err());
    assert_eq!(claim_many(&broker, &at, 1).await.len(), 1);
    // A hold of posts alone ends without a release of messages.
    let until = Some(scene.clock.now().plus_seconds(60));
    let terms = HoldTerms { until, ..hold_terms(effects(false, true, false)) };
    broker.group_hold(&at, &group("g"), terms).await.unwrap();
    scene.clock.advance(60_000);
    let start = Instant::now();
    while stored(&scene, &at).await > 0 {
        assert!(start.elapsed() < MAX_WAIT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    post(&broker, &at, &["g"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn held_group_refuses_posts_and_loses_no_others() {
    let whole = whole().await;
    let at = queue("q");
    post(&whole.broker, &at, &["free"]).await;
    for discard in [false, true] {
        let terms = hold_terms(effects(false, !discard, discard));
        whole.broker.group_hold(&at, &group("g"), terms).await.unwrap();
        let send = async |groups: &[&str]| {
            let messages = groups.iter().map(|name| of_group(name)).collect();
            whole.broker.messages_post(&at, messages, None).await
        };
        let refused = send(&["g", "g"]).await.unwrap_err();
        assert!(
            matches!(&refused, Error::Held { is_discarded, .. } if *is_discarded == discard),
            "{refused}"
        );
        let mixed = send(&["free", "g"]).await.unwrap_err();
        assert!(matches!(&mixed, Error::Held { is_discarded: false, .. }), "{mixed}");
        send(&["free"]).await.unwrap();
        whole.broker.group_release(&at, &group("g"), None).await.unwrap();
    }
    assert_eq!(ids(&whole.broker, &at).await.len(), 3);
    post(&whole.broker, &at, &["g"]).await;
    assert_eq!(ids(&whole.broker, &at).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn group_of_recreated_queue_is_not_held() {
    let scene = Scene::new();
    let at = queue("q");
    let broker = scene.start().await;
    post(&broker, &at, &["g"]).await;
    broker.group_hold(&at, &group("g"), claims_held()).await.unwrap();
    broker.queue_delete(&at).await.unwrap();
    assert_eq!(stored(&scene, &at).await, 0);
    post(&broker, &at, &["g"]).await;
    assert_eq!(ids(&broker, &at).await.len(), 1);
    let missing = broker.group_hold(&queue("none"), &group("g"), claims_held()).await.unwrap_err();
    assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_has_bounded_number_of_held_groups() {
    let whole = whole().await;
    let at = queue("q");
    post(&whole.broker, &at, &["g0"]).await;
    for number in 0..core_limits::HELD_GROUPS {
        whole.broker.group_hold(&at, &group(&format!("g{number}")), claims_held()).await.unwrap();
    }
    whole.broker.group_hold(&at, &group("g0"), claims_held()).await.unwrap();
    let refused = whole.broker.group_hold(&at, &group("more"), claims_held()).await.unwrap_err();
    assert!(matches!(refused, Error::TooMany { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_hold_is_not_replaced_by_one_for_posts() {
    let whole = whole().await;
    let at = queue("q");
    post(&whole.broker, &at, &["g"]).await;
    whole.broker.group_hold(&at, &group("g"), claims_held()).await.unwrap();
    let posts = hold_terms(effects(false, true, false));
    let refused = whole.broker.group_hold(&at, &group("g"), posts).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict(_)), "{refused}");
    let both = hold_terms(effects(true, true, false));
    whole.broker.group_hold(&at, &group("g"), both).await.unwrap();
    assert!(ids(&whole.broker, &at).await.is_empty());
}

/// The release looks in the pool for messages aside, because no hold of the group is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn release_beside_hanging_pool_delays_no_hold() {
    let pools = Pools::new();
    let (whole, at) = (pools.start().await, queue("q"));
    whole.post(&at, 1, 3_600).await;
    pools.stores[0].hang(true);
    let (broker, of) = (whole.broker.clone(), at.clone());
    let mut stuck = JoinSet::new();
    stuck.spawn(async move { broker.group_release(&of, &group("a"), None).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(stuck.try_join_next().is_none());
    let held = timeout(SOON, whole.broker.queue_hold(&at, claims_held())).await;
    held.expect("the release has the gate of the queue").unwrap();
    timeout(SOON, whole.broker.queue_release(&at, None)).await.expect("likewise").unwrap();
    assert!(stuck.try_join_next().is_none());
    pools.stores[0].hang(false);
    stuck.join_next().await.unwrap().unwrap().unwrap();
}

/// A consumer that polls a queue costs its pool little, however many groups are held.
#[tokio::test(flavor = "multi_thread")]
async fn look_at_held_groups_reads_few_and_continues() {
    let data = tempfile::tempdir().unwrap();
    let clock = Clock::manual(1_700_000_000_000);
    let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
    let pages = Arc::new(AtomicUsize::new(0));
    let (totals, looks, shown, hold) = <(Arc<_>, Arc<_>, Arc<_>, Arc<_>)>::default();
    let pool = Arc::new(EmbeddedPool::new(journal.clone()));
    let pool = CountingPool { pool, totals, looks, shown, pages: Arc::clone(&pages), hold };
    let catalogue = Catalogue::new(Arc::new(EmbeddedTree::open(journal).await.unwrap()));
    let broker =
        Broker::start(catalogue, &one_pool(Arc::new(pool)), replica(), clock, Limits::ZAQAR).await.unwrap();
    let at = queue("q");
    post(&broker, &at, &["free"]).await;
    assert_eq!(claim_all(&broker, &at).await.len(), 1);
    for number in 0..60 {
        broker.group_hold(&at, &group(&format!("g{number:02}")), claims_held()).await.unwrap();
    }
    let look = async || {
        let before = pages.load(Ordering::Relaxed);
        (broker.hold_of_claims(&at).await.is_some(), pages.load(Ordering::Relaxed) - before)
    };
    assert_eq!(look().await, (false, 0), "no message waits");
    post(&broker, &at, &["g57"]).await;
    let mut reads = Vec::new();
    loop {
        let (is_found, read) = look().await;
        reads.push(read);
        if is_found {
            break;
        }
        assert!(reads.len() < 8, "{reads:?}");
    }
    assert!(reads.len() > 1 && reads.iter().all(|read| *read <= 10), "{reads:?}");
    assert_eq!(look().await, (true, 1), "it begins with the group that was found");
    broker.group_release(&at, &group("g57"), None).await.unwrap();
    assert_eq!(claim_all(&broker, &at).await.len(), 1);
    assert_eq!(look().await, (false, 0));
}
