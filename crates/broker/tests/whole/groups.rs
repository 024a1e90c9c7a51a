//! FIFO queues: which messages of a group a claim may have, and what frees a group. Source of the rules: SQS.

use angarium_broker::{ClaimView, DeliveryGuard};
use angarium_core::claim::{ClaimWait, Claimer, Holdings};
use angarium_core::delay::Delay;
use angarium_core::group::GroupName;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use tokio::task::JoinSet;

use super::{Whole, limit, metadata, open_journal, queue, start, terms, whole};

/// Returns a broker with a FIFO queue.
pub(super) async fn ordered() -> (Whole, QueueRef) {
    let (whole, at) = (whole().await, queue("q"));
    whole.broker.queue_create(&at, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    (whole, at)
}

pub(super) fn in_group(group: &str, body: &'static str) -> NewMessage {
    let group = Some(GroupName::new(group, "group").unwrap());
    NewMessage { body: body.into(), group, ..NewMessage::default() }
}

impl Whole {
    /// Posts a message to each of these groups, in this order.
    async fn post_to(&self, at: &QueueRef, groups: &[&str]) -> Vec<MessageId> {
        let messages = groups.iter().map(|group| in_group(group, "1")).collect();
        self.broker.messages_post(at, messages, None).await.unwrap().ids
    }

    /// Claims messages and keeps them, with the claim.
    async fn take(&self, at: &QueueRef, messages: i64) -> Option<(ClaimId, Vec<MessageId>)> {
        let claim = self.broker.claim_create(at, terms(60), limit(messages)).await.unwrap();
        claim.map(kept)
    }

    async fn delete(&self, at: &QueueRef, id: MessageId, claim: ClaimId) {
        self.broker.message_delete(at, id, Some(claim)).await.unwrap();
    }

    /// A claim that waits for one message.
    async fn wait(&self, at: &QueueRef) -> JoinSet<Option<Vec<MessageId>>> {
        let (broker, at) = (self.broker.clone(), at.clone());
        let mut waiting = JoinSet::new();
        waiting.spawn(async move {
            let wait = ClaimWait::new(Some(20)).unwrap();
            let claim = broker.claim_wait(&at, terms(60), limit(1), wait, Claimer::default()).await.unwrap();
            claim.map(|claim| kept(claim).1)
        });
        // Nothing shows that the claim waits; this is long enough for it to begin.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        waiting
    }
}

fn kept((view, mut delivery_guard): (ClaimView, DeliveryGuard)) -> (ClaimId, Vec<MessageId>) {
    delivery_guard.done();
    (view.id, view.messages.iter().map(|message| message.id).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_takes_all_of_one_group_then_the_next() {
    let (whole, at) = ordered().await;
    let ids = whole.post_to(&at, &["a", "b", "a", "c", "a"]).await;
    let (_, taken) = whole.take(&at, 4).await.unwrap();
    assert_eq!(taken, [ids[0], ids[2], ids[4], ids[1]]);
    let (_, rest) = whole.take(&at, 4).await.unwrap();
    assert_eq!(rest, [ids[3]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn group_with_claimed_messages_is_blocked_until_deletion() {
    let (whole, at) = ordered().await;
    let ids = whole.post_to(&at, &["a", "a", "a"]).await;
    let (claim, taken) = whole.take(&at, 2).await.unwrap();
    assert_eq!(taken, ids[..2]);
    assert!(whole.take(&at, 10).await.is_none());
    let later = whole.post_to(&at, &["a", "b"]).await;
    assert_eq!(whole.take(&at, 10).await.unwrap().1, [later[1]], "new ones change nothing");
    whole.delete(&at, ids[0], claim).await;
    assert!(whole.take(&at, 10).await.is_none(), "the other one is still claimed");
    whole.delete(&at, ids[1], claim).await;
    assert_eq!(whole.take(&at, 10).await.unwrap().1, [ids[2], later[0]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn returned_message_precedes_its_successors() {
    let (whole, at) = ordered().await;
    let ids = whole.post_to(&at, &["a", "a", "a"]).await;
    let (first, _) = whole.take(&at, 1).await.unwrap();
    assert!(whole.take(&at, 1).await.is_none());
    whole.broker.claim_release(&at, first).await.unwrap();
    assert_eq!(whole.take(&at, 10).await.unwrap().1, ids);
    whole.clock.advance(120_000);
    assert_eq!(whole.claim_soon(&at, 10).await, ids, "after the end of the claim too");
}

#[tokio::test(flavor = "multi_thread")]
async fn unserved_groups_precede_served_ones() {
    let (whole, at) = ordered().await;
    let ids = whole.post_to(&at, &["a", "a", "a", "b", "b", "c"]).await;
    let mut order = Vec::new();
    while let Some((claim, taken)) = whole.take(&at, 1).await {
        whole.delete(&at, taken[0], claim).await;
        order.extend(taken);
    }
    assert_eq!(order, [ids[0], ids[3], ids[5], ids[1], ids[4], ids[2]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_message_holds_back_those_behind_it_in_its_group() {
    let (whole, at) = ordered().await;
    let delayed = NewMessage { delay: Some(Delay::Seconds(30)), ..in_group("a", "1") };
    let first = whole.broker.messages_post(&at, vec![delayed], None).await.unwrap().ids;
    let ids = whole.post_to(&at, &["a", "b"]).await;
    assert_eq!(whole.take(&at, 10).await.unwrap().1, [ids[1]]);
    whole.clock.advance(30_000);
    assert_eq!(whole.claim_soon(&at, 10).await, [first[0], ids[0]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_without_a_group_are_in_one() {
    let (whole, at) = ordered().await;
    let ids = whole.post(&at, 3, 3_600).await;
    assert_eq!(whole.claim(&at, 1, 60).await, ids[..1]);
    assert!(whole.claim(&at, 10, 60).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn freed_group_serves_waiter() {
    let (whole, at) = ordered().await;
    let ids = whole.post_to(&at, &["a", "a", "a"]).await;
    let (claim, taken) = whole.take(&at, 1).await.unwrap();
    let mut waiting = whole.wait(&at).await;
    whole.delete(&at, taken[0], claim).await;
    assert_eq!(waiting.join_next().await.unwrap().unwrap().unwrap(), [ids[1]], "by a deletion");
    let mut waiting = whole.wait(&at).await;
    whole.clock.advance(120_000);
    assert_eq!(waiting.join_next().await.unwrap().unwrap().unwrap(), [ids[1]], "by the end of a claim");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_frees_its_group_and_serves_waiter() {
    let (whole, at) = (whole().await, queue("q"));
    let attributes = r#"{"_fifo": true, "_dead_letter_queue": "dead", "_max_claim_count": 1}"#;
    whole.broker.queue_create(&at, metadata(attributes)).await.unwrap();
    let ids = whole.post_to(&at, &["a", "a"]).await;
    let (claim, taken) = whole.take(&at, 1).await.unwrap();
    assert_eq!(taken, ids[..1]);
    let mut waiting = whole.wait(&at).await;
    whole.broker.claim_release(&at, claim).await.unwrap();
    assert_eq!(waiting.join_next().await.unwrap().unwrap().unwrap(), [ids[1]]);
    let dead = queue("dead");
    assert_eq!(whole.claim_soon(&dead, 10).await, [ids[0]]);
    let made = whole.broker.queue_metadata(&dead).await.unwrap().unwrap();
    assert!(made.attributes().is_fifo, "what was made for it is in order too");
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_groups_and_order_survive_restart() {
    let data = tempfile::tempdir().unwrap();
    let clock = angarium_clock::Clock::manual(1_700_000_000_000);
    let at = queue("q");
    let open = async || {
        let journal = open_journal(data.path(), "journal");
        start(journal.clone(), journal, clock.clone()).await
    };
    let broker = open().await;
    broker.queue_create(&at, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let messages = ["a", "a", "b", "a"].map(|group| in_group(group, "1")).to_vec();
    let ids = broker.messages_post(&at, messages, None).await.unwrap().ids;
    let (claim, taken) = kept(broker.claim_create(&at, terms(600), limit(1)).await.unwrap().unwrap());
    assert_eq!(taken, ids[..1]);
    broker.stop().await;
    drop(broker);
    let broker = open().await;
    let (_, other) = kept(broker.claim_create(&at, terms(600), limit(10)).await.unwrap().unwrap());
    assert_eq!(other, [ids[2]]);
    broker.message_delete(&at, ids[0], Some(claim)).await.unwrap();
    let (_, rest) = kept(broker.claim_create(&at, terms(600), limit(10)).await.unwrap().unwrap());
    assert_eq!(rest, [ids[1], ids[3]]);
}

/// A long queue of one blocked group was ahead of every other caller, and each claim walked over it.
#[tokio::test(flavor = "multi_thread")]
async fn blocked_deep_group_delays_no_other() {
    let (whole, at) = ordered().await;
    let deep = whole.post_to(&at, &["a"; 1_000]).await;
    for _ in 0..9 {
        whole.post_to(&at, &["a"; 1_000]).await;
    }
    let others = whole.post_to(&at, &["b", "c"]).await;
    let (claim, taken) = whole.take(&at, 1).await.unwrap();
    assert_eq!(taken, deep[..1]);
    // Messages in the pool arrive as they are read.
    let mut served = Vec::new();
    while let Some((_, taken)) = whole.take(&at, 10).await {
        served.extend(taken);
    }
    served.sort_unstable();
    assert_eq!(served, others);
    whole.delete(&at, deep[0], claim).await;
    assert_eq!(whole.take(&at, 20).await.unwrap().1, deep[1..21]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deep_queue_of_many_groups_is_drained_in_the_order_of_each() {
    let (whole, at) = ordered().await;
    let names: Vec<String> = (0..300).map(|number| format!("g{number}")).collect();
    let groups: Vec<&str> = names.iter().map(String::as_str).cycle().take(9_000).collect();
    let mut posted = Vec::new();
    for groups in groups.chunks(1_000) {
        posted.extend(whole.post_to(&at, groups).await);
    }
    let mut drained = Vec::new();
    while let Some((claim, taken)) = whole.take(&at, 20).await {
        whole.broker.messages_delete(&at, taken.clone(), Holdings::of_claims(&[claim])).await.unwrap();
        drained.extend(taken);
    }
    let place = |id: &MessageId| posted.binary_search(id).unwrap();
    let mut last = vec![None; names.len()];
    for id in &drained {
        let last = &mut last[place(id) % names.len()];
        assert!(last.is_none_or(|last| last < *id), "{id} comes late in its group");
        *last = Some(*id);
    }
    drained.sort_unstable();
    assert_eq!(drained, posted);
}
