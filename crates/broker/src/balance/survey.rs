//! Placement of all queues and plans to balance it, for administrators. It is read from the records of the tree and the
//! totals that pools keep. Reading changes nothing. A plan that is carried out begins migrations at the owners of the
//! queues.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;

use angarium_catalogue::Placement;
use angarium_cluster::peer_client::{MIGRATE, PeerMigrationRequest};
use angarium_core::error::Error;
use angarium_core::ids::{QueueId, Slot};
use angarium_core::maps::HashMap;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::pool::PoolState;
use angarium_engine::placement::balance::{self, Load, Share};

use crate::balance::Balance;
use crate::balance::loads::QueueLoads;
use crate::limits;
use crate::migration::begin::Destination;
use crate::stores::table::OpenPool;

/// The placement of queues.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The queues that were read.
    pub queues: Vec<SurveyedQueue>,
    /// Whether these are all queues: at most [`limits::SURVEY_QUEUES`] are read.
    pub is_whole: bool,
}

/// The placement of one queue.
#[derive(Clone, Debug)]
pub struct SurveyedQueue {
    /// Its project and name.
    pub at: QueueRef,
    /// Its incarnation.
    pub id: QueueId,
    /// Its pools.
    pub placement: Placement,
}

/// The contents of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueHolding {
    /// Number of messages, in any state.
    pub messages: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

impl QueueHolding {
    /// Weight of the queue in a plan. Empty queues and messages without a body have a weight too.
    pub(crate) fn size(self) -> u64 {
        limits::BALANCE_QUEUE_BYTES + self.bytes + limits::BALANCE_MESSAGE_BYTES * self.messages
    }
}

/// A queue that a plan moves to another pool.
#[derive(Clone, Debug)]
pub struct PlannedMove {
    /// The queue.
    pub at: QueueRef,
    /// Its pool now.
    pub from: PoolName,
    /// The pool it should have.
    pub to: PoolName,
    /// Its contents.
    pub held: QueueHolding,
    /// Changes per minute.
    pub load: u64,
}

/// Moves that would bring each pool to its share.
#[derive(Clone, Debug, Default)]
pub struct BalancePlan {
    /// The moves, those with the greatest effect first.
    pub moves: Vec<PlannedMove>,
    /// Number of queues that are being migrated already, or whose pool did not report their contents. They have no
    /// planned move.
    pub left_out: u64,
    /// Addresses of replicas that did not report the load of their queues. The plan takes that load as zero.
    pub silent: Vec<String>,
    /// Whether all other queues were read.
    pub is_whole: bool,
}

impl Balance {
    /// Returns the placement of the queues of all projects.
    pub async fn survey(&self) -> Result<Survey, Error> {
        self.0.replica.catalogue.catch_up().await?;
        self.survey_of(Slot::all()).await
    }

    /// Returns the placement of the queues in `slots`, slot by slot.
    pub(crate) async fn survey_of(&self, slots: impl Iterator<Item = Slot>) -> Result<Survey, Error> {
        let mut survey = Survey { queues: Vec::new(), is_whole: true };
        for slot in slots {
            for project in self.0.replica.catalogue.slot_projects(slot).await? {
                let mut queues = self.0.replica.catalogue.project_queues(slot, &project).await?;
                let room = limits::SURVEY_QUEUES - survey.queues.len();
                survey.is_whole &= queues.len() <= room;
                queues.truncate(room);
                let records = self.0.replica.catalogue.queue_records(&queues).await?;
                for (at, record) in queues.into_iter().zip(records) {
                    // The queue was deleted meanwhile.
                    let Some(record) = record else { continue };
                    let placement = record.placement()?;
                    survey.queues.push(SurveyedQueue { at, id: record.id, placement });
                }
            }
        }
        Ok(survey)
    }

