//! A subscription whose terms change beside posts. No consumer takes messages out of its source, so it gets each one that
//! its terms accept, sooner or later.

use std::time::Duration;

use serde_json::{Value, json};

use super::worker::Worker;
use super::{CLAIM_TTLS, RECOVERY, Workload};
use crate::client::{Client, OwnClaim, certainty};
use crate::history::{
    Bound, Certainty, ChangedTerms, FoundSubscription, FullEffect, KINDS, POST_MESSAGES, Span,
};
use crate::requests::{ApiRequest, LONG_TTL, Outcome, Posting, options_of};
use crate::scenario::Verb;

/// The source.
const SOURCE: &str = "changing";

fn body_of(terms: ChangedTerms) -> Value {
    json!({"ttl": terms.ttl.unwrap_or(LONG_TTL), "options": options_of(terms.filter, terms.bound)})
}

impl Worker {
    /// Posts to the source, changes the terms, both at once, or reads copies.
    pub(super) async fn use_changing(&self) {
        let Some(subscription) = self.shared.changing.lock().clone() else { return };
        match self.world.below(8) {
            0 | 1 => self.post_to_changing().await,
            2 => self.change_terms(&subscription).await,
            3 | 4 => {
                let pause = Duration::from_millis(self.world.below(2) * self.world.below(500));
                let change = async {
                    tokio::time::sleep(pause).await;
                    self.change_terms(&subscription).await;
                };
                futures_util::future::join(self.post_to_changing(), change).await;
            }
            _ => {
                let (limit, ttl) = (1 + self.world.below(6), CLAIM_TTLS[self.pick(CLAIM_TTLS.len())]);
                let claim = self.client.claim_own(&subscription, limit, ttl).await;
                let OwnClaim::Held(claim) = claim else { return };
                for message in &claim.messages {
                    self.shared.changes.lock().find(message.number, &message.id);
                    self.client.delete_in_own(&subscription, &message.id, Some(&claim.id)).await;
                }
            }
        }
    }

    async fn post_to_changing(&self) {
        let posting = |_| {
            let number = self.next_number();
            Posting { number, group: None, has_dedup_id: false, delay: 0, ttl: None, keep: 0 }
        };
        let postings: Vec<Posting> = (0..=self.world.below(POST_MESSAGES)).take(3).map(posting).collect();
        let began = self.world.elapsed();
        let outcome = self.client.send(&ApiRequest::post(SOURCE, &postings)).await;
        let posted = if outcome.is_discarded() { Certainty::NotDone } else { certainty(&outcome) };
        let request = Span { began, ended: self.world.elapsed() };
        let mut changes = self.shared.changes.lock();
        postings.iter().for_each(|posting| changes.note_post(posting.number, request, posted));
    }

    async fn change_terms(&self, subscription: &str) {
        let effects: &[FullEffect] = if self.scenario.is_calm {
            &[FullEffect::Suspend, FullEffect::DropOldest]
        } else {
            &[FullEffect::Suspend, FullEffect::DropOldest, FullEffect::Refuse]
        };
        // Each post fits into it.
        let bound = Bound {
            messages: POST_MESSAGES + self.world.below(6),
            overflow: effects[self.pick(effects.len())],
        };
        let terms = ChangedTerms {
            filter: (self.world.below(2) == 0).then(|| self.world.below(KINDS)),
            bound: (self.world.below(2) == 0).then_some(bound),
            ttl: (self.world.below(10) == 0).then(|| 90 + self.world.below(200)),
        };
        let began = self.world.elapsed();
        let change = self.shared.changes.lock().begin_change(terms, began);
        let outcome = self.client.send(&ApiRequest::change_subscription(subscription, body_of(terms))).await;
        let now = self.world.elapsed();
        let mut changes = self.shared.changes.lock();
        changes.end_change(change, now, certainty(&outcome));
        if outcome == Outcome::Missing && changes.must_live(now) {
            self.client.report(format!("{subscription} is gone before the end of its life"));
        }
    }
}

