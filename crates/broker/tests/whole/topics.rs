//! Topics: queues that keep nothing for themselves.

use std::collections::BTreeSet;
use std::time::Duration;

use angarium_broker::{NewSubscription, QueueFilter};
use angarium_core::access::Role;
use angarium_core::error::{Error, Resource};
use angarium_core::group::DedupId;
use angarium_core::ids::SubscriptionId;
use angarium_core::limits::Limits;
use angarium_core::message::NewMessage;
use angarium_core::names::{ProjectId, QueueKind, QueueName, QueueRef};
use angarium_core::page::PageLimit;
use angarium_core::patch::Change;
use angarium_core::queue::CreateResult;
use angarium_core::quota::Quota;
use angarium_core::subscription::{Subscriber, SubscriptionChange};
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::{Epoch, PoolWrites};
use futures_util::future::join_all;

use super::deadletters::{FOR_EVER, Lives, ONCE, claim_once};
use super::faulty::Fault;
use super::groups::in_group;
use super::holds::{claims_held, effects, hold_terms};
use super::queue_list::filter;
use super::quotas::Bounded;
use super::settle::{DONE, forwarding, hold, settle_one};
use super::subscriptions::{new, options};
use super::transfers::until;
use super::{Whole, metadata, queue, whole};

pub(super) fn topic(name: &str) -> QueueRef {
    QueueRef { project: ProjectId::new("").unwrap(), name: QueueName::topic(name).unwrap() }
}

fn with_body(body: &str) -> NewMessage {
    NewMessage { body: body.to_owned().into(), ..NewMessage::default() }
}

impl Whole {
    async fn create_topic(&self, name: &str) -> QueueRef {
        let at = topic(name);
        assert_eq!(self.broker.queue_create(&at, metadata("{}")).await.unwrap(), CreateResult::New);
        at
    }

    async fn names_of(&self, kind: QueueKind) -> (Vec<String>, Option<u64>) {
        let filter = QueueFilter { kind, is_counted: true, ..filter() };
        let page = self.broker.queues_list(&ProjectId::new("").unwrap(), &filter).await.unwrap();
        (page.queues.iter().map(|view| view.name.to_string()).collect(), page.count)
    }

