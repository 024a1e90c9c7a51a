//! One client and its steps.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::settles::{KEEP, is_kept};
use super::{CLAIM_TTLS, Shared, is_fifo};
use crate::client::{Client, pool_name, queue_name};
use crate::history::{Certainty, HeldClaim, HeldMessage, POST_MESSAGES};
use crate::requests::{ApiRequest, Posting};
use crate::scenario::{Scenario, Verb};
use crate::world::World;

/// After this time a post is not repeated: the repeat may take four minutes, and ids are remembered for five.
const REPEATABLE: Duration = Duration::from_secs(30);

/// How often a client looks whether a break has ended.
const BREAK_TICK: Duration = Duration::from_secs(1);

/// One client at work.
pub(super) struct Worker {
    pub(super) client: Client,
    /// Makes requests at the same time, and posts messages a second time with the same deduplication id.
    pub(super) second: Client,
    pub(super) world: World,
    pub(super) scenario: Scenario,
    pub(super) shared: Arc<Shared>,
    pub(super) claims: Vec<(usize, HeldClaim)>,
    /// Receipts of messages, each the id of a claim of one message.
    pub(super) receipts: Vec<(usize, HeldClaim)>,
    /// Messages that the client has held at some time.
    pub(super) seen: Vec<(usize, HeldMessage)>,
}

impl Worker {
    pub(super) fn new(
        client: Client,
        second: Client,
        world: World,
        scenario: Scenario,
        shared: Arc<Shared>,
    ) -> Self {
        let (claims, receipts, seen) = (Vec::new(), Vec::new(), Vec::new());
        Self { client, second, world, scenario, shared, claims, receipts, seen }
    }

