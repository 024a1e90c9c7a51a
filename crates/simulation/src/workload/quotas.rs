//! Quotas: they change while clients work, and once all is removed nothing counts any more.

use std::time::Duration;

use angarium_core::quota::{Amount, Quota};

use super::worker::Worker;
use super::{RECOVERY, Workload, is_fifo};
use crate::client::Client;
use crate::history::Certainty;
use crate::requests::Posting;
use crate::scenario::Verb;

/// Room for one message, and for no second one.
const ONE_BODY: u64 = 40;

impl Worker {
    /// Sets another quota, or none.
    pub(super) fn change_quota(&self) {
        let quota = match self.world.below(5) {
            0 => Quota::NONE,
            1 => Quota { bytes: Some(60 + self.world.below(900)), ..Quota::NONE },
            _ => Quota { messages: Some(2 + self.world.below(40)), ..Quota::NONE },
        };
        self.client.set_quota(quota);
    }
}

impl Workload {
    /// Ends the quota, so that all that waits for room arrives.
    pub fn lift_quota(&self) {
        if self.scenario.verbs.has(Verb::Quotas) {
            self.client("operator".into()).set_quota(Quota::NONE);
        }
    }

    /// Checks, once all queues are empty, that nothing counts in a quota any more: one message has room, a second one
    /// has none, and another one has room as soon as the first one is removed.
    pub async fn check_quota(&self) {
        if !self.scenario.verbs.has(Verb::Quotas) {
            return;
        }
        let client = self.client("operator".into());
        // The replicas share a quota by their slots, rounded up.
        let quota = if self.cluster.size() == 1 && self.world().below(2) == 0 {
            Quota { bytes: Some(ONE_BODY), ..Quota::NONE }
        } else {
            Quota { messages: Some(1), ..Quota::NONE }
        };
        client.set_quota(quota);
        self.await_nothing_held(&client).await;
        // A subscription that is still there would get a copy of each message.
        if self.history.lock().has_subscription() {
            return;
        }
        for queue in 0..self.scenario.queues.min(2) {
            self.post_within_quota(&client, queue).await;
            let second = self.quota_posting(queue);
            if client.post(queue, std::slice::from_ref(&second)).await == Certainty::Done {
                let text = format!("message {} was stored beyond the quota", second.number);
                self.history.lock().violation(text);
            }
            self.empty_queue(&client, queue).await;
            self.post_within_quota(&client, queue).await;
            self.empty_queue(&client, queue).await;
        }
        client.set_quota(Quota::NONE);
    }

    async fn await_nothing_held(&self, client: &Client) {
        let (end, mut last) = (self.world().elapsed() + RECOVERY, None);
        while self.world().elapsed() < end {
            match client.held_amount().await {
                Some(amount) if amount == Amount::default() => return,
                amount => last = amount.or(last),
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        self.history.lock().violation(format!("all queues are empty, and the quota counts {last:?}"));
    }

    fn quota_posting(&self, queue: usize) -> Posting {
        let number = self.next_number();
        let group = is_fifo(queue).then(|| "g0".to_owned());
        Posting { number, group, has_dedup_id: is_fifo(queue), delay: 0, ttl: None, keep: 0 }
    }

    /// Posts a message that has room.
    async fn post_within_quota(&self, client: &Client, queue: usize) {
        let end = self.world().elapsed() + RECOVERY;
        let posting = self.quota_posting(queue);
        while client.post(queue, std::slice::from_ref(&posting)).await != Certainty::Done {
            if self.world().elapsed() > end {
                let text = format!("message {} has room, and cannot be posted", posting.number);
                return self.history.lock().violation(text);
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }
}
