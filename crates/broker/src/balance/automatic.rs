//! Automatic balance: one replica, the owner of a fixed slot, makes a plan again and again and begins its first moves.
//!
//! A load that changes all the time must not make queues move all the time. So a plan uses the mean write load of an
//! hour, is carried out only when its gain is large enough, and leaves queues alone that were migrated in the last
//! hour; a queue does not return within a day to the pool that it left last. The records of the queues hold that, so it is
//! true of migrations that operators began, too, and after the fixed slot has another owner.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info};

use angarium_catalogue::{AutomaticMove, BalanceRecord};
use angarium_core::error::Error;
use angarium_core::ids::{QueueId, Slot as SlotNumber};
use angarium_core::limits::BALANCE_MOVES;
use angarium_core::maps::HashMap;

use crate::balance::Balance;
use crate::balance::loads::QueueLoads;
use crate::balance::plan::{BalancePlan, PlanTerms, PlannedMove, PoolExcess};
use crate::limits;
use crate::slot::state::Slot;

/// The settings of automatic balance.
#[derive(Clone, Copy, Debug)]
pub struct AutomaticBalance {
    /// Max messages per second that each migration copies.
    pub rate: u32,
    /// Min gain, from 0 to 1: the part of the stored bytes and of the writes of a flavor that the moves bring to the
    /// shares of its pools.
    pub min_gain: f64,
    /// Time between two rounds.
    pub interval: Duration,
}

/// The mean changes per minute of each queue.
#[derive(Default)]
struct MeanLoads {
    means: HashMap<QueueId, f64>,
    samples: u32,
}

impl MeanLoads {
    /// Adds a sample. The mean includes the last `window` samples, about: an older one has ever less weight.
    fn add(&mut self, sample: &HashMap<QueueId, u64>, window: u32) {
        self.samples = window.min(self.samples + 1);
        let samples = f64::from(self.samples);
        for queue in sample.keys() {
            self.means.entry(*queue).or_default();
        }
        self.means.retain(|queue, mean| {
            let now = sample.get(queue).copied().unwrap_or(0) as f64;
            *mean += (now - *mean) / samples;
            // Queues of which less is written have no effect on a plan.
            *mean >= 0.5
        });
    }

    fn rounded(&self) -> HashMap<QueueId, u64> {
        self.means.iter().map(|(queue, mean)| (*queue, mean.round() as u64)).collect()
    }
}

/// State of automatic balance on the replica that makes it.
struct BalanceRun {
    loads: MeanLoads,
    /// Replicas that did not report the last sample.
    silent: Vec<String>,
    next: Instant,
}

impl BalanceRun {
    fn new(terms: &AutomaticBalance) -> Self {
        Self { loads: MeanLoads::default(), silent: Vec::new(), next: Instant::now() + terms.interval }
    }
}

impl Balance {
    /// Balances the pools until the service stops, while this replica owns the fixed slot.
    pub(crate) async fn keep_balanced(&self, terms: AutomaticBalance) {
        let tick = terms.interval.min(limits::BALANCE_SAMPLE);
        let window = u32::try_from(limits::BALANCE_MEAN.as_millis() / tick.as_millis()).unwrap_or(u32::MAX);
        let mut run = BalanceRun::new(&terms);
        while self.0.replica.sleep_tick(tick).await {
            let Some(slot) = self.0.slots.get(SlotNumber(limits::BALANCE_SLOT)) else {
                run = BalanceRun::new(&terms);
                continue;
            };
            let balanced = async {
                self.sample_loads(&mut run, window).await?;
                if run.next > Instant::now() {
                    return Ok(());
                }
                run.next = Instant::now() + terms.interval;
                self.balance_round(&slot, &terms, &run).await
            };
            if let Err(error) = balanced.await {
                self.0.replica.task_failed("balance pools", "catalogue", &error);
            }
        }
    }

    /// Adds the write loads of now to the means. Without the loads of all replicas it adds nothing: the queues of a
    /// silent replica would count as idle.
    async fn sample_loads(&self, run: &mut BalanceRun, window: u32) -> Result<(), Error> {
        let QueueLoads { per_minute, silent } = self.fetch_loads().await?;
        if silent.is_empty() {
            run.loads.add(&per_minute, window);
        }
        run.silent = silent;
        Ok(())
    }

