//! The end of a run: nothing fails any more, and all messages are taken out.

use std::time::Duration;

use serde_json::Value;

use super::{RECOVERY, Workload};
use crate::client::{Client, pool_name, queue_name};
use crate::history::{Certainty, DEAD_LETTERS, HeldMessage, SQS_FIFO};
use crate::requests::{ApiRequest, Outcome};
use crate::scenario::Verb;

impl Workload {
    /// Empties all queues, once nothing fails any more and all claims have ended. Every message that should be there
    /// must be delivered.
    pub async fn empty_queues(&self) {
        let since = self.world().elapsed();
        let client = self.client("cleaner".into());
        if self.scenario.verbs.has(Verb::Subscriptions) {
            self.empty_subscriptions(&client).await;
        }
        for queue in 0..self.scenario.queues {
            self.empty_queue(&client, queue).await;
        }
        if self.scenario.verbs.has(Verb::SqsFifo) {
            self.empty_queue(&client, SQS_FIFO).await;
        }
        if self.scenario.verbs.has(Verb::DeadLetters) {
            for queue in 0..self.scenario.queues {
                self.empty_queue(&client, DEAD_LETTERS + queue).await;
            }
        }
        let mut history = self.history.lock();
        history.check_all_delivered(since);
        history.check_lives();
        history.check_attempts();
        history.check_waits();
    }

    /// Once no claim of a client can live, no queue counts a claimed message: messages that a claim did not get after
    /// all do not count either.
    pub async fn check_unclaimed(&self) {
        let client = self.client("auditor".into());
        let has_dead_letters = self.scenario.verbs.has(Verb::DeadLetters);
        let offsets: &[usize] = if has_dead_letters { &[0, DEAD_LETTERS] } else { &[0] };
        for offset in offsets {
            for queue in 0..self.scenario.queues {
                self.await_unclaimed(&client, &queue_name(offset + queue)).await;
            }
        }
        if self.scenario.verbs.has(Verb::SqsFifo) {
            self.await_unclaimed(&client, &queue_name(SQS_FIFO)).await;
        }
    }

