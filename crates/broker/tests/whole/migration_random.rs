//! Random histories of a queue that migrates back and forth between two pools while it is used, with crashes between
//! any two batches, checked against naive sets of ids.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::names::QueueRef;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};

use super::deadletters::FOR_EVER;
use super::faulty::{Fault, Plan};
use super::migration::{Pools, to};
use super::{Whole, limit, queue, terms};
use angarium_testbed::settings;

/// One queue through many lives of its broker.
struct History {
    pools: Pools,
    now: Whole,
    plan: Plan,
    at: QueueRef,
    /// Messages that must be there.
    kept: BTreeSet<MessageId>,
    /// Messages whose deletion was acknowledged: they may never be seen again.
    gone: BTreeSet<MessageId>,
    /// Live claims and their messages.
    held: BTreeMap<ClaimId, Vec<MessageId>>,
}

impl History {
    async fn begin() -> Self {
        let pools = Pools::new();
        let (now, plan) = pools.start().await;
        let (at, kept, gone, held) = (queue("q"), BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Self { pools, now, plan, at, kept, gone, held }
    }

    async fn post(&mut self, count: usize) {
        self.kept.extend(self.now.post(&self.at, count, 1_209_600).await);
    }

    /// Claims messages, none of which is deleted or under another claim.
    async fn claim(&mut self, messages: i64) {
        let claim = self.now.broker.claim_create(&self.at, terms(43_200), limit(messages)).await;
        let Ok(Some((view, mut delivery_guard))) = claim else { return };
        delivery_guard.done();
        let ids: Vec<MessageId> = view.messages.iter().map(|message| message.id).collect();
        for id in &ids {
            assert!(!self.gone.contains(id), "{id} is back");
            assert!(!self.held.values().flatten().any(|held| held == id), "{id} is claimed twice");
        }
        self.held.insert(view.id, ids);
    }

    async fn delete(&mut self, id: MessageId, claim: Option<ClaimId>) {
        let deleted = self.now.broker.message_delete(&self.at, id, claim).await;
        if deleted.is_ok() {
            self.gone.insert(id);
        }
        if deleted.is_ok() || deleted.is_err_and(|error| !error.nothing_written()) {
            self.kept.remove(&id);
        }
    }

    /// Deletes the messages of a claim.
    async fn finish(&mut self, dice: &mut StdRng) {
        let Some(claim) = self.held.keys().copied().choose(dice) else { return };
        for id in self.held.remove(&claim).unwrap_or_default() {
            self.delete(id, Some(claim)).await;
        }
    }

    /// Deletes a message that is under no known claim.
    async fn delete_free(&mut self, dice: &mut StdRng) {
        let held: BTreeSet<MessageId> = self.held.values().flatten().copied().collect();
        if let Some(id) = self.kept.difference(&held).copied().choose(dice) {
            self.delete(id, None).await;
        }
    }

    async fn release(&mut self, dice: &mut StdRng) {
        let Some(claim) = self.held.keys().copied().choose(dice) else { return };
        self.held.remove(&claim);
        self.now.broker.claim_release(&self.at, claim).await.unwrap();
    }

    /// Begins or cancels a migration, if that is possible.
    async fn turn(&mut self, dice: &mut StdRng) {
        let pool = if dice.random() { "a" } else { "b" };
        drop(match dice.random() {
            true => self.now.broker.queue_migrate(&self.at, to(pool)).await,
            false => self.now.broker.migration_cancel(&self.at).await,
        });
    }

    /// After this number of batches no write succeeds any more; then the broker is restarted.
    async fn crash(&mut self, batches: usize, dice: &mut StdRng) {
        self.plan.next(&vec![Fault::NotSent; FOR_EVER]);
        self.plan.skip(batches);
        self.turn(dice).await;
        self.delete_free(dice).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        self.now.broker.stop().await;
        (self.now, self.plan) = self.pools.start().await;
    }

    /// Checks that every expected message is there, once.
    async fn end(mut self) {
        for claim in std::mem::take(&mut self.held).into_keys() {
            self.now.broker.claim_release(&self.at, claim).await.unwrap();
        }
        self.now.arrived(&self.at).await;
        loop {
            let before = self.held.len();
            self.claim(20).await;
            if self.held.len() == before {
                break;
            }
        }
        let seen: BTreeSet<MessageId> = self.held.values().flatten().copied().collect();
        let lost: Vec<_> = self.kept.difference(&seen).collect();
        assert!(lost.is_empty(), "{lost:?} are lost");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_migrations_with_crashes_lose_and_double_nothing() {
    let mut dice = StdRng::seed_from_u64(settings::seed("migrations"));
    for _ in 0..settings::number("ANGARIUM_MOVE_HISTORIES", 4) {
        let mut history = History::begin().await;
        history.post(300).await;
        for _ in 0..60 {
            match dice.random_range(0..20) {
                0..3 => history.post(dice.random_range(1..60)).await,
                3..8 => history.claim(dice.random_range(1..=20)).await,
                8..11 => history.finish(&mut dice).await,
                11..13 => history.release(&mut dice).await,
                13..15 => history.delete_free(&mut dice).await,
                15..19 => history.turn(&mut dice).await,
                _ => history.crash(dice.random_range(0..9), &mut dice).await,
            }
        }
        history.end().await;
    }
}
