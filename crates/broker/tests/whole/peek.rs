//! Peeks: each state, each condition, the bounds of a request, each driver, and a queue in two pools.

use angarium_broker::{
    BodyExtent, Broker, Destination, MessageSelection, PeekFilter, PeekPage, PeekPosition, PeekedMessage,
};
use angarium_core::delay::Delay;
use angarium_core::ids::MessageId;
use angarium_core::limits::{Limits, PEEK_BYTES, PEEK_ENTRIES, PEEK_HEAD_BYTES};
use angarium_core::message::NewMessage;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::outcome::{Keep, Tags};
use angarium_core::page::PageLimit;
use angarium_core::pool::{PoolChange, PoolUri};
use angarium_core::settle::{MessageState, Retry};

use super::drivers::Stores;
use super::groups::{in_group, ordered};
use super::migration::{Pools, to};
use super::settle::{DONE, entry, fail, hold, name, result, settle_one};
use super::settle_transfers::moved;
use super::transfers::until;
use super::{Whole, limit, queue, replica, terms, whole};
use angarium_testbed::postgres::Postgres;
use angarium_testbed::redis::{Redis, SYNCED};

/// A page of at most 20 messages from the begin, with the heads of their bodies.
pub(super) fn peek_of(selection: MessageSelection) -> PeekFilter {
    let limit = PageLimit::new(Some(20), Limits::ZAQAR.messages_page).unwrap();
    PeekFilter { selection, body: BodyExtent::Head, after: PeekPosition::FIRST, limit }
}

fn of_states(states: &[MessageState]) -> MessageSelection {
    MessageSelection { states: states.to_vec(), ..MessageSelection::default() }
}

fn message(body: &str) -> NewMessage {
    NewMessage { body: body.to_owned().into(), keep: Some(Keep::stored(3_600)), ..NewMessage::default() }
}

fn ids(page: &PeekPage) -> Vec<MessageId> {
    page.messages.iter().map(|message| message.view.id).collect()
}

fn states(page: &PeekPage) -> Vec<MessageState> {
    page.messages.iter().map(|message| message.view.state).collect()
}

impl Whole {
    pub(super) async fn peek(&self, at: &QueueRef, selection: MessageSelection) -> PeekPage {
        self.broker.messages_peek(at, &peek_of(selection)).await.unwrap()
    }

    async fn post_all(&self, at: &QueueRef, messages: Vec<NewMessage>) -> Vec<MessageId> {
        self.broker.messages_post(at, messages, None).await.unwrap().ids
    }

