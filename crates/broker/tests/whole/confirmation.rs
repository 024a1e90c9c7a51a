//! Webhooks that need the confirmation of their subscribers: they get nothing before it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use angarium_broker::{
    ConfirmationSender, ConfirmationTerms, CreatedSubscription, NewSubscription, WebhookFailure,
    WebhookFailureKind, WebhookId, WebhookMessage, WebhookSender, WebhookTarget,
};
use angarium_catalogue::Schema;
use angarium_core::access::Role;
use angarium_core::confirmation::{ConfirmationRule, UrlSignature};
use angarium_core::error::Error;
use angarium_core::ids::SubscriptionId;
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::subscription::{Subscriber, SubscriptionChange};
use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;

use super::deadletters::Lives;
use super::subscriptions::{new, options};
use super::transfers::until;
use super::{Whole, other_replica, queue, whole};

/// Keeps what it sends. The requests for a confirmation fail with its results, as long as there are some.
#[derive(Debug)]
struct AskingSender {
    rule: Option<ConfirmationRule>,
    failures: Mutex<VecDeque<WebhookFailureKind>>,
    /// How long a subscriber that fails wants no other request.
    retry_after: Mutex<Option<Duration>>,
    asked: Mutex<Vec<(WebhookId, String, Value)>>,
    sent: Mutex<Vec<String>>,
}

#[async_trait]
impl WebhookSender for AskingSender {
    fn check(&self, _: &WebhookTarget) -> Result<(), Error> {
        Ok(())
    }

    fn confirmation(&self) -> ConfirmationTerms {
        ConfirmationTerms { rule: self.rule, service: None }
    }

    async fn send(&self, target: &WebhookTarget, message: WebhookMessage) -> Result<(), WebhookFailure> {
        let body: Value = serde_json::from_slice(&message.body).unwrap();
        if body["Message_Type"] == "Notification" {
            self.sent.lock().push(body["body"].to_string());
            return Ok(());
        }
        // Some frameworks repeat a request that they do not understand.
        let answer = body.to_string();
        self.asked.lock().push((message.id, target.url.as_str().to_owned(), body));
        if target.url.as_str().contains("slow") {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let failure = self.failures.lock().pop_front();
        let retry_after = *self.retry_after.lock();
        let failed = |kind| WebhookFailure { kind, reason: "answered 503".to_owned(), answer, retry_after };
        failure.map_or(Ok(()), |kind| Err(failed(kind)))
    }
}

impl AskingSender {
    fn new(rule: Option<ConfirmationRule>, failures: &[WebhookFailureKind]) -> Arc<Self> {
        let failures = Mutex::new(failures.iter().copied().collect());
        let (asked, sent, retry_after) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { rule, failures, retry_after, asked, sent })
    }

    /// Waits for so many requests for a confirmation. Returns the headers of the last one.
    async fn asked(&self, count: usize) -> ShownRequest {
        until("the request for a confirmation", async || self.asked.lock().len() >= count).await;
        let asked = self.asked.lock();
        assert_eq!(asked.len(), count, "{asked:?}");
        let (id, url, body) = asked[count - 1].clone();
        ShownRequest { id, url, body }
    }

    fn sent(&self) -> Vec<String> {
        let mut sent = self.sent.lock().clone();
        sent.sort_by_key(|body| body.parse::<u64>().unwrap());
        sent
    }
}

/// A request for a confirmation, as its subscriber got it.
#[derive(Clone, Debug)]
struct ShownRequest {
    id: WebhookId,
    url: String,
    body: Value,
}

impl ShownRequest {
    fn kind(&self) -> &str {
        self.body["Message_Type"].as_str().unwrap()
    }

    fn signature(&self) -> ConfirmationSender {
        let part = |key: &str| self.body[key].as_str().unwrap();
        let read = UrlSignature::read(
            part("URL-Signature"),
            part("URL-Expires"),
            part("URL-Methods"),
            part("URL-Paths"),
        );
        ConfirmationSender::Signed(read.unwrap())
    }
}

