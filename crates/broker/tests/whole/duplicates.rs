//! Posts with a deduplication id: a second post is answered with the id of the first.

use std::pin::pin;
use std::time::Duration;

use angarium_broker::PostResult;
use angarium_clock::Clock;
use angarium_core::error::Error;
use angarium_core::group::DedupId;
use angarium_core::ids::MessageId;
use angarium_core::message::NewMessage;
use angarium_core::names::QueueRef;
use angarium_core::patch::Change;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::faulty::Fault::{self, Held, HeldAndLost, NotSent};
use super::groups::{in_group, ordered};
use super::outcomes::faulty;
use super::transfers::until;
use super::{Whole, limit, metadata, open_journal, queue, start, terms, whole};

fn with_id(group: &str, id: &str) -> NewMessage {
    let dedup = Some(DedupId::new(id, "dedup_id").unwrap());
    NewMessage { dedup, ..in_group(group, "1") }
}

/// Number of times that a slot writer sends a batch before it gives up.
const TRIES: usize = 6;
const NONE: Fault = Fault::None;

/// Posts to `q` in a task.
fn post_later(whole: &Whole, messages: Vec<NewMessage>) -> JoinSet<Result<PostResult, Error>> {
    let (broker, mut posts) = (whole.broker.clone(), JoinSet::new());
    posts.spawn(async move { broker.messages_post(&queue("q"), messages, None).await });
    posts
}

impl Whole {
    async fn send(&self, at: &QueueRef, message: NewMessage) -> MessageId {
        self.broker.messages_post(at, vec![message], None).await.unwrap().ids[0]
    }

