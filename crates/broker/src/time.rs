//! Keeping tree time: recording how far it has come, learning it from the tree's own clock, and agreeing on it with the other
//! replicas (P3).

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::Broker;
use angarium_catalogue::{Catalogue, ComponentState};
use angarium_clock::{Clock, ClockQuery, TimeRecords};
use angarium_core::error::Error;
use angarium_core::limits;
use angarium_core::time::Timestamp;

/// Begins with the time of the tree, if that has a clock of its own. An embedded one follows ours, which its journal
/// has set already.
pub(super) async fn begin(catalogue: &Catalogue, clock: &Clock) -> Result<(), Error> {
    if !catalogue.keeps_time() {
        return Ok(());
    }
    let last = catalogue.time().await?;
    let asked = clock.asking();
    // What was recorded stays: those who go by it know what the tree's clock showed then.
    let theirs = catalogue.time_probe(clock.now()).await?;
    clock.begin(asked, theirs, last.map(|last| last.recorded));
    Ok(())
}

/// The record of the time as it was found, and when it was looked for: a later record is of another replica.
pub(super) struct FoundRecord {
    asked: ClockQuery,
    transaction: Option<u64>,
}

/// Finds the record of the time. To be called before this replica registers: the others record the time because of that.
pub(super) async fn find_record(catalogue: &Catalogue, clock: &Clock) -> Result<FoundRecord, Error> {
    let asked = clock.asking();
    let transaction = catalogue.time().await?.map(|last| last.transaction);
    Ok(FoundRecord { asked, transaction })
}

/// Takes the time of the replicas beside this one, once it is registered and before it tells any: they have recorded it
/// because a caller registered. The clock of the tree alone would not do, which may have made a step since their last
/// record.
pub(super) async fn begin_beside(
    catalogue: &Catalogue,
    clock: &Clock,
    me: Uuid,
    found: FoundRecord,
) -> Result<(), Error> {
    if !catalogue.keeps_time() || !has_others(catalogue, me).await? {
        return Ok(());
    }
    if let Some((asked, theirs)) = next_record(catalogue, clock, found, limits::CLOCK_AGREE).await? {
        clock.begin_beside(asked, theirs);
    }
    Ok(())
}

/// Whether another replica keeps the time.
async fn has_others(catalogue: &Catalogue, me: Uuid) -> Result<bool, Error> {
    let registry = catalogue.registry().await?;
    Ok(registry.others(me).any(|other| other.state != ComponentState::Starting))
}

