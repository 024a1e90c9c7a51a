//! Receives that clients repeat with the same attempt id.

use std::time::Duration;

use angarium_broker::{Receive, ReceiveResult};
use angarium_clock::Clock;
use angarium_core::claim::Visibility;
use angarium_core::group::AttemptId;

use super::groups::{in_group, ordered};
use super::{Whole, limit, open_journal, queue, start};

fn named(id: &str) -> Receive {
    Receive {
        limit: limit(2),
        visibility: Some(Visibility::new(60, "").unwrap()),
        wait: None,
        waited: Duration::ZERO,
        in_flight: 100,
        attempt: Some(AttemptId::new(id, "").unwrap()),
    }
}

impl Whole {
    async fn receive(&self, attempt: &str) -> Vec<String> {
        let received = self.broker.receive(&queue("q"), named(attempt)).await.unwrap();
        let Some(ReceiveResult { messages, delivery_guard }) = received else { return Vec::new() };
        delivery_guard.into_iter().for_each(|mut delivery_guard| delivery_guard.done());
        messages.into_iter().map(|(_, handle)| handle).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_receive_returns_same_messages_for_five_minutes() {
    let (whole, at) = ordered().await;
    whole.broker.messages_post(&at, vec![in_group("a", "1"), in_group("a", "2")], None).await.unwrap();
    let first = whole.receive("one").await;
    assert_eq!(first.len(), 2);
    for _ in 0..5 {
        whole.clock.advance(59_000);
        assert_eq!(whole.receive("one").await, first);
        assert!(whole.receive("other").await.is_empty());
    }
    // Five minutes after the first time it is an ordinary receive.
    whole.clock.advance(5_000);
    assert!(whole.receive("one").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receive_can_be_repeated_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let clock = Clock::manual(1_700_000_000_000);
    let journal = open_journal(data.path(), "journal");
    let broker = start(journal.clone(), journal.clone(), clock.clone()).await;
    let whole = Whole { broker, clock: clock.clone(), _data: tempfile::tempdir().unwrap() };
    whole.broker.queue_create(&queue("q"), super::metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let messages = vec![in_group("a", "1"), in_group("b", "2"), in_group("c", "3")];
    whole.broker.messages_post(&queue("q"), messages, None).await.unwrap();
    let (kept, changed) = (whole.receive("kept").await, whole.receive("changed").await);
    assert_eq!((kept.len(), changed.len()), (2, 1));
    let none = Visibility::new(30, "").unwrap();
    whole.broker.receipts_change(&queue("q"), &[(&changed[0], none)]).await.unwrap().remove(0).unwrap();
    whole.broker.stop().await;
    let broker = start(journal.clone(), journal, clock.clone()).await;
    let whole = Whole { broker, clock, _data: tempfile::tempdir().unwrap() };
    assert_eq!(whole.receive("kept").await, kept);
    assert!(whole.receive("changed").await.is_empty(), "its message was given another time");
}

/// The first answer was lost between two replicas: the owner learns that late.
#[tokio::test(flavor = "multi_thread")]
async fn late_notice_of_lost_answer_spares_a_repeated_receive() {
    let (whole, at) = ordered().await;
    whole.broker.messages_post(&at, vec![in_group("a", "1"), in_group("a", "2")], None).await.unwrap();
    let mut lost = whole.broker.receive(&at, named("one")).await.unwrap().unwrap().delivery_guard.unwrap();
    let (_, claim) = lost.claim().unwrap();
    lost.done();
    let repeated = whole.receive("one").await;
    assert_eq!(repeated.len(), 2);
    whole.broker.claim_unheld(at.clone(), claim).await.unwrap();
    assert!(whole.receive("other").await.is_empty(), "the repeated receive holds them");
    assert_eq!(whole.receive("one").await, repeated);
    // Without a repeated receive the notice releases the messages.
    whole.broker.messages_post(&at, vec![in_group("b", "3")], None).await.unwrap();
    let mut lost = whole.broker.receive(&at, named("two")).await.unwrap().unwrap().delivery_guard.unwrap();
    let (_, claim) = lost.claim().unwrap();
    lost.done();
    whole.broker.claim_unheld(at, claim).await.unwrap();
    assert_eq!(whole.receive("other").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_notice_spares_a_repeated_receive_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let clock = Clock::manual(1_700_000_000_000);
    let journal = open_journal(data.path(), "journal");
    let broker = start(journal.clone(), journal.clone(), clock.clone()).await;
    let whole = Whole { broker, clock: clock.clone(), _data: tempfile::tempdir().unwrap() };
    let at = queue("q");
    whole.broker.queue_create(&at, super::metadata(r#"{"_fifo": true}"#)).await.unwrap();
    whole.broker.messages_post(&at, vec![in_group("a", "1")], None).await.unwrap();
    let mut lost = whole.broker.receive(&at, named("one")).await.unwrap().unwrap().delivery_guard.unwrap();
    let (_, claim) = lost.claim().unwrap();
    lost.done();
    let repeated = whole.receive("one").await;
    whole.broker.stop().await;
    let broker = start(journal.clone(), journal, clock.clone()).await;
    let whole = Whole { broker, clock, _data: tempfile::tempdir().unwrap() };
    whole.broker.claim_unheld(at, claim).await.unwrap();
    assert!(whole.receive("other").await.is_empty());
    assert_eq!(whole.receive("one").await, repeated);
}
