//! Queues that one client uses alone. It knows all that may have happened to their messages, so a single answer can be
//! judged, also beside faults.

use std::collections::BTreeSet;
use std::time::Duration;

use super::worker::Worker;
use super::{RECOVERY, Workload};
use crate::client::OwnClaim;
use crate::faults::Fault;
use crate::history::{Certainty, HeldClaim, HeldMessage};
use crate::requests::Posting;

/// The end of the name of a FIFO queue.
const FIFO: &str = ".fifo";

/// The time for which claims live that shall outlive all that follows, in seconds.
const LONG_CLAIM: u64 = 200;

/// The time to live of a message whose life a claim extends, in seconds.
const SHORT_LIFE: u64 = 60;

/// After this time such a message has expired in its pool: tree time may run slower by a tenth.
const EXPIRED: Duration = Duration::from_secs(75);

/// After this time all replicas have started again, and have swept each slot once.
const SWEPT: Duration = Duration::from_secs(45);

/// So long a message certainly lives after the begin of a claim for [`LONG_CLAIM`], by this claim and its grace: tree
/// time may run faster by a tenth.
const EXTENDED: Duration = Duration::from_secs(210);

/// Seconds until messages can be claimed again after a release.
const PUT_OFF: u64 = 40;

/// So long they certainly cannot, after the begin of the release.
const CERTAINLY_PUT_OFF: Duration = Duration::from_secs(30);

/// A claim for [`LONG_CLAIM`] certainly lives for this time after its begin.
const CERTAINLY_HELD: Duration = Duration::from_secs(160);

/// Seconds until delayed messages can be claimed.
const DELAY: u64 = 2;

/// After this time they certainly can.
const DELAYED: Duration = Duration::from_secs(14);

/// How long a message that becomes ready is claimed again and again: the write that removes it may be late.
const WOKEN: Duration = Duration::from_secs(3);

/// After this time without a heartbeat a replica has lost its slots to others.
const REPLACED: Duration = Duration::from_secs(12);

/// How long the tree refuses commits.
const REFUSED: Duration = Duration::from_millis(500);

/// After this time the replicas have shared the slots.
const SHARED: Duration = Duration::from_secs(40);

/// How long commits to the tree wait: longer than a client that leaves, and than the end of its request at the owner.
const LATE_COMMITS: Duration = Duration::from_millis(1_500);

/// After this time without faults a claim whose client has left has been released.
const LEFT: Duration = Duration::from_secs(15);

impl Worker {
    /// Creates a queue, and makes requests there that meet in one of the steps of a change.
    pub(super) async fn use_own_queue(&self) {
        match self.world.below(18) {
            0..=3 => self.delete_in_use().await,
            4 | 5 => self.purge_waking().await,
            6 => self.count_after_failed_release().await,
            7 | 8 => self.delete_own_waking().await,
            // After a step of the clock no replica may be left with the time from before, and none may end. A message may
            // be delayed for longer by another owner.
            _ if self.scenario.rates.of(Fault::TreeClockStepped) > 0 => {}
            9..=13 => self.read_while_waking().await,
            14 => self.end_after_release().await,
            15 => self.sweep_unopened().await,
            _ => self.ask_replaced_owner().await,
        }
    }

    async fn new_own_queue(&self, suffix: &str) -> Option<String> {
        let queue = {
            let mut queues = self.shared.own_queues.lock();
            let queue = format!("x{}{suffix}", queues.len());
            queues.push(queue.clone());
            queue
        };
        self.client.create_own(&queue).await.then_some(queue)
    }

    fn own_posting(&self, queue: &str, delay: u64) -> Posting {
        let is_fifo = queue.ends_with(FIFO);
        let (number, group) = (self.next_number(), is_fifo.then(|| "g0".to_owned()));
        Posting { number, group, has_dedup_id: is_fifo, delay, ttl: None, keep: 0 }
    }

    fn own_postings(&self, queue: &str, count: u64, delay: u64) -> Vec<Posting> {
        (0..count).map(|_| self.own_posting(queue, delay)).collect()
    }

    async fn pause_below(&self, millis: u64) {
        tokio::time::sleep(Duration::from_millis(self.world.below(millis))).await;
    }

    /// Posts messages and claims them for [`LONG_CLAIM`] seconds.
    async fn hold_own(&self, queue: &str, postings: &[Posting]) -> Option<HeldClaim> {
        self.client.post_own(queue, postings).await?;
        match self.client.claim_own(queue, 10, LONG_CLAIM).await {
            OwnClaim::Held(claim) => Some(claim),
            OwnClaim::Empty | OwnClaim::Refused | OwnClaim::Doubtful => None,
        }
    }

