//! A slot at its owner: its state with the lock, its open queues, and each step under that lock.

pub(crate) mod apart;
pub(crate) mod arrivals;
pub(crate) mod backlog;
pub(crate) mod claims;
pub(crate) mod cleaning;
pub(crate) mod closed_figures;
pub(crate) mod commit;
pub(crate) mod copies;
pub(crate) mod count_progress;
pub(crate) mod counted;
pub(crate) mod deadlines;
pub(crate) mod dedup;
pub(crate) mod delete;
pub(crate) mod delivery_pace;
pub(crate) mod expiry;
pub(crate) mod explain;
pub(crate) mod fan_out;
pub(crate) mod fencing;
pub(crate) mod figure_sums;
pub(crate) mod figures;
pub(crate) mod fill;
pub(crate) mod follow_ups;
pub(crate) mod foreign_slots;
pub(crate) mod gaps;
pub(crate) mod gates;
pub(crate) mod gauge;
pub(crate) mod group_holds;
pub(crate) mod group_reads;
pub(crate) mod holds;
pub(crate) mod idle;
pub(crate) mod life;
pub(crate) mod locked;
pub(crate) mod migration;
pub(crate) mod opening;
pub(crate) mod orphans;
pub(crate) mod outcome_watch;
pub(crate) mod post;
pub(crate) mod queue_family;
pub(crate) mod queue_handle;
pub(crate) mod rates;
pub(crate) mod ready_caches;
pub(crate) mod receipts;
pub(crate) mod redrive;
pub(crate) mod refill;
pub(crate) mod release;
pub(crate) mod remainder;
pub(crate) mod removal_watch;
pub(crate) mod requeue;
pub(crate) mod retention;
pub(crate) mod selected;
pub(crate) mod settle;
pub(crate) mod settle_notes;
pub(crate) mod settle_plan;
pub(crate) mod shared_holds;
pub(crate) mod slot_queue;
pub(crate) mod state;
pub(crate) mod subscriptions;
pub(crate) mod sweeping;
pub(crate) mod tally;
pub(crate) mod tasks;
pub(crate) mod transfer_targets;
pub(crate) mod transfer_watch;
pub(crate) mod transfers;
pub(crate) mod wait_line;
pub(crate) mod wake;

use std::sync::Arc;

use crate::ledger::quota_ledger::Ledger;
use crate::replica::LocalReplica;
use crate::slot::dedup::DedupUsage;
use crate::slot::follow_ups::FollowUps;
use crate::slot::foreign_slots::ForeignSlots;
use crate::slot::shared_holds::SharedHolds;
use crate::stores::table::PoolTable;

/// Parts that every slot shares. None of them is above the slots: a reference upwards would keep a dropped broker
/// alive.
#[derive(Clone)]
pub(crate) struct SlotSurroundings {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) stores: Arc<PoolTable>,
    pub(crate) ledger: Arc<Ledger>,
    /// Number of deduplication ids that all open queues remember.
    pub(crate) dedup: Arc<DedupUsage>,
    pub(crate) foreign: Arc<ForeignSlots>,
    /// Holds of pools and projects.
    pub(crate) holds: Arc<SharedHolds>,
    pub(crate) follow_ups: FollowUps,
}

impl SlotSurroundings {
    pub(crate) fn new(
        replica: Arc<LocalReplica>,
        stores: Arc<PoolTable>,
        ledger: Arc<Ledger>,
        follow_ups: FollowUps,
    ) -> Self {
        let (dedup, foreign, holds) = (Arc::default(), Arc::default(), Arc::default());
        Self { replica, stores, ledger, dedup, foreign, holds, follow_ups }
    }
}
