//! `angarium subscription`: list, create, show, change and delete subscriptions of queues.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::caller::CallerArgs;
use super::failure::Failure;
use super::listing::{ExtentArgs, Listing};
use super::printer::{Display, Item};
use super::queue;
use super::queue::parsed;
use super::remote::{ApiRequest, Remote, encoded};
use super::table::{one_line, pairs};
use angarium_settings::units;

/// Subscriptions: who gets a copy of each message that is posted to a queue
#[derive(Args, Clone, Debug)]
pub struct SubscriptionArgs {
    #[command(flatten)]
    caller: CallerArgs,
    #[command(subcommand)]
    command: SubscriptionCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum SubscriptionCommand {
    /// List the subscriptions of a queue, by id
    List {
        /// The name of the queue, or topic:NAME
        queue: String,
        #[command(flatten)]
        extent: ExtentArgs,
    },
    /// Subscribe to a queue. Messages of a pull: subscription are read as those of the queue QUEUE/ID or
    /// topic:NAME/ID
    Create {
        /// The name of the queue, or topic:NAME
        queue: String,
        /// Who gets the copies: pull:NAME for consumers that read the subscription, queue:NAME for another queue, or the
        /// address of a webhook
        subscriber: String,
        #[command(flatten)]
        terms: TermsArgs,
    },
    /// Show a subscription
    Show {
        /// The name of the queue, or topic:NAME
        queue: String,
        /// Its id
        id: String,
    },
    /// Change a subscription. With --ttl its life begins again
    Update {
        /// The name of the queue, or topic:NAME
        queue: String,
        /// Its id
        id: String,
        /// The new subscriber, of the same kind
        #[arg(long)]
        subscriber: Option<String>,
        #[command(flatten)]
        terms: TermsArgs,
    },
    /// Confirm a webhook: it gets the messages that are posted from then on
    Confirm {
        /// The name of the queue, or topic:NAME
        queue: String,
        /// Its id
        id: String,
    },
    /// Take back the confirmation of a webhook: it gets no messages until it is confirmed again
    Unconfirm {
        /// The name of the queue, or topic:NAME
        queue: String,
        /// Its id
        id: String,
    },
    /// Delete subscriptions, with the copies that wait in them
    Delete {
        /// The name of the queue, or topic:NAME
        queue: String,
        /// Their ids
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

/// The terms of a subscription.
#[derive(Args, Clone, Debug)]
struct TermsArgs {
    /// How long until it ends
    #[arg(long, value_name = "DURATION", value_parser = units::seconds)]
    ttl: Option<u64>,
    /// Its options, a JSON object
    #[arg(long, value_name = "JSON")]
    options: Option<String>,
    /// A secret of a webhook, whsec_ and Base64: requests are signed with each, at most two. A new webhook without one
    /// gets one
    #[arg(long = "secret", value_name = "SECRET")]
    secrets: Vec<String>,
}

/// The body of a request.
#[derive(Serialize)]
struct Terms<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriber: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    secrets: &'a [String],
}

#[derive(Deserialize)]
struct CreatedSubscription {
    subscription_id: String,
    secret: Option<String>,
    /// Absent when it is confirmed.
    confirmed: Option<bool>,
}

#[derive(Deserialize)]
struct SubscriptionEntry {
    id: String,
    subscriber: String,
    ttl: u64,
    age: u64,
    #[serde(default = "confirmed")]
    confirmed: bool,
}

/// Answers of older versions have true.
fn confirmed() -> bool {
    true
}

pub(super) fn run(args: &SubscriptionArgs) -> Result<(), Failure> {
    let remote = args.caller.remote()?;
    match &args.command {
        SubscriptionCommand::List { queue, extent } => list(args, &remote, queue, extent),
        SubscriptionCommand::Create { queue, subscriber, terms } => {
            let body = terms.body(Some(subscriber))?;
            let reply = remote.call(ApiRequest::new(Method::POST, all(queue)).json(&body)?)?;
            let CreatedSubscription { subscription_id: id, secret, confirmed } = reply.parse()?;
            let mut people = format!("{subscriber} is subscribed to {}: {id}\n", queue::called(queue));
            if let Some(secret) = &secret {
                people.push_str(&format!("requests are signed with {secret}, which is shown only now\n"));
            }
            if confirmed == Some(false) {
                people.push_str("it gets no messages before it is confirmed: its subscriber is asked\n");
            }
            args.caller.printer().show(&Display {
                people,
                json: reply.json_text()?,
                plain: [Some(id), secret].into_iter().flatten().collect(),
            })
        }
        SubscriptionCommand::Show { queue, id } => {
            let reply = remote.get(one(queue, id))?;
            let object: BTreeMap<String, Box<RawValue>> = reply.parse()?;
            let plain = object.iter().map(|(key, value)| format!("{key}={}", one_line(value))).collect();
            args.caller.printer().show(&Display { people: pairs(&object), json: reply.json_text()?, plain })
        }
        SubscriptionCommand::Update { queue, id, subscriber, terms } => {
            let body = terms.body(subscriber.as_deref())?;
            remote.call(ApiRequest::new(Method::PATCH, one(queue, id)).json(&body)?)?;
            args.caller.printer().done(&format!("subscription {id} is changed"), &json!({"id": id}))
        }
        SubscriptionCommand::Confirm { queue, id } => confirm(args, &remote, (queue, id), true),
        SubscriptionCommand::Unconfirm { queue, id } => confirm(args, &remote, (queue, id), false),
        SubscriptionCommand::Delete { queue, ids } => {
            let mut printer = args.caller.printer();
            ids.iter().try_for_each(|id| {
                remote.delete(one(queue, id))?;
                printer.done(&format!("subscription {id} is gone"), &json!({"id": id}))
            })
        }
    }
}

impl TermsArgs {
    fn body<'a>(&'a self, subscriber: Option<&'a str>) -> Result<Terms<'a>, Failure> {
        let wrong = |error| Failure::Usage(format!("--options is no JSON: {error}"));
        let options = self.options.clone().map(RawValue::from_string).transpose().map_err(wrong)?;
        Ok(Terms { subscriber, ttl: self.ttl, options, secrets: &self.secrets })
    }
}

fn all(queue: &str) -> String {
    format!("{}/subscriptions", queue::path(queue))
}

fn one(queue: &str, id: &str) -> String {
    format!("{}/{}", all(queue), encoded(id))
}

fn confirm(
    args: &SubscriptionArgs,
    remote: &Remote,
    (queue, id): (&str, &str),
    confirmed: bool,
) -> Result<(), Failure> {
    let path = format!("{}/confirm", one(queue, id));
    remote.call(ApiRequest::new(Method::PUT, path).json(&json!({"confirmed": confirmed}))?)?;
    let state = if confirmed { "confirmed" } else { "not confirmed any more" };
    args.caller.printer().done(&format!("subscription {id} is {state}"), &json!({"id": id}))
}

fn list(args: &SubscriptionArgs, remote: &Remote, queue: &str, extent: &ExtentArgs) -> Result<(), Failure> {
    let path = all(queue);
    let mut listing = Listing::new(remote, &path, "subscriptions", extent, &[]);
    let mut printer = args.caller.printer();
    let mut shown = printer.list(&["ID", "SUBSCRIBER", "ENDS IN"]);
    while let Some(page) = listing.page()? {
        let mut items = Vec::with_capacity(page.len());
        for json in page {
            let SubscriptionEntry { id, subscriber, ttl, age, confirmed } = parsed(&json)?;
            let left = ttl.saturating_sub(age);
            let state = if confirmed { "" } else { ", not confirmed" };
            items.push(Item {
                row: vec![id.clone(), subscriber, format!("{left} s{state}")],
                json: one_line(&json),
                plain: id,
            });
        }
        shown.page(items)?;
    }
    shown.end(&format!("{} has no subscriptions", queue::called(queue)))
}
