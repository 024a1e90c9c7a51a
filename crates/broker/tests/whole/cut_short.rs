//! Releases with a delay that were interrupted between the headers and the record of the claim, and totals that are
//! wrong since.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use angarium_broker::ClaimView;
use angarium_core::delay::Delay;
use angarium_core::message::{Header, NewMessage, State};
use angarium_storage::{Batch, Changes, PoolReads, PoolWrites};
use angarium_testbed::owner::changes;

use super::faulty::Fault::{NotSent, UnknownAfter, UnknownBefore};
use super::outcomes::{Faulty, faulty};
use super::recovery::claim_when_served;
use super::{MAX_WAIT, limit, queue, terms};

/// Number of times that a batch is sent before its outcome stays unknown.
const TRIES: usize = 6;

impl Faulty {
    /// Makes the broker reacquire the slot of the queue: memory is read again. The slot is served when this returns.
    pub(super) async fn reacquire(&self) {
        self.pool.next(&[UnknownBefore; TRIES]);
        let message = NewMessage { body: "1".into(), ..NewMessage::default() };
        self.whole.broker.messages_post(&queue("q"), vec![message], None).await.unwrap_err();
        self.until_served().await;
    }

    /// Returns a claim on two of three messages. Its release with a delay wrote the headers, and not more.
    async fn cut_short(&self, fault: super::faulty::Fault) -> ClaimView {
        self.whole.post(&queue("q"), 3, 3_600).await;
        let claim = self.whole.broker.claim_create(&queue("q"), terms(43_200), limit(2)).await.unwrap();
        let (view, mut delivery_guard) = claim.unwrap();
        delivery_guard.done();
        self.tree.next(&[fault]);
        let released = self.whole.broker.release_later(&queue("q"), view.id, Some(Delay::Seconds(60))).await;
        assert!(!released.unwrap_err().nothing_written(), "the headers are written");
        view
    }

    /// Returns the statistics of the queue once it is served.
    async fn claimed_free_delayed(&self) -> [u64; 3] {
        let start = Instant::now();
        loop {
            match self.whole.broker.queue_stats(&queue("q")).await {
                Ok(stats) => return [stats.claimed, stats.free, stats.delayed],
                Err(error) => assert!(start.elapsed() < MAX_WAIT, "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the number of messages in the pool, and the number in its totals.
    async fn counted(&self) -> (usize, u64) {
        let id = self.given.given().last().unwrap().queues[0].queue;
        let mut found = 0;
        for order in [angarium_storage::Order::Ready, angarium_storage::Order::Aside] {
            let up = angarium_storage::Direction::Up;
            found += self.store.scan(id, order, up, None, 100, 1 << 20).await.unwrap().messages.len();
        }
        (found, self.store.totals(id).await.unwrap().messages)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_after_failed_delayed_release_is_final() {
    for fault in [NotSent, UnknownBefore, UnknownAfter] {
        let faulty = faulty().await;
        let view = faulty.cut_short(fault).await;
        let whole = &faulty.whole;
        let (deleted, kept) = (view.messages[0].id, view.messages[1].id);
        whole.broker.message_delete(&queue("q"), deleted, Some(view.id)).await.unwrap();
        assert_eq!(faulty.counted().await, (2, 2), "{fault:?}");
        whole.broker.claim_release(&queue("q"), view.id).await.unwrap();
        whole.clock.advance(61_000);
        let all = whole.claim_soon(&queue("q"), 20).await;
        assert!(all.len() == 2 && all.contains(&kept), "{fault:?}: {all:?}");
    }
}

/// The pool counts these messages as delayed, and so they were counted in place of ready messages.
#[tokio::test(flavor = "multi_thread")]
async fn claimed_messages_stored_as_delayed_count_as_claimed() {
    for fault in [NotSent, UnknownBefore, UnknownAfter] {
        let faulty = faulty().await;
        let view = faulty.cut_short(fault).await;
        assert_eq!(faulty.claimed_free_delayed().await, [2, 1, 0], "{fault:?}");
        let (whole, deleted) = (&faulty.whole, view.messages[0].id);
        whole.broker.message_delete(&queue("q"), deleted, Some(view.id)).await.unwrap();
        assert_eq!(faulty.claimed_free_delayed().await, [1, 1, 0], "{fault:?}");
        faulty.reacquire().await;
        let left = if fault == UnknownAfter { [0, 2, 1] } else { [1, 1, 0] };
        assert_eq!(faulty.claimed_free_delayed().await, left, "{fault:?}");
        whole.broker.claim_release(&queue("q"), view.id).await.unwrap();
        let left = if fault == UnknownAfter { left } else { [0, 2, 0] };
        assert_eq!(faulty.claimed_free_delayed().await, left, "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_under_restored_claim_is_final() {
    let faulty = faulty().await;
    let view = faulty.cut_short(NotSent).await;
    let whole = &faulty.whole;
    faulty.reacquire().await;
    for message in &view.messages {
        whole.broker.message_delete(&queue("q"), message.id, Some(view.id)).await.unwrap();
    }
    assert_eq!(faulty.counted().await, (1, 1));
    whole.clock.advance(61_000);
    let left = whole.claim_soon(&queue("q"), 20).await;
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(view.messages.iter().all(|message| !left.contains(&message.id)));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_beyond_wrong_totals_are_found() {
    for delay in [None, Some(Delay::Seconds(60))] {
        let faulty = faulty().await;
        let whole = &faulty.whole;
        let message = NewMessage { body: "1".into(), delay, ..NewMessage::default() };
        let posted = whole.broker.messages_post(&queue("q"), vec![message], None).await.unwrap().ids;
        faulty.given.hides_totals.store(true, Ordering::SeqCst);
        faulty.reacquire().await;
        whole.clock.advance(61_000);
        assert_eq!(claim_when_served(whole, "q").await, posted, "{delay:?}");
    }
}

/// The first entry beside the ready ones does not show the entries behind it.
#[tokio::test(flavor = "multi_thread")]
async fn scheduled_message_behind_a_failed_one_is_found() {
    let faulty = faulty().await;
    let whole = &faulty.whole;
    let failed = whole.post(&queue("q"), 1, 3_600).await[0];
    let delay = Some(Delay::Seconds(60));
    let message = NewMessage { body: "1".into(), delay, ..NewMessage::default() };
    let delayed = whole.broker.messages_post(&queue("q"), vec![message], None).await.unwrap().ids;
    let id = faulty.given.given().last().unwrap().queues[0].queue;
    let header = faulty.store.get(id, &[failed]).await.unwrap().remove(0).header;
    faulty.given.hides_totals.store(true, Ordering::SeqCst);
    let last = faulty.given.given().last().unwrap().clone();
    let failing = Header { state: State::NoTarget, ..header };
    let changes = changes(id, Changes::updates(vec![failing]));
    faulty.store.commit(&Batch { seq: last.seq + 1, queues: vec![changes], ..last }).await.unwrap();
    faulty.reacquire().await;
    whole.clock.advance(61_000);
    assert_eq!(claim_when_served(whole, "q").await, delayed);
}
