//! Probes: once all queues are empty and no fault happens by itself, one request meets one planned fault. So an answer
//! can be judged that a fault at some other time would explain.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{RECOVERY, Workload};
use crate::client::{Client, PlannedEntry, pool_name, queue_name};
use crate::faults::Fault;
use crate::history::{
    Certainty, Effect, HeldClaim, HeldMessage, SUBSCRIPTIONS, SubscriptionTerms, number_in,
};
use crate::pool::{PostPlan, SlowCall};
use crate::requests::{ApiRequest, Outcome, Posting, SettleEntry, Verdict};
use crate::scenario::Verb;

/// Number of probes of a run.
const PROBES: usize = 3;

/// The standard queue, which each run has.
const STANDARD: usize = 0;

/// The FIFO queue, if the run has two queues.
const FIFO: usize = 1;

/// Max subscriptions of a run after which another one is made.
const MAX_SUBSCRIPTIONS: usize = 15;

/// After this time without a heartbeat a replica has lost its slots to others.
const REPLACED: Duration = Duration::from_secs(13);

/// How long a replica is stopped.
const STOPPED: Duration = Duration::from_secs(20);

/// After this time a transfer that has failed has been tried again twice: the pauses are at most half a minute.
const MOVED: Duration = Duration::from_secs(70);

/// For this time the removal of a transfer is refused. All of its attempts end before.
const REFUSED: Duration = Duration::from_secs(4);

/// How much longer the reads of a transfer take, so that it removes nothing after it was refused.
const SLOW_TRANSFER: Duration = Duration::from_secs(9);

/// How much longer a slow call takes.
const SLOW: Duration = Duration::from_secs(3);

/// After this time a migration of some messages has ended, or has looked again for what is left.
const COPIED: Duration = Duration::from_secs(12);

/// A batch has been sent for the last time after this time without an answer.
const GIVEN_UP: Duration = Duration::from_millis(1_500);

/// Number of claims until one gets a message.
const CLAIM_TRIES: usize = 10;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn planned(message: HeldMessage, verdict: Verdict, effect: Effect) -> PlannedEntry {
    let HeldMessage { number, id, .. } = message;
    let entry = SettleEntry { id, number, is_kept: false, verdict, forwards: Vec::new() };
    PlannedEntry { entry, effect, targets: Vec::new() }
}

/// Two clients of a probe.
struct Probe {
    first: Client,
    second: Client,
}

impl Workload {
    /// Makes some probes. The queues are empty before and after each. Subscriptions end before: they would get copies.
    /// In half of the runs with subscriptions there are no probes, and these stay to the end.
    pub async fn run_probes(&self) {
        if self.scenario.verbs.has(Verb::Subscriptions) {
            if self.world().below(2) == 0 {
                return;
            }
            let client = self.client("operator".into());
            for subscription in 0..client.readers().0 {
                client.unsubscribe(subscription).await;
            }
        }
        for _ in 0..PROBES {
            let probe =
                Probe { first: self.client("probe".into()), second: self.client("second probe".into()) };
            let from = self.shared.numbers.load(Ordering::Relaxed);
            self.run_probe(&probe).await;
            probe.first.end_plans();
            self.await_whole().await;
            for queue in 0..self.scenario.queues.min(2) {
                self.empty_queue(&probe.first, queue).await;
            }
            let to = self.shared.numbers.load(Ordering::Relaxed);
            (from..to).for_each(|number| self.history.lock().check_found(number));
        }
    }

