//! Random histories of two queues, one of which takes the dead letters of the other: crashes between any two steps,
//! deletions of the target at any time, and consumers that delete received messages. They are checked against naive
//! sets of ids.

use std::collections::BTreeSet;
use std::time::Duration;

use angarium_core::ids::MessageId;
use angarium_storage::PoolReads;
use angarium_storage::embedded::EmbeddedPool;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::deadletters::{FOR_EVER, Lives, ONCE};
use super::faulty::{Fault, Plan};
use super::transfers::{id_of, until};
use super::{Whole, limit, metadata, queue, terms};
use angarium_testbed::settings;

/// Two queues through many lives of their broker.
struct History {
    lives: Lives,
    now: Whole,
    plan: Plan,
    /// Messages that must arrive in the end.
    kept: BTreeSet<MessageId>,
    /// Messages whose deletion was acknowledged: they may never be seen again.
    gone: BTreeSet<MessageId>,
}

impl History {
    async fn begin() -> Self {
        let lives = Lives::new();
        let (now, plan) = lives.whole().await;
        now.broker.queue_create(&queue("q"), metadata(ONCE)).await.unwrap();
        Self { lives, now, plan, kept: BTreeSet::new(), gone: BTreeSet::new() }
    }

    async fn post(&mut self, count: usize) {
        self.kept.extend(self.now.post(&queue("q"), count, 1_209_600).await);
    }

    /// Claims the messages of `q` and releases them: after the second time each message is a dead letter.
    async fn attempt(&self) {
        let claim = self.now.broker.claim_create(&queue("q"), terms(300), limit(20)).await;
        if let Ok(Some((view, mut delivery_guard))) = claim {
            delivery_guard.done();
            // A broker that is about to crash may fail to release: then the claim exists after the crash.
            drop(self.now.broker.claim_release(&queue("q"), view.id).await);
        }
    }

    /// Deletes messages that have arrived in `dead`.
    async fn consume(&mut self) {
        let claim = self.now.broker.claim_create(&queue("dead"), terms(300), limit(20)).await;
        let Ok(Some((view, mut delivery_guard))) = claim else { return };
        delivery_guard.done();
        for message in &view.messages {
            assert!(!self.gone.contains(&message.id), "{} is back", message.id);
            let deleted = self.now.broker.message_delete(&queue("dead"), message.id, Some(view.id)).await;
            self.kept.remove(&message.id);
            if deleted.is_ok() {
                self.gone.insert(message.id);
            }
        }
    }

    /// Deletes `dead` while messages are transferred there. Messages that the source no longer has at the answer may
    /// have been deleted with it.
    async fn delete(&mut self, pause: Duration) {
        let source = id_of(&self.lives.catalogue(), "q").await.unwrap();
        let ids: Vec<MessageId> = self.kept.iter().copied().collect();
        let deletion = async {
            tokio::time::sleep(pause).await;
            let deleted = self.now.broker.queue_delete(&queue("dead")).await;
            if deleted.is_err_and(|error| error.nothing_written()) {
                return None;
            }
            let found = EmbeddedPool::new(self.lives.journal.clone()).get(source, &ids).await.unwrap();
            Some(found.into_iter().map(|message| message.header.id).collect())
        };
        let moves = async {
            self.attempt().await;
            self.attempt().await;
        };
        let (kept, ()) = tokio::join!(deletion, moves);
        self.kept = kept.unwrap_or_else(|| std::mem::take(&mut self.kept));
    }

    /// After this number of batches no write succeeds any more; then the broker is restarted.
    async fn crash(&mut self, batches: usize) {
        self.plan.next(&vec![Fault::NotSent; FOR_EVER]);
        self.plan.skip(batches);
        self.attempt().await;
        self.attempt().await;
        self.consume().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.now.broker.stop().await;
        (self.now, self.plan) = self.lives.whole().await;
        // Claims from before the crash have expired.
        self.now.clock.advance(302_000);
    }

    /// Waits until every message has arrived.
    async fn end(mut self) {
        let mut left = self.kept.len();
        until("a message is lost", async || {
            self.attempt().await;
            self.consume().await;
            left = left.min(self.kept.len());
            left == 0
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_transfers_with_crashes_lose_and_revive_nothing() {
    let mut dice = StdRng::seed_from_u64(settings::seed("moves"));
    for _ in 0..settings::number("ANGARIUM_MOVE_HISTORIES", 4) {
        let mut history = History::begin().await;
        for _ in 0..20 {
            match dice.random_range(0..11) {
                0..3 => history.post(dice.random_range(1..4)).await,
                3..6 => history.attempt().await,
                6..8 => history.consume().await,
                8..10 => history.delete(Duration::from_micros(dice.random_range(0..20_000))).await,
                _ => history.crash(dice.random_range(0..9)).await,
            }
        }
        history.end().await;
    }
}