    async fn balance_round(
        &self,
        slot: &Arc<Slot>,
        terms: &AutomaticBalance,
        run: &BalanceRun,
    ) -> Result<(), Error> {
        let now = self.0.replica.clock.now();
        let last = self.0.replica.catalogue.balance().await?.unwrap_or_default();
        let replica = self.0.replica.owner.address.clone();
        let mut record = BalanceRecord { at: now.as_millis(), replica, moves: last.moves, ..last };
        if !run.silent.is_empty() {
            record.outcome =
                format!("nothing begun: replicas do not report write loads: {}", run.silent.join(", "));
            return self.0.replica.catalogue.balance_write(&slot.owned, &record).await;
        }
        let plan_terms =
            PlanTerms { max_moves: BALANCE_MOVES.most(), min_gain: terms.min_gain, rested_at: Some(now) };
        let mut plan = self.plan(&plan_terms, &run.loads.rounded()).await?;
        plan.moves.truncate(limits::BALANCE_AT_ONCE.saturating_sub(plan.migrating));
        record.outcome = outcome(&plan, terms);
        let moves: Vec<AutomaticMove> =
            plan.moves.iter().map(|planned| automatic_move(planned, record.at)).collect();
        record.moves.splice(..0, moves);
        record.moves.truncate(limits::BALANCE_RECORDED);
        // Before the moves: a replica that has lost the fixed slot unnoticed begins none.
        self.0.replica.catalogue.balance_write(&slot.owned, &record).await?;
        if plan.moves.is_empty() {
            return Ok(());
        }
        let mut refused = false;
        let begun = self.balance_begin(plan.moves, Some(terms.rate)).await;
        for (recorded, (planned, outcome)) in record.moves.iter_mut().zip(begun) {
            let (project, queue) = (&planned.at.project, &planned.at.name);
            match outcome {
                Ok(()) => info!(
                    %project, %queue, from = %planned.from, to = %planned.to, reason = recorded.reason,
                    "automatic migration of queue begun"
                ),
                Err(error) => {
                    debug!(%project, %queue, to = %planned.to, %error, "automatic migration not begun");
                    recorded.refused = Some(error.to_string());
                    refused = true;
                }
            }
        }
        if refused { self.0.replica.catalogue.balance_write(&slot.owned, &record).await } else { Ok(()) }
    }

    /// Returns the last round of automatic balance; none when there was none.
    pub(crate) async fn last_balance(&self) -> Result<Option<BalanceRecord>, Error> {
        self.0.replica.catalogue.balance().await
    }
}

fn automatic_move(planned: &PlannedMove, since: u64) -> AutomaticMove {
    AutomaticMove {
        at: planned.at.clone(),
        since,
        from: planned.from.to_string(),
        to: planned.to.to_string(),
        reason: reason(planned),
        refused: None,
    }
}

/// Describes why a queue moves.
fn reason(planned: &PlannedMove) -> String {
    let PoolExcess { share, stored, written } = planned.source;
    let [share, stored, written] =
        [share, share + stored, share + written].map(|part| (part * 100.0).round().max(0.0));
    format!(
        "pool {} has {stored} % of the bytes and {written} % of the writes, its share is {share} %",
        planned.from
    )
}

fn outcome(plan: &BalancePlan, terms: &AutomaticBalance) -> String {
    let percent = |part: f64| (part * 1_000.0).round() / 10.0;
    let gain = format!("{} %", percent(plan.gain));
    if plan.gain < terms.min_gain {
        return format!(
            "nothing begun: a gain of {gain} is below the minimum of {} %",
            percent(terms.min_gain)
        );
    }
    if plan.moves.is_empty() {
        return format!(
            "nothing begun: {} queues are being migrated; the gain would be {gain}",
            plan.migrating
        );
    }
    let moves = if plan.moves.len() == 1 { "move" } else { "moves" };
    format!("{} {moves} of a plan with a gain of {gain}", plan.moves.len())
}

#[cfg(test)]
mod histories;

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(number: u128) -> QueueId {
        QueueId::from_bytes(u128::to_be_bytes(number))
    }

    #[test]
    fn mean_of_first_samples_is_their_average() {
        let mut loads = MeanLoads::default();
        for written in [10, 20, 60] {
            loads.add(&[(queue(1), written)].into_iter().collect(), 60);
        }
        assert_eq!(loads.rounded(), [(queue(1), 30)].into_iter().collect());
    }

    #[test]
    fn alternating_load_has_equal_means_for_both_queues() {
        let mut loads = MeanLoads::default();
        for minute in 0..600 {
            let busy = queue(minute / 10 % 2);
            loads.add(&[(busy, 1_000)].into_iter().collect(), 60);
        }
        let means = loads.rounded();
        let (one, other) = (means[&queue(0)], means[&queue(1)]);
        assert!(one.abs_diff(other) < 120 && (one + other).abs_diff(1_000) < 5, "{one} {other}");
    }

    #[test]
    fn idle_queues_are_forgotten() {
        let mut loads = MeanLoads::default();
        loads.add(&[(queue(1), 8)].into_iter().collect(), 4);
        for _ in 0..12 {
            loads.add(&HashMap::default(), 4);
        }
        assert!(loads.means.is_empty());
    }
}