    async fn run_probe(&self, probe: &Probe) {
        let has_fifo = self.scenario.queues > FIFO;
        // The end of a process may undo a post to a relaxed queue.
        let is_relaxed = self.scenario.verbs.has(Verb::Relaxed);
        // After a step of the clock no replica may be left with the time from before, and none may end.
        let is_steady = self.scenario.rates.of(Fault::TreeClockStepped) == 0;
        match self.world().below(13) {
            0 => self.post_in_doubt_beside_full(probe).await,
            1 => self.delete_beside_full(probe).await,
            2 if has_fifo => self.post_twice_while_down(probe).await,
            3 if has_fifo && is_steady => self.repeat_late(probe).await,
            4 if has_fifo && is_steady && !is_relaxed => self.post_beside_purge(probe).await,
            5 if is_steady => self.post_across_fence(probe).await,
            6 => self.wait_across_recovery(probe).await,
            7 => self.delete_beside_fill(probe).await,
            8 => self.delete_beside_copy(probe).await,
            9 if is_steady => self.crash_beside_copy(probe).await,
            10 if has_fifo => self.move_beside_refusal(probe).await,
            11 if has_fifo => self.delete_in_transfer(probe).await,
            _ => self.post_beside_migration(probe).await,
        }
    }

    async fn await_whole(&self) {
        let end = self.world().elapsed() + RECOVERY;
        while !self.cluster.is_whole() && self.world().elapsed() < end {
            tokio::time::sleep(millis(500)).await;
        }
    }

    fn posting(&self, queue: usize) -> Posting {
        let number = self.next_number();
        let is_fifo = super::is_fifo(queue);
        let group = is_fifo.then(|| "g0".to_owned());
        Posting { number, group, has_dedup_id: is_fifo, delay: 0, ttl: None, keep: 0 }
    }

    /// Posts a message. Returns its id if it is stored.
    async fn post(&self, client: &Client, queue: usize, posting: &Posting) -> Option<String> {
        let replica = self.cluster.size() - 1;
        let (posted, ids) = client.post_for_ids(replica, queue, std::slice::from_ref(posting)).await;
        ids.into_iter().next().filter(|_| posted == Certainty::Done)
    }

    /// Posts messages to the standard queue. Returns those that are stored.
    async fn post_some(&self, client: &Client, count: usize) -> Vec<HeldMessage> {
        let mut stored = Vec::new();
        for _ in 0..count {
            let posting = self.posting(STANDARD);
            if let Some(id) = self.post(client, STANDARD, &posting).await {
                stored.push(HeldMessage { number: posting.number, id, attempts: None });
            }
        }
        stored
    }

    /// Claims what a queue has, at least one message.
    async fn claim_some(&self, client: &Client, queue: usize) -> Option<HeldClaim> {
        for _ in 0..CLAIM_TRIES {
            match client.claim(queue, 20, 300, 0).await {
                Some(claim) if !claim.messages.is_empty() => return Some(claim),
                Some(_) | None => tokio::time::sleep(Duration::from_secs(2)).await,
            }
        }
        None
    }

    /// Returns a pool to which the standard queue can move from the simulated pool that it is in.
    fn other_pool(&self) -> Option<usize> {
        let (places, count) = (self.cluster.placements(), self.scenario.cluster.pools.len());
        let [pool] = places.get(&queue_name(STANDARD))?.as_slice() else { return None };
        let own = (0..count).find(|index| pool_name(*index) == *pool)?;
        let is_simulated = own > 0 || !self.scenario.cluster.is_embedded;
        (0..count).find(|index| *index != own).filter(|_| is_simulated)
    }
}

/// Pools that are full or down, and batches without an answer.
impl Workload {
    /// Posts a message whose batch is in doubt, and arrives after a repeat that found the pool full. A refusal would
    /// state that the message is never stored.
    async fn post_in_doubt_beside_full(&self, probe: &Probe) {
        probe.first.plan_posts(PostPlan::LateBesideFull(millis(200 + self.world().below(1_000))));
        self.post_some(&probe.first, 1).await;
        tokio::time::sleep(GIVEN_UP).await;
    }