    /// Follows the links of a peek to its end. Returns all messages and the number of pages.
    async fn walk(&self, at: &QueueRef, mut filter: PeekFilter) -> (Vec<PeekedMessage>, usize) {
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let page = self.broker.messages_peek(at, &filter).await.unwrap();
            found.extend(page.messages);
            pages += 1;
            match page.next {
                Some(next) => filter.after = next,
                None => return (found, pages),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn peek_shows_each_state_with_kept_messages_last() {
    let (whole, q) = (whole().await, queue("q"));
    let settled = whole.post_all(&q, vec![message("1"), message("2"), message("3")]).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    whole.clock.advance(1_000);
    settle_one(&whole.broker, &q, claim, entry(settled[1], fail("no space", Retry::Never))).await.unwrap();
    whole.clock.advance(1_000);
    settle_one(&whole.broker, &q, claim, entry(settled[0], result("7"))).await.unwrap();
    let delayed = NewMessage { delay: Some(Delay::Seconds(30)), ..message("4") };
    let later = whole.post_all(&q, vec![delayed, message("5")]).await;
    whole.clock.advance(3_500);
    let page = whole.peek(&q, MessageSelection::default()).await;
    assert_eq!(ids(&page), [settled[2], later[0], later[1], settled[1], settled[0]]);
    use MessageState::{Claimed, Delayed, Done, Failed, Ready};
    assert_eq!(states(&page), [Claimed, Delayed, Ready, Failed, Done]);
    assert_eq!((page.looked_at, page.next), (5, None));
    let [claimed, delayed, ..] = &page.messages[..] else { panic!("{page:?}") };
    let claim = claimed.claim.as_ref().unwrap();
    assert_eq!((claim.by.as_ref().unwrap().as_str(), claim.expires_in), ("worker", 295));
    assert_eq!((claimed.view.claim, claimed.view.attempts, claimed.view.age), (None, 1, 5));
    assert_eq!(delayed.view.delay.unwrap().seconds, 27);
    for (state, id) in [
        (Claimed, settled[2]),
        (Delayed, later[0]),
        (Ready, later[1]),
        (Failed, settled[1]),
        (Done, settled[0]),
    ] {
        assert_eq!(ids(&whole.peek(&q, of_states(&[state])).await), [id], "{state:?}");
    }
    let both = whole.peek(&q, of_states(&[Done, Delayed])).await;
    assert_eq!(ids(&both), [later[0], settled[0]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_in_transfer_is_shown_at_its_source() {
    let (faulty, id) = moved().await;
    let in_transfer =
        async |at: &str| faulty.whole.peek(&queue(at), of_states(&[MessageState::InTransfer])).await;
    // Its life does not end meanwhile.
    faulty.whole.clock.advance(4_000_000);
    let page = in_transfer("q").await;
    assert_eq!(ids(&page), [id]);
    assert_eq!(page.messages[0].view.target, Some(name("next")));
    faulty.pool.clear();
    until("it arrives", async || ids(&faulty.whole.peek(&queue("next"), of_states(&[])).await) == [id]).await;
    assert!(ids(&in_transfer("q").await).is_empty() && ids(&in_transfer("next").await).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_condition_leaves_messages_out() {
    let (whole, q) = (whole().await, queue("q"));
    let tags = |tags: &[&str]| Tags::new(tags.iter().map(ToString::to_string).collect(), "tags").unwrap();
    let old = whole
        .post_all(
            &q,
            vec![
                NewMessage { tags: tags(&["eu", "big"]), ..message("{\"name\": \"Ada\"}") },
                NewMessage { tags: tags(&["us"]), ..message("{\"name\": \"Bob\"}") },
            ],
        )
        .await;
    let (claim, _) = hold(&whole.broker, &q).await;
    settle_one(&whole.broker, &q, claim, entry(old[1], DONE)).await.unwrap();
    whole.clock.advance(10_000);
    let new = whole.post_all(&q, vec![in_group("g", "\"ada\""), in_group("h", "\"Adam\"")]).await;
    let (anonymous, mut guard) = whole.broker.claim_create(&q, terms(300), limit(1)).await.unwrap().unwrap();
    guard.done();
    assert_eq!(anonymous.messages[0].id, new[0]);
    let none = MessageSelection::default;
    let text = |text: &str| Some(text.to_owned());
    for (selection, found) in [
        (MessageSelection { tag: text("eu"), ..none() }, vec![old[0]]),
        (MessageSelection { tag: text("e"), ..none() }, vec![]),
        (MessageSelection { group: in_group("h", "").group, ..none() }, vec![new[1]]),
        (MessageSelection { by: text("worker"), ..none() }, vec![old[0], old[1]]),
        (MessageSelection { by: text("Worker"), ..none() }, vec![]),
        (MessageSelection { min_age: Some(10), ..none() }, vec![old[0], old[1]]),
        (MessageSelection { min_age: Some(11), ..none() }, vec![]),
        (MessageSelection { max_age: Some(9), ..none() }, vec![new[0], new[1]]),
        (MessageSelection { min_attempts: Some(1), ..none() }, vec![old[0], new[0], old[1]]),
        (MessageSelection { min_attempts: Some(2), ..none() }, vec![]),
        (MessageSelection { contains: text("Ada"), ..none() }, vec![old[0], new[1]]),
        (MessageSelection { contains: text("\": \"B"), ..none() }, vec![old[1]]),
        (MessageSelection { contains: text("Ada"), max_age: Some(5), ..none() }, vec![new[1]]),
    ] {
        let page = whole.peek(&q, selection.clone()).await;
        assert_eq!((ids(&page), page.next), (found, None), "{selection:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn group_is_read_without_the_others_in_any_state() {
    let (whole, at) = ordered().await;
    let others = whole.post_all(&at, vec![in_group("other", "1"); 900]).await;
    let delayed = NewMessage { delay: Some(Delay::Seconds(60)), ..in_group("g", "1") };
    let kept = NewMessage { keep: Some(Keep::stored(3_600)), ..in_group("g", "1") };
    let own = whole.post_all(&at, vec![kept, in_group("g", "1"), delayed]).await;
    let (claim, _) = hold(&whole.broker, &at).await;
    assert_eq!(whole.peek(&at, of_states(&[MessageState::Claimed])).await.messages.len(), 20);
    whole.broker.claim_release(&at, claim).await.unwrap();
    let group = in_group("g", "").group;
    let page = whole.peek(&at, MessageSelection { group: group.clone(), ..of_states(&[]) }).await;
    assert_eq!((ids(&page), page.looked_at, page.next), (own.clone(), 3, None));
    assert_eq!(states(&page)[2], MessageState::Delayed);
    let first = PageLimit::new(Some(1), Limits::ZAQAR.messages_page).unwrap();
    let one = PeekFilter {
        limit: first,
        ..peek_of(MessageSelection { group, ..of_states(&[MessageState::Ready]) })
    };
    let (found, pages) = whole.walk(&at, one).await;
    assert_eq!((found.len(), pages), (2, 3));
    assert_eq!(others.len(), 900);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_each_driver_show_each_message_once() {
    let redis = Redis::start(SYNCED);
    for uri in ["embedded:peek".to_owned(), redis.uri("prefix=peek"), Postgres::shared().fresh_uri()] {
        let Stores { catalogue, settings, clock, _data, .. } = Stores::new().await;
        let broker =
            Broker::start(catalogue, &settings, replica(), clock.clone(), Limits::ZAQAR).await.unwrap();
        let pool =
            PoolChange { uri: Some(PoolUri::new(&uri).unwrap()), weight: Some(1), ..PoolChange::default() };
        broker.pool_put(&PoolName::new("a").unwrap(), pool).await.unwrap();
        pages_show_each_message_once(&Whole { broker, clock, _data }).await;
    }
}

async fn pages_show_each_message_once(whole: &Whole) {
    let q = queue("q");
    let mut posted = whole.post_all(&q, vec![message("1"); 15]).await;
    let (claim, _) = hold(&whole.broker, &q).await;
    for (number, id) in (0..10).zip(&posted) {
        // Several are settled in one millisecond.
        whole.clock.advance(number % 2);
        settle_one(&whole.broker, &q, claim, entry(*id, DONE)).await.unwrap();
    }
    let delayed = NewMessage { delay: Some(Delay::Seconds(30)), ..in_group("g", "2") };
    posted.extend(whole.post_all(&q, [vec![message("2"); 3], vec![delayed; 3]].concat()).await);
    let expected = [&posted[10..], &posted[..10]].concat();
    let group = MessageSelection { group: in_group("g", "").group, ..MessageSelection::default() };
    for most in [1, 4, 20] {
        let limit = PageLimit::new(Some(most), Limits::ZAQAR.messages_page).unwrap();
        let shown = async |selection| {
            let (found, _) = whole.walk(&q, PeekFilter { limit, ..peek_of(selection) }).await;
            found.iter().map(|message| message.view.id).collect::<Vec<_>>()
        };
        assert_eq!(shown(MessageSelection::default()).await, expected, "{most}");
        assert_eq!(shown(group.clone()).await, posted[18..], "{most}");
        assert_eq!(shown(of_states(&[MessageState::Done])).await, posted[..10], "{most}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_message_is_neither_shown_nor_removed() {
    let (whole, q) = (whole().await, queue("q"));
    let posted = whole.post(&q, 2, 60).await;
    assert_eq!(whole.claim(&q, 1, 300).await, posted[..1]);
    whole.clock.advance(60_000);
    // Its claim keeps the other one.
    assert_eq!(ids(&whole.peek(&q, MessageSelection::default()).await), posted[..1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn body_is_shown_as_far_as_requested() {
    let (whole, q) = (whole().await, queue("q"));
    let long = format!("\"{}\"", "x".repeat(PEEK_HEAD_BYTES));
    whole.post_all(&q, vec![message("[1]"), message(&long)]).await;
    for (body, lengths) in [
        (BodyExtent::None, [0, 0]),
        (BodyExtent::Head, [3, PEEK_HEAD_BYTES]),
        (BodyExtent::Whole, [3, PEEK_HEAD_BYTES + 2]),
    ] {
        let filter = PeekFilter { body, ..peek_of(MessageSelection::default()) };
        let page = whole.broker.messages_peek(&q, &filter).await.unwrap();
        let shown = page.messages.iter().map(|message| message.view.body.len()).collect::<Vec<_>>();
        assert_eq!(shown, lengths, "{body:?}");
        let whole_bytes = page.messages.iter().map(|message| message.body_bytes).collect::<Vec<_>>();
        assert_eq!(whole_bytes, [3, PEEK_HEAD_BYTES + 2], "{body:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_ends_at_its_bound_of_entries() {
    let (whole, q) = (whole().await, queue("q"));
    whole.post(&q, PEEK_ENTRIES + 100, 3_600).await;
    let last = whole.post_all(&q, vec![message("\"needle\"")]).await;
    let selection = MessageSelection { contains: Some("needle".into()), ..of_states(&[MessageState::Ready]) };
    let page = whole.peek(&q, selection.clone()).await;
    assert_eq!((page.messages.len(), page.looked_at), (0, PEEK_ENTRIES));
    let next = PeekFilter { after: page.next.unwrap(), ..peek_of(selection.clone()) };
    let page = whole.broker.messages_peek(&q, &next).await.unwrap();
    assert_eq!((ids(&page), page.looked_at, page.next), (last, 101, None));
    // With more than one order too.
    let page = whole.peek(&q, MessageSelection { states: vec![], ..selection }).await;
    assert!(page.next.is_some() && (PEEK_ENTRIES - 512..=PEEK_ENTRIES).contains(&page.looked_at));
}

#[tokio::test(flavor = "multi_thread")]
async fn request_ends_at_its_bound_of_bytes() {
    let (whole, q) = (whole().await, queue("q"));
    let bytes = 200_000;
    let count = PEEK_BYTES / bytes + 10;
    for _ in 0..count {
        whole.post_all(&q, vec![message(&format!("\"{}\"", "x".repeat(bytes)))]).await;
    }
    let absent = MessageSelection { tag: Some("absent".into()), ..MessageSelection::default() };
    let page = whole.peek(&q, absent.clone()).await;
    assert!(page.messages.is_empty() && page.next.is_some());
    assert!((count - 20..count - 5).contains(&page.looked_at), "{}", page.looked_at);
    let (found, pages) = whole.walk(&q, peek_of(absent)).await;
    assert_eq!((found.len(), pages), (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_in_two_pools_is_shown_whole_and_in_order() {
    let (pools, q) = (Pools::new(), queue("q"));
    let (whole, _) = pools.start().await;
    let mut posted = whole.post(&q, 600, 3_600).await;
    let (claim, held) = hold(&whole.broker, &q).await;
    let slow = Destination::new(PoolName::new("b").unwrap(), Some(300)).unwrap();
    whole.broker.queue_migrate(&q, slow).await.unwrap();
    posted.extend(whole.post(&q, 5, 3_600).await);
    until("some are copied", async || pools.held(&q).await[1] > 100).await;
    let (mut looks, kept) = (0, posted.clone());
    while whole.broker.migration_get(&q).await.is_ok() && looks < 5 {
        let (found, _) = whole.walk(&q, peek_of(MessageSelection::default())).await;
        assert_eq!(found.iter().map(|message| message.view.id).collect::<Vec<_>>(), kept);
        assert!(found[..held.len()].iter().all(|message| message.view.state == MessageState::Claimed));
        looks += 1;
    }
    assert!(looks > 0, "it was over before it was looked at");
    assert!(pools.held(&q).await[0] > 0, "it is in both pools");
    whole.broker.claim_release(&q, claim).await.unwrap();
    whole.arrived(&q).await;
    let (found, _) = whole.walk(&q, peek_of(MessageSelection::default())).await;
    assert_eq!(found.iter().map(|message| message.view.id).collect::<Vec<_>>(), posted);
    assert!(whole.broker.queue_migrate(&q, to("a")).await.is_ok(), "no peek keeps the pool");
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_queue_is_shown_empty_and_not_created() {
    let (whole, q) = (whole().await, queue("q"));
    let page = whole.peek(&q, MessageSelection::default()).await;
    assert_eq!((page.messages.len(), page.looked_at, page.next), (0, 0, None));
    assert!(!whole.broker.queue_stats(&q).await.unwrap().exists);
}

#[tokio::test(flavor = "multi_thread")]
async fn marker_of_gone_messages_continues_behind_them() {
    let (whole, q) = (whole().await, queue("q"));
    let posted = whole.post(&q, 3, 3_600).await;
    let after = PeekPosition::Open(posted[0]);
    whole.broker.message_delete(&q, posted[0], None).await.unwrap();
    whole.broker.message_delete(&q, posted[1], None).await.unwrap();
    let filter = PeekFilter { after, ..peek_of(MessageSelection::default()) };
    assert_eq!(ids(&whole.broker.messages_peek(&q, &filter).await.unwrap()), posted[2..]);
    // That of a kept message, where none is wanted.
    let kept: PeekPosition = format!("kept.1.{}", posted[0]).parse().unwrap();
    let filter = PeekFilter { after: kept, ..peek_of(of_states(&[MessageState::Ready])) };
    let page = whole.broker.messages_peek(&q, &filter).await.unwrap();
    assert_eq!((page.messages.len(), page.next), (0, None));
}