impl Workload {
    /// Creates the source and its subscription, before faults happen.
    pub(super) async fn create_changing(&self, client: &Client) {
        if !self.repeat(client, &ApiRequest::put_queue(SOURCE, json!({}))).await {
            self.history.lock().violation(format!("{SOURCE} cannot be created"));
        }
        let terms = ChangedTerms { filter: None, bound: None, ttl: None };
        let mut body = body_of(terms);
        body["subscriber"] = json!("pull:changing");
        let change = self.shared.changes.lock().begin_change(terms, self.world().elapsed());
        match client.send(&ApiRequest::create_subscription_of(SOURCE, body)).await {
            Outcome::Done(body) => {
                let id = body["subscription_id"].as_str().unwrap_or_default();
                *self.shared.changing.lock() = Some(format!("{SOURCE}/{id}"));
            }
            other => self.history.lock().violation(format!("{SOURCE} has no subscription: {}", other.text())),
        }
        self.shared.changes.lock().end_change(change, self.world().elapsed(), Certainty::Done);
    }

    /// Takes all copies out, until the subscription has got all that its source has for it, and judges them. Then the
    /// source ends.
    pub async fn empty_changing(&self) {
        let Some(subscription) = self.shared.changing.lock().clone() else { return };
        let client = self.client("cleaner".into());
        let mut end = self.world().elapsed() + RECOVERY;
        loop {
            if self.world().elapsed() > end {
                self.history.lock().violation(format!("{subscription} cannot be emptied"));
                break;
            }
            let taken = self.take_copies(&client, &subscription).await;
            if taken > 0 {
                end = self.world().elapsed() + RECOVERY;
            } else if let Some(is_there) = self.judge_changing(&client, &subscription).await {
                let now = self.world().elapsed();
                let changes = self.shared.changes.lock();
                if is_there && changes.must_be_gone(now) || !is_there && changes.must_live(now) {
                    let text = format!("{subscription} is there: {is_there}, against its life");
                    self.history.lock().violation(text);
                }
                break;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        while !client.delete_own(SOURCE).await {
            if self.world().elapsed() > end + RECOVERY {
                return self.history.lock().violation(format!("{SOURCE} cannot be deleted"));
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }

    async fn take_copies(&self, client: &Client, subscription: &str) -> usize {
        let mut taken = 0;
        while let OwnClaim::Held(claim) = client.claim_own(subscription, 20, 300).await {
            for message in &claim.messages {
                self.shared.changes.lock().find(message.number, &message.id);
                client.delete_in_own(subscription, &message.id, Some(&claim.id)).await;
            }
            taken += claim.messages.len();
        }
        taken
    }

    /// Judges the copies of the subscription if it has got all of them. Returns whether it is there, once it is known.
    async fn judge_changing(&self, client: &Client, subscription: &str) -> Option<bool> {
        let body = match client.send(&ApiRequest::get_subscription(subscription)).await {
            Outcome::Done(body) => body,
            Outcome::Missing => return Some(false),
            Outcome::Refused(_) | Outcome::Unknown => return None,
        };
        let Outcome::Done(stats) = client.send(&ApiRequest::stats(subscription)).await else { return None };
        let backlog = &body["backlog"];
        let is_whole = super::emptying::is_empty(&stats["messages"]) && backlog["filling"] == false;
        if !is_whole {
            return None;
        }
        let counted = |name: &str| backlog[name].as_u64().unwrap_or(0);
        let counts = FoundSubscription { left_out: counted("left_out"), dropped: counted("dropped") };
        let broken = self.shared.changes.lock().judge(counts);
        broken.into_iter().for_each(|text| self.history.lock().violation(text));
        Some(true)
    }

    /// Whether the scenario has such a subscription.
    pub(super) fn has_changing(&self) -> bool {
        self.scenario.verbs.has(Verb::SubscriptionChanges)
    }
}