/// What another replica records after the record that was found, and when it was not there yet. None when none does in time.
async fn next_record(
    catalogue: &Catalogue,
    clock: &Clock,
    found: FoundRecord,
    max_wait: Duration,
) -> Result<Option<(ClockQuery, Timestamp)>, Error> {
    let end = Instant::now() + max_wait;
    let mut asked = found.asked;
    loop {
        let looked = clock.asking();
        if let Some(last) = catalogue.time().await?.filter(|last| Some(last.transaction) != found.transaction)
        {
            return Ok(Some((asked, last.recorded.time)));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        asked = looked;
        tokio::time::sleep(limits::CLOCK_LOOK).await;
    }
}

/// The last record of this replica.
struct OwnRecord {
    /// When it was written; of the start before the first one.
    at: Instant,
    /// The transaction that wrote it.
    transaction: Option<u64>,
    /// How long to wait for the next record of another replica when the two differ.
    max_wait: Duration,
}

impl Broker {
    /// Records and learns the time until the service stops.
    pub(super) async fn keep_time(&self) {
        let keeps_time = self.0.catalogue.keeps_time();
        let tick = if keeps_time { limits::TREE_CLOCK_TICK } else { limits::CLOCK_TICK };
        let mut own = OwnRecord { at: Instant::now(), transaction: None, max_wait: limits::CLOCK_ASKED };
        loop {
            let kept = if keeps_time { self.follow_time(&mut own).await } else { Ok(()) };
            if let Err(error) = kept {
                self.task_failed("record time", "catalogue", &error);
            }
            let asked = async {
                match keeps_time {
                    true => self.0.assignment.time.notified().await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                () = asked => own.max_wait = limits::CLOCK_ASKED,
                has_turn = self.sleep_tick(tick) => match has_turn {
                    true => own.max_wait = 2 * limits::TREE_CLOCK_TICK,
                    false => return,
                },
            }
            if !keeps_time && let Err(error) = self.0.catalogue.time_record(self.0.clock.now()).await {
                self.task_failed("record time", "catalogue", &error);
            }
        }
    }

    /// Records the time and learns the tree's clock. When the other replicas may know the time better, it is theirs first:
    /// what is recorded here, those that start go by.
    async fn follow_time(&self, own: &mut OwnRecord) -> Result<(), Error> {
        let (catalogue, clock) = (&self.0.catalogue, &self.0.clock);
        if let Some((found, max_wait)) = self.find_doubt(own).await?
            && has_others(catalogue, self.0.owner.instance).await?
        {
            let next = tokio::select! {
                next = next_record(catalogue, clock, found, max_wait) => next?,
                () = self.0.stop.cancelled() => None,
            };
            if let Some((asked, theirs)) = next {
                clock.agree(asked, theirs);
            }
        }
        own.transaction = Some(self.record_time().await?);
        own.at = Instant::now();
        Ok(())
    }

    /// The record of the time, if this replica should go by the next one, and how long to wait for that: because it was
    /// without the tree for a while, or because another replica wrote the record and was not as far from the servers' clock as
    /// this one is. Then the machine of one of the two stood still and nothing on it shows that, or the servers' clock made a
    /// step since. Only the next record tells which, since it needs no clock of the servers.
    async fn find_doubt(&self, own: &OwnRecord) -> Result<Option<(FoundRecord, Duration)>, Error> {
        let (catalogue, clock) = (&self.0.catalogue, &self.0.clock);
        let asked = clock.asking();
        let last = catalogue.time().await?;
        let found = FoundRecord { asked, transaction: last.map(|last| last.transaction) };
        if own.at.elapsed() > limits::CLOCK_AWAY {
            return Ok(Some((found, 2 * limits::TREE_CLOCK_TICK)));
        }
        let Some(last) = last.filter(|last| Some(last.transaction) != own.transaction) else {
            return Ok(None);
        };
        let before = clock.agreed();
        let servers = catalogue.time_probe(before).await?;
        let after = clock.agreed();
        let (theirs, ours) = (last.recorded.gap(), |time| TimeRecords { time, servers }.gap());
        let apart = ours(after).saturating_sub(theirs).max(theirs.saturating_sub(ours(before)));
        let is_apart = u128::try_from(apart).is_ok_and(|apart| apart > limits::CLOCK_APART.as_millis());
        Ok(is_apart.then_some((found, own.max_wait)))
    }

    /// Records the time, learns the tree's clock from that, and returns the transaction. Between the reading of the
    /// time and the write is a part of the commit, by which the record is wrong: after a long one it is written again.
    async fn record_time(&self) -> Result<u64, Error> {
        let (catalogue, clock) = (&self.0.catalogue, &self.0.clock);
        let mut tries = 0;
        loop {
            let (asked, began) = (clock.asking(), Instant::now());
            let written = catalogue.time_record(clock.agreed()).await?;
            clock.learn(asked, written.servers);
            tries += 1;
            if tries == limits::CLOCK_RECORD_TRIES || began.elapsed() <= limits::CLOCK_RECORD_TOOK {
                return Ok(written.transaction);
            }
        }
    }

    /// As [`Broker::check_ready`]; then what an operator should know of a service that serves.
    pub fn readiness(&self) -> Result<Vec<String>, Error> {
        self.check_ready()?;
        let doubt = self.0.clock.doubt().map(|step| {
            format!(
                "the clock differs by {} s from the last write and is not believed; if it is right, restart with \
                 --accept-clock",
                step.as_secs()
            )
        });
        let gap = self.0.clock.gap().map(|gap| {
            format!(
                "the clock of the coordination servers made a step and is {} s from tree time, which follows it by 1 s in \
                 10 s",
                gap / 1_000
            )
        });
        let own = doubt.into_iter().chain(gap).chain(self.session_warning());
        Ok(own.chain(self.damage_warnings()).chain(self.0.pools.warnings()).collect())
    }

    /// What stored data is damaged, as far as calls have met it, each once: parts may lie in one store.
    fn damage_warnings(&self) -> BTreeSet<String> {
        let tree = self.0.catalogue.damage().map(|(_, text)| text);
        let pools = self.0.pools.all();
        let pools = pools.iter().filter_map(|pool| Some(pool.store().ok()?.damage()?.text));
        tree.into_iter().chain(pools).collect()
    }
}