    /// Deletes messages in one batch with posts that the pool has no room for.
    async fn delete_beside_full(&self, probe: &Probe) {
        let stored = self.post_some(&probe.first, 3).await;
        // The next batch waits for this one.
        probe.first.plan_posts(PostPlan::Late(millis(200)));
        let post = self.post_some(&probe.first, 1);
        let others = async {
            tokio::time::sleep(millis(50)).await;
            probe.first.fill_pools(millis(1_000));
            let deletes = stored.iter().map(|message| probe.second.delete(STANDARD, message, None));
            let posts = (0..2).map(|_| self.post_some(&probe.second, 1));
            let deletes = futures_util::future::join_all(deletes);
            futures_util::future::join(futures_util::future::join_all(posts), deletes).await
        };
        futures_util::future::join(post, others).await;
        tokio::time::sleep(millis(1_000)).await;
    }

    /// Posts a message twice with its deduplication id while its pool is down. If one post succeeds, it is stored.
    async fn post_twice_while_down(&self, probe: &Probe) {
        // The queue is open then.
        self.post(&probe.first, FIFO, &self.posting(FIFO)).await;
        let (posting, pause) = (self.posting(FIFO), millis(20 + self.world().below(100)));
        probe.first.stop_pools(millis(900));
        let repeat = async {
            tokio::time::sleep(pause).await;
            self.post(&probe.second, FIFO, &posting).await
        };
        futures_util::future::join(self.post(&probe.first, FIFO, &posting), repeat).await;
    }

    /// Posts a message whose batch is stored and has no answer. Its sender is stopped before it repeats the batch, and
    /// replaced meanwhile.
    async fn post_across_fence(&self, probe: &Probe) {
        if self.cluster.size() < 2 {
            return;
        }
        // The queue is open then.
        self.post_some(&probe.first, 1).await;
        probe.first.plan_posts(PostPlan::Unanswered(millis(300)));
        let postings: Vec<Posting> = (0..self.cluster.size()).map(|_| self.posting(STANDARD)).collect();
        let posts = postings
            .iter()
            .enumerate()
            .map(|(replica, posting)| probe.first.post_at(replica, STANDARD, std::slice::from_ref(posting)));
        let replace = async {
            let Some(replica) = probe.second.unanswered_replica(millis(300)).await else { return };
            probe.second.pause_replica(replica, STOPPED);
            tokio::time::sleep(REPLACED).await;
            // Its next owner opens the queue, and fences the pool.
            let (other, posting) = ((replica + 1) % self.cluster.size(), self.posting(STANDARD));
            probe.second.post_at(other, STANDARD, &[posting]).await;
            tokio::time::sleep(STOPPED - REPLACED).await;
        };
        futures_util::future::join(futures_util::future::join_all(posts), replace).await;
    }

    /// Claims while the slot of the queue is recovered, since a batch has no answer. The claim waits on. With several
    /// replicas the request is made again for another reason too.
    async fn wait_across_recovery(&self, probe: &Probe) {
        if self.cluster.size() > 1 {
            return;
        }
        // The queue is open then, and empty.
        self.post_some(&probe.first, 1).await;
        self.empty_queue(&probe.first, STANDARD).await;
        if self.other_pool().is_none() {
            return;
        }
        probe.first.plan_posts(PostPlan::Unanswered(GIVEN_UP));
        let post = async {
            tokio::time::sleep(millis(100)).await;
            self.post_some(&probe.second, 1).await
        };
        let claim = probe.first.claim(STANDARD, 5, 300, 15);
        match futures_util::future::join(claim, post).await.0 {
            None => {
                self.history.lock().violation("a claim did not wait on while its slot was recovered".into())
            }
            Some(claim) => {
                for message in &claim.messages {
                    self.delete_for_sure(&probe.first, STANDARD, message, &claim.id).await;
                }
            }
        }
    }
}

/// Deduplication ids.
impl Workload {
    /// Repeats a post a minute later. Its deduplication id is remembered for five.
    async fn repeat_late(&self, probe: &Probe) {
        let posting = self.posting(FIFO);
        self.post(&probe.first, FIFO, &posting).await;
        tokio::time::sleep(millis(40_000 + self.world().below(60_000))).await;
        self.post(&probe.second, FIFO, &posting).await;
    }

