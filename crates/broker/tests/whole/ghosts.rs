//! Messages that memory is about to have although the pool has removed them, and tasks that panic.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use angarium_broker::{MessageFilter, NewSubscription};
use angarium_core::delay::Delay;
use angarium_core::ids::MessageId;
use angarium_core::limits::Limits;
use angarium_core::message::NewMessage;
use angarium_core::page::PageLimit;
use angarium_storage::{Batch, Order, PoolReads};
use tokio::task::JoinSet;

use super::faulty::Fault::{Held, Panic, UnknownBefore};
use super::outcomes::{Faulty, faulty};
use super::recovery::{claim_when_served, take_slot_of};
use super::subscriptions::{new, options, with_body};
use super::transfers::until;
use super::{MAX_WAIT, limit, queue, terms};

impl Faulty {
    async fn post_delayed(&self) -> MessageId {
        let delay = Some(Delay::Seconds(30));
        let message = NewMessage { body: "1".into(), delay, ..NewMessage::default() };
        self.whole.broker.messages_post(&queue("q"), vec![message], None).await.unwrap().ids[0]
    }

    /// Holds the next page of an order after it is read.
    fn hold_page(&self, order: Order) {
        *self.given.held_order.lock() = Some(order);
        self.given.pages.next(&[Held]);
    }

