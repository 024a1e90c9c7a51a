//! Commits that fail: certain failures, and unknown outcomes.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use angarium_broker::{Broker, ClaimFilter, Receive, ReceiveResult, VisibilityResult};
use angarium_catalogue::{Catalogue, OwnedSlot};
use angarium_clock::Clock;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::claim::Visibility;
use angarium_core::limits::Limits;
use angarium_journal::Journal;
use angarium_storage::embedded::EmbeddedPool;

use super::deadletters::FOR_EVER;
use super::faulty::{Fault, FaultyPool, FaultyTree, Plan};
use super::queue_list::filter;
use super::recovery::take_slot_of;
use super::{MAX_WAIT, Whole, limit, metadata, one_pool, queue, replica, terms};

/// A broker whose tree and pool fail as planned.
pub(super) struct Faulty {
    pub(super) whole: Whole,
    pub(super) tree: Plan,
    pub(super) pool: Plan,
    /// The pool without its faults, and the pool with them.
    pub(super) store: Arc<EmbeddedPool>,
    pub(super) given: Arc<FaultyPool>,
    /// The tree's connection and session.
    pub(super) link: Arc<FaultyTree>,
    pub(super) catalogue: Catalogue,
}

pub(super) async fn faulty() -> Faulty {
    faulty_with(None).await
}

/// Such a broker, whose tree has sessions with this timeout.
pub(super) async fn faulty_with(session_timeout: Option<Duration>) -> Faulty {
    let data = tempfile::tempdir().unwrap();
    let clock = Clock::manual(1_700_000_000_000);
    let journal = Journal::open(&data.path().join("journal"), &clock).unwrap();
    let (tree, pool) = (Plan::default(), Plan::default());
    let embedded = Arc::new(EmbeddedTree::open(journal.clone()).await.unwrap());
    let catalogue = Catalogue::new(embedded.clone());
    let link = Arc::new(FaultyTree::new(embedded, tree.clone()));
    *link.timeout.lock() = session_timeout;
    let faulty_tree = Catalogue::new(link.clone());
    let store = Arc::new(EmbeddedPool::new(journal));
    let given = Arc::new(FaultyPool::new(store.clone(), pool.clone()));
    let settings = one_pool(given.clone());
    let broker =
        Broker::start(faulty_tree, &settings, replica(), clock.clone(), Limits::ZAQAR).await.unwrap();
    Faulty { whole: Whole { broker, clock, _data: data }, tree, pool, store, given, link, catalogue }
}

