//! Recovery of slots: acknowledged changes stay, refused ones cannot return, and service continues.

use std::time::{Duration, Instant};

use angarium_catalogue::{Component, ComponentState, Owner, Schema};
use angarium_core::error::Error;
use angarium_core::message::NewMessage;
use angarium_core::settle::Retry;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::deadletters::FOR_EVER;
use super::faulty::Fault::{Held, NotSent, UnknownAfter, UnknownBefore};
use super::leases::all_queues;
use super::outcomes::{Faulty, faulty};
use super::settle::{DONE, entry, fail, hold, settle_one};
use super::transfers::until;
use super::{MAX_WAIT, Whole, limit, other_replica, queue, replica, terms};

/// Number of times that a slot writer sends a batch before it gives up.
const TRIES: usize = 6;

fn message() -> Vec<NewMessage> {
    vec![NewMessage { body: "\"x\"".into(), ttl: None, delay: None, ..NewMessage::default() }]
}

/// Takes the queue's slot as another process would.
async fn take_away(faulty: &Faulty) {
    take_slot_of(faulty, "q").await;
}

/// Takes the slot of a queue as another process would.
pub(super) async fn take_slot_of(faulty: &Faulty, name: &str) {
    let nonce = Uuid::new_v4();
    let other = Owner { instance: replica().instance, address: "elsewhere:1".into(), nonce };
    faulty.catalogue.slots_take(&[queue(name).slot()], &other).await.unwrap();
}

impl Faulty {
    /// Waits until the slot of the queue is served. On a busy machine that takes longer than a request waits for it.
    pub(super) async fn until_served(&self) {
        let is_served = async || self.whole.broker.queue_metadata(&queue("q")).await.is_ok();
        until("the slot is not served again", is_served).await;
    }
}

