//! Deliveries to webhooks: a scripted sender in place of the network.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use angarium_broker::{
    MessageStatus, NewSubscription, WebhookFailure, WebhookFailureKind, WebhookId, WebhookMessage,
    WebhookSender, WebhookTarget,
};
use angarium_core::claim::ClaimWait;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::ids::MessageId;
use angarium_core::message::NewMessage;
use angarium_core::names::{ProjectId, QueueRef};
use angarium_core::outcome::Reason;
use angarium_core::settle::MessageState;
use angarium_core::subscription::{Subscriber, SubscriptionChange};
use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::groups::in_group;
use super::subscriptions::{new, options};
use super::transfers::until;
use super::{Whole, metadata, queue, whole};

/// Answers with the next of its results, and with success when there is none left.
#[derive(Debug, Default)]
pub(super) struct ScriptedSender {
    results: Mutex<VecDeque<WebhookFailure>>,
    sent: Mutex<Vec<(MessageId, Value)>>,
    /// The address of the last request.
    last: Mutex<String>,
    most: Mutex<(usize, usize)>,
    pause: Duration,
    /// If set, a request is answered with a permit of it, the earliest one first.
    answers: Option<Semaphore>,
}

#[async_trait]
impl WebhookSender for ScriptedSender {
    fn check(&self, target: &WebhookTarget) -> Result<(), Error> {
        match target.url.as_str().contains("internal") {
            true => Err(Error::invalid(InvalidPart::Limit, "subscriber", "the address is internal")),
            false => Ok(()),
        }
    }

    async fn send(&self, target: &WebhookTarget, message: WebhookMessage) -> Result<(), WebhookFailure> {
        {
            let mut most = self.most.lock();
            most.0 += 1;
            most.1 = most.1.max(most.0);
        }
        *self.last.lock() = target.url.as_str().to_owned();
        if target.url.as_str().contains("hanging") {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(self.pause).await;
        if let Some(answers) = &self.answers {
            answers.acquire().await.unwrap().forget();
        }
        self.most.lock().0 -= 1;
        let body = serde_json::from_slice::<Value>(&message.body).unwrap();
        let WebhookId::Message(id) = message.id else { panic!("no webhook here needs a confirmation") };
        self.sent.lock().push((id, body["body"].clone()));
        self.results.lock().pop_front().map_or(Ok(()), Err)
    }
}

impl ScriptedSender {
    fn fails(self, results: &[WebhookFailureKind]) -> Arc<Self> {
        let failure = |kind: &WebhookFailureKind| WebhookFailure {
            kind: *kind,
            reason: "answered 503".to_owned(),
            answer: "closed".to_owned(),
            retry_after: None,
        };
        self.results.lock().extend(results.iter().map(failure));
        Arc::new(self)
    }

    /// One that answers no request by itself.
    fn silent(results: &[WebhookFailure]) -> Arc<Self> {
        let results = Mutex::new(results.iter().cloned().collect());
        Arc::new(Self { results, answers: Some(Semaphore::new(0)), ..Self::default() })
    }

    /// Answers the next requests.
    fn answer(&self, requests: usize) {
        self.answers.as_ref().unwrap().add_permits(requests);
    }

    /// Number of requests that were answered.
    pub(super) fn delivered(&self) -> usize {
        self.sent.lock().len()
    }

    /// The greatest number of requests at the same time.
    pub(super) fn most_at_once(&self) -> usize {
        self.most.lock().1
    }

    fn bodies(&self) -> Vec<String> {
        self.sent.lock().iter().map(|(_, body)| body.to_string()).collect()
    }
}

fn to_webhook(json: &str) -> NewSubscription {
    NewSubscription { options: options(json), ..new("https://a.example/hook") }
}

/// The answer of a subscriber that wants no request for so many seconds.
fn unavailable_for(seconds: u64) -> WebhookFailure {
    WebhookFailure {
        kind: WebhookFailureKind::Unavailable,
        reason: "answered 503".to_owned(),
        answer: String::new(),
        retry_after: Some(Duration::from_secs(seconds)),
    }
}

impl Whole {
    async fn hook(&self, at: &QueueRef, sender: &Arc<ScriptedSender>, json: &str) -> QueueRef {
        self.broker.webhooks_send_by(Arc::clone(sender) as Arc<dyn WebhookSender>);
        let created = self.broker.subscription_create(at, to_webhook(json)).await.unwrap();
        at.of_subscription(created.id)
    }

    async fn is_empty(&self, at: &QueueRef) -> bool {
        self.waiting(at).await == 0
    }