    /// Waits until no task moves dead letters.
    pub async fn await_redrives(&self) {
        if !self.scenario.verbs.has(Verb::Requeues) || !self.scenario.verbs.has(Verb::DeadLetters) {
            return;
        }
        let (client, end) = (self.client("auditor".into()), self.world().elapsed() + RECOVERY);
        for queue in 0..self.scenario.queues {
            while client.has_no_task(DEAD_LETTERS + queue).await != Some(true) {
                if self.world().elapsed() > end {
                    let text = format!("a task of {} has no end", queue_name(DEAD_LETTERS + queue));
                    return self.history.lock().violation(text);
                }
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    }

    async fn await_unclaimed(&self, client: &Client, name: &str) {
        let end = self.world().elapsed() + RECOVERY;
        let mut last = Value::Null;
        while self.world().elapsed() < end {
            match client.send(&ApiRequest::stats(name)).await {
                Outcome::Missing => return,
                Outcome::Done(body) if body["messages"]["claimed"] == 0 => return,
                Outcome::Done(body) => last = body["messages"].clone(),
                Outcome::Refused(_) | Outcome::Unknown => {}
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        // A queue that does not answer is noticed when it is emptied.
        if !last.is_null() {
            self.history.lock().violation(format!("no claim lives, and {name} counts {last}"));
        }
    }

    /// Lets all pools take queues again, so that every queue can be created that a forward or a dead letter waits for.
    pub async fn restore_pools(&self) {
        let verbs = [Verb::Pools, Verb::PoolDeletions, Verb::PoolRemovals];
        if !verbs.into_iter().any(|verb| self.scenario.verbs.has(verb)) {
            return;
        }
        let client = self.client("operator".into());
        for (index, uri) in self.scenario.cluster.pools.iter().enumerate() {
            let pool = pool_name(index);
            let is_of_store = index == 0 && self.scenario.cluster.is_embedded;
            if !is_of_store && !self.repeat(&client, &ApiRequest::put_pool(&pool, uri)).await {
                self.history.lock().violation(format!("pool {pool} cannot be added again"));
            }
            self.repeat_drain_end(&client, &pool).await;
            if !self.repeat(&client, &ApiRequest::weigh_pool(&pool, 1)).await {
                self.history.lock().violation(format!("the weight of pool {pool} cannot be changed"));
            }
        }
    }

    async fn repeat_drain_end(&self, client: &Client, pool: &str) {
        let end = self.world().elapsed() + RECOVERY;
        while self.world().elapsed() < end {
            match client.send(&ApiRequest::end_drain(pool)).await {
                // A pool that is not drained has no drain to end.
                Outcome::Done(_) | Outcome::Missing => return,
                Outcome::Refused(_) | Outcome::Unknown => tokio::time::sleep(Duration::from_secs(2)).await,
            }
        }
        self.history.lock().violation(format!("the drain of pool {pool} cannot be ended"));
    }

    pub(super) async fn empty_queue(&self, client: &Client, queue: usize) {
        let (mut end, mut empty) = (self.world().elapsed() + RECOVERY, 0);
        while empty < 3 {
            if self.world().elapsed() > end {
                self.history.lock().violation(format!("{} does not recover", queue_name(queue)));
                return;
            }
            match client.claim(queue, 20, 300, 0).await {
                Some(claim) if claim.messages.is_empty() => {
                    empty += 1;
                    tokio::time::sleep(Duration::from_secs(3)).await;
                }
                Some(claim) => {
                    for message in &claim.messages {
                        self.delete_for_sure(client, queue, message, &claim.id).await;
                    }
                    (end, empty) = (self.world().elapsed() + RECOVERY, 0);
                }
                None => tokio::time::sleep(Duration::from_secs(2)).await,
            }
        }
        if self.scenario.verbs.has(Verb::Settles) {
            self.purge_kept(client, queue).await;
        }
        self.check_empty(client, queue).await;
    }

    /// Removes the messages that are done or failed and kept.
    pub(super) async fn purge_kept(&self, client: &Client, queue: usize) {
        let request = ApiRequest::purge_kept(&client.address(queue));
        let end = self.world().elapsed() + RECOVERY;
        while self.world().elapsed() < end {
            match client.send(&request).await {
                Outcome::Done(_) | Outcome::Missing => return,
                Outcome::Refused(_) | Outcome::Unknown => tokio::time::sleep(Duration::from_secs(2)).await,
            }
        }
        self.history.lock().violation(format!("{} cannot be purged", queue_name(queue)));
    }

    pub(super) async fn delete_for_sure(
        &self,
        client: &Client,
        queue: usize,
        message: &HeldMessage,
        claim: &str,
    ) {
        let end = self.world().elapsed() + RECOVERY;
        while client.delete(queue, message, Some(claim)).await != Certainty::Done {
            if self.world().elapsed() > end {
                self.history.lock().violation(format!("message {} cannot be deleted", message.number));
                return;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }

    /// An empty queue counts no messages.
    async fn check_empty(&self, client: &Client, queue: usize) {
        let end = self.world().elapsed() + RECOVERY;
        let mut last = "no answer".to_owned();
        while self.world().elapsed() < end {
            match client.send(&ApiRequest::stats(&queue_name(queue))).await {
                Outcome::Missing => return,
                Outcome::Done(body) if is_empty(&body["messages"]) => return,
                Outcome::Done(body) => last = body["messages"].to_string(),
                Outcome::Refused(_) | Outcome::Unknown => {}
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        self.history.lock().violation(format!("{} is empty and counts {last}", queue_name(queue)));
    }
}

/// Whether the numbers of a queue are those of an empty one.
pub(super) fn is_empty(counts: &Value) -> bool {
    ["total", "claimed", "delayed", "in_transfer"].iter().all(|kind| counts[kind] == 0)
}
