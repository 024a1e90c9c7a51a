//! Tree time: recording it, learning it from the tree's own clock, and agreeing on it with the other replicas (P3).

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use angarium_catalogue::{Catalogue, ComponentState};
use angarium_clock::{Clock, ClockQuery, TimeRecords};
use angarium_core::error::Error;
use angarium_core::limits as core_limits;
use angarium_core::time::Timestamp;

use crate::background::Background;
use crate::limits;

/// Starts the clock at the time of the tree, if the tree has a clock of its own. An embedded tree follows the clock of
/// this replica, which its journal has set already.
pub(crate) async fn begin(catalogue: &Catalogue, clock: &Clock) -> Result<(), Error> {
    if !catalogue.keeps_time() {
        return Ok(());
    }
    let last = catalogue.time().await?;
    let asked = clock.asking();
    // The recorded values stay: replicas that use the record know the reading of the tree's clock at that moment.
    let theirs = catalogue.time_probe(clock.now()).await?;
    clock.begin(asked, theirs, last.map(|last| last.recorded));
    Ok(())
}

/// The record of the time as it was found, and when it was read. A later record is from another replica.
pub(crate) struct FoundRecord {
    asked: ClockQuery,
    transaction: Option<u64>,
}

/// Finds the record of the time. It must be called before this replica registers: the registration makes the other
/// replicas record the time.
pub(crate) async fn find_record(catalogue: &Catalogue, clock: &Clock) -> Result<FoundRecord, Error> {
    let asked = clock.asking();
    let transaction = catalogue.time().await?.map(|last| last.transaction);
    Ok(FoundRecord { asked, transaction })
}

/// Takes the time of the running replicas, after this replica has registered and before it answers requests. They
/// record the time because a replica registered. The clock of the tree alone is not enough: it may have made a step
/// since the last record.
pub(crate) async fn begin_beside(
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

/// Whether another replica records tree time.
pub(crate) async fn has_others(catalogue: &Catalogue, me: Uuid) -> Result<bool, Error> {
    let registry = catalogue.registry().await?;
    Ok(registry.others(me).any(|other| other.state != ComponentState::Starting))
}

/// Returns the time of the first record that another replica writes after the found one, and the last moment at which
/// that record was not there yet. None when no replica writes one within `max_wait`.
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
        tokio::time::sleep(core_limits::CLOCK_LOOK).await;
    }
}

/// The last record of this replica.
struct OwnRecord {
    /// When it was written; before the first one, when the task started.
    at: Instant,
    /// The transaction that wrote it.
    transaction: Option<u64>,
    /// How long to wait for the next record of another replica when the two differ.
    max_wait: Duration,
}

impl Background {
    /// Records and learns the time until the service stops.
    pub(crate) async fn keep_time(&self) {
        let keeps_time = self.0.replica.catalogue.keeps_time();
        let tick = if keeps_time { core_limits::TREE_CLOCK_TICK } else { limits::CLOCK_TICK };
        let mut own = OwnRecord { at: Instant::now(), transaction: None, max_wait: limits::CLOCK_ASKED };
        loop {
            let kept = if keeps_time { self.follow_time(&mut own).await } else { Ok(()) };
            if let Err(error) = kept {
                self.0.replica.task_failed("record time", "catalogue", &error);
            }
            let asked = async {
                if keeps_time {
                    self.0.slots.time_asked().await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                () = asked => own.max_wait = limits::CLOCK_ASKED,
                is_running = self.0.replica.sleep_tick(tick) => {
                    if !is_running {
                        return;
                    }
                    own.max_wait = 2 * core_limits::TREE_CLOCK_TICK;
                }
            }
            if !keeps_time
                && let Err(error) = self.0.replica.catalogue.time_record(self.0.replica.clock.now()).await
            {
                self.0.replica.task_failed("record time", "catalogue", &error);
            }
        }
    }

    /// Records the time and learns the tree's clock. If the other replicas may know the time better, it takes theirs
    /// first: starting replicas use the value that is recorded here.
    async fn follow_time(&self, own: &mut OwnRecord) -> Result<(), Error> {
        let (catalogue, clock) = (&self.0.replica.catalogue, &self.0.replica.clock);
        if let Some((found, max_wait)) = self.find_doubt(own).await?
            && has_others(catalogue, self.0.replica.owner.instance).await?
        {
            let next = tokio::select! {
                biased;
                next = next_record(catalogue, clock, found, max_wait) => next?,
                () = self.0.replica.stop.cancelled() => None,
            };
            if let Some((asked, theirs)) = next {
                clock.agree(asked, theirs);
            }
        }
        own.transaction = Some(self.record_time().await?);
        own.at = Instant::now();
        Ok(())
    }

    /// Returns the last record of the time, and how long to wait for the next one, if this replica must follow that
    /// next one. This is so when the replica was without the tree for a while, or when another replica wrote the record
    /// and its offset from the servers' clock differed from that of this one. Then one of the two machines was
    /// suspended without any sign of it, or the servers' clock has made a step since. Only the next record tells which,
    /// since it needs no clock of the servers.
    async fn find_doubt(&self, own: &OwnRecord) -> Result<Option<(FoundRecord, Duration)>, Error> {
        let (catalogue, clock) = (&self.0.replica.catalogue, &self.0.replica.clock);
        let asked = clock.asking();
        let last = catalogue.time().await?;
        let found = FoundRecord { asked, transaction: last.map(|last| last.transaction) };
        if own.at.elapsed() > limits::CLOCK_AWAY {
            return Ok(Some((found, 2 * core_limits::TREE_CLOCK_TICK)));
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

    /// Records the time, learns the tree's clock from that, and returns the transaction. The record is late by the part
    /// of the commit between the reading of the time and the write. After a slow commit it is written again.
    async fn record_time(&self) -> Result<u64, Error> {
        let (catalogue, clock) = (&self.0.replica.catalogue, &self.0.replica.clock);
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
}