    async fn page_is_held(&self) {
        let start = Instant::now();
        while !self.given.pages.is_done() {
            assert!(start.elapsed() < MAX_WAIT, "no page is read");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn message_becoming_ready_during_listing_is_listed_once() {
    for order in [Order::Ready, Order::Aside] {
        let faulty = faulty().await;
        let delayed = faulty.post_delayed().await;
        faulty.hold_page(order);
        let broker = faulty.whole.broker.clone();
        let mut listing = JoinSet::new();
        listing.spawn(async move {
            let (after, limit) =
                (MessageId::ZERO, PageLimit::new(None, Limits::ZAQAR.messages_page).unwrap());
            let filter =
                MessageFilter { after, limit, not_of: None, includes_claimed: true, includes_delayed: true };
            broker.messages_list(&queue("q"), &filter).await.unwrap().messages
        });
        faulty.page_is_held().await;
        faulty.whole.clock.advance(31_000);
        let is_ready = async || faulty.whole.broker.queue_stats(&queue("q")).await.unwrap().delayed == 0;
        until("it stays delayed", is_ready).await;
        faulty.given.pages.release();
        let listed = listing.join_next().await.unwrap().unwrap();
        let ids: Vec<MessageId> = listed.iter().map(|message| message.id).collect();
        assert_eq!(ids, [delayed], "{order:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn message_deleted_while_it_is_due_never_appears() {
    for is_purged in [false, true] {
        let faulty = faulty().await;
        let whole = &faulty.whole;
        let delayed = faulty.post_delayed().await;
        faulty.hold_page(Order::Schedule);
        whole.clock.advance(31_000);
        faulty.page_is_held().await;
        match is_purged {
            true => whole.broker.queue_purge(&queue("q")).await.unwrap(),
            false => whole.broker.message_delete(&queue("q"), delayed, None).await.unwrap(),
        }
        faulty.given.pages.release();
        let posted = whole.post(&queue("q"), 1, 3_600).await;
        // With the removed message in memory each claim would be refused.
        assert_eq!(whole.claim_soon(&queue("q"), 20).await, posted, "purged: {is_purged}");
        assert_eq!(faulty.given.fenced().len(), 1, "the slot was not reacquired");
    }
}

/// A page that was read to fill a subscription is not written with what has been deleted since.
#[tokio::test(flavor = "multi_thread")]
async fn message_deleted_while_it_is_read_is_not_copied() {
    let (faulty, q) = (faulty().await, queue("q"));
    let whole = &faulty.whole;
    let messages = [1, 2, 3].map(|body| with_body(&body.to_string()));
    let ids = whole.broker.messages_post(&q, messages.into(), None).await.unwrap().ids;
    let from_oldest = NewSubscription { options: options(r#"{"from": "oldest"}"#), ..new("pull:") };
    // Its first page is read when the note of its fill is written.
    faulty.pool.next(&[Held]);
    let (broker, at, mut creating) = (whole.broker.clone(), q.clone(), JoinSet::new());
    creating.spawn(async move { broker.subscription_create(&at, from_oldest).await });
    until("the fill does not begin", async || faulty.pool.is_done()).await;
    faulty.hold_page(Order::Ready);
    faulty.pool.release();
    let own = q.of_subscription(creating.join_next().await.unwrap().unwrap().unwrap().id);
    faulty.page_is_held().await;
    whole.broker.message_delete(&q, ids[1], None).await.unwrap();
    faulty.given.pages.release();
    let mut copies = Vec::new();
    until("the others are not copied", async || {
        copies.extend(whole.claim_bodies(&own, 20).await);
        copies.len() >= 2
    })
    .await;
    copies.extend(whole.claim_bodies(&own, 20).await);
    assert_eq!(copies, ["1", "3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_without_body_is_forgotten_and_its_slot_reacquired() {
    let faulty = faulty().await;
    let whole = &faulty.whole;
    let ids = whole.post(&queue("q"), 3, 3_600).await;
    let claim = whole.broker.claim_create(&queue("q"), terms(60), limit(3)).await.unwrap();
    // Its body is read at the next claim.
    whole
        .broker
        .claim_release(
            &queue("q"),
            claim
                .map(|(view, mut delivery_guard)| {
                    delivery_guard.done();
                    view.id
                })
                .unwrap(),
        )
        .await
        .unwrap();
    faulty.given.lost.lock().push(ids[0]);
    let refused = whole.broker.claim_create(&queue("q"), terms(60), limit(3)).await.err().unwrap();
    assert!(refused.nothing_written() && refused.may_retry(), "{refused:?}");
    // The pool is read again and has the message: nothing was removed.
    assert_eq!(claim_when_served(whole, "q").await, ids);
    assert_eq!(faulty.given.fenced().len(), 2);
    let page = whole.broker.metrics_page().await;
    assert!(page.lines().any(|line| line == "angarium_messages_missing_total 1"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_removes_concurrently_waking_message() {
    let faulty = faulty().await;
    let whole = &faulty.whole;
    let delayed = faulty.post_delayed().await;
    faulty.hold_page(Order::Ready);
    let mut purge = JoinSet::new();
    let broker = whole.broker.clone();
    purge.spawn(async move { broker.queue_purge(&queue("q")).await });
    faulty.page_is_held().await;
    whole.clock.advance(31_000);
    let id = faulty.given.given().last().unwrap().queues[0].queue;
    while faulty.store.totals(id).await.unwrap().scheduled > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    faulty.given.pages.release();
    purge.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(faulty.store.get(id, &[delayed]).await.unwrap(), []);
    assert_eq!(whole.claim(&queue("q"), 20, 60).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn panic_of_slot_writer_does_not_hang_its_slot() {
    let faulty = faulty().await;
    let whole = &faulty.whole;
    let first = whole.post(&queue("q"), 1, 3_600).await;
    faulty.given.panics.store(true, Ordering::SeqCst);
    let message = || vec![NewMessage { body: "1".into(), ..NewMessage::default() }];
    let unknown = whole.broker.messages_post(&queue("q"), message(), None).await.unwrap_err();
    assert!(!unknown.nothing_written());
    let again = async || whole.broker.messages_post(&queue("q"), message(), None).await.ok();
    let mut second = None;
    until("the slot is not served", async || {
        second = again().await;
        second.is_some()
    })
    .await;
    let second = second.expect("it was posted").ids;
    assert_eq!(claim_when_served(whole, "q").await, [first, second].concat());
}

/// The slot stayed without an owner, and each request to its queues was refused forever.
#[tokio::test(flavor = "multi_thread")]
async fn panic_while_slot_is_reacquired_leaves_it_to_next_try() {
    let faulty = faulty().await;
    let whole = &faulty.whole;
    let ids = whole.post(&queue("q"), 2, 3_600).await;
    take_slot_of(&faulty, "q").await;
    // One panic while the slot is recovered, and one while it is taken as a free slot.
    faulty.tree.next(&[Panic, Panic]);
    // The claim's own commit.
    faulty.tree.skip(1);
    whole.broker.claim_create(&queue("q"), terms(60), limit(1)).await.err().unwrap();
    assert_eq!(claim_when_served(whole, "q").await, ids);
    assert!(faulty.tree.is_done());
}

#[tokio::test(flavor = "multi_thread")]
async fn panicked_background_task_restarts() {
    let faulty = faulty().await;
    let whole = &faulty.whole;
    // Its slot is one of the first to be swept.
    let at = (0..).map(|number| queue(&format!("n{number}"))).find(|at| at.slot().0 < 8).unwrap();
    whole.post(&at, 1, 60).await;
    faulty.given.panics_at_due.store(true, Ordering::SeqCst);
    until("nothing is looked for", async || !faulty.given.panics_at_due.load(Ordering::SeqCst)).await;
    whole.clock.advance(7_200_000);
    let is_removed = |batch: &Batch| batch.queues.iter().any(|queue| !queue.changes.removes.is_empty());
    until("the message stays", async || faulty.given.given().iter().any(is_removed)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn receipt_delete_in_doubt_is_answered_as_unknown() {
    let faulty = faulty().await;
    let whole = &faulty.whole;
    whole.post(&queue("q"), 1, 3_600).await;
    let handle = whole.receive_one(&queue("q")).await;
    faulty.pool.next(&[UnknownBefore; 6]);
    let doubt = whole.broker.receipts_delete(&queue("q"), &[&handle]).await;
    let is_unknown = match doubt {
        Err(error) => !error.nothing_written(),
        Ok(outcomes) => outcomes[0].as_ref().is_err_and(|error| !error.nothing_written()),
    };
    assert!(is_unknown, "it may be deleted");
}