    async fn waiting(&self, at: &QueueRef) -> u64 {
        let stats = self.broker.queue_stats(at).await.unwrap();
        stats.free + stats.claimed
    }
}

#[tokio::test]
async fn webhook_gets_each_message_and_its_queue_is_empty_then() {
    let whole = whole().await;
    let (q, sender) = (queue("orders"), ScriptedSender::default().fails(&[]));
    let own = whole.hook(&q, &sender, "{}").await;
    let posted = whole.post_bodies(&q, 25, 300).await;
    until("deliveries", async || sender.sent.lock().len() == 25).await;
    until("deliveries", async || whole.is_empty(&own).await).await;
    let mut sent = sender.bodies();
    sent.sort();
    let mut posted = posted;
    posted.sort();
    assert_eq!(sent, posted);
    assert_eq!(whole.waiting(&q).await, 25, "the source keeps its messages");
}

#[tokio::test]
async fn failed_delivery_is_repeated_under_its_id() {
    let whole = whole().await;
    let kinds =
        [WebhookFailureKind::Unavailable, WebhookFailureKind::TimedOut, WebhookFailureKind::Unreachable];
    let (q, sender) = (queue("orders"), ScriptedSender::default().fails(&kinds));
    let own = whole.hook(&q, &sender, r#"{"_backoff": {"first": 0}}"#).await;
    whole.post_bodies(&q, 1, 300).await;
    until("deliveries", async || sender.sent.lock().len() == 4 && whole.is_empty(&own).await).await;
    let sent = sender.sent.lock().clone();
    assert!(sent.iter().all(|(id, _)| *id == sent[0].0), "{sent:?}");
}

#[tokio::test]
async fn full_webhook_drops_its_failed_messages_first() {
    let whole = whole().await;
    let (q, sender) = (queue("orders"), ScriptedSender::default().fails(&[WebhookFailureKind::Refused; 5]));
    let own = whole.hook(&q, &sender, r#"{"max_messages": 3, "overflow": "drop_oldest"}"#).await;
    for sent in 1..=5 {
        whole.post_bodies(&q, 1, 300).await;
        until("deliveries", async || {
            let stats = whole.broker.queue_stats(&own).await.unwrap();
            sender.sent.lock().len() == sent && stats.free + stats.claimed == 0
        })
        .await;
    }
    let id = own.name.subscription().unwrap();
    let view = whole.broker.subscription_get(&q, id).await.unwrap();
    assert_eq!(view.backlog.unwrap().omissions.dropped, 2);
}

#[tokio::test]
async fn refused_message_is_kept_as_failed_with_the_answer() {
    let whole = whole().await;
    let (q, sender) = (queue("orders"), ScriptedSender::default().fails(&[WebhookFailureKind::Refused]));
    let own = whole.hook(&q, &sender, "{}").await;
    whole.post_bodies(&q, 1, 300).await;
    until("deliveries", async || sender.sent.lock().len() == 1).await;
    let id = sender.sent.lock()[0].0;
    until("deliveries", async || {
        match whole.broker.message_status(&own, id, ClaimWait::default()).await.unwrap() {
            MessageStatus::Here(view) if view.state == MessageState::Failed => {
                view.extras.and_then(|extras| extras.reason) == Reason::cut("answered 503: closed")
            }
            _ => false,
        }
    })
    .await;
    assert_eq!(sender.sent.lock().len(), 1, "it is not sent again");
}

#[tokio::test]
async fn message_without_retries_left_becomes_dead_letter() {
    let whole = whole().await;
    let kinds = [WebhookFailureKind::Unavailable; 2];
    let (q, sender) = (queue("orders"), ScriptedSender::default().fails(&kinds));
    let json = r#"{"_backoff": {"first": 0}, "_max_claim_count": 2, "_dead_letter_queue": "dead"}"#;
    whole.broker.queue_create(&queue("dead"), metadata("{}")).await.unwrap();
    whole.hook(&q, &sender, json).await;
    whole.post_bodies(&q, 1, 300).await;
    until("deliveries", async || whole.waiting(&queue("dead")).await == 1).await;
    assert_eq!(sender.sent.lock().len(), 2);
}

#[tokio::test]
async fn group_of_fifo_queue_is_sent_in_order_past_failures() {
    let whole = whole().await;
    let (q, sender) =
        (queue("orders.fifo"), ScriptedSender::default().fails(&[WebhookFailureKind::Unavailable; 3]));
    whole.broker.queue_create(&q, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    whole.hook(&q, &sender, r#"{"_backoff": {"first": 0}}"#).await;
    for number in 0..12 {
        let message = NewMessage { body: number.to_string().into(), ..in_group(["a", "b"][number % 2], "") };
        whole.broker.messages_post(&q, vec![message], None).await.unwrap();
    }
    until("deliveries", async || sender.sent.lock().len() == 15).await;
    let sent: Vec<u64> = sender.sent.lock().iter().map(|(_, body)| body.as_u64().unwrap()).collect();
    for rest in [0, 1] {
        let mut of_group: Vec<u64> = sent.iter().copied().filter(|number| number % 2 == rest).collect();
        of_group.dedup();
        assert!(of_group.is_sorted(), "{of_group:?}");
    }
}

#[tokio::test]
async fn message_is_sent_to_the_address_of_its_time() {
    let whole = whole().await;
    let (q, sender) = (queue("orders"), ScriptedSender::default().fails(&[]));
    whole.broker.webhooks_send_by(Arc::clone(&sender) as Arc<dyn WebhookSender>);
    let id = whole.broker.subscription_create(&q, to_webhook("{}")).await.unwrap().id;
    whole.post_bodies(&q, 1, 300).await;
    until("the delivery", async || sender.sent.lock().len() == 1).await;
    // The next claim waits already.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let subscriber = Some(Subscriber::new("https://b.example/hook").unwrap());
    let change = SubscriptionChange { subscriber, ..SubscriptionChange::default() };
    whole.broker.subscription_change(&q, id, change).await.unwrap();
    whole.post_bodies(&q, 1, 300).await;
    until("the next delivery", async || sender.sent.lock().len() == 2).await;
    assert_eq!(*sender.last.lock(), "https://b.example/hook");
}

#[tokio::test]
async fn group_follows_a_change_of_its_subscription() {
    let (whole, q) = (whole().await, queue("orders"));
    whole.broker.queue_create(&q, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let sender = ScriptedSender::silent(&[]);
    whole.broker.webhooks_send_by(Arc::clone(&sender) as Arc<dyn WebhookSender>);
    let id = whole.broker.subscription_create(&q, to_webhook("{}")).await.unwrap().id;
    let messages = ["1", "2", "3"].map(|body| in_group("g", body));
    whole.broker.messages_post(&q, messages.to_vec(), None).await.unwrap();
    until("the first request", async || sender.most.lock().0 == 1).await;
    let subscriber = Some(Subscriber::new("https://b.example/hook").unwrap());
    let change = SubscriptionChange { subscriber, ..SubscriptionChange::default() };
    whole.broker.subscription_change(&q, id, change).await.unwrap();
    sender.answer(1);
    until("the second request", async || *sender.last.lock() == "https://b.example/hook").await;
    assert!(sender.sent.lock().len() < 2);
    whole.broker.subscription_delete(&q, id).await.unwrap();
    sender.answer(2);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(sender.sent.lock().len() <= 2, "nothing is sent after the deletion");
}

#[tokio::test]
async fn success_ends_a_pause_for_the_next_message() {
    let (whole, q) = (whole().await, queue("orders"));
    let sender = ScriptedSender::silent(&[unavailable_for(600)]);
    let own = whole.hook(&q, &sender, "{}").await;
    whole.post_bodies(&q, 1, 3_600).await;
    until("the first request", async || sender.most.lock().0 == 1).await;
    whole.post_bodies(&q, 1, 3_600).await;
    until("both requests", async || sender.most.lock().0 == 2).await;
    sender.answer(1);
    until("the first answer", async || sender.sent.lock().len() == 1).await;
    sender.answer(2);
    until("the second answer", async || sender.sent.lock().len() == 2).await;
    whole.post_bodies(&q, 1, 3_600).await;
    until("the third request", async || sender.sent.lock().len() == 3).await;
    until("the first message waits as long as its receiver wants", async || whole.waiting(&own).await == 1)
        .await;
}

#[tokio::test]
async fn moved_webhook_leaves_its_pause_behind() {
    let (whole, q) = (whole().await, queue("orders"));
    let results = Mutex::new(VecDeque::from([unavailable_for(3_600)]));
    let sender = Arc::new(ScriptedSender { results, ..ScriptedSender::default() });
    let id = whole.hook(&q, &sender, "{}").await.name.subscription().unwrap();
    whole.post_bodies(&q, 1, 7_200).await;
    until("the failure", async || whole.broker.webhook_status(id).is_some()).await;
    let subscriber = Some(Subscriber::new("https://b.example/hook").unwrap());
    let change = SubscriptionChange { subscriber, ..SubscriptionChange::default() };
    whole.broker.subscription_change(&q, id, change).await.unwrap();
    assert!(whole.broker.webhook_status(id).is_none(), "the failure was that of the former address");
    whole.post_bodies(&q, 1, 7_200).await;
    until("the second message", async || sender.sent.lock().len() == 2).await;
    assert_eq!(*sender.last.lock(), "https://b.example/hook");
}

#[tokio::test]
async fn message_is_sent_once_more_before_its_life_ends() {
    let (whole, q) = (whole().await, queue("orders"));
    let results = Mutex::new(VecDeque::from([unavailable_for(3_600)]));
    let sender = Arc::new(ScriptedSender { results, ..ScriptedSender::default() });
    let own = whole.hook(&q, &sender, "{}").await;
    whole.post_bodies(&q, 1, 600).await;
    until("the first request", async || sender.sent.lock().len() == 1).await;
    whole.clock.advance(560_000);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(sender.sent.lock().len(), 1, "its receiver wants a pause");
    whole.clock.advance(11_000);
    until("the last request", async || whole.is_empty(&own).await).await;
    assert_eq!(sender.sent.lock().len(), 2);
}

#[tokio::test]
async fn deliveries_at_once_are_bounded() {
    let whole = whole().await;
    let slow = ScriptedSender { pause: Duration::from_millis(30), ..ScriptedSender::default() };
    let (q, sender) = (queue("orders"), slow.fails(&[]));
    let own = whole.hook(&q, &sender, r#"{"max_in_flight": 4}"#).await;
    whole.post_bodies(&q, 40, 300).await;
    until("deliveries", async || whole.is_empty(&own).await).await;
    assert_eq!(sender.most.lock().1, 4);
}

#[tokio::test]
async fn hanging_webhooks_of_an_account_hold_up_no_other() {
    let whole = whole().await;
    let (q, sender) = (queue("orders"), ScriptedSender::default().fails(&[]));
    whole.broker.webhooks_send_by(Arc::clone(&sender) as Arc<dyn WebhookSender>);
    for number in 0..3 {
        let hanging = new(&format!("https://a.example/hanging/{number}"));
        let hanging = NewSubscription { options: options(r#"{"max_in_flight": 100}"#), ..hanging };
        whole.broker.subscription_create(&q, hanging).await.unwrap();
    }
    whole.post_bodies(&q, 100, 300).await;
    until("the hanging requests", async || sender.most.lock().0 == 64).await;
    let other = QueueRef { project: ProjectId::new("other").unwrap(), name: q.name.clone() };
    whole.hook(&other, &sender, "{}").await;
    whole.post_bodies(&other, 10, 300).await;
    until("the other deliveries", async || sender.sent.lock().len() == 10).await;
    assert_eq!(sender.most.lock().0, 64, "the account has its share");
}

#[tokio::test]
async fn broken_webhook_is_paused_and_told() {
    let whole = whole().await;
    let (q, sender) =
        (queue("orders"), ScriptedSender::default().fails(&[WebhookFailureKind::Unreachable; 6]));
    let own = whole.hook(&q, &sender, r#"{"_backoff": {"first": 0}, "max_in_flight": 1}"#).await;
    whole.post_bodies(&q, 20, 300).await;
    let id = own.name.subscription().unwrap();
    until("deliveries", async || {
        whole
            .broker
            .webhook_status(id)
            .is_some_and(|status| status.failures == 5 && status.paused_until.is_some())
    })
    .await;
    assert_eq!(sender.sent.lock().len(), 5);
    // The probe after the first pause fails too.
    whole.clock.advance(1_000);
    until("probe", async || sender.sent.lock().len() == 6).await;
    until("pause", async || whole.broker.webhook_status(id).is_some_and(|status| status.failures == 6)).await;
    whole.clock.advance(2_000);
    until("deliveries", async || whole.is_empty(&own).await).await;
    assert!(whole.broker.webhook_status(id).is_none());
    assert_eq!(sender.sent.lock().len(), 26);
}

#[tokio::test]
async fn wrong_webhook_is_refused() {
    let whole = whole().await;
    let q = queue("orders");
    let refused = async |new| whole.broker.subscription_create(&q, new).await.unwrap_err().to_string();
    assert!(refused(to_webhook("{}")).await.contains("no webhooks"));
    whole.broker.webhooks_send_by(ScriptedSender::default().fails(&[]));
    assert!(refused(new("http://internal/")).await.contains("internal"));
    let secret = angarium_core::webhook::WebhookSecret::of_bytes([1; 32]);
    let signed = NewSubscription { secrets: vec![secret.clone()], ..new("pull:a") };
    assert!(refused(signed).await.contains("signed"));
    let created = whole.broker.subscription_create(&q, to_webhook("{}")).await.unwrap();
    assert!(created.secret.is_some_and(|made| made != secret));
    let given = NewSubscription { secrets: vec![secret], ..new("https://b.example") };
    assert_eq!(whole.broker.subscription_create(&q, given).await.unwrap().secret, None);
}
