//! Records of subscriptions. Each is a part of the record of its queue, which is beside that of its source.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::listing::queue_name;
use super::{Catalogue, OwnedSlot, PoolEntry, QueueEntry, QueueRecord, failed, from_json, layout, to_json};
use angarium_coordination::{Op, Refusal, TreeError};
use angarium_core::confirmation::Confirmation;
use angarium_core::error::{Error, Part};
use angarium_core::ids::{QueueId, SubscriptionId};
use angarium_core::limits;
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::subscription::{Subscriber, Subscription, SubscriptionOptions};
use angarium_core::time::Timestamp;
use angarium_core::webhook::WebhookSecret;

/// The stored form of a subscription.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SubscriptionRecord {
    /// The incarnation of its source.
    source: QueueId,
    subscriber: String,
    options: Box<RawValue>,
    /// Seconds of its life.
    ttl: u64,
    /// When its life began, in milliseconds since the Unix epoch.
    renewed: u64,
    /// Those of a webhook.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    secrets: Vec<WebhookSecret>,
    /// Whether it gets the messages that waited when it was created.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    from_oldest: bool,
    /// That of a webhook which needs one ([`crate::Schema::CONFIRMATIONS`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    confirmation: Option<Confirmation>,
}

impl From<&Subscription> for SubscriptionRecord {
    fn from(subscription: &Subscription) -> Self {
        Self {
            source: subscription.source,
            subscriber: subscription.subscriber.to_string(),
            options: subscription.options.as_raw().to_owned(),
            ttl: subscription.ttl,
            renewed: subscription.renewed.as_millis(),
            secrets: subscription.secrets.clone(),
            from_oldest: subscription.is_from_oldest,
            confirmation: subscription.confirmation.clone(),
        }
    }
}

impl QueueRecord {
    /// Returns the subscription whose queue has this name; none for other queues.
    ///
    /// # Errors
    ///
    /// When the record is damaged.
    pub fn as_subscription(&self, name: &QueueName) -> Result<Option<Subscription>, Error> {
        let (Some(record), Some(id)) = (&self.subscription, name.subscription()) else { return Ok(None) };
        let damaged = |error| Error::unavailable(Part::Coordination, error);
        Ok(Some(Subscription {
            id,
            source: record.source,
            subscriber: Subscriber::new(&record.subscriber).map_err(damaged)?,
            options: SubscriptionOptions::stored(record.options.clone()),
            ttl: record.ttl,
            renewed: Timestamp::from_millis(record.renewed),
            secrets: record.secrets.clone(),
            is_from_oldest: record.from_oldest,
            confirmation: record.confirmation.clone(),
        }))
    }

    /// Returns the incarnation of the source of a subscription's queue; none for other queues.
    pub(super) fn source(&self) -> Option<QueueId> {
        self.subscription.as_ref().map(|subscription| subscription.source)
    }

    /// Whether it is the queue of a subscription that gets the messages which waited when it was created.
    pub fn is_from_oldest(&self) -> bool {
        self.subscription.as_ref().is_some_and(|subscription| subscription.from_oldest)
    }
}

impl Catalogue {
    /// Returns the subscriptions to this incarnation of a queue, in the order of their ids, ended ones too.
    pub async fn subscriptions(
        &self,
        slot: &OwnedSlot,
        queue: &QueueRef,
        source: QueueId,
    ) -> Result<Vec<Subscription>, Error> {
        let directory = layout::project(slot.slot, &queue.project);
        let first = layout::subscription_prefix(queue);
        let (mut found, mut after) = (Vec::new(), first.clone());
        loop {
            let read = self.tree.children_behind(&directory, Some(&after), limits::SUBSCRIPTIONS).await;
            let mut names = read.map_err(failed)?;
            let is_whole = names.len() < limits::SUBSCRIPTIONS;
            let read = names.len();
            names.retain(|name| name.starts_with(&first));
            let is_last = is_whole || names.len() < read;
            let paths: Vec<String> = names.iter().map(|name| format!("{directory}/{name}")).collect();
            let nodes = self.tree.get_many(&paths).await.map_err(failed)?;
            for (name, node) in names.iter().zip(nodes) {
                let (Some(name), Some(node)) = (queue_name(name), node) else { continue };
                let record: QueueRecord = from_json(&node)?;
                found.extend(record.as_subscription(&name)?.filter(|found| found.source == source));
            }
            match names.pop() {
                Some(last) if !is_last => after = last,
                _ => return Ok(found),
            }
        }
    }

    /// Creates the queue of a subscription, and notes at its source that there are some, in one commit. Returns false
    /// when the record of the source or of the pool has changed since it was read: then the caller reads them again.
    pub async fn subscription_create(
        &self,
        slot: &OwnedSlot,
        source: (&QueueRef, &QueueEntry),
        record: &QueueRecord,
        pool: &PoolEntry,
    ) -> Result<bool, Error> {
        let (at, entry) = source;
        let noted = QueueRecord { has_subscriptions: true, ..entry.record.clone() };
        let queue = at.of_subscription(SubscriptionId(record.id));
        let ops = [
            entry.replace_by(layout::queue(slot.slot, at), &noted),
            Op::create(layout::queue(slot.slot, &queue), to_json(record)),
        ];
        match self.commit_as_owner(slot, &[pool.fence()], &ops).await {
            Ok(_) => Ok(true),
            Err(
                TreeError::Fenced(1..)
                | TreeError::Refused { op: 0, why: Refusal::BadVersion | Refusal::NoNode },
            ) => Ok(false),
            Err(TreeError::Refused { why: Refusal::Full, .. }) => Err(Error::TooMany {
                what: "queues of this project in one slot",
                bound: limits::TREE_CHILDREN,
            }),
            Err(error) => Err(failed(error)),
        }
    }
}