const MEMBER: ConfirmationSender = ConfirmationSender::Caller(Role::Member);

fn to_webhook(json: &str, ttl: u64) -> NewSubscription {
    NewSubscription { options: options(json), ttl, ..new("https://a.example/hook") }
}

impl Whole {
    async fn asking(&self, at: &QueueRef, sender: &Arc<AskingSender>, json: &str) -> SubscriptionId {
        self.broker.webhooks_send_by(Arc::clone(sender) as Arc<dyn WebhookSender>);
        let created = self.broker.subscription_create(at, to_webhook(json, 3_600)).await.unwrap();
        assert!(!created.is_confirmed && created.secret.is_some());
        created.id
    }

    async fn confirm(
        &self,
        at: &QueueRef,
        id: SubscriptionId,
        is_confirmed: bool,
        sender: &ConfirmationSender,
    ) -> Result<(), Error> {
        self.broker.subscription_confirm(at, id, is_confirmed, sender.clone()).await
    }

    async fn is_confirmed(&self, at: &QueueRef, id: SubscriptionId) -> bool {
        self.broker.subscription_get(at, id).await.unwrap().subscription.is_confirmed()
    }

    async fn copies(&self, at: &QueueRef, id: SubscriptionId) -> u64 {
        let stats = self.broker.queue_stats(&at.of_subscription(id)).await.unwrap();
        stats.free + stats.claimed
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_gets_messages_from_its_confirmation_on() {
    let topic = QueueRef { name: QueueName::topic("news").unwrap(), ..queue("q") };
    for (at, is_topic) in [(queue("q"), false), (topic, true)] {
        let (whole, sender) = (whole().await, AskingSender::new(Some(ConfirmationRule::Subscriber), &[]));
        if is_topic {
            whole.broker.queue_create(&at, super::metadata("{}")).await.unwrap();
        }
        let id = whole.asking(&at, &sender, "{}").await;
        let asked = sender.asked(1).await;
        assert_eq!(asked.kind(), "SubscriptionConfirmation");
        assert_eq!(asked.id, WebhookId::Confirmation(id, 1));
        whole.post_bodies(&at, 3, 3_600).await;
        assert_eq!((whole.copies(&at, id).await, whole.is_confirmed(&at, id).await), (0, false));
        let says = whole.broker.queue_explain(&at.of_subscription(id), 10, Role::Member).await.unwrap().says;
        assert!(says.contains("is not confirmed"), "{says}");
        for _ in 0..2 {
            whole.confirm(&at, id, true, &asked.signature()).await.unwrap();
        }
        assert!(whole.is_confirmed(&at, id).await);
        let posted = whole.post_bodies(&at, 2, 3_600).await;
        until("the deliveries", async || sender.sent() == posted).await;
        sender.asked(1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_signatures_confirm_nothing() {
    let (whole, sender) = (whole().await, AskingSender::new(Some(ConfirmationRule::Project), &[]));
    let [q, other] = ["q", "other"].map(queue);
    let id = whole.asking(&q, &sender, "{}").await;
    let asked = sender.asked(1).await;
    let change = NewSubscription { ..new("https://b.example/") };
    let CreatedSubscription { id: of_other, .. } =
        whole.broker.subscription_create(&other, change).await.unwrap();
    let foreign = sender.asked(2).await;
    let signed_as = |key: &str, value: &str| {
        let mut asked = asked.clone();
        asked.body[key] = value.into();
        asked.signature()
    };
    for (at, id, signature) in [
        (&q, id, foreign.signature()),
        (&other, of_other, asked.signature()),
        (&q, id, signed_as("URL-Signature", &"0".repeat(64))),
        (&q, id, signed_as("URL-Expires", "9999-12-30T22:00:00")),
        (&q, id, signed_as("URL-Paths", foreign.body["URL-Paths"].as_str().unwrap())),
        (
            &QueueRef { project: angarium_core::names::ProjectId::new("x").unwrap(), ..q.clone() },
            id,
            asked.signature(),
        ),
    ] {
        for is_confirmed in [true, false] {
            let refused = whole.confirm(at, id, is_confirmed, &signature).await;
            assert!(matches!(refused, Err(Error::NotFound { .. })), "{refused:?}");
        }
    }
    assert!(!whole.is_confirmed(&q, id).await && !whole.is_confirmed(&other, of_other).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_signature_is_replaced_on_request() {
    let (whole, sender) = (whole().await, AskingSender::new(Some(ConfirmationRule::Subscriber), &[]));
    let q = queue("q");
    whole.broker.webhooks_send_by(Arc::clone(&sender) as Arc<dyn WebhookSender>);
    let id = whole.broker.subscription_create(&q, to_webhook("{}", 60)).await.unwrap().id;
    let first = sender.asked(1).await;
    let longer = SubscriptionChange { ttl: Some(3_600), ..SubscriptionChange::default() };
    whole.broker.subscription_change(&q, id, longer).await.unwrap();
    whole.clock.advance(61_000);
    let refused = whole.confirm(&q, id, true, &first.signature()).await;
    assert!(matches!(refused, Err(Error::NotFound { .. })), "{refused:?}");
    // Other options of a repeated subscriber are ignored, as in Zaqar.
    let again = whole.broker.subscription_create(&q, to_webhook(r#"{"rate": 5}"#, 60)).await.unwrap();
    assert_eq!(again, CreatedSubscription { id, secret: None, is_confirmed: false });
    let second = sender.asked(2).await;
    assert_eq!((second.kind(), second.id), ("SubscriptionConfirmation", WebhookId::Confirmation(id, 2)));
    whole.confirm(&q, id, true, &second.signature()).await.unwrap();
    let refused = whole.broker.subscription_create(&q, to_webhook("{}", 60)).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict(_)), "{refused:?}");
    let view = whole.broker.subscription_get(&q, id).await.unwrap();
    assert_eq!((view.subscription.ttl, view.subscription.options.as_raw().get()), (3_600, "{}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_decides_whether_members_confirm() {
    for rule in [ConfirmationRule::Project, ConfirmationRule::Subscriber] {
        let (whole, sender) = (whole().await, AskingSender::new(Some(rule), &[]));
        let q = queue("q");
        let id = whole.asking(&q, &sender, "{}").await;
        let confirmed = whole.confirm(&q, id, true, &MEMBER).await;
        match rule {
            ConfirmationRule::Project => confirmed.unwrap(),
            ConfirmationRule::Subscriber => {
                assert!(matches!(confirmed, Err(Error::NotAuthorized(_))), "{confirmed:?}");
                whole.confirm(&q, id, true, &ConfirmationSender::Caller(Role::Admin)).await.unwrap();
            }
        }
        // It changes nothing then.
        whole.confirm(&q, id, true, &MEMBER).await.unwrap();
        whole.confirm(&q, id, false, &MEMBER).await.unwrap();
        assert!(!whole.is_confirmed(&q, id).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_webhooks_may_be_without_confirmation() {
    let (whole, sender) = (whole().await, AskingSender::new(Some(ConfirmationRule::Project), &[]));
    let q = queue("q");
    whole.broker.webhooks_send_by(sender);
    for subscriber in ["pull:a", "queue:b"] {
        let created = whole.broker.subscription_create(&q, new(subscriber)).await.unwrap();
        assert!(created.is_confirmed);
        whole.confirm(&q, created.id, true, &MEMBER).await.unwrap();
        let refused = whole.confirm(&q, created.id, false, &MEMBER).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    }
}

/// Posts go on while a subscriber unsubscribes and subscribes again. None that began after the answer is copied.
#[tokio::test(flavor = "multi_thread")]
async fn withdrawn_webhook_gets_no_later_message() {
    let (whole, sender) = (whole().await, AskingSender::new(Some(ConfirmationRule::Subscriber), &[]));
    let q = queue("q");
    let id = whole.asking(&q, &sender, "{}").await;
    let first = sender.asked(1).await;
    whole.confirm(&q, id, true, &first.signature()).await.unwrap();
    let (posts, ended) = (200, Cell::new(0));
    let own = q.of_subscription(id);
    let withdraw = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        whole.confirm(&q, id, false, &first.signature()).await.unwrap();
        // A post that began before ends, and so does the one behind it, and deliveries end.
        let later = (ended.get() + 2).min(posts);
        until("the posts do not continue", async || ended.get() >= later).await;
        until("a delivery does not end", async || whole.broker.queue_stats(&own).await.unwrap().claimed == 0)
            .await;
        let sent = sender.sent.lock().len() as u64;
        (sent, whole.copies(&q, id).await)
    };
    let post = async {
        for _ in 0..posts {
            whole.post_bodies(&q, 2, 3_600).await;
            ended.set(ended.get() + 1);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let ((sent, waiting), ()) = tokio::join!(withdraw, post);
    let asked = sender.asked(2).await;
    assert_eq!((asked.kind(), asked.id), ("UnsubscribeConfirmation", WebhookId::Confirmation(id, 2)));
    let delivered = sender.sent.lock().len() as u64;
    let now = (delivered, whole.copies(&q, id).await);
    assert_eq!(now.0 + now.1, sent + waiting, "neither copied nor sent since: {now:?}");
    // The copies that wait are sent after it has subscribed again.
    whole.confirm(&q, id, true, &asked.signature()).await.unwrap();
    let last = whole.post_bodies(&q, 1, 3_600).await;
    until("the rest", async || whole.copies(&q, id).await == 0).await;
    let sent = sender.sent();
    assert_eq!(sent.last(), last.last());
    assert_eq!(sent.len() as u64, now.0 + now.1 + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn fill_begins_with_the_confirmation() {
    let (whole, sender) = (whole().await, AskingSender::new(Some(ConfirmationRule::Subscriber), &[]));
    let q = queue("q");
    let mut posted = whole.post_bodies(&q, 2, 3_600).await;
    let id = whole.asking(&q, &sender, r#"{"from": "oldest"}"#).await;
    let asked = sender.asked(1).await;
    posted.extend(whole.post_bodies(&q, 2, 3_600).await);
    tokio::time::sleep(3 * angarium_broker::limits::FILL_TICK).await;
    assert_eq!(whole.copies(&q, id).await, 0);
    whole.confirm(&q, id, true, &asked.signature()).await.unwrap();
    posted.extend(whole.post_bodies(&q, 2, 3_600).await);
    until("all of them", async || sender.sent.lock().len() >= 6).await;
    tokio::time::sleep(2 * angarium_broker::limits::FILL_TICK).await;
    assert_eq!(sender.sent(), posted);
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_is_asked_until_it_answers_and_after_a_restart() {
    let (lives, q) = (Lives::new(), queue("q"));
    let (whole, _) = lives.whole().await;
    let fails = AskingSender::new(Some(ConfirmationRule::Subscriber), &[WebhookFailureKind::Unreachable; 9]);
    let id = whole.asking(&q, &fails, "{}").await;
    fails.asked(1).await;
    // The pause begins a moment after the request has failed.
    until("the end of the pause", async || {
        whole.clock.advance(100);
        fails.asked.lock().len() > 1
    })
    .await;
    let second = fails.asked(2).await;
    let status = || whole.broker.webhook_status(id).unwrap();
    until("the second failure", async || status().failures == 2).await;
    assert_eq!(status().reason.as_str(), "answered 503", "the answer has the signature");
    whole.broker.stop().await;
    let (whole, _) = lives.whole().await;
    // The rule of the next replica does not matter.
    let sender = AskingSender::new(None, &[]);
    whole.broker.webhooks_send_by(Arc::clone(&sender) as Arc<dyn WebhookSender>);
    assert!(!whole.is_confirmed(&q, id).await);
    let asked = sender.asked(1).await;
    assert_eq!((asked.id, &asked.body["URL-Paths"]), (second.id, &second.body["URL-Paths"]));
    until("its end is stored", async || {
        let found = whole.broker.subscription_get(&q, id).await.unwrap().subscription;
        found.confirmation.unwrap().due().is_none()
    })
    .await;
    whole.confirm(&q, id, true, &second.signature()).await.unwrap();
    whole.broker.stop().await;
    let (whole, _) = lives.whole().await;
    assert!(whole.is_confirmed(&q, id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_is_asked_a_bounded_number_of_times() {
    let (whole, q) = (whole().await, queue("q"));
    let failures = [WebhookFailureKind::TimedOut; 100];
    let sender = AskingSender::new(Some(ConfirmationRule::Subscriber), &failures);
    whole.broker.webhooks_send_by(Arc::clone(&sender) as Arc<dyn WebhookSender>);
    let id = whole.broker.subscription_create(&q, to_webhook("{}", 1 << 40)).await.unwrap().id;
    let most = angarium_broker::limits::CONFIRMATION_ATTEMPTS as usize;
    let is_over = async || {
        whole.clock.advance(30_000);
        let found = whole.broker.subscription_get(&q, id).await.unwrap().subscription;
        found.confirmation.unwrap().due().is_none()
    };
    until("the last attempt", is_over).await;
    assert_eq!(sender.asked.lock().len(), most);
    let ids: Vec<WebhookId> = sender.asked.lock().iter().map(|(id, ..)| *id).collect();
    assert!(ids.iter().all(|one| *one == WebhookId::Confirmation(id, 1)), "{ids:?}");
    // One that refuses is asked once.
    *sender.failures.lock() = VecDeque::from([WebhookFailureKind::Refused]);
    whole.broker.subscription_create(&q, to_webhook("{}", 60)).await.unwrap();
    until("the refusal", is_over).await;
    assert_eq!(sender.asked.lock().len(), most + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriber_with_a_pause_is_not_asked_by_another_number() {
    let (whole, q) = (whole().await, queue("q"));
    let failures = [WebhookFailureKind::Unavailable, WebhookFailureKind::Refused];
    let sender = AskingSender::new(Some(ConfirmationRule::Subscriber), &failures);
    *sender.retry_after.lock() = Some(Duration::from_secs(600));
    whole.broker.webhooks_send_by(Arc::clone(&sender) as Arc<dyn WebhookSender>);
    whole.broker.subscription_create(&q, to_webhook("{}", 1 << 20)).await.unwrap();
    sender.asked(1).await;
    for _ in 0..3 {
        whole.broker.subscription_create(&q, to_webhook("{}", 1 << 20)).await.unwrap();
    }
    tokio::time::sleep(3 * angarium_broker::limits::WEBHOOKS_TICK).await;
    sender.asked(1).await;
    whole.clock.advance(600_000);
    assert!(matches!(sender.asked(2).await.id, WebhookId::Confirmation(_, 4)));
}

/// The webhook moves while its former address is asked, which then wants no request for a while.
#[tokio::test(flavor = "multi_thread")]
async fn wish_of_a_former_address_leaves_the_new_one_alone() {
    let (whole, q) = (whole().await, queue("q"));
    let sender = AskingSender::new(Some(ConfirmationRule::Subscriber), &[WebhookFailureKind::Unavailable]);
    *sender.retry_after.lock() = Some(Duration::from_secs(600));
    whole.broker.webhooks_send_by(Arc::clone(&sender) as Arc<dyn WebhookSender>);
    let slow = NewSubscription { ..new("https://slow.example/") };
    let id = whole.broker.subscription_create(&q, slow).await.unwrap().id;
    sender.asked(1).await;
    let subscriber = Some(Subscriber::new("https://b.example/hook").unwrap());
    let change = SubscriptionChange { subscriber, ..SubscriptionChange::default() };
    whole.broker.subscription_change(&q, id, change).await.unwrap();
    assert_eq!(sender.asked(2).await.url, "https://b.example/hook");
}

#[tokio::test(flavor = "multi_thread")]
async fn template_without_place_leaves_the_request_whole() {
    let (whole, sender) = (whole().await, AskingSender::new(Some(ConfirmationRule::Subscriber), &[]));
    let q = queue("q");
    let id = whole.asking(&q, &sender, r#"{"post_data": "{\"text\": \"of the member\"}"}"#).await;
    let asked = sender.asked(1).await;
    assert_eq!(asked.body["text"], Value::Null);
    whole.confirm(&q, id, true, &asked.signature()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_webhook_is_asked_at_its_new_address() {
    let (whole, sender) = (whole().await, AskingSender::new(Some(ConfirmationRule::Subscriber), &[]));
    let q = queue("q");
    let id = whole.asking(&q, &sender, "{}").await;
    let first = sender.asked(1).await;
    whole.confirm(&q, id, true, &first.signature()).await.unwrap();
    let subscriber = Some(Subscriber::new("https://b.example/hook").unwrap());
    let change = SubscriptionChange { subscriber, ..SubscriptionChange::default() };
    whole.broker.subscription_change(&q, id, change.clone()).await.unwrap();
    assert!(!whole.is_confirmed(&q, id).await);
    let second = sender.asked(2).await;
    assert_eq!(second.url, "https://b.example/hook");
    let refused = whole.confirm(&q, id, true, &first.signature()).await;
    assert!(matches!(refused, Err(Error::NotFound { .. })), "{refused:?}");
    whole.confirm(&q, id, true, &second.signature()).await.unwrap();
    // The same address is no move.
    whole.broker.subscription_change(&q, id, change).await.unwrap();
    assert!(whole.is_confirmed(&q, id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_webhook_waits_for_older_replicas() {
    let (lives, q) = (Lives::new(), queue("q"));
    let (whole, _) = lives.whole().await;
    let catalogue = lives.catalogue();
    let sender = AskingSender::new(Some(ConfirmationRule::Project), &[]);
    whole.broker.webhooks_send_by(sender);
    let older = other_replica(Schema::SUBSCRIBED_MIGRATIONS);
    let seen = catalogue.registry().await.unwrap();
    catalogue.component_join(&seen, "elsewhere", &older).await.unwrap().unwrap();
    whole.subscribe(&q, "pull:").await;
    let refused = whole.broker.subscription_create(&q, to_webhook("{}", 60)).await.unwrap_err();
    assert!(refused.detail().contains("does not know records of form 16"), "{}", refused.detail());
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_signature_shows_no_queue_and_no_topic() {
    let (whole, sender) = (whole().await, AskingSender::new(Some(ConfirmationRule::Project), &[]));
    let q = queue("orders");
    let id = whole.asking(&q, &sender, "{}").await;
    let mut forged = sender.asked(1).await;
    forged.body["URL-Signature"] = "0".repeat(64).into();
    let there = QueueRef { name: QueueName::topic("orders").unwrap(), ..q.clone() };
    let nowhere = QueueRef { name: QueueName::topic("others").unwrap(), ..q.clone() };
    let mut answers = Vec::new();
    for at in [&q, &there, &nowhere, &queue("others")] {
        let refused = whole.confirm(at, id, true, &forged.signature()).await.unwrap_err();
        answers.push(refused.to_string());
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    // A member may know.
    let shown = whole.confirm(&there, id, true, &MEMBER).await.unwrap_err().to_string();
    assert_ne!(shown, answers[0]);
}