    /// Plans at most `most` moves that would bring each pool to its share, by weight, of contents and of write load. A
    /// pool that is drained or has weight 0 has no share, and neither gives nor takes queues. Queues stay among the
    /// pools of their flavor.
    pub async fn balance_plan(&self, most: usize) -> Result<BalancePlan, Error> {
        self.0.pools.reload_pools().await?;
        let Survey { queues, is_whole } = self.survey().await?;
        let QueueLoads { per_minute: written, silent } = self.fetch_loads().await?;
        let pools = self.0.stores.all();
        let has_share = |pool: &&Arc<OpenPool>| {
            let said = &pool.entry.pool;
            said.weight > 0 && said.state == PoolState::Active && !said.closing
        };
        let mut sets: BTreeMap<Option<_>, Vec<&OpenPool>> = BTreeMap::new();
        for pool in pools.iter().filter(has_share) {
            sets.entry(pool.entry.pool.flavor.clone()).or_default().push(pool);
        }
        let mut plan = BalancePlan { is_whole, silent, ..BalancePlan::default() };
        for set in sets.into_values() {
            let left = most - plan.moves.len();
            self.plan_set(&set, &queues, &written, left, &mut plan).await;
        }
        Ok(plan)
    }

    /// Plans moves among pools of one flavor.
    async fn plan_set(
        &self,
        set: &[&OpenPool],
        queues: &[SurveyedQueue],
        written: &HashMap<QueueId, u64>,
        most: usize,
        plan: &mut BalancePlan,
    ) {
        let index = |name: &PoolName| set.iter().position(|pool| pool.entry.name == *name);
        let inside = queues.iter().filter_map(|queue| index(&queue.placement.pool).map(|pool| (pool, queue)));
        let (mut found, mut loads) = (Vec::new(), Vec::new());
        for some in inside.collect::<Vec<_>>().chunks(limits::COUNT_AT_ONCE) {
            let held = some.iter().map(|(pool, queue)| held(set[*pool], queue));
            for ((pool, queue), held) in some.iter().zip(join_all(held).await) {
                match held {
                    Some(held) => {
                        let written = written.get(&queue.id).copied().unwrap_or(0);
                        loads.push(Load {
                            pool: *pool,
                            held: held.size(),
                            written: written + limits::BALANCE_QUEUE_CHANGES,
                        });
                        found.push((*pool, *queue, held, written));
                    }
                    None => plan.left_out += 1,
                }
            }
        }
        let shares: Vec<Share> = set
            .iter()
            .map(|pool| Share { weight: pool.entry.pool.weight, takes: pool.is_writable() })
            .collect();
        plan.moves.extend(balance::plan(&shares, &loads, most).into_iter().map(|planned| {
            let (pool, queue, held, load) = found[planned.load];
            let name = |pool: usize| set[pool].entry.name.clone();
            PlannedMove { at: queue.at.clone(), from: name(pool), to: name(planned.to), held, load }
        }));
    }

    /// Begins each of these moves at the replica that serves the queue. Returns the outcome of each.
    pub async fn balance_begin(
        &self,
        moves: Vec<PlannedMove>,
        rate: Option<u32>,
    ) -> Vec<(PlannedMove, Result<(), Error>)> {
        let mut begun = Vec::with_capacity(moves.len());
        for planned in moves {
            let to = Destination { pool: planned.to.clone(), rate };
            let outcome = self.queue_migrate_anywhere(&planned.at, to).await;
            begun.push((planned, outcome));
        }
        begun
    }

    async fn queue_migrate_anywhere(&self, at: &QueueRef, to: Destination) -> Result<(), Error> {
        let Some(owner) = self.0.slots.elsewhere(at) else {
            return self.0.migrations.queue_migrate(at, to).await.map(|_| ());
        };
        let question = PeerMigrationRequest { queue: at.into(), pool: to.pool.to_string(), rate: to.rate };
        self.0.slots.peer_client()?.ask(&owner.address, MIGRATE, &question).await
    }

    /// Begins a migration, for another replica, of a queue that is served here.
    pub async fn migrate_local(&self, question: PeerMigrationRequest) -> Result<(), Error> {
        let PeerMigrationRequest { queue, pool, rate } = question;
        let to = Destination::new(PoolName::new(&pool)?, rate.map(i64::from))?;
        self.0.migrations.queue_migrate(&queue.queue()?, to).await.map(|_| ())
    }
}

/// Returns the contents of a queue; none while it is being migrated, or when its pool does not report them.
pub(crate) async fn held(pool: &OpenPool, queue: &SurveyedQueue) -> Option<QueueHolding> {
    if queue.placement.older.is_some() {
        return None;
    }
    let totals = pool.store().ok()?.totals(queue.id).await.ok()?;
    Some(QueueHolding { messages: totals.messages, bytes: totals.bytes })
}
