//! Topics, and subscriptions of them and of queues.

use http::Method;
use serde_json::{Value, json};

use super::{ApiRequest, LONG_TTL, path_of};
use crate::history::{Bound, SubscriptionTerms};

/// A subscription to create.
#[derive(Clone, Debug)]
pub struct NewSubscription {
    /// Who gets the copies.
    pub subscriber: String,
    /// Its terms.
    pub terms: SubscriptionTerms,
}

impl NewSubscription {
    fn body(&self) -> Value {
        let mut options = options_of(self.terms.filter, self.terms.bound);
        if self.terms.is_from_oldest {
            options["from"] = json!("oldest");
        }
        let ttl = self.terms.ttl.unwrap_or(LONG_TTL);
        json!({"subscriber": self.subscriber, "ttl": ttl, "options": options})
    }
}

/// Returns the options of a subscription of a kind of messages, or of all, with a bound.
pub fn options_of(filter: Option<u64>, bound: Option<Bound>) -> Value {
    let mut options = json!({});
    if let Some(kind) = filter {
        options["filter"] = json!({"kind": [kind]});
        options["filter_scope"] = json!("body");
    }
    if let Some(Bound { messages, overflow }) = bound {
        options["max_messages"] = json!(messages);
        options["overflow"] = json!(overflow.name());
    }
    options
}

impl ApiRequest {
    /// Creates or changes a topic.
    pub fn put_topic(topic: &str, attributes: Value) -> Self {
        Self::new(Method::PUT, path_of(topic), Some(attributes))
    }

    /// Creates a subscription of a queue or a topic.
    pub fn create_subscription(source: &str, new: &NewSubscription) -> Self {
        Self::create_subscription_of(source, new.body())
    }

    /// Creates a subscription of a queue or a topic from its body.
    pub fn create_subscription_of(source: &str, body: Value) -> Self {
        Self::new(Method::POST, format!("{}/subscriptions", path_of(source)), Some(body))
    }

    /// Changes a subscription.
    pub fn change_subscription(address: &str, body: Value) -> Self {
        Self::new(Method::PATCH, path_of(address), Some(body))
    }

    /// Reads a subscription.
    pub fn get_subscription(address: &str) -> Self {
        Self::new(Method::GET, path_of(address), None)
    }

    /// Deletes a subscription.
    pub fn delete_subscription(address: &str) -> Self {
        Self::new(Method::DELETE, path_of(address), None)
    }

    /// Lists the subscriptions of a queue or a topic.
    pub fn list_subscriptions(source: &str) -> Self {
        Self::new(Method::GET, format!("{}/subscriptions?limit=20", path_of(source)), None)
    }
}