    /// Purges a queue, which forgets a deduplication id, and posts a message with that id meanwhile. All replicas end.
    /// The next owners know the id.
    async fn post_beside_purge(&self, probe: &Probe) {
        let posting = self.posting(FIFO);
        let Some(before) = self.post(&probe.first, FIFO, &posting).await else { return };
        let began = self.world().elapsed();
        // The purge waits behind this batch, and the second post waits for the purge.
        probe.first.plan_posts(PostPlan::Late(millis(500)));
        let other = self.posting(FIFO);
        let purge = async {
            tokio::time::sleep(millis(60)).await;
            probe.second.remove_all(FIFO, &ApiRequest::purge(&queue_name(FIFO))).await
        };
        let again = async {
            tokio::time::sleep(millis(250)).await;
            self.post(&probe.first, FIFO, &posting).await
        };
        let (purged, again, _) =
            futures_util::future::join3(purge, again, self.post(&probe.second, FIFO, &other)).await;
        // With the same id it was a duplicate still, and its id was forgotten after it.
        let Some(again) = again.filter(|again| purged == Certainty::Done && *again != before) else { return };
        probe.first.end_plans();
        probe.first.end_replicas();
        self.await_whole().await;
        let last = self.post(&probe.first, FIFO, &posting).await;
        // The id expires after five minutes.
        let is_known = self.world().elapsed() < began + Duration::from_secs(200);
        if let Some(last) = last.filter(|last| is_known && *last != again) {
            let text = format!("message {} is stored as {again}, and again as {last}", posting.number);
            self.history.lock().violation(text);
        }
    }
}

/// Copies: of fills, and of migrations.
impl Workload {
    /// Deletes a message while the page with it is read to fill a subscription. No copy is made after that.
    async fn delete_beside_fill(&self, probe: &Probe) {
        let (client, subscription) = (&probe.first, probe.first.readers().0);
        if subscription >= MAX_SUBSCRIPTIONS {
            return;
        }
        let stored = self.post_some(client, 1).await;
        let Some(message) = stored.first() else { return };
        client.slow_pools(SlowCall::Scan, SLOW);
        let terms = SubscriptionTerms {
            source: STANDARD,
            is_sent_on: false,
            filter: None,
            is_from_oldest: true,
            bound: None,
            ttl: None,
        };
        client.subscribe(terms).await;
        tokio::time::sleep(millis(500)).await;
        let deleted = probe.second.delete(STANDARD, message, None).await;
        // A copy that was submitted before the answer is stored, and counted.
        tokio::time::sleep(millis(1_000)).await;
        let reader = SUBSCRIPTIONS + subscription;
        let counted = client.send(&ApiRequest::stats(&client.address(reader))).await;
        let is_empty = matches!(&counted, Outcome::Done(body) if body["messages"]["total"] == 0);
        client.end_plans();
        tokio::time::sleep(2 * SLOW).await;
        if let Some(claim) = client.claim(reader, 20, 300, 0).await {
            let copy = number_in(reader, message.number);
            let is_copied = claim.messages.iter().any(|held| held.number == copy);
            if is_copied && is_empty && deleted == Certainty::Done {
                let text = format!("message {} was copied after its delete", message.number);
                self.history.lock().violation(text);
            }
        }
        client.unsubscribe(subscription).await;
    }

    /// Deletes a message while a migration reads it. The judge of deletes sees a copy of it.
    async fn delete_beside_copy(&self, probe: &Probe) {
        let stored = self.post_some(&probe.first, 2).await;
        let (Some(pool), Some(message)) = (self.other_pool(), stored.first()) else { return };
        probe.first.slow_pools(SlowCall::Get, SLOW);
        let delete = async {
            tokio::time::sleep(millis(500 + self.world().below(1_000))).await;
            probe.second.delete(STANDARD, message, None).await
        };
        futures_util::future::join(probe.first.migrate(STANDARD, pool), delete).await;
        tokio::time::sleep(2 * SLOW).await;
        probe.first.end_plans();
        tokio::time::sleep(COPIED).await;
    }