impl Faulty {
    /// Returns the number of records of claims in the tree for the queue's slot.
    async fn records(&self) -> usize {
        let slot = OwnedSlot::new(queue("q").slot(), 0, 0);
        self.catalogue.claims(&slot).await.unwrap().claims.len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_batch_is_repeated_and_applied_once() {
    use Fault::{NotSent, UnknownAfter, UnknownBefore};
    for faults in
        [&[UnknownBefore][..], &[UnknownAfter], &[UnknownAfter, UnknownBefore, UnknownAfter], &[NotSent]]
    {
        let faulty = faulty().await;
        let first = faulty.whole.post(&queue("q"), 1, 3_600).await;
        faulty.pool.next(faults);
        let second = faulty.whole.post(&queue("q"), 2, 3_600).await;
        assert!(faulty.pool.is_done());
        let third = faulty.whole.post(&queue("q"), 1, 3_600).await;
        let all = faulty.whole.claim(&queue("q"), 20, 300).await;
        assert_eq!(all, [first, second, third].concat(), "{faults:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_post_is_reported_and_next_one_succeeds() {
    let faulty = faulty().await;
    faulty.whole.post(&queue("q"), 1, 3_600).await;
    faulty.pool.next(&[Fault::NotSent; 6]);
    let message = angarium_core::message::NewMessage {
        body: "1".into(),
        ttl: None,
        delay: None,
        ..angarium_core::message::NewMessage::default()
    };
    let refused = faulty.whole.broker.messages_post(&queue("q"), vec![message], None).await.unwrap_err();
    assert!(refused.nothing_written() && faulty.pool.is_done());
    faulty.whole.post(&queue("q"), 1, 3_600).await;
    assert_eq!(faulty.whole.broker.queue_stats(&queue("q")).await.unwrap().free, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_failed_claim_are_claimed_next() {
    for (fault, is_certain) in
        [(Fault::NotSent, true), (Fault::UnknownBefore, false), (Fault::UnknownAfter, false)]
    {
        let faulty = faulty().await;
        let ids = faulty.whole.post(&queue("q"), 2, 3_600).await;
        faulty.tree.next(&[fault]);
        let failed = faulty.whole.broker.claim_create(&queue("q"), terms(43_200), limit(2)).await;
        assert_eq!(failed.err().unwrap().nothing_written(), is_certain, "{fault:?}");
        assert_eq!(faulty.whole.claim_soon(&queue("q"), 2).await, ids, "{fault:?}");
        // The live claim's record, and none of the failed claim.
        assert_eq!(faulty.records().await, 1, "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_release_can_be_repeated() {
    for fault in [Fault::NotSent, Fault::UnknownBefore, Fault::UnknownAfter] {
        let faulty = faulty().await;
        let ids = faulty.whole.post(&queue("q"), 2, 3_600).await;
        let claim = faulty.whole.broker.claim_create(&queue("q"), terms(43_200), limit(2)).await.unwrap();
        let (view, mut delivery_guard) = claim.unwrap();
        delivery_guard.done();
        faulty.tree.next(&[fault]);
        let failed = faulty.whole.broker.claim_release(&queue("q"), view.id).await.unwrap_err();
        assert!(!failed.nothing_written(), "its headers are written: {fault:?}, {failed:?}");
        assert!(faulty.whole.claim(&queue("q"), 2, 60).await.is_empty(), "{fault:?}");
        faulty.whole.broker.claim_release(&queue("q"), view.id).await.unwrap();
        assert_eq!(faulty.records().await, 0, "{fault:?}");
        assert_eq!(faulty.whole.claim(&queue("q"), 2, 60).await, ids, "{fault:?}");
    }
}

/// After a crash at this moment the claim would be there: its record names the message still.
#[tokio::test(flavor = "multi_thread")]
async fn claim_is_shown_until_its_release_is_durable() {
    for is_record in [false, true] {
        let faulty = faulty().await;
        let (broker, q) = (&faulty.whole.broker, queue("q"));
        let ids = faulty.whole.post(&q, 1, 43_200).await;
        let (view, mut delivery_guard) = broker.claim_create(&q, terms(60), limit(1)).await.unwrap().unwrap();
        delivery_guard.done();
        // The header of the message is written first, then the record of the claim is deleted.
        let plan = if is_record { &faulty.tree } else { &faulty.pool };
        plan.next(&[Fault::Held]);
        let look = async {
            until(async || plan.is_done()).await;
            let filter = ClaimFilter { after: None, limit: filter().limit };
            let listed = broker.claims_list(&q, filter).await.unwrap().claims.len();
            let held = broker.claim_get(&q, view.id).await.map(|status| status.view.messages.len());
            let holder = broker.message_get(&q, ids[0]).await.unwrap().claim;
            plan.release();
            assert_eq!((listed, held.ok(), holder), (1, Some(1), Some(view.id)), "record: {is_record}");
        };
        let (released, ()) = tokio::join!(broker.claim_release(&q, view.id), look);
        released.unwrap();
        assert!(broker.claim_get(&q, view.id).await.is_err());
        assert_eq!(broker.message_get(&q, ids[0]).await.unwrap().claim, None);
    }
}

/// Its record names a message that is gone: after a crash at this moment the claim would not be there.
#[tokio::test(flavor = "multi_thread")]
async fn claim_without_messages_is_not_shown_during_release() {
    let faulty = faulty().await;
    let (broker, q) = (&faulty.whole.broker, queue("q"));
    let ids = faulty.whole.post(&q, 1, 43_200).await;
    let (view, mut delivery_guard) = broker.claim_create(&q, terms(60), limit(1)).await.unwrap().unwrap();
    delivery_guard.done();
    faulty.pool.next(&[Fault::Held]);
    faulty.tree.next(&[Fault::Held]);
    let delete = async {
        broker.message_delete(&q, ids[0], Some(view.id)).await.unwrap();
        until(async || faulty.tree.is_done()).await;
        let filter = ClaimFilter { after: None, limit: filter().limit };
        let listed = broker.claims_list(&q, filter).await.unwrap().claims.len();
        let shown = broker.claim_get(&q, view.id).await.is_ok();
        faulty.tree.release();
        assert_eq!((listed, shown), (0, false));
    };
    let release = async {
        until(async || faulty.pool.is_done()).await;
        let release = broker.claim_release(&q, view.id);
        let end = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            faulty.pool.release();
        };
        tokio::join!(release, end).0.unwrap();
    };
    tokio::join!(delete, release);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_renewal_leaves_an_expiring_claim() {
    for fault in [Fault::NotSent, Fault::UnknownBefore, Fault::UnknownAfter] {
        let faulty = faulty().await;
        let ids = faulty.whole.post(&queue("q"), 1, 43_200).await;
        let claim = faulty.whole.broker.claim_create(&queue("q"), terms(60), limit(1)).await.unwrap();
        let (view, mut delivery_guard) = claim.unwrap();
        delivery_guard.done();
        faulty.tree.next(&[fault]);
        assert!(
            faulty.whole.broker.claim_renew(&queue("q"), view.id, terms(600)).await.is_err(),
            "{fault:?}"
        );
        faulty.whole.broker.claim_renew(&queue("q"), view.id, terms(120)).await.unwrap();
        faulty.whole.clock.advance(120_000);
        assert_eq!(faulty.whole.claim_soon(&queue("q"), 1).await, ids, "{fault:?}");
    }
}

/// It was shown with the new terms, and a later owner found the old ones in its record.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_in_doubt_is_shown_once_it_is_known() {
    for fault in [Fault::UnknownBefore, Fault::UnknownAfter] {
        let faulty = faulty().await;
        let (broker, q) = (&faulty.whole.broker, queue("q"));
        faulty.whole.post(&q, 1, 43_200).await;
        let (view, mut delivery_guard) = broker.claim_create(&q, terms(60), limit(1)).await.unwrap().unwrap();
        delivery_guard.done();
        // The commit, and all attempts to repeat it until the faults are cleared.
        faulty.tree.next(&[fault, Fault::UnknownBefore]);
        faulty.tree.next(&vec![Fault::NotSent; FOR_EVER]);
        let refused = broker.claim_renew(&q, view.id, terms(600)).await.unwrap_err();
        assert!(!refused.nothing_written(), "{fault:?}: {refused:?}");
        let shown = async || broker.claim_get(&q, view.id).await.ok().map(|status| status.ttl);
        assert_eq!(shown().await, Some(60), "{fault:?}");
        // It does not end meanwhile: its record may have the new terms.
        faulty.whole.clock.advance(61_000);
        until(async || faulty.tree.left() < FOR_EVER - 1).await;
        assert!(faulty.whole.claim(&q, 1, 60).await.is_empty(), "{fault:?}");
        faulty.tree.clear();
        until(async || shown().await == Some(600)).await;
        take_slot_of(&faulty, "q").await;
        until(async || shown().await.is_some()).await;
        assert_eq!(shown().await, Some(600), "{fault:?}");
    }
}

/// As when ZooKeeper is lost during the change: the claim is in doubt, and nothing else waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn visibility_change_in_doubt_keeps_slot_open() {
    for fault in [Fault::UnknownBefore, Fault::UnknownAfter] {
        let faulty = faulty().await;
        let (broker, q) = (&faulty.whole.broker, queue("q"));
        let ids = faulty.whole.post(&q, 3, 43_200).await;
        let (view, mut delivery_guard) = broker.claim_create(&q, terms(60), limit(3)).await.unwrap().unwrap();
        delivery_guard.done();
        // The commit, and all attempts to repeat it until the faults are cleared.
        faulty.tree.next(&[fault, Fault::UnknownBefore]);
        faulty.tree.next(&vec![Fault::NotSent; FOR_EVER]);
        let hidden = broker.message_hide(&q, view.id, ids[0], terms(600)).await;
        assert!(hidden.is_err_and(|error| !error.nothing_written()), "{fault:?}");
        // Posts and deletes continue, also of messages under the claim in doubt, and the slot is the same.
        let posted = faulty.whole.post(&q, 1, 43_200).await;
        broker.message_delete(&q, posted[0], None).await.unwrap();
        broker.message_delete(&q, ids[1], Some(view.id)).await.unwrap();
        assert!(!faulty.tree.is_done(), "it is in doubt still");
        until(async || faulty.tree.left() < FOR_EVER).await;
        faulty.tree.clear();
        // A second change of the claim waits until the outcome is known: the first change was made.
        let again = broker.claim_renew(&q, view.id, terms(120)).await;
        assert!(again.is_ok(), "{fault:?}: {again:?}");
        assert_eq!(faulty.records().await, 2, "{fault:?}");
        faulty.whole.clock.advance(121_000);
        assert_eq!(faulty.whole.claim_soon(&q, 2).await, [ids[2]], "{fault:?}");
        faulty.whole.clock.advance(299_000);
        assert_eq!(broker.queue_stats(&q).await.unwrap().free, 0, "{fault:?}");
        faulty.whole.clock.advance(180_000);
        let start = Instant::now();
        while broker.queue_stats(&q).await.unwrap().free < 2 {
            assert!(start.elapsed() < MAX_WAIT, "{fault:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The oldest is first.
        assert_eq!(faulty.whole.claim_soon(&q, 1).await, [ids[0]], "{fault:?}");
    }
}

fn visible(seconds: i64) -> Visibility {
    Visibility::new(seconds, "").unwrap()
}

/// Receives one message for 30 seconds. Returns its handle.
async fn receive(broker: Broker) -> String {
    let asked = Receive {
        limit: limit(1),
        visibility: Some(visible(30)),
        wait: None,
        waited: Duration::ZERO,
        in_flight: 100,
        attempt: None,
    };
    let ReceiveResult { messages, delivery_guard } =
        broker.receive(&queue("q"), asked).await.unwrap().unwrap();
    delivery_guard.into_iter().for_each(|mut delivery_guard| delivery_guard.done());
    messages.into_iter().next().unwrap().1
}

/// The client was told that the message was gone, and then it was not removed.
#[tokio::test(flavor = "multi_thread")]
async fn visibility_change_waits_for_outcome_of_delete() {
    for is_fifo in [false, true] {
        for is_durable in [false, true] {
            let faulty = faulty().await;
            let (broker, q) = (&faulty.whole.broker, queue("q"));
            if is_fifo {
                broker.queue_create(&q, metadata(r#"{"_fifo": true}"#)).await.unwrap();
            }
            faulty.whole.post(&q, 1, 43_200).await;
            let handle = receive(broker.clone()).await;
            let lost = [&[Fault::HeldAndLost][..], &[Fault::NotSent; 5]].concat();
            let faults = if is_durable { vec![Fault::Held] } else { lost };
            faulty.pool.next(&faults);
            let change = async {
                until(async || faulty.pool.left() < faults.len()).await;
                broker.receipts_change(&q, &[(&handle, visible(600))]).await.unwrap().remove(0).unwrap()
            };
            let release = async {
                until(async || faulty.pool.left() < faults.len()).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
                faulty.pool.release();
            };
            let handles = [handle.as_str()];
            let (deleted, changed, ()) = tokio::join!(broker.receipts_delete(&q, &handles), change, release);
            assert_eq!(deleted.unwrap()[0].is_ok(), is_durable);
            let expected = if is_durable { VisibilityResult::Gone } else { VisibilityResult::Done };
            assert_eq!(changed, expected, "ordered: {is_fifo}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_receipt_waits_for_receive_being_written() {
    let faulty = faulty().await;
    let (broker, q) = (faulty.whole.broker.clone(), queue("q"));
    faulty.whole.post(&q, 2, 43_200).await;
    let (earlier, held) = (receive(broker.clone()).await, receive(broker.clone()).await);
    broker.receipts_change(&q, &[(&earlier, visible(0))]).await.unwrap().remove(0).unwrap();
    faulty.tree.next(&[Fault::Held]);
    let is_released = Cell::new(false);
    let changing = async {
        until(async || faulty.tree.is_done()).await;
        let asked = [(held.as_str(), visible(600)), (earlier.as_str(), visible(600))];
        let changed = broker.receipts_change(&q, &asked).await.unwrap();
        assert!(is_released.get(), "the receive was not written yet");
        changed
    };
    let releasing = async {
        until(async || faulty.tree.is_done()).await;
        // A message that is held already does not wait for the other one.
        until(async || {
            let filter = ClaimFilter { after: None, limit: filter().limit };
            broker.claims_list(&q, filter).await.unwrap().claims.iter().any(|claim| claim.ttl == 600)
        })
        .await;
        is_released.set(true);
        faulty.tree.release();
    };
    let (_, changed, ()) = tokio::join!(receive(broker.clone()), changing, releasing);
    assert!(changed.iter().all(|changed| matches!(changed, Ok(VisibilityResult::Done))), "{changed:?}");
    faulty.whole.clock.advance(60_000);
    assert!(faulty.whole.claim(&q, 2, 60).await.is_empty(), "both are hidden for ten minutes");
    faulty.whole.clock.advance(600_000);
    assert_eq!(faulty.whole.claim_soon(&q, 2).await.len(), 2);
}

/// Waits until something holds.
async fn until(holds: impl AsyncFn() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < MAX_WAIT);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_doubt_claim_without_messages_leaves_no_record() {
    for fault in [Fault::UnknownBefore, Fault::UnknownAfter] {
        let faulty = faulty().await;
        let (broker, q) = (&faulty.whole.broker, queue("q"));
        let ids = faulty.whole.post(&q, 2, 43_200).await;
        let (view, mut delivery_guard) = broker.claim_create(&q, terms(60), limit(2)).await.unwrap().unwrap();
        delivery_guard.done();
        faulty.tree.next(&[fault]);
        assert!(broker.message_hide(&q, view.id, ids[0], terms(600)).await.is_err());
        for id in &ids {
            broker.message_delete(&q, *id, Some(view.id)).await.unwrap();
        }
        let start = Instant::now();
        while faulty.records().await > 0 {
            assert!(start.elapsed() < MAX_WAIT, "{fault:?}: a record is left");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(broker.queue_stats(&q).await.unwrap().free, 0);
    }
}

/// Its deadline passed during the renewal, and no task checked it again.
#[tokio::test(flavor = "multi_thread")]
async fn claim_expired_during_failed_renewal_still_ends() {
    let faulty = faulty().await;
    let ids = faulty.whole.post(&queue("q"), 1, 43_200).await;
    let claim = faulty.whole.broker.claim_create(&queue("q"), terms(60), limit(1)).await.unwrap();
    let (view, mut delivery_guard) = claim.unwrap();
    delivery_guard.done();
    faulty.tree.next(&[Fault::HeldAndLost]);
    let mut renewal = tokio::task::JoinSet::new();
    let broker = faulty.whole.broker.clone();
    renewal.spawn(async move { broker.claim_renew(&queue("q"), view.id, terms(600)).await });
    while !faulty.tree.is_done() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    faulty.whole.clock.advance(60_000);
    // Long enough for a turn of the background task that expires claims.
    tokio::time::sleep(Duration::from_millis(600)).await;
    faulty.tree.release();
    assert!(renewal.join_next().await.unwrap().unwrap().is_err());
    faulty.whole.clock.advance(1_000);
    assert_eq!(faulty.whole.claim_soon(&queue("q"), 1).await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_doubt_metadata_change_applies_whole_or_not() {
    use angarium_core::message::NewMessage;
    use angarium_core::patch::Change;
    for (fault, bytes) in [(Fault::UnknownBefore, 200), (Fault::UnknownAfter, 100)] {
        let faulty = faulty().await;
        let whole = &faulty.whole;
        let at = queue("q");
        let before = super::metadata(r#"{"_max_messages_post_size": 200}"#);
        whole.broker.queue_create(&at, before).await.unwrap();
        let value = serde_json::value::RawValue::from_string("100".to_owned()).unwrap();
        let change = Change::Replace("_max_messages_post_size".to_owned(), value);
        faulty.tree.next(&[fault]);
        let unknown = whole.broker.queue_patch(&at, vec![change]).await.unwrap_err();
        assert!(!unknown.nothing_written());
        faulty.until_served().await;
        let post = async |size| {
            let body = vec![b'1'; size].into();
            whole.broker.messages_post(&at, vec![NewMessage { body, ..NewMessage::default() }], None).await
        };
        let shown = whole.broker.queue_metadata(&at).await.unwrap().unwrap();
        assert_eq!(shown.attributes().max_message_bytes, Some(bytes), "{fault:?}");
        post(bytes).await.unwrap();
        post(bytes + 1).await.unwrap_err();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_queue_takes_no_post_its_pool_cannot_sync() {
    use angarium_core::durability::Durability;
    use angarium_core::message::NewMessage;
    let faulty = faulty().await;
    let broker = &faulty.whole.broker;
    for (name, attributes) in [("asks", r#"{"_durability": "sync"}"#), ("any", "{}")] {
        broker.queue_create(&queue(name), super::metadata(attributes)).await.unwrap();
    }
    let post = async |name| {
        let message = NewMessage { body: "1".into(), ttl: None, delay: None, ..NewMessage::default() };
        broker.messages_post(&queue(name), vec![message], None).await.map(|posted| posted.durability)
    };
    *faulty.given.reach.lock() = Some(Durability::Relaxed);
    let refused = post("asks").await.unwrap_err();
    assert!(refused.nothing_written() && refused.may_retry(), "{refused:?}");
    assert_eq!(post("any").await.unwrap(), Durability::Relaxed);
    *faulty.given.reach.lock() = None;
    assert_eq!(
        (post("asks").await.unwrap(), post("any").await.unwrap()),
        (Durability::Sync, Durability::Sync)
    );
}