    /// Deletes a queue while a message is posted, another one is claimed, and a third one leaves its claim. What these
    /// leave behind is judged at the end of the run.
    async fn delete_in_use(&self) {
        let Some(queue) = self.new_own_queue("").await else { return };
        if self.client.post_own(&queue, &self.own_postings(&queue, 4, 0)).await.is_none() {
            return;
        }
        let receipts = self.client.receive_own(&queue, 3, LONG_CLAIM).await;
        let Some(receipt) = receipts.first() else { return };
        let hide = async {
            self.pause_below(80).await;
            self.client.hide_own(&queue, receipt, LONG_CLAIM).await;
        };
        let post = async {
            self.pause_below(80).await;
            self.second.post_own(&queue, &self.own_postings(&queue, 1, 0)).await
        };
        let claim = async {
            self.pause_below(80).await;
            self.client.claim_own(&queue, 1, LONG_CLAIM).await
        };
        let delete = async {
            self.pause_below(40).await;
            self.second.delete_own(&queue).await
        };
        futures_util::future::join4(hide, post, claim, delete).await;
    }

    /// Purges a queue while delayed messages become ready. All of its messages were posted before.
    async fn purge_waking(&self) {
        let Some(queue) = self.new_own_queue("").await else { return };
        let mut postings = self.own_postings(&queue, 3, 0);
        postings.extend(self.own_postings(&queue, 3, 1));
        if self.client.post_own(&queue, &postings).await.is_none() {
            return;
        }
        self.pause_below(1_050).await;
        if self.client.purge_own(&queue).await != Certainty::Done {
            return;
        }
        for _ in 0..3 {
            if let OwnClaim::Held(claim) = self.client.claim_own(&queue, 10, LONG_CLAIM).await {
                return self.client.report(format!("{queue} was purged, and later delivered {claim:?}"));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Has a page of ready messages read while one of them is deleted, and while a delayed one behind them becomes
    /// ready. Then takes all messages out.
    async fn read_while_waking(&self) {
        // With the usual bounds all messages are in memory, and no page is read.
        let Some(bound) = self.scenario.small_bounds.and_then(|bound| u64::try_from(bound).ok()) else {
            return;
        };
        let Some(queue) = self.new_own_queue("").await else { return };
        let ready = self.own_postings(&queue, bound + 1 + self.world.below(bound), 0);
        let Some(ids) = self.client.post_own(&queue, &ready).await else { return };
        let delayed = self.own_posting(&queue, DELAY);
        let mut missing: BTreeSet<u64> = ready.iter().map(|posting| posting.number).collect();
        missing.insert(delayed.number);
        let (Some(last), Some(last_id)) = (ready.last(), ids.last()) else { return };
        if self.client.post_own(&queue, &[delayed]).await.is_none() {
            return;
        }
        let since = self.world.elapsed() + DELAYED;
        self.pause_below(1_000 * DELAY).await;
        let delete = async {
            self.pause_below(30).await;
            self.second.delete_in_own(&queue, last_id, None).await
        };
        let claim = self.client.claim_own(&queue, bound, LONG_CLAIM);
        let (claim, deleted) = futures_util::future::join(claim, delete).await;
        if deleted != Certainty::NotDone {
            missing.remove(&last.number);
        }
        match claim {
            OwnClaim::Held(claim) => {
                for message in &claim.messages {
                    missing.remove(&message.number);
                }
            }
            OwnClaim::Empty | OwnClaim::Refused => {}
            OwnClaim::Doubtful => return,
        }
        let gone = (deleted == Certainty::Done).then_some(last_id.as_str());
        self.take_all(&queue, missing, gone, since).await;
    }

    /// Claims messages until none is left, which is certain from `since` on. Then none of `missing` may be left. The
    /// message with the id `gone` was deleted before.
    async fn take_all(&self, queue: &str, mut missing: BTreeSet<u64>, gone: Option<&str>, since: Duration) {
        let end = since + CERTAINLY_HELD / 2;
        while self.world.elapsed() < end {
            let began = self.world.elapsed();
            match self.client.claim_own(queue, 10, LONG_CLAIM).await {
                OwnClaim::Held(claim) => {
                    for message in &claim.messages {
                        missing.remove(&message.number);
                        if gone == Some(message.id.as_str()) {
                            self.client.report(format!("{queue} delivered {message:?} after its delete"));
                        }
                    }
                    continue;
                }
                OwnClaim::Empty if began >= since => {
                    if !missing.is_empty() {
                        self.client.report(format!("{queue} has {missing:?}, and a claim got nothing"));
                    }
                    return;
                }
                OwnClaim::Empty | OwnClaim::Refused => {}
                OwnClaim::Doubtful => return,
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Deletes a delayed message while it becomes ready. It is claimed at the same time, and at once deleted under the
    /// claim too.
    async fn delete_own_waking(&self) {
        let Some(queue) = self.new_own_queue("").await else { return };
        let Some(ids) = self.client.post_own(&queue, &self.own_postings(&queue, 1, 1)).await else { return };
        let Some(id) = ids.first() else { return };
        tokio::time::sleep(Duration::from_millis(950)).await;
        let end = self.world.elapsed() + WOKEN;
        let delete = async {
            self.pause_below(150).await;
            self.second.delete_in_own(&queue, id, None).await
        };
        let claim = async {
            while self.world.elapsed() < end {
                if let OwnClaim::Held(claim) = self.client.claim_own(&queue, 1, LONG_CLAIM).await {
                    self.client.delete_in_own(&queue, id, Some(&claim.id)).await;
                    return;
                }
                self.pause_below(60).await;
            }
        };
        let (deleted, ()) = futures_util::future::join(delete, claim).await;
        if deleted == Certainty::Done {
            self.take_all(&queue, BTreeSet::new(), Some(id.as_str()), self.world.elapsed()).await;
        }
    }

    /// Gives messages back with a delay while the tree refuses that. While their claim lives on, they count as claimed.
    async fn count_after_failed_release(&self) {
        // The totals of an embedded pool may be wrong for a while after a crash.
        if self.scenario.cluster.is_embedded {
            return;
        }
        let Some(queue) = self.new_own_queue("").await else { return };
        let Some(claim) = self.hold_own(&queue, &self.own_postings(&queue, 2, 0)).await else { return };
        self.client.refuse_commits(REFUSED);
        if self.client.release_own(&queue, &claim.id, PUT_OFF).await == Certainty::Done {
            return;
        }
        let held = u64::try_from(claim.messages.len()).unwrap_or(0);
        let mut wrong = Vec::new();
        // A release that is late may be in progress at one of them, and has failed by the renewal after it.
        for _ in 0..2 {
            let claimed = self.client.claimed_in_own(&queue).await;
            if !self.client.renew_own(&queue, &claim.id, LONG_CLAIM).await {
                return;
            }
            wrong.extend(claimed.filter(|claimed| *claimed < held));
        }
        if wrong.len() == 2 {
            self.client.report(format!("a claim of {queue} has {held} messages, and it counts {wrong:?}"));
        }
        for message in &claim.messages {
            self.client.delete_in_own(&queue, &message.id, Some(&claim.id)).await;
        }
    }

    /// Gives messages back with a delay, and ends all replicas as soon as that is answered. The next ones must know the
    /// delay.
    async fn end_after_release(&self) {
        let Some(queue) = self.new_own_queue("").await else { return };
        let held = self.world.elapsed();
        let Some(claim) = self.hold_own(&queue, &self.own_postings(&queue, 2, 0)).await else { return };
        let released = self.world.elapsed();
        if self.client.release_own(&queue, &claim.id, PUT_OFF).await != Certainty::Done
            || self.world.elapsed() > held + CERTAINLY_HELD
        {
            return;
        }
        self.client.end_replicas();
        while self.world.elapsed() < released + CERTAINLY_PUT_OFF / 2 {
            // The first claim may have got one of the messages only.
            let is_put_off = |held: &HeldMessage| claim.messages.iter().any(|message| message.id == held.id);
            if let OwnClaim::Held(next) = self.client.claim_own(&queue, 2, LONG_CLAIM).await {
                let is_early = self.world.elapsed() < released + CERTAINLY_PUT_OFF;
                if is_early && next.messages.iter().any(is_put_off) {
                    self.client.report(format!("{queue} delivered {next:?} before its time"));
                }
                return;
            }
            self.pause_below(300).await;
        }
    }

    /// Holds a message beyond its own life while all replicas end, and lets the next ones sweep before the queue is
    /// used again. The claim has extended the life of the message.
    async fn sweep_unopened(&self) {
        let Some(queue) = self.new_own_queue("").await else { return };
        let posting = Posting { ttl: Some(SHORT_LIFE), ..self.own_posting(&queue, 0) };
        let Some(ids) = self.client.post_own(&queue, &[posting]).await else { return };
        let posted = self.world.elapsed();
        let OwnClaim::Held(_) = self.client.claim_own(&queue, 1, LONG_CLAIM).await else { return };
        tokio::time::sleep((posted + EXPIRED).saturating_sub(self.world.elapsed())).await;
        self.client.end_replicas();
        tokio::time::sleep(SWEPT).await;
        for id in &ids {
            let is_gone = self.client.is_gone_from_own(&queue, id).await;
            if is_gone && self.world.elapsed() < posted + EXTENDED {
                self.client.report(format!("{queue} has lost message {id} under its claim"));
            }
        }
    }

    /// Stops the replica that serves a queue until another one does, and changes the queue there. The first one is
    /// asked as soon as it continues: it must not answer from its memory.
    async fn ask_replaced_owner(&self) {
        let suffix = if self.world.below(2) == 0 { FIFO } else { "" };
        let Some(queue) = self.new_own_queue(suffix).await else { return };
        if suffix.is_empty() {
            // One without an answer may be carried out later, and then get the message.
            if matches!(self.client.claim_own(&queue, 1, LONG_CLAIM).await, OwnClaim::Doubtful) {
                return;
            }
        } else if self.client.post_own(&queue, &self.own_postings(&queue, 1, 0)).await.is_none() {
            return;
        }
        let Some(stopped) = self.client.stop_owner(&queue) else { return };
        tokio::time::sleep(REPLACED + Duration::from_millis(self.world.below(6_000))).await;
        let other = self.client.other_replica(stopped.number);
        let resume = async {
            self.pause_below(100).await;
            stopped.resume();
        };
        if suffix.is_empty() {
            let postings = self.own_postings(&queue, 1, 0);
            let is_there = self.client.post_own_at(other, &queue, &postings).await.is_some();
            let claim = self.client.claim_own_at(stopped.number, &queue, 1, LONG_CLAIM);
            let (claim, ()) = futures_util::future::join(claim, resume).await;
            if is_there && matches!(claim, OwnClaim::Empty) {
                self.client.report(format!("{queue} has a message, and a claim got nothing"));
            }
        } else {
            let receipts = self.client.receive_own_at(other, &queue, 1, LONG_CLAIM).await;
            let Some(receipt) = receipts.first() else { return stopped.resume() };
            let delete = self.client.refuses_receipt_at(stopped.number, &queue, receipt);
            let (is_refused, ()) = futures_util::future::join(delete, resume).await;
            if is_refused {
                self.client.report(format!("{queue} refused the receipt of a message that it holds"));
            }
        }
    }
}

impl Worker {
    /// Leaves while the tree has not made a claim yet. Without any fault the message can soon be claimed again.
    pub(super) async fn leave_claim(&self) {
        // The replicas share the slots first. The tree of an embedded store has no commits that wait.
        if self.scenario.cluster.is_embedded || self.world.elapsed() < SHARED {
            return;
        }
        let Some(queue) = self.new_own_queue("").await else { return };
        if self.client.post_own(&queue, &self.own_postings(&queue, 1, 0)).await.is_none() {
            return;
        }
        let owner = self.client.owner_of(&queue);
        let stay = Duration::from_millis(300 + self.world.below(400));
        if !self.client.delay_commits(LATE_COMMITS)
            || !self.client.claim_and_leave(&queue, LONG_CLAIM, stay).await
        {
            return;
        }
        let end = self.world.elapsed() + LEFT;
        while self.world.elapsed() < end {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if let OwnClaim::Held(_) = self.client.claim_own(&queue, 1, LONG_CLAIM).await {
                return;
            }
        }
        // A slot that is handed over just then keeps the claim until it expires.
        if self.client.owner_of(&queue) == owner {
            self.client.report(format!("the message of {queue} stays under a claim whose client has left"));
        }
    }
}

impl Workload {
    /// Deletes the queues that clients have used alone.
    pub async fn delete_own_queues(&self) {
        let client = self.client("operator".into());
        let queues = std::mem::take(&mut *self.shared.own_queues.lock());
        for queue in queues {
            let end = self.world().elapsed() + RECOVERY;
            while !client.delete_own(&queue).await {
                if self.world().elapsed() > end {
                    self.history.lock().violation(format!("{queue} cannot be deleted"));
                    return;
                }
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    }
}