    /// Ends all replicas while messages are in both pools of their queue, and settles the messages then. The judge of
    /// settles sees the copies that stay.
    async fn crash_beside_copy(&self, probe: &Probe) {
        self.post_some(&probe.first, 3).await;
        let Some(pool) = self.other_pool() else { return };
        probe.first.slow_pools(SlowCall::Removal, SLOW);
        probe.first.migrate(STANDARD, pool).await;
        tokio::time::sleep(millis(500 + self.world().below(1_500))).await;
        probe.first.end_replicas();
        probe.first.end_plans();
        self.await_whole().await;
        let Some(claim) = self.claim_some(&probe.first, STANDARD).await else { return };
        let plan = |message| planned(message, Verdict::Done, Effect::Removed);
        let planned = claim.messages.into_iter().map(plan).collect();
        probe.first.settle(STANDARD, &claim.id, planned).await;
        tokio::time::sleep(COPIED).await;
    }

    /// Begins to move an empty queue while the batch of a post is on its way to the pool that the queue leaves. A
    /// message of a post that is done is there.
    async fn post_beside_migration(&self, probe: &Probe) {
        self.post_some(&probe.first, 1).await;
        self.empty_queue(&probe.first, STANDARD).await;
        let Some(pool) = self.other_pool() else { return };
        probe.first.plan_posts(PostPlan::Late(SLOW));
        let migrate = async {
            tokio::time::sleep(millis(100 + self.world().below(400))).await;
            probe.second.migrate(STANDARD, pool).await;
        };
        futures_util::future::join(self.post_some(&probe.first, 1), migrate).await;
        tokio::time::sleep(COPIED).await;
    }
}

/// Transfers to another queue.
impl Workload {
    /// Claims a message, and moves it to the FIFO queue while no message can be removed. Returns it, if the settle was
    /// answered at once.
    async fn move_one(&self, probe: &Probe, refused: Duration) -> Option<HeldMessage> {
        // An embedded pool refuses nothing by plan.
        self.other_pool()?;
        self.post_some(&probe.first, 1).await;
        let claim = self.claim_some(&probe.first, STANDARD).await?;
        let began = self.world().elapsed();
        probe.first.refuse_removals(refused);
        let plan = |message| planned(message, Verdict::Move(queue_name(FIFO)), Effect::Moved(FIFO));
        let message = claim.messages.first().cloned();
        probe.first.settle(STANDARD, &claim.id, claim.messages.into_iter().map(plan).collect()).await;
        message.filter(|_| self.world().elapsed() < began + millis(500))
    }

    /// Moves a message that cannot be removed at its source at first. The target waits with it. The judge of deletes
    /// sees one that arrives again.
    async fn move_beside_refusal(&self, probe: &Probe) {
        if self.move_one(probe, millis(1_000)).await.is_none() {
            return;
        }
        tokio::time::sleep(millis(1_500)).await;
        let Some(claim) = self.claim_some(&probe.first, FIFO).await else { return };
        for message in &claim.messages {
            self.delete_for_sure(&probe.first, FIFO, message, &claim.id).await;
        }
        tokio::time::sleep(MOVED).await;
    }

    /// Deletes a message that is in transfer to another queue. That is refused: the other queue may have it.
    async fn delete_in_transfer(&self, probe: &Probe) {
        let Some(message) = self.move_one(probe, REFUSED).await else { return };
        tokio::time::sleep(millis(200)).await;
        probe.first.slow_pools(SlowCall::Get, SLOW_TRANSFER);
        tokio::time::sleep(REFUSED).await;
        let sent = self.world().elapsed();
        let deleted = probe.second.delete(STANDARD, &message, None).await;
        let answered = self.world().elapsed();
        // The transfer continues when its read is answered. A look-up in the pool for the delete takes as long.
        let is_in_transfer = answered < sent + millis(1_000);
        if is_in_transfer && deleted == Certainty::Done {
            let text = format!("message {} was deleted in transfer", message.number);
            self.history.lock().violation(text);
        }
        probe.first.end_plans();
        tokio::time::sleep(MOVED).await;
    }
}