    pub(super) async fn run(mut self) {
        for _ in 0..self.scenario.steps {
            let pause = self.world.below(self.scenario.pause_millis + 1);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            while self.shared.breaks.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(BREAK_TICK).await;
            }
            self.step().await;
        }
    }

    async fn step(&mut self) {
        if self.exchanges_pools() && self.world.below(12) == 0 {
            self.exchange_pool().await;
            return;
        }
        if self.scenario.verbs.has(Verb::Subscriptions) && self.world.below(3) == 0 {
            return self.use_subscription().await;
        }
        if self.scenario.verbs.has(Verb::Races) && self.world.below(5) == 0 {
            return self.race().await;
        }
        if self.scenario.is_calm && self.world.below(40) == 0 {
            return self.leave_claim().await;
        }
        if self.scenario.verbs.has(Verb::OwnQueues) && self.world.below(8) == 0 {
            return self.use_own_queue().await;
        }
        if self.scenario.verbs.has(Verb::Quotas) && self.world.below(20) == 0 {
            return self.change_quota();
        }
        if self.scenario.verbs.has(Verb::SqsFifo) && self.world.below(4) == 0 {
            return self.use_fifo_of_sqs().await;
        }
        if self.scenario.verbs.has(Verb::SubscriptionChanges) && self.world.below(6) == 0 {
            return self.use_changing().await;
        }
        if self.scenario.verbs.has(Verb::Circles) && self.world.below(8) == 0 {
            return self.use_circle().await;
        }
        if self.scenario.verbs.has(Verb::Requeues) && self.world.below(8) == 0 {
            return self.requeue_seen().await;
        }
        let queue = self.pick(self.scenario.queues);
        if self.hold_or_release(queue).await {
            return;
        }
        let is_sqs = self.scenario.verbs.has(Verb::Sqs) && !is_fifo(queue);
        match self.world.below(100) {
            0..=33 if is_sqs && self.world.below(2) == 0 => self.send_message(queue).await,
            0..=33 => self.post(queue).await,
            34..=57 if is_sqs && self.world.below(2) == 0 => self.receive(queue).await,
            34..=57 if self.scenario.verbs.has(Verb::Pops) && self.world.below(4) == 0 => {
                self.client.pop(queue, 1 + self.world.below(4)).await;
            }
            34..=57 => self.claim(queue).await,
            58..=75 if !self.receipts.is_empty() && self.world.below(2) == 0 => self.use_receipt().await,
            58..=75 if self.scenario.verbs.has(Verb::Settles) && self.world.below(2) == 0 => {
                self.settle().await
            }
            58..=75 => self.delete_held().await,
            76..=80 => self.delete_claim().await,
            81..=86 => self.release().await,
            87..=91 => self.renew().await,
            92..=94 => self.delete_seen().await,
            95 => drop(self.client.send(&ApiRequest::stats(&queue_name(queue))).await),
            _ => self.administer(queue).await,
        }
    }

    /// Moves, purges or deletes a queue, or drains or weighs a pool, if the scenario has that.
    async fn administer(&self, queue: usize) {
        let (name, verbs) = (queue_name(queue), &self.scenario.verbs);
        let pool = self.pick(self.scenario.cluster.pools.len());
        let request = match self.world.below(7) {
            0 | 1 if verbs.has(Verb::Migrations) => return self.client.migrate(queue, pool).await,
            2 if verbs.has(Verb::Migrations) => ApiRequest::cancel_migration(&name),
            2 if verbs.has(Verb::Purges) => {
                self.client.remove_all(queue, &ApiRequest::purge(&name)).await;
                return;
            }
            3 if verbs.has(Verb::QueueDeletions) && !is_fifo(queue) && !verbs.has(Verb::DeadLetters) => {
                return self.client.delete_queue(queue).await;
            }
            4 if verbs.has(Verb::Pools) => return self.client.drain_pool(pool).await,
            5 if verbs.has(Verb::Pools) => ApiRequest::end_drain(&pool_name(pool)),
            6 if verbs.has(Verb::Pools) => ApiRequest::weigh_pool(&pool_name(pool), 5 * self.world.below(3)),
            _ => ApiRequest::stats(&name),
        };
        self.client.send(&request).await;
    }

    fn exchanges_pools(&self) -> bool {
        let verbs = &self.scenario.verbs;
        verbs.has(Verb::PoolDeletions) || verbs.has(Verb::PoolRemovals)
    }

    /// Deletes or removes a pool, or adds it again.
    async fn exchange_pool(&self) {
        let (pools, verbs) = (&self.scenario.cluster.pools, &self.scenario.verbs);
        // The first pool of an embedded store is in the store of the tree.
        let first = usize::from(self.scenario.cluster.is_embedded);
        let index = first + self.pick(pools.len() - first);
        match self.world.below(4) {
            0 if verbs.has(Verb::PoolRemovals) => {
                self.client.remove_pool(index, self.scenario.queues).await;
            }
            1 if verbs.has(Verb::PoolDeletions) => self.client.drain_pool(index).await,
            2 if verbs.has(Verb::PoolDeletions) => self.client.delete_pool(index).await,
            _ => {
                drop(self.client.send(&ApiRequest::put_pool(&pool_name(index), &pools[index])).await);
            }
        }
    }

    pub(super) fn pick(&self, count: usize) -> usize {
        let bound = u64::try_from(count.max(1)).unwrap_or(1);
        usize::try_from(self.world.below(bound)).unwrap_or(0)
    }

    pub(super) fn next_number(&self) -> u64 {
        self.shared.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Mostly no delay, and else at most 30 seconds.
    pub(super) fn some_delay(&self) -> u64 {
        if self.world.below(10) == 0 { 1 + self.world.below(30) } else { 0 }
    }

    /// Returns how long a message is kept when it is done.
    pub(super) fn keep_of(&self, number: u64) -> u64 {
        if is_kept(&self.scenario.verbs, number) { KEEP } else { 0 }
    }

    /// Returns a message that can be claimed at once.
    pub(super) fn some_posting(&self, queue: usize) -> Posting {
        let (number, group, has_dedup_id) = (self.next_number(), self.group_of(queue), is_fifo(queue));
        Posting { number, group, has_dedup_id, delay: 0, ttl: None, keep: self.keep_of(number) }
    }

    pub(super) async fn post(&self, queue: usize) {
        let verbs = &self.scenario.verbs;
        let count = 1 + self.world.below(POST_MESSAGES);
        // The messages of one post to a group are one after the other.
        let (group, delay) = (self.group_of(queue), self.some_delay());
        let is_short = verbs.has(Verb::ShortLives) && self.world.below(3) == 0;
        let ttl = is_short.then(|| 60 + self.world.below(61));
        let posting = |_| {
            let number = self.next_number();
            let (group, keep) = (group.clone(), self.keep_of(number));
            Posting { number, group, has_dedup_id: is_fifo(queue), delay, ttl, keep }
        };
        let postings: Vec<Posting> = (0..count).map(posting).collect();
        if is_fifo(queue) && verbs.has(Verb::Duplicates) && self.world.below(3) == 0 {
            let pause = Duration::from_millis(self.world.below(2) * self.world.below(500));
            let repeat = async {
                tokio::time::sleep(pause).await;
                self.second.post(queue, &postings).await
            };
            futures_util::future::join(self.client.post(queue, &postings), repeat).await;
            return;
        }
        // In a FIFO queue the deduplication id makes a repeated post safe while it is remembered: also the last attempt
        // must not be carried out later than five minutes after the first.
        let end = self.world.elapsed() + REPEATABLE;
        let mut tries = if is_fifo(queue) { 3 } else { 1 };
        while self.client.post(queue, &postings).await == Certainty::Unknown && tries > 1 {
            tries -= 1;
            tokio::time::sleep(Duration::from_millis(self.world.below(3_000))).await;
            if self.world.elapsed() > end {
                return;
            }
        }
    }

    pub(super) async fn claim(&mut self, queue: usize) {
        let ttl = CLAIM_TTLS[self.pick(CLAIM_TTLS.len())];
        let wait = if self.world.below(4) == 0 { 1 + self.world.below(20) } else { 0 };
        let limit = 1 + self.world.below(6);
        let is_awaited = wait > 0 && self.scenario.verbs.has(Verb::AwaitedPosts) && self.world.below(2) == 0;
        let claim = if is_awaited {
            self.claim_and_post(queue, limit, ttl, wait).await
        } else {
            self.client.claim(queue, limit, ttl, wait).await
        };
        if let Some(claim) = claim {
            self.keep_claim(queue, claim);
        }
    }

    /// Posts a message in the first half of the wait of a claim.
    async fn claim_and_post(&self, queue: usize, limit: u64, ttl: u64, wait: u64) -> Option<HeldClaim> {
        let (pause, posting) =
            (Duration::from_millis(self.world.below(wait * 400)), self.some_posting(queue));
        let post = async {
            tokio::time::sleep(pause).await;
            self.second.post(queue, &[posting]).await
        };
        futures_util::future::join(self.client.claim(queue, limit, ttl, wait), post).await.0
    }

    /// Remembers a claim that got messages.
    pub(super) fn keep_claim(&mut self, queue: usize, claim: HeldClaim) {
        if !claim.messages.is_empty() {
            self.seen.extend(claim.messages.iter().map(|message| (queue, message.clone())));
            self.claims.push((queue, claim));
        }
    }

    /// Deletes the first message of a claim, under the claim.
    async fn delete_held(&mut self) {
        let index = self.pick(self.claims.len());
        let Some((queue, claim)) = self.claims.get_mut(index) else { return };
        let (queue, id, message) = (*queue, claim.id.clone(), claim.messages.remove(0));
        if claim.messages.is_empty() {
            self.claims.remove(index);
        }
        self.client.delete(queue, &message, Some(&id)).await;
    }

    /// Deletes all messages of a claim that are left.
    async fn delete_claim(&mut self) {
        if self.claims.is_empty() {
            return;
        }
        let (queue, claim) = self.claims.remove(self.pick(self.claims.len()));
        self.client.delete_each(queue, &claim.messages, &claim.id).await;
    }

    /// Deletes a message that this client has held at some time, without its claim.
    async fn delete_seen(&self) {
        let Some((queue, message)) = self.seen.get(self.pick(self.seen.len())) else { return };
        self.client.delete(*queue, message, None).await;
    }

    /// Requeues a message that this client has held at some time: it is kept, has been released or is gone. Or moves dead
    /// letters back.
    async fn requeue_seen(&self) {
        if self.scenario.verbs.has(Verb::DeadLetters) && self.world.below(3) == 0 {
            return self.client.redrive(self.pick(self.scenario.queues)).await;
        }
        // The latest ones are there rather than others.
        let latest = self.seen.len().saturating_sub(1 + self.pick(8));
        let place = if self.world.below(2) == 0 { latest } else { self.pick(self.seen.len()) };
        let Some((queue, message)) = self.seen.get(place) else { return };
        self.client.requeue(*queue, message, self.world.below(2) * self.some_delay()).await;
    }

    async fn release(&mut self) {
        if self.claims.is_empty() {
            return;
        }
        let (queue, claim) = self.claims.remove(self.pick(self.claims.len()));
        let is_later = self.scenario.verbs.has(Verb::LaterReleases) && self.world.below(2) == 0;
        let delay = if is_later { 1 + self.world.below(40) } else { 0 };
        self.client.release(queue, &claim.id, delay).await;
    }

    async fn renew(&self) {
        let Some((queue, claim)) = self.claims.get(self.pick(self.claims.len())) else { return };
        let ttl = CLAIM_TTLS[self.pick(CLAIM_TTLS.len())];
        self.client.renew(*queue, &claim.id, ttl).await;
    }
}