    async fn count(&self, at: &QueueRef) -> u64 {
        let stats = self.broker.queue_stats(at).await.unwrap();
        stats.claimed + stats.free + stats.in_transfer
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_within_five_minutes_is_answered_and_dropped() {
    let (whole, at) = ordered().await;
    let first = whole.send(&at, with_id("a", "1")).await;
    assert_eq!(whole.send(&at, with_id("a", "1")).await, first);
    assert_eq!(whole.send(&at, with_id("b", "1")).await, first, "whatever its group");
    assert_ne!(whole.send(&at, with_id("a", "2")).await, first);
    assert_eq!(whole.count(&at).await, 2);
    whole.clock.advance(299_000);
    assert_eq!(whole.send(&at, with_id("a", "1")).await, first);
    whole.clock.advance(1_000);
    assert_ne!(whole.send(&at, with_id("a", "1")).await, first);
    assert_eq!(whole.count(&at).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_in_one_post_are_one_message() {
    let (whole, at) = ordered().await;
    let messages = vec![with_id("a", "1"), with_id("a", "2"), with_id("a", "1"), in_group("a", "1")];
    let ids = whole.broker.messages_post(&at, messages, None).await.unwrap().ids;
    assert_eq!(ids[0], ids[2]);
    assert_eq!(whole.count(&at).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_remembered_after_its_message_is_gone() {
    let (whole, at) = ordered().await;
    let first = whole.send(&at, with_id("a", "1")).await;
    let (view, mut delivery_guard) =
        whole.broker.claim_create(&at, terms(60), limit(1)).await.unwrap().expect("it is there");
    delivery_guard.done();
    whole.broker.message_delete(&at, first, Some(view.id)).await.unwrap();
    assert_eq!(whole.send(&at, with_id("a", "1")).await, first);
    assert_eq!(whole.count(&at).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dedup_ids_may_be_by_group_or_from_content() {
    let (whole, at) = (whole().await, queue("q"));
    let attributes =
        r#"{"_fifo": true, "_deduplication_scope": "group", "_content_based_deduplication": true}"#;
    whole.broker.queue_create(&at, metadata(attributes)).await.unwrap();
    let first = whole.send(&at, in_group("a", "\"abc\"")).await;
    assert_eq!(whole.send(&at, in_group("a", "\"\\u0061bc\"")).await, first);
    assert_ne!(whole.send(&at, in_group("b", "\"abc\"")).await, first);
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(whole.send(&at, with_id("a", hash)).await, first, "the hash by name is the same id");
    assert_ne!(whole.send(&at, with_id("a", "x")).await, first, "an id that is named wins");
    assert_eq!(whole.count(&at).await, 3);
}

/// In either direction a repetition of an earlier post would be posted a second time.
#[tokio::test(flavor = "multi_thread")]
async fn new_scope_applies_to_later_posts() {
    let (whole, at) = ordered().await;
    let change = async |scope: &str| {
        let value = serde_json::value::to_raw_value(scope).unwrap();
        let change = Change::Add("_deduplication_scope".to_owned(), value);
        whole.broker.queue_patch(&at, vec![change]).await.unwrap();
    };
    let first = whole.send(&at, with_id("a", "1")).await;
    change("group").await;
    assert_eq!(whole.send(&at, with_id("a", "1")).await, first);
    assert_eq!(whole.send(&at, with_id("b", "1")).await, first, "it was posted for the whole queue");
    let second = whole.send(&at, with_id("a", "2")).await;
    let third = whole.send(&at, with_id("b", "2")).await;
    assert_ne!(second, third);
    change("queue").await;
    assert_eq!(whole.send(&at, with_id("a", "2")).await, second);
    assert_eq!(whole.send(&at, with_id("b", "2")).await, third);
    assert_ne!(whole.send(&at, with_id("c", "2")).await, second, "those two were posted for their groups");
    whole.clock.advance(300_000);
    assert_ne!(whole.send(&at, with_id("a", "1")).await, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_forgets_ids() {
    let (whole, at) = ordered().await;
    let first = whole.send(&at, with_id("a", "1")).await;
    whole.broker.queue_purge(&at).await.unwrap();
    assert_ne!(whole.send(&at, with_id("a", "1")).await, first);
    assert_eq!(whole.count(&at).await, 1);
}

/// Nothing was purged, and a repetition of the post was stored as a second message.
#[tokio::test(flavor = "multi_thread")]
async fn failed_purge_forgets_no_ids() {
    let faulty = faulty().await;
    let (whole, at) = (&faulty.whole, queue("q"));
    whole.broker.queue_create(&at, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let first = whole.send(&at, with_id("a", "1")).await;
    faulty.pool.next(&[&[HeldAndLost][..], &[NotSent; TRIES - 1]].concat());
    let (broker, to, mut purge) = (whole.broker.clone(), at.clone(), JoinSet::new());
    purge.spawn(async move { broker.queue_purge(&to).await });
    until("nothing is removed", async || faulty.pool.left() < TRIES).await;
    let mut during = post_later(whole, vec![with_id("a", "1")]);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(during.try_join_next().is_none(), "the purge has no outcome");
    faulty.pool.release();
    let refused = purge.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(refused.nothing_written() && faulty.pool.is_done(), "{refused}");
    assert_eq!(during.join_next().await.unwrap().unwrap().unwrap().ids, [first]);
    assert_eq!(whole.send(&at, with_id("a", "1")).await, first);
    assert_eq!(whole.count(&at).await, 1);
}

/// Regression: the message behind it in its group was posted before it.
#[tokio::test(flavor = "multi_thread")]
async fn purged_id_keeps_order_of_its_post() {
    let faulty = faulty().await;
    let (whole, at) = (&faulty.whole, queue("q"));
    whole.broker.queue_create(&at, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let old = whole.send(&at, with_id("a", "1")).await;
    faulty.pool.next(&[Held]);
    let (broker, to, mut purge) = (whole.broker.clone(), at.clone(), JoinSet::new());
    purge.spawn(async move { broker.queue_purge(&to).await });
    until("nothing is removed", async || faulty.pool.is_done()).await;
    let messages = vec![with_id("a", "1"), with_id("a", "2"), in_group("a", "3"), with_id("b", "4")];
    let mut during = post_later(whole, messages);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(during.try_join_next().is_none(), "the purge has no outcome");
    faulty.pool.release();
    purge.join_next().await.unwrap().unwrap().unwrap();
    let ids = during.join_next().await.unwrap().unwrap().unwrap().ids;
    assert!(ids[0] != old && ids[..3].is_sorted(), "{ids:?}");
    let (view, mut delivery_guard) =
        whole.broker.claim_create(&at, terms(60), limit(10)).await.unwrap().expect("they are there");
    delivery_guard.done();
    let mut of_group: Vec<MessageId> = view.messages.iter().map(|message| message.id).collect();
    of_group.retain(|id| *id != ids[3]);
    assert_eq!(of_group, ids[..3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_in_no_order_takes_no_ids() {
    let (whole, at) = (whole().await, queue("q"));
    let refused = whole.broker.messages_post(&at, vec![with_id("a", "1")], None).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
    assert_eq!(whole.count(&at).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_are_remembered_after_a_restart_until_their_time_is_over() {
    let data = tempfile::tempdir().unwrap();
    let (clock, at) = (Clock::manual(1_700_000_000_000), queue("q"));
    let open = async || {
        let journal = open_journal(data.path(), "journal");
        start(journal.clone(), journal, clock.clone()).await
    };
    let broker = open().await;
    broker.queue_create(&at, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let first = broker.messages_post(&at, vec![with_id("a", "1")], None).await.unwrap().ids;
    broker.stop().await;
    drop(broker);
    let broker = open().await;
    let again = broker.messages_post(&at, vec![with_id("a", "1")], None).await.unwrap().ids;
    assert_eq!(again, first);
    clock.advance(300_000);
    let later = broker.messages_post(&at, vec![with_id("a", "1")], None).await.unwrap().ids;
    assert_ne!(later, first);
}

/// The first post was never written, and its duplicate was answered as if it had been.
#[tokio::test(flavor = "multi_thread")]
async fn duplicate_of_pending_post_shares_its_outcome() {
    for faults in [&[Held][..], &[HeldAndLost, NotSent, NotSent, NotSent, NotSent, NotSent]] {
        let faulty = faulty().await;
        let (whole, at) = (&faulty.whole, queue("q"));
        whole.broker.queue_create(&at, metadata(r#"{"_fifo": true}"#)).await.unwrap();
        faulty.pool.next(faults);
        let post = || {
            let (broker, at, mut post) = (whole.broker.clone(), at.clone(), JoinSet::new());
            let messages = vec![with_id("a", "1"), with_id("a", "2")];
            post.spawn(async move { broker.messages_post(&at, messages, None).await });
            post
        };
        let mut first = post();
        until("the first is not written", async || faulty.pool.left() < faults.len()).await;
        let mut duplicate = post();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(duplicate.try_join_next().is_none(), "nobody knows what becomes of the first");
        faulty.pool.release();
        let first = first.join_next().await.unwrap().unwrap();
        let duplicate = duplicate.join_next().await.unwrap().unwrap().unwrap().ids;
        match first {
            Ok(first) => assert_eq!(first.ids, duplicate),
            Err(refused) => assert!(refused.nothing_written() && faults.len() > 1, "{refused}"),
        }
        let (view, mut delivery_guard) =
            whole.broker.claim_create(&at, terms(60), limit(10)).await.unwrap().expect("they are there");
        delivery_guard.done();
        assert_eq!(view.messages.iter().map(|message| message.id).collect::<Vec<_>>(), duplicate);
    }
}

/// The messages that it had posted by then were reported as not written.
#[tokio::test(flavor = "multi_thread")]
async fn post_beside_failed_duplicate_is_unknown_when_repeat_fails() {
    let faulty = faulty().await;
    let (whole, at) = (&faulty.whole, queue("q"));
    whole.broker.queue_create(&at, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    // The first post fails. The second posts its new message, and then fails to post the message of the first.
    faulty.pool.next(&[&[HeldAndLost][..], &[NotSent; TRIES - 1], &[NONE], &[NotSent; TRIES]].concat());
    let mut first = post_later(whole, vec![with_id("a", "1")]);
    until("the first is not written", async || faulty.pool.left() == 2 * TRIES).await;
    // It begins at once, since its queue is open, and waits behind the first.
    let messages = vec![with_id("a", "1"), with_id("b", "2")];
    let mut second = pin!(whole.broker.messages_post(&at, messages, None));
    assert!(timeout(Duration::from_millis(50), second.as_mut()).await.is_err());
    faulty.pool.release();
    assert!(first.join_next().await.unwrap().unwrap().unwrap_err().nothing_written());
    let unknown = second.await.unwrap_err();
    assert!(!unknown.nothing_written(), "one of its messages is there: {unknown:?}");
    assert!(faulty.pool.is_done());
    assert_eq!(whole.count(&at).await, 1);
}

/// Several duplicates are being written: one of them is posted in the end while another waits once more, and that one
/// fails.
#[tokio::test]
async fn post_of_in_flight_duplicates_is_unknown_when_last_fails() {
    let faulty = faulty().await;
    let (whole, at) = (&faulty.whole, queue("q"));
    whole.broker.queue_create(&at, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let (fails, goes) = ([NotSent; TRIES], [NONE]);
    // The first post fails, whose duplicates were found by an empty batch; then the second, and the last attempt of the
    // third.
    faulty.pool.next(&[&[HeldAndLost][..], &fails[1..], &goes, &fails, &goes, &fails].concat());
    let many: Vec<NewMessage> =
        (0..angarium_broker::limits::BATCH_MESSAGES).map(|id| with_id("a", &id.to_string())).collect();
    let last = with_id("a", "last");
    let mut first = post_later(whole, [many.clone(), vec![last.clone()]].concat());
    while faulty.pool.left() > 3 * TRIES + 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Both are answered after the first. The second posts again first, in a batch of its own, since the third fills
    // one.
    let mut second = post_later(whole, vec![last.clone()]);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut third = post_later(whole, [many, vec![last]].concat());
    tokio::time::sleep(Duration::from_millis(200)).await;
    faulty.pool.release();
    assert!(first.join_next().await.unwrap().unwrap().unwrap_err().nothing_written());
    assert!(second.join_next().await.unwrap().unwrap().unwrap_err().nothing_written());
    let unknown = third.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(!unknown.nothing_written(), "most of its messages are there: {unknown:?}");
    assert!(faulty.pool.is_done());
    assert_eq!(whole.count(&at).await, u64::try_from(angarium_broker::limits::BATCH_MESSAGES).unwrap());
}

/// The purge removed the old note in the same batch as the new one was written, and removed the new one. Now the post
/// waits for the purge.
#[tokio::test(flavor = "multi_thread")]
async fn id_forgotten_and_posted_in_one_batch_is_remembered() {
    let faulty = faulty().await;
    let (whole, at) = (&faulty.whole, queue("q"));
    whole.broker.queue_create(&at, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let old = whole.send(&at, with_id("a", "1")).await;
    faulty.pool.next(&[Held]);
    let mut tasks = JoinSet::new();
    let (broker, to) = (whole.broker.clone(), at.clone());
    tasks.spawn(async move { drop(broker.messages_post(&to, vec![in_group("b", "2")], None).await) });
    until("nothing is written", async || faulty.pool.is_done()).await;
    let (broker, to) = (whole.broker.clone(), at.clone());
    tasks.spawn(async move { broker.queue_purge(&to).await.unwrap() });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (broker, to) = (whole.broker.clone(), at.clone());
    let mut posted = JoinSet::new();
    posted.spawn(async move { broker.messages_post(&to, vec![with_id("a", "1")], None).await.unwrap().ids });
    tokio::time::sleep(Duration::from_millis(50)).await;
    faulty.pool.release();
    let new = posted.join_next().await.unwrap().unwrap()[0];
    tasks.join_all().await;
    assert_ne!(new, old);
    faulty.reacquire().await;
    assert_eq!(whole.send(&at, with_id("a", "1")).await, new);
}