/// Claims until a claim succeeds: while the slot is away each one is refused.
pub(super) async fn claim_when_served(whole: &Whole, name: &str) -> Vec<angarium_core::ids::MessageId> {
    let start = Instant::now();
    loop {
        match whole.broker.claim_create(&queue(name), terms(300), limit(20)).await {
            Ok(None) => return Vec::new(),
            Ok(Some((view, mut delivery_guard))) => {
                delivery_guard.done();
                return view.messages.iter().map(|message| message.id).collect();
            }
            Err(error) => assert!(error.nothing_written(), "{error:?}"),
        }
        assert!(start.elapsed() < MAX_WAIT, "the slot is not served again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slot_serves_again_after_in_doubt_batch() {
    for (fault, is_applied) in [(UnknownBefore, false), (UnknownAfter, true)] {
        let faulty = faulty().await;
        let whole = &faulty.whole;
        let first = whole.post(&queue("q"), 1, 3_600).await;
        faulty.pool.next(&[fault; TRIES]);
        let unknown = whole.broker.messages_post(&queue("q"), message(), None).await.unwrap_err();
        assert!(!unknown.nothing_written());
        faulty.until_served().await;
        let third = whole.post(&queue("q"), 1, 3_600).await;
        let all = claim_when_served(whole, "q").await;
        assert_eq!((all.first(), all.last()), (first.first(), third.first()), "{fault:?}");
        // Once if its batch was applied, otherwise never.
        assert_eq!(all.len(), 2 + usize::from(is_applied), "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_messages_survive_slot_recovery() {
    let faulty = faulty().await;
    let whole = &faulty.whole;
    let ids = whole.post(&queue("q"), 4, 3_600).await;
    assert_eq!(whole.claim(&queue("q"), 1, 60).await, ids[..1]);
    whole.broker.message_delete(&queue("q"), ids[1], None).await.unwrap();
    faulty.pool.next(&[UnknownBefore; TRIES]);
    whole.broker.messages_post(&queue("q"), message(), None).await.unwrap_err();
    // Neither the claimed message nor the deleted one.
    assert_eq!(claim_when_served(whole, "q").await, ids[2..]);
    whole.clock.advance(59_999);
    assert!(whole.claim(&queue("q"), 20, 300).await.is_empty(), "the claim lasts as long as it was granted");
    whole.clock.advance(1);
    assert_eq!(whole.claim_soon(&queue("q"), 20).await, ids[..1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_doubt_removal_is_resolved_and_never_undone() {
    for (fault, left) in [(UnknownBefore, 2), (UnknownAfter, 1)] {
        let faulty = faulty().await;
        let whole = &faulty.whole;
        let ids = whole.post(&queue("q"), 2, 3_600).await;
        faulty.pool.next(&[fault; TRIES]);
        let unknown = whole.broker.message_delete(&queue("q"), ids[0], None).await.unwrap_err();
        assert!(!unknown.nothing_written());
        assert_eq!(claim_when_served(whole, "q").await, ids[2 - left..], "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stolen_slot_is_recovered() {
    let faulty = faulty().await;
    let whole = &faulty.whole;
    let ids = whole.post(&queue("q"), 2, 3_600).await;
    take_away(&faulty).await;
    let refused = whole.broker.claim_create(&queue("q"), terms(60), limit(1)).await.err().unwrap();
    assert!(matches!(refused, Error::Unavailable { .. }) && refused.nothing_written());
    assert_eq!(claim_when_served(whole, "q").await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_batch_of_old_owner_changes_nothing() {
    let faulty = faulty().await;
    let whole = &faulty.whole;
    let first = whole.post(&queue("q"), 1, 3_600).await;
    faulty.pool.next(&[Held]);
    let broker = whole.broker.clone();
    let mut late = JoinSet::new();
    late.spawn(async move { broker.messages_post(&queue("q"), message(), None).await });
    while !faulty.pool.is_done() {
        tokio::task::yield_now().await;
    }
    take_away(&faulty).await;
    whole.broker.claim_create(&queue("q"), terms(60), limit(1)).await.err().unwrap();
    assert_eq!(claim_when_served(whole, "q").await, first);
    faulty.pool.release();
    late.join_next().await.unwrap().unwrap().unwrap_err();
    let second = whole.post(&queue("q"), 1, 3_600).await;
    assert_eq!(claim_when_served(whole, "q").await, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn unrecoverable_slot_refuses_requests_and_others_serve() {
    let faulty = faulty().await;
    let whole = &faulty.whole;
    assert_ne!(queue("q").slot(), queue("other").slot());
    let ids = whole.post(&queue("q"), 1, 3_600).await;
    whole.post(&queue("other"), 1, 3_600).await;
    take_away(&faulty).await;
    // The first commit is the claim's own.
    faulty.tree.next(&vec![NotSent; FOR_EVER]);
    faulty.tree.skip(1);
    whole.broker.claim_create(&queue("q"), terms(60), limit(1)).await.err().unwrap();
    let refused = whole.broker.messages_post(&queue("q"), message(), None).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
    whole.post(&queue("other"), 1, 3_600).await;
    faulty.tree.clear();
    assert_eq!(claim_when_served(whole, "q").await, ids);
    assert_eq!(claim_when_served(whole, "other").await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_listed_out_of_the_tree_while_a_slot_is_away() {
    let faulty = faulty().await;
    let whole = &faulty.whole;
    whole.post(&queue("q"), 1, 3_600).await;
    let project = queue("q").project;
    take_away(&faulty).await;
    // The first commit is the claim's own.
    faulty.tree.next(&[NotSent; 6]);
    faulty.tree.skip(1);
    whole.broker.claim_create(&queue("q"), terms(60), limit(1)).await.err().unwrap();
    assert_eq!(whole.broker.queues_list(&project, &all_queues()).await.unwrap().queues.len(), 1);
    assert_eq!(claim_when_served(whole, "q").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_recovered_slot_last_two_seconds_at_least() {
    let faulty = faulty().await;
    let whole = &faulty.whole;
    let ids = whole.post(&queue("q"), 1, 3_600).await;
    let others = whole.post(&queue("other"), 1, 3_600).await;
    assert_eq!(whole.claim(&queue("q"), 1, 60).await, ids);
    assert_eq!(whole.claim(&queue("other"), 1, 60).await, others);
    whole.clock.advance(59_000);
    faulty.pool.next(&[UnknownBefore; TRIES]);
    whole.broker.messages_post(&queue("q"), message(), None).await.unwrap_err();
    assert!(claim_when_served(whole, "q").await.is_empty());
    whole.clock.advance(1_999);
    // By now the claim in the other slot, which was not taken away, has expired.
    assert_eq!(whole.claim_soon(&queue("other"), 1).await, others);
    assert!(whole.claim(&queue("q"), 1, 300).await.is_empty());
    whole.clock.advance(1);
    assert_eq!(whole.claim_soon(&queue("q"), 1).await, ids);
}

/// A release and a settle are answered before their slot has another owner.
#[tokio::test(flavor = "multi_thread")]
async fn end_of_claim_is_certain_during_a_hand_over() {
    for is_settle in [false, true] {
        let faulty = faulty().await;
        let whole = &faulty.whole;
        // Its slot is among the first ones that are handed over.
        let at = (0..).map(|number| queue(&format!("q{number}"))).find(|at| at.slot().0 < 8).unwrap();
        let ids = whole.post(&at, 2, 3_600).await;
        let (claim, _) = hold(&whole.broker, &at).await;
        // The first settle commits more.
        settle_one(&whole.broker, &at, claim, entry(ids[1], DONE)).await.unwrap();
        faulty.tree.next(&[Held]);
        let end = async {
            if is_settle {
                let failed = entry(ids[0], fail("no", Retry::Backoff));
                settle_one(&whole.broker, &at, claim, failed).await.map(drop)
            } else {
                whole.broker.claim_release(&at, claim).await
            }
        };
        let hand_over = async {
            until("the record is not written", async || faulty.tree.is_done()).await;
            let seen = faulty.catalogue.registry().await.unwrap();
            let other = Component { state: ComponentState::Running, ..other_replica(Schema::KNOWN) };
            faulty.catalogue.component_join(&seen, "elsewhere", &other).await.unwrap().unwrap();
            until("the other is not seen", async || whole.broker.has_others()).await;
            let is_closed = async || whole.broker.queue_stats(&at).await.is_err();
            let go_on = async {
                until("the slot is not closed", is_closed).await;
                // Time for a hand-over that does not wait: the next owner takes the slot at once.
                let start = Instant::now();
                while start.elapsed() < Duration::from_secs(1) {
                    if faulty.catalogue.slot_owners(&[at.slot()]).await.unwrap() == [None] {
                        take_slot_of(&faulty, at.name.as_str()).await;
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                faulty.tree.release();
            };
            tokio::select! {
                () = whole.broker.drain() => panic!("it waits for no operation"),
                () = go_on => {}
            }
        };
        let (ended, ()) = tokio::join!(end, hand_over);
        assert!(ended.is_ok(), "settle {is_settle}: {ended:?}");
    }
}
