//! Topics and subscriptions: made, deleted and read while clients work, and emptied at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::worker::Worker;
use super::{CLAIM_TTLS, RECOVERY, Workload, is_fifo};
use crate::client::{Client, ListedSubscription, queue_name};
use crate::history::{
    Bound, FoundSubscription, FullEffect, KINDS, SINKS, SUBSCRIPTIONS, SubscriptionTerms, TOPIC_COUNT, TOPICS,
};
use crate::requests::{ApiRequest, Outcome};
use crate::scenario::Verb;

/// Max subscriptions of a run, as many as one page of a list has.
const MAX_SUBSCRIPTIONS: usize = 12;

impl Worker {
    /// Makes or deletes a subscription, posts to a topic, or reads copies.
    pub(super) async fn use_subscription(&mut self) {
        let (count, readers) = self.client.readers();
        let reader = readers.get(self.pick(readers.len())).copied();
        match (self.world.below(16), reader) {
            (0..=3, _) if count < MAX_SUBSCRIPTIONS => self.client.subscribe(self.some_terms(count)).await,
            (4, Some(_)) => self.client.unsubscribe(self.pick(count)).await,
            (5, Some(reader)) if reader < SINKS => self.client.check_bound(reader - SUBSCRIPTIONS).await,
            (6, Some(reader)) if self.scenario.verbs.has(Verb::Pops) => {
                self.client.pop(reader, 1 + self.world.below(4)).await;
            }
            (7..=12, Some(reader)) => {
                let (limit, ttl) = (1 + self.world.below(6), CLAIM_TTLS[self.pick(CLAIM_TTLS.len())]);
                let wait = if self.world.below(4) == 0 { 1 + self.world.below(20) } else { 0 };
                if let Some(claim) = self.client.claim(reader, limit, ttl, wait).await {
                    self.keep_claim(reader, claim);
                }
            }
            _ => self.post(TOPICS + self.pick(TOPIC_COUNT)).await,
        }
    }

    /// Returns the terms of another subscription, beside `count` earlier ones.
    fn some_terms(&self, count: usize) -> SubscriptionTerms {
        let source = match self.world.below(8) {
            0..=4 => self.pick(self.scenario.queues),
            5 | 6 => TOPICS + self.pick(TOPIC_COUNT),
            _ => SINKS + self.pick(count),
        };
        let is_queue = source < self.scenario.queues;
        let is_sent_on = (is_queue || source >= TOPICS) && self.world.below(3) == 0;
        let may_begin_before = is_queue && !(is_sent_on && is_fifo(source));
        let effects: &[FullEffect] = match (is_sent_on, self.scenario.is_calm) {
            (true, true) => &[FullEffect::Suspend],
            (true, false) => &[FullEffect::Suspend, FullEffect::Refuse],
            (false, true) => &[FullEffect::Suspend, FullEffect::DropOldest],
            (false, false) => &[FullEffect::Suspend, FullEffect::DropOldest, FullEffect::Refuse],
        };
        let bound = Bound { messages: 2 + self.world.below(8), overflow: effects[self.pick(effects.len())] };
        SubscriptionTerms {
            source,
            is_sent_on,
            filter: (self.world.below(3) == 0).then(|| self.world.below(KINDS)),
            is_from_oldest: may_begin_before && self.world.below(2) == 0,
            bound: (self.world.below(3) == 0).then_some(bound),
            ttl: (self.world.below(5) == 0).then(|| 60 + self.world.below(60)),
        }
    }
}

impl Workload {
    /// Creates the topics, before faults happen.
    pub(super) async fn create_topics(&self, client: &Client) {
        for number in 0..TOPIC_COUNT {
            let mut attributes = json!({});
            if is_fifo(number) {
                attributes["_fifo"] = json!(true);
            }
            if self.scenario.verbs.has(Verb::Relaxed) {
                attributes["_durability"] = json!("relaxed");
            }
            let topic = queue_name(TOPICS + number);
            if !self.repeat(client, &ApiRequest::put_topic(&topic, attributes)).await {
                self.history.lock().violation(format!("{topic} cannot be created"));
            }
        }
    }