    async fn posted(&self, at: &QueueRef, bodies: &[&str]) -> usize {
        let messages = bodies.iter().map(|body| with_body(body)).collect();
        self.broker.messages_post(at, messages, None).await.unwrap().ids.len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_copies_for_subscriptions_and_keeps_nothing() {
    let lives = Lives::new();
    let (whole, _) = lives.whole().await;
    let news = whole.create_topic("news").await;
    assert_eq!(whole.posted(&news, &["\"lost\""]).await, 1);
    let (_, one) = whole.subscribe(&news, "pull:one").await;
    let (_, two) = whole.subscribe(&news, "pull:two").await;
    whole.subscribe(&news, "queue:target").await;
    let bodies = whole.post_bodies(&news, 5, 3_600).await;
    for at in [&one, &two, &queue("target")] {
        assert_eq!(whole.claim_all(at, 5).await, bodies);
    }
    assert_eq!(lives.stored(&news).await, 0);
    assert_eq!(whole.broker.topic_stats(&news).await.unwrap().subscriptions, 3);
    let page = whole.broker.metrics_page().await;
    for (family, count) in [("sent", 6), ("unrouted", 1)] {
        let line =
            format!("angarium_messages_{family}_total{{project=\"000000000000\",queue=\"news\"}} {count}");
        assert!(page.lines().any(|found| found == line), "{line} is not in {page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filtered_message_without_taker_counts_as_unrouted() {
    let (whole, news) = (whole().await, topic("news"));
    whole.broker.queue_create(&news, metadata("{}")).await.unwrap();
    let filtered = r#"{"filter": {"to": ["eu"]}, "filter_scope": "body"}"#;
    let subscription = NewSubscription { options: options(filtered), ..new("pull:eu") };
    whole.broker.subscription_create(&news, subscription).await.unwrap();
    whole.posted(&news, &[r#"{"to": "eu"}"#, r#"{"to": "us"}"#, "1"]).await;
    let page = whole.broker.metrics_page().await;
    assert!(
        page.contains("angarium_messages_unrouted_total{project=\"000000000000\",queue=\"news\"} 2"),
        "{page}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_and_topic_never_have_one_name() {
    let whole = whole().await;
    let (news, q) = (whole.create_topic("news").await, queue("q"));
    whole.broker.queue_create(&q, metadata("{}")).await.unwrap();
    for taken in [queue("news"), topic("q")] {
        let refused = whole.broker.queue_create(&taken, metadata("{}")).await.unwrap_err();
        assert_eq!(refused.code(), "conflict");
        let is_not_found =
            |error: Error| error.code() == "not_found" && error.to_string().contains("of this name");
        assert!(is_not_found(whole.broker.queue_metadata(&taken).await.unwrap_err()));
        assert!(is_not_found(whole.broker.queue_stats(&taken).await.unwrap_err()));
        assert!(is_not_found(whole.broker.queue_delete(&taken).await.unwrap_err()));
        let change = Change::new(0, "add", "/metadata/x", Some(serde_json::from_str("1").unwrap())).unwrap();
        assert!(is_not_found(whole.broker.queue_patch(&taken, vec![change]).await.unwrap_err()));
        let post = whole.broker.messages_post(&taken, vec![with_body("1")], None).await;
        assert!(is_not_found(post.unwrap_err()));
    }
    assert_eq!(whole.broker.queue_create(&news, metadata("{}")).await.unwrap(), CreateResult::Existed);
    // At the same time, one of the two is created.
    for number in 0..20 {
        let name = format!("n{number}");
        let (queue, topic) = (queue(&name), topic(&name));
        let both = [&queue, &topic].map(|at| whole.broker.queue_create(at, metadata("{}")));
        let created = join_all(both).await.into_iter().filter(Result::is_ok).count();
        assert_eq!(created, 1, "{name}");
    }
    // The name is free again.
    whole.broker.queue_delete(&news).await.unwrap();
    whole.broker.queue_create(&queue("news"), metadata("{}")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_topic_is_not_made_by_post_or_subscription() {
    let (whole, news) = (whole().await, topic("news"));
    let is_missing = |error: Error| matches!(error, Error::NotFound { resource: Resource::Topic, .. });
    assert!(is_missing(whole.broker.messages_post(&news, vec![with_body("1")], None).await.unwrap_err()));
    assert!(is_missing(whole.broker.subscription_create(&news, new("pull:")).await.unwrap_err()));
    assert!(is_missing(whole.broker.topic_stats(&news).await.unwrap_err()));
    assert!(whole.broker.queue_metadata(&news).await.unwrap().is_none());
    whole.broker.queue_delete(&news).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_have_queues_or_topics() {
    let whole = whole().await;
    for name in ["b", "b-a", "a", "b.a", ".c"] {
        let news = whole.create_topic(name).await;
        whole.subscribe(&news, "pull:").await;
        whole.broker.queue_create(&queue(&format!("{name}-q")), metadata("{}")).await.unwrap();
    }
    let (topics, count) = whole.names_of(QueueKind::Topic).await;
    assert_eq!(
        (topics.clone(), count),
        ([".c", "a", "b", "b-a", "b.a"].map(str::to_owned).to_vec(), Some(5))
    );
    let (queues, count) = whole.names_of(QueueKind::Queue).await;
    assert_eq!(queues, [".c-q", "a-q", "b-a-q", "b-q", "b.a-q"]);
    assert_eq!(count, Some(5));
    // Pages of one, each behind the one before.
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let limit =
            angarium_core::page::PageLimit::new(Some(1), angarium_core::limits::Limits::ZAQAR.queues_page);
        let filter = QueueFilter { kind: QueueKind::Topic, limit: limit.unwrap(), after, ..filter() };
        let page = whole.broker.queues_list(&ProjectId::new("").unwrap(), &filter).await.unwrap();
        found.extend(page.queues.iter().map(|view| view.name.to_string()));
        match page.next {
            Some(next) => after = Some(next.to_string()),
            None => break,
        }
    }
    assert_eq!(found, topics);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifo_topic_copies_no_duplicate_after_restart() {
    let lives = Lives::new();
    let (whole, _) = lives.whole().await;
    let news = topic("news.fifo");
    whole.broker.queue_create(&news, metadata("{}")).await.unwrap();
    let (_, own) = whole.subscribe(&news, "pull:").await;
    let message = |body: &'static str| {
        let dedup = Some(DedupId::new(body, "dedup_id").unwrap());
        NewMessage { dedup, ..in_group("g", body) }
    };
    let post = async |whole: &Whole, body| {
        whole.broker.messages_post(&news, vec![message(body)], None).await.unwrap().ids
    };
    let first = post(&whole, "1").await;
    assert_eq!(post(&whole, "1").await, first);
    whole.broker.stop().await;
    let (whole, _) = lives.whole().await;
    assert_eq!(post(&whole, "1").await, first);
    assert_ne!(post(&whole, "2").await, first);
    assert_eq!(whole.claim_all(&own, 2).await, ["1", "2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_copies_of_topic_count_in_the_quota() {
    let house = Bounded::new(Quota { messages: Some(4), ..Quota::NONE });
    let whole = house.start().await;
    let news = whole.create_topic("news").await;
    // Dropped messages need no room.
    whole.post_bodies(&news, 100, 3_600).await;
    whole.subscribe(&news, "pull:a").await;
    let (_, own) = whole.subscribe(&news, "pull:b").await;
    whole.post_bodies(&news, 2, 3_600).await;
    let refused = whole.broker.messages_post(&news, vec![with_body("1")], None).await.unwrap_err();
    assert!(matches!(refused, Error::OverQuota { .. }), "{refused}");
    whole.broker.queue_purge(&own).await.unwrap();
    assert_eq!(whole.posted(&news, &["1"]).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_of_topic_stops_posts_alone() {
    let whole = whole().await;
    let news = whole.create_topic("news").await;
    let (_, own) = whole.subscribe(&news, "pull:").await;
    for terms in [claims_held(), hold_terms(effects(true, true, false))] {
        assert_eq!(whole.broker.queue_hold(&news, terms).await.unwrap_err().code(), "invalid");
    }
    for stops in [effects(false, true, false), effects(false, false, true)] {
        whole.broker.queue_hold(&news, hold_terms(stops)).await.unwrap();
        let refused = whole.broker.messages_post(&news, vec![with_body("1")], None).await.unwrap_err();
        assert_eq!(refused.code(), "held");
    }
    whole.broker.queue_release(&news, None).await.unwrap();
    let bodies = whole.post_bodies(&news, 2, 3_600).await;
    assert_eq!(whole.claim_all(&own, 2).await, bodies);
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_is_refused_as_target_of_messages() {
    let (whole, q) = (whole().await, queue("q"));
    whole.create_topic("dead").await;
    let refused = async |subscriber: &str| whole.broker.subscription_create(&q, new(subscriber)).await;
    assert_eq!(refused("queue:dead").await.unwrap_err().code(), "invalid");
    let dead_letters = NewSubscription { options: options(ONCE), ..new("pull:") };
    assert_eq!(whole.broker.subscription_create(&q, dead_letters).await.unwrap_err().code(), "invalid");
    assert_eq!(whole.broker.queue_create(&q, metadata(ONCE)).await.unwrap_err().code(), "invalid");
    let (id, _) = whole.subscribe(&q, "queue:other").await;
    let to = |subscriber| SubscriptionChange {
        subscriber: Some(Subscriber::new(subscriber).unwrap()),
        ..SubscriptionChange::default()
    };
    let changed = whole.broker.subscription_change(&q, id, to("queue:dead")).await;
    assert_eq!(changed.unwrap_err().code(), "invalid");
    let value = Some(serde_json::from_str("\"dead\"").unwrap());
    let change = Change::new(0, "add", "/metadata/_dead_letter_queue", value).unwrap();
    assert_eq!(whole.broker.queue_patch(&q, vec![change]).await.unwrap_err().code(), "invalid");
    whole.post_bodies(&q, 1, 3_600).await;
    let (claim, messages) = hold(&whole.broker, &q).await;
    let forwarded = settle_one(&whole.broker, &q, claim, forwarding(messages[0].id, "dead")).await;
    assert_eq!(forwarded.unwrap_err().code(), "invalid");
    let settled = super::settle::entry(messages[0].id, DONE);
    settle_one(&whole.broker, &q, claim, settled).await.unwrap();
}

/// The target was named before it was a topic.
#[tokio::test(flavor = "multi_thread")]
async fn arrival_at_topic_waits_with_its_reason() {
    let (whole, q) = (whole().await, queue("q"));
    whole.broker.queue_create(&q, metadata(ONCE)).await.unwrap();
    let (_, own) = whole.subscribe(&q, "queue:late").await;
    for name in ["dead", "late"] {
        whole.create_topic(name).await;
    }
    let bodies = whole.post_bodies(&q, 1, 3_600).await;
    claim_once(&whole, &q).await;
    assert!(whole.claim(&q, 20, 300).await.is_empty());
    for at in [&q, &own] {
        until("there is no reason", async || {
            let says = whole.broker.queue_explain(at, 100, Role::Admin).await.unwrap().says;
            says.contains("could not take a message yet") && says.contains("there is a topic of this name")
        })
        .await;
        assert_eq!(whole.broker.queue_stats(at).await.unwrap().in_transfer, 1);
    }
    for name in ["dead", "late"] {
        whole.broker.queue_delete(&topic(name)).await.unwrap();
        assert_eq!(whole.claim_all(&queue(name), 1).await, bodies);
    }
}

/// Whatever the fault, both subscriptions have the same messages, and each acknowledged one.
#[tokio::test(flavor = "multi_thread")]
async fn failed_or_doubtful_post_to_topic_reaches_all_or_none() {
    let faults = [Fault::NotSent, Fault::UnknownBefore, Fault::UnknownAfter];
    let all = (0..3).flat_map(|batches| faults.map(|fault| (batches, fault)));
    join_all(all.map(async |(batches, fault)| {
        let case = format!("{fault:?} after {batches}");
        let lives = Lives::new();
        let (whole, plan) = lives.whole().await;
        let news = whole.create_topic("news").await;
        let (_, one) = whole.subscribe(&news, "pull:one").await;
        let (_, two) = whole.subscribe(&news, "pull:two").await;
        plan.next(&vec![fault; FOR_EVER]);
        plan.skip(batches);
        let mut acknowledged = BTreeSet::new();
        for number in 0..3 {
            let bodies = [format!("{number}"), format!("1{number}")];
            let messages = bodies.iter().map(|body| with_body(body)).collect();
            if whole.broker.messages_post(&news, messages, None).await.is_ok() {
                acknowledged.extend(bodies);
            }
        }
        whole.broker.stop().await;
        let (whole, _) = lives.whole().await;
        let copies = BTreeSet::from_iter(whole.drain_bodies(&one).await);
        assert!(acknowledged.is_subset(&copies), "{case}");
        assert_eq!(BTreeSet::from_iter(whole.drain_bodies(&two).await), copies, "{case}");
        assert_eq!(lives.stored(&news).await, 0, "{case}");
    }))
    .await;
}

/// Another owner may have made a subscription, which this one does not know.
#[tokio::test(flavor = "multi_thread")]
async fn replaced_owner_drops_no_message() {
    const AHEAD: u64 = 1_000_000;
    let lives = Lives::new();
    let (whole, _) = lives.whole().await;
    let news = whole.create_topic("news").await;
    assert_eq!(whole.posted(&news, &["1"]).await, 1);
    let transaction = lives.catalogue().slot_transaction(news.slot()).await.unwrap() + AHEAD;
    let epoch = Epoch { generation: 1, transaction };
    EmbeddedPool::new(lives.journal.clone()).fence(news.slot(), epoch).await.unwrap();
    whole.broker.messages_post(&news, vec![with_body("2")], None).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_topic_leaves_nothing_while_posts_continue() {
    let lives = Lives::new();
    let (whole, _) = lives.whole().await;
    let news = whole.create_topic("news").await;
    let mut owns: Vec<(SubscriptionId, QueueRef)> = Vec::new();
    for name in ["pull:a", "pull:b"] {
        owns.push(whole.subscribe(&news, name).await);
    }
    let mut there = Vec::new();
    for (_, own) in &owns {
        there.push(lives.id_of(own).await);
    }
    let posting = async {
        loop {
            match whole.broker.messages_post(&news, vec![with_body("1")], None).await {
                Ok(_) => {}
                Err(Error::NotFound { resource: Resource::Topic, .. }) => return,
                Err(error) => assert!(error.nothing_written(), "{error}"),
            }
        }
    };
    let deletion = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        whole.broker.queue_delete(&news).await.unwrap();
    };
    tokio::join!(posting, deletion);
    let owns: Vec<QueueRef> = owns.into_iter().map(|(_, own)| own).collect();
    until("they are there", async || {
        let records = lives.catalogue().queue_records(&owns).await.unwrap();
        let mut stored = 0;
        for id in &there {
            stored += lives.stored_of(*id).await;
        }
        records.iter().all(Option::is_none) && stored == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_refuses_attributes_of_claims() {
    let (whole, news) = (whole().await, topic("news"));
    for wrong in [
        ONCE,
        r#"{"_dead_letter_queue_messages_ttl": 100}"#,
        r#"{"_default_visibility_timeout": 5}"#,
        r#"{"_default_receive_wait": 5}"#,
        r#"{"_keep": 60}"#,
    ] {
        let refused = whole.broker.queue_create(&news, metadata(wrong)).await.unwrap_err();
        assert!(refused.to_string().contains("in the options of its subscriptions"), "{refused}");
    }
    let fine = r#"{"_default_message_ttl": 600, "_default_message_delay": 5, "team": "a"}"#;
    whole.broker.queue_create(&news, metadata(fine)).await.unwrap();
    let (_, own) = whole.subscribe(&news, "pull:").await;
    whole.posted(&news, &["1"]).await;
    assert_eq!(whole.broker.queue_stats(&own).await.unwrap().delayed, 1);
    whole.clock.advance(5_000);
    assert_eq!(whole.claim_soon(&own, 1).await.len(), 1);
}

/// However early its caller leaves, a deletion that happens is known to the source.
#[tokio::test(flavor = "multi_thread")]
async fn canceled_deletion_is_no_longer_listed() {
    let whole = whole().await;
    let at = whole.create_topic("t").await;
    for round in 0..40 {
        let (id, _) = whole.subscribe(&at, "pull:reader").await;
        let early = Duration::from_micros(250 * round);
        let _ = tokio::time::timeout(early, whole.broker.subscription_delete(&at, id)).await;
        // It stays, or it is gone everywhere: its own queue has the backlog.
        until("a deleted subscription is listed", async || {
            let limit = PageLimit::new(Some(20), Limits::ZAQAR.queues_page).unwrap();
            let page = whole.broker.subscriptions_list(&at, None, limit).await.unwrap();
            page.iter().all(|view| view.backlog.is_some())
        })
        .await;
        whole.broker.subscription_delete(&at, id).await.unwrap();
    }
}
