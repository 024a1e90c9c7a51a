//! Races: requests about one message that meet while the message changes, and faults just then; and the restart of a
//! replica that cannot tell at once that it runs.

use std::time::Duration;

use super::CLAIM_TTLS;
use super::worker::Worker;
use crate::faults::Fault;
use crate::history::{Certainty, HeldClaim};
use crate::requests::Posting;

/// The time to live of a message whose life a claim extends, in seconds.
const SHORT_LIFE: u64 = 60;

/// After this time such a message has expired in its pool: tree time may run slower by a tenth.
const EXPIRED: Duration = Duration::from_secs(75);

/// The time for which that claim lives, in seconds.
const LONG_CLAIM: u64 = 200;

/// How long a client waits until a sweep reads the message: each slot is swept every 30 seconds.
const SWEPT: Duration = Duration::from_secs(40);

/// How often it looks.
const SWEPT_TICK: Duration = Duration::from_millis(50);

/// For so many seconds the message cannot be claimed after its release. Until then it is looked for.
const PUT_OFF: u64 = 30;

/// After this time a late answer of a pool has arrived, and what follows from it is written.
const ANSWERED: Duration = Duration::from_secs(8);

/// A batch has certainly failed after this time without a server of its pool.
const FAILED_BATCH: u64 = 640;

/// The pause after a claim without messages. A queue that does not exist has none at once.
const CLAIM_PAUSE: Duration = Duration::from_millis(50);

/// How long the tree refuses commits.
const REFUSED: Duration = Duration::from_millis(500);

impl Worker {
    /// Makes requests about the messages of a claim that meet in one of the steps of a change.
    pub(super) async fn race(&mut self) {
        match self.world.below(8) {
            0 | 1 => self.delete_waking().await,
            2 | 3 => self.recall_returning().await,
            4 | 5 => self.delete_after_failed_release().await,
            // After a step of the clock a claim may end early, and with it the life of its message. No process may end.
            _ if self.scenario.rates.of(Fault::TreeClockStepped) > 0 => {}
            6 => self.release_swept().await,
            _ if self.scenario.cluster.is_embedded => {}
            _ => self.client.restart_refused(),
        }
    }

    fn take_claim(&mut self) -> Option<(usize, HeldClaim)> {
        if self.claims.is_empty() {
            return None;
        }
        let index = self.pick(self.claims.len());
        Some(self.claims.remove(index))
    }

    /// Gives messages back with a delay, and deletes them while they become ready and a claim waits for them.
    async fn delete_waking(&mut self) {
        let Some((queue, claim)) = self.take_claim() else { return };
        let delay = 1 + self.world.below(4);
        self.client.release(queue, &claim.id, delay).await;
        let (client, due) = (&self.client, self.world.elapsed() + Duration::from_secs(delay));
        let deletes = claim.messages.iter().map(|message| {
            let pause = Duration::from_millis(1_000 * delay + self.world.below(400));
            async move {
                tokio::time::sleep(pause).await;
                client.delete(queue, message, None).await
            }
        });
        let deletes = futures_util::future::join_all(deletes);
        let claiming = self.claim_until(queue, due + Duration::from_secs(1));
        let (claims, _) = futures_util::future::join(claiming, deletes).await;
        claims.into_iter().for_each(|claim| self.keep_claim(queue, claim));
    }

    /// Deletes a message under its claim while its pool is down, and releases the claim meanwhile. The delete fails,
    /// and a recall begins before the release is complete.
    async fn recall_returning(&mut self) {
        let Some((queue, claim)) = self.take_claim() else { return };
        let Some(message) = claim.messages.first() else { return };
        let (client, second, began) = (&self.client, &self.second, self.world.elapsed());
        let down = FAILED_BATCH + 100 + self.world.below(450);
        let until_release = Duration::from_millis(20 + self.world.below(400));
        let until_recall = Duration::from_millis(FAILED_BATCH + self.world.below(down - FAILED_BATCH + 50));
        client.stop_pools(Duration::from_millis(down));
        let release = async {
            tokio::time::sleep(until_release).await;
            client.release(queue, &claim.id, 0).await;
        };
        let recall = async {
            tokio::time::sleep(until_recall).await;
            second.recall(queue, message).await
        };
        let claiming = self.claim_until(queue, began + Duration::from_millis(down + 500));
        let delete = client.delete(queue, message, Some(&claim.id));
        let (claims, ..) = futures_util::future::join4(claiming, delete, release, recall).await;
        claims.into_iter().for_each(|claim| self.keep_claim(queue, claim));
    }

    /// Claims all that is ready until a time, so that a claim waits when a message becomes ready.
    async fn claim_until(&self, queue: usize, end: Duration) -> Vec<HeldClaim> {
        let mut claims = Vec::new();
        while self.world.elapsed() < end {
            match self.second.claim(queue, 20, CLAIM_TTLS[0], 2).await {
                Some(claim) if !claim.messages.is_empty() => claims.push(claim),
                Some(_) | None => tokio::time::sleep(CLAIM_PAUSE).await,
            }
        }
        claims
    }

    /// Gives messages back with a delay while the tree refuses that, and deletes them under their claim, which may live
    /// on.
    async fn delete_after_failed_release(&mut self) {
        let Some((queue, claim)) = self.take_claim() else { return };
        self.client.refuse_commits(REFUSED);
        self.client.release(queue, &claim.id, 1 + self.world.below(40)).await;
        for message in &claim.messages {
            self.client.delete(queue, message, Some(&claim.id)).await;
        }
    }

    /// Posts a message with a short life, and holds it beyond that. Gives it back with a delay while a sweep has read
    /// it as expired. It must be there after the sweep: the claim has extended its life.
    async fn release_swept(&mut self) {
        let queue = self.pick(self.scenario.queues);
        let posting = Posting { ttl: Some(SHORT_LIFE), ..self.some_posting(queue) };
        let number = posting.number;
        if self.client.post(queue, &[posting]).await != Certainty::Done {
            return;
        }
        let posted = self.world.elapsed();
        let Some(claim) = self.client.claim(queue, 6, LONG_CLAIM, 0).await else { return };
        let Some(message) = claim.messages.iter().find(|message| message.number == number).cloned() else {
            return self.keep_claim(queue, claim);
        };
        tokio::time::sleep((posted + EXPIRED).saturating_sub(self.world.elapsed())).await;
        let end = self.world.elapsed() + SWEPT;
        while !self.client.is_in_late_answer(&message) {
            if self.world.elapsed() > end {
                return self.keep_claim(queue, claim);
            }
            tokio::time::sleep(SWEPT_TICK).await;
        }
        self.client.release(queue, &claim.id, PUT_OFF).await;
        tokio::time::sleep(ANSWERED).await;
        self.client.check_alive(queue, &message, &claim.id, LONG_CLAIM).await;
    }
}