    /// Takes all copies out, until each subscription has got all that waited for it, and compares what each has got with
    /// the messages of its source. No message of a source is taken out meanwhile.
    pub(super) async fn empty_subscriptions(&self, client: &Client) {
        let since = self.world().elapsed();
        let mut end = since + RECOVERY;
        loop {
            let listed = self.list_subscriptions(client).await;
            let taken = self.empty_readers(client).await;
            let mut obstacle = Some("some are not listed".to_owned());
            if let Some(listed) = listed.filter(|_| taken == 0) {
                obstacle = self.find_obstacle(client, &listed).await;
                if obstacle.is_none() {
                    return self.check_found(listed, since);
                }
            }
            if taken > 0 {
                end = self.world().elapsed() + RECOVERY;
            } else if self.world().elapsed() > end {
                let obstacle = obstacle.unwrap_or_default();
                return self
                    .history
                    .lock()
                    .violation(format!("the subscriptions cannot be emptied: {obstacle}"));
            }
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
    }

    fn check_found(&self, listed: Vec<ListedSubscription>, since: Duration) {
        let found = |ListedSubscription { number, left_out, dropped, .. }| {
            (number, FoundSubscription { left_out, dropped })
        };
        let found: BTreeMap<usize, FoundSubscription> = listed.into_iter().map(found).collect();
        self.history.lock().check_subscriptions(&found, since);
    }

    /// Lists the subscriptions of all queues and topics. Returns none when some do not answer.
    async fn list_subscriptions(&self, client: &Client) -> Option<Vec<ListedSubscription>> {
        let filled = (0..self.history.lock().subscription_count()).map(|number| SINKS + number);
        let topics = (0..TOPIC_COUNT).map(|number| TOPICS + number);
        let mut listed = Vec::new();
        for source in (0..self.scenario.queues).chain(topics).chain(filled) {
            listed.extend(client.subscriptions(source).await?);
        }
        Some(listed)
    }

    /// Takes all messages out of subscriptions, and out of queues that subscriptions fill. Returns their number.
    async fn empty_readers(&self, client: &Client) -> usize {
        let (readers, mut taken) = (self.history.lock().readers(), 0);
        for reader in readers {
            while let Some(claim) =
                client.claim(reader, 20, 300, 0).await.filter(|claim| !claim.messages.is_empty())
            {
                for message in &claim.messages {
                    self.delete_for_sure(client, reader, message, &claim.id).await;
                }
                taken += claim.messages.len();
            }
            if self.scenario.verbs.has(Verb::Settles) {
                self.purge_kept(client, reader).await;
            }
        }
        taken
    }

    /// Returns the first obstacle to an end: messages in a subscription, in a reader, or on their way to a source.
    async fn find_obstacle(&self, client: &Client, listed: &[ListedSubscription]) -> Option<String> {
        let sources = (0..self.scenario.queues).map(|queue| (queue_name(queue), true));
        let queues = listed.iter().map(|one| (client.address_of_subscription(one.number), false));
        let filled = (0..self.history.lock().subscription_count()).map(|number| SINKS + number);
        let filled = filled.map(|reader| (queue_name(reader), false));
        for (address, is_source) in sources.chain(queues).chain(filled) {
            match client.send(&ApiRequest::stats(&address)).await {
                Outcome::Missing => {}
                Outcome::Done(body) if is_source && body["messages"]["in_transfer"] == 0 => {}
                Outcome::Done(body) if !is_source && super::emptying::is_empty(&body["messages"]) => {}
                Outcome::Done(body) => return Some(format!("{address} counts {}", body["messages"])),
                Outcome::Refused(why) => return Some(format!("{address} is not counted: {why:?}")),
                Outcome::Unknown => return Some(format!("{address} is not counted")),
            }
        }
        let filling = listed.iter().find(|one| one.is_filling != Some(false))?;
        let address = client.address_of_subscription(filling.number);
        Some(format!("{address} is being filled: {:?}", filling.is_filling))
    }
}
