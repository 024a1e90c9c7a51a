//! Subscriptions: created, deleted, listed and read.

use serde_json::Value;

use super::{Client, certainty, queue_name};
use crate::history::{Certainty, SINKS, SUBSCRIPTIONS, Span, SubscriptionTerms, filled_by};
use crate::requests::{ApiRequest, NewSubscription, Outcome};

/// A subscription of a list.
#[derive(Clone, Debug)]
pub struct ListedSubscription {
    /// Its number.
    pub number: usize,
    /// Messages that it counts as left out.
    pub left_out: u64,
    /// Copies that it counts as dropped.
    pub dropped: u64,
    /// Whether messages that waited are still to be copied. Unknown as long as its own queue is not read.
    pub is_filling: Option<bool>,
}

impl Client {
    /// Returns the address of a queue, a topic or a subscription. One whose id is not known has none that exists.
    pub fn address(&self, queue: usize) -> String {
        match filled_by(queue) {
            Some(subscription) if queue < SINKS => self.address_of_subscription(subscription),
            _ => queue_name(queue),
        }
    }

    /// Returns the address of a subscription.
    pub fn address_of_subscription(&self, subscription: usize) -> String {
        let history = self.history.lock();
        let found = history.subscription(subscription);
        let (source, id) = found.map_or((0, None), |(terms, id)| (terms.source, id));
        format!("{}/{}", queue_name(source), id.unwrap_or("00000000-0000-0000-0000-000000000000"))
    }

    /// Returns the number of subscriptions, which may not exist, and the queues in which copies are found.
    pub fn readers(&self) -> (usize, Vec<usize>) {
        let history = self.history.lock();
        (history.subscription_count(), history.readers())
    }

    /// Creates a subscription.
    pub async fn subscribe(&self, terms: SubscriptionTerms) {
        let number = self.history.lock().begin_subscription(terms.clone(), self.world().elapsed());
        self.world().note(|| format!("{} creates subscription {number}: {terms:?}", self.name));
        let source = queue_name(terms.source);
        let subscriber = subscriber_of(number, terms.is_sent_on);
        let request = ApiRequest::create_subscription(&source, &NewSubscription { subscriber, terms });
        let outcome = self.send(&request).await;
        let id = match &outcome {
            Outcome::Done(body) => body["subscription_id"].as_str().map(str::to_owned),
            Outcome::Missing | Outcome::Refused(_) | Outcome::Unknown => None,
        };
        let ended = self.world().elapsed();
        self.history.lock().end_subscription(number, ended, certainty(&outcome), id);
    }

    /// Deletes a subscription with its copies.
    pub async fn unsubscribe(&self, subscription: usize) {
        let request = ApiRequest::delete_subscription(&self.address_of_subscription(subscription));
        let began = self.world().elapsed();
        self.history.lock().begin_unsubscription(subscription, began);
        let deleted = match certainty(&self.send(&request).await) {
            Certainty::Done => Certainty::Done,
            // One that is missing has ended, or its creation is late.
            Certainty::NotDone | Certainty::Unknown => Certainty::Unknown,
        };
        let request = Span { began, ended: self.world().elapsed() };
        self.history.lock().end_unsubscription(subscription, request, deleted);
    }

    /// Lists the subscriptions of a queue or a topic, and notes their ids. Returns none without an answer.
    pub async fn subscriptions(&self, source: usize) -> Option<Vec<ListedSubscription>> {
        let body = match self.send(&ApiRequest::list_subscriptions(&queue_name(source))).await {
            Outcome::Done(body) => body,
            Outcome::Missing => Value::Null,
            Outcome::Refused(_) | Outcome::Unknown => return None,
        };
        let listed = body["subscriptions"].as_array().map(|all| all.iter().filter_map(listed).collect());
        let listed: Vec<(ListedSubscription, String)> = listed.unwrap_or_default();
        let mut history = self.history.lock();
        listed.iter().for_each(|(one, id)| history.note_subscription(one.number, id));
        Some(listed.into_iter().map(|(one, _)| one).collect())
    }

    /// Counts the messages of a subscription that is read, and compares the number with its bound.
    pub async fn check_bound(&self, subscription: usize) {
        let address = self.address(SUBSCRIPTIONS + subscription);
        let Outcome::Done(body) = self.send(&ApiRequest::stats(&address)).await else { return };
        let mut history = self.history.lock();
        let bound = history.subscription(subscription).and_then(|(terms, _)| terms.strict_bound());
        if let Some(bound) = bound.filter(|bound| body["messages"]["total"].as_u64() > Some(*bound)) {
            let counts = &body["messages"];
            history.violation(format!("subscription {subscription} has {counts}, and its bound is {bound}"));
        }
    }
}

/// Returns the subscriber of a subscription: each has its own.
fn subscriber_of(number: usize, is_sent_on: bool) -> String {
    if is_sent_on { format!("queue:{}", queue_name(SINKS + number)) } else { format!("pull:w{number}") }
}

fn listed(body: &Value) -> Option<(ListedSubscription, String)> {
    let subscriber = body["subscriber"].as_str()?;
    let number = subscriber.strip_prefix("pull:w").or_else(|| subscriber.strip_prefix("queue:s"))?;
    let backlog = &body["backlog"];
    let one = ListedSubscription {
        number: number.parse().ok()?,
        left_out: backlog["left_out"].as_u64().unwrap_or(0),
        dropped: backlog["dropped"].as_u64().unwrap_or(0),
        is_filling: backlog["filling"].as_bool(),
    };
    Some((one, body["id"].as_str()?.to_owned()))
}
