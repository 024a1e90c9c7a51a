//! Plans to balance the pools, from the placement of all queues, the totals that pools keep and the write loads that
//! replicas report. Planning changes nothing. A plan that is carried out begins migrations at the owners of the queues.

use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use angarium_catalogue::EndedMigration;
use angarium_cluster::peer_client::{MIGRATE, PeerMigrationRequest};
use angarium_core::error::Error;
use angarium_core::ids::QueueId;
use angarium_core::maps::HashMap;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::pool::PoolState;
use angarium_core::time::Timestamp;
use angarium_engine::placement::balance::{Distribution, Load, Move, Share};

use crate::balance::Balance;
use crate::balance::loads::QueueLoads;
use crate::balance::survey::{Survey, SurveyedQueue};
use crate::limits;
use crate::migration::begin::Destination;
use crate::stores::table::OpenPool;

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
    /// The state of its pool before the plan.
    pub(crate) source: PoolExcess,
}

/// What a pool has beyond its share of its flavor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolExcess {
    /// Its share by weight, from 0 to 1.
    pub(crate) share: f64,
    /// Its part of the stored bytes less its share.
    pub(crate) stored: f64,
    /// Its part of the writes less its share.
    pub(crate) written: f64,
}

/// Moves that would bring each pool to its share.
#[derive(Clone, Debug, Default)]
pub struct BalancePlan {
    /// The moves, those with the greatest effect first.
    pub moves: Vec<PlannedMove>,
    /// Number of queues that are being migrated already, or whose pool did not report their contents. They have no
    /// planned move; the migrated ones count where they go.
    pub left_out: u64,
    /// Addresses of replicas that did not report the load of their queues. The plan takes that load as zero.
    pub silent: Vec<String>,
    /// Whether all other queues were read.
    pub is_whole: bool,
    /// Number of queues that are being migrated.
    pub(crate) migrating: usize,
    /// The greatest gain of the moves within one flavor, whether they are planned or their gain is too small: the part
    /// of its contents and writes, from 0 to 1, that they bring to its share.
    pub(crate) gain: f64,
}

/// The terms of a plan.
pub(crate) struct PlanTerms {
    /// Max number of moves.
    pub(crate) max_moves: usize,
    /// Min gain of the moves within a flavor, see [`BalancePlan::gain`]; with less they are not planned.
    pub(crate) min_gain: f64,
    /// The time that rests of migrated queues are measured at; none when queues do not rest.
    pub(crate) rested_at: Option<Timestamp>,
}

/// Moves among the pools of one flavor.
pub(crate) struct FlavorPlan {
    /// The moves; none when they gain too little.
    pub(crate) moves: Vec<Move>,
    /// See [`BalancePlan::gain`].
    pub(crate) gain: f64,
}

impl PlanTerms {
    /// Plans moves among the pools of one flavor, beside so many of other flavors.
    pub(crate) fn moves_within(&self, pools: &mut Distribution, others: usize) -> FlavorPlan {
        let misplaced = pools.misplaced();
        let moves = pools.plan(self.max_moves - others);
        let gain = misplaced - pools.misplaced();
        FlavorPlan { moves: if gain < self.min_gain { Vec::new() } else { moves }, gain }
    }

    /// Returns the load of a queue, with its rest after a migration. `index` finds a pool of the plan by its name.
    pub(crate) fn load(
        &self,
        load: Load,
        migrated: Option<&EndedMigration>,
        index: impl Fn(&str) -> Option<usize>,
    ) -> Load {
        let (Some(now), Some(last)) = (self.rested_at, migrated) else { return load };
        let rest = Duration::from_secs(now.seconds_since(Timestamp::from_millis(last.ended)));
        let avoids = if rest < limits::BALANCE_RETURN { index(&last.from) } else { None };
        Load { stays: load.stays || rest < limits::BALANCE_REST, avoids, ..load }
    }
}

impl Balance {
    /// Plans at most `most` moves that would bring each pool to its share, by weight, of contents and of write load. A
    /// pool that is drained or has weight 0 has no share, and neither gives nor takes queues. Queues stay among the
    /// pools of their flavor. No queue moves into a held pool.
    pub async fn balance_plan(&self, most: usize) -> Result<BalancePlan, Error> {
        let QueueLoads { per_minute: written, silent } = self.fetch_loads().await?;
        let terms = PlanTerms { max_moves: most, min_gain: 0.0, rested_at: None };
        let plan = self.plan(&terms, &written).await?;
        Ok(BalancePlan { silent, ..plan })
    }

    /// Makes a plan from the contents of all queues and these changes per minute.
    pub(crate) async fn plan(
        &self,
        terms: &PlanTerms,
        written: &HashMap<QueueId, u64>,
    ) -> Result<BalancePlan, Error> {
        self.0.pools.reload_pools().await?;
        let Survey { queues, is_whole } = self.survey().await?;
        let pools = self.0.stores.all();
        let has_share = |pool: &&Arc<OpenPool>| {
            let said = &pool.entry.pool;
            said.weight > 0 && said.state == PoolState::Active && !said.closing
        };
        let mut sets: BTreeMap<Option<_>, Vec<&OpenPool>> = BTreeMap::new();
        for pool in pools.iter().filter(has_share) {
            sets.entry(pool.entry.pool.flavor.clone()).or_default().push(pool);
        }
        let migrating = queues.iter().filter(|queue| queue.placement.older.is_some()).count();
        let mut plan = BalancePlan { is_whole, migrating, ..BalancePlan::default() };
        for set in sets.into_values() {
            let contents = QueueContents { pools: &pools, queues: &queues, written };
            let takes = |pool: &OpenPool| pool.is_writable() && !self.0.pools.is_held(&pool.entry.name);
            plan_set(&set, takes, &contents, terms, &mut plan).await;
        }
        Ok(plan)
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

/// What plans are made from.
struct QueueContents<'a> {
    pools: &'a [Arc<OpenPool>],
    queues: &'a [SurveyedQueue],
    written: &'a HashMap<QueueId, u64>,
}

/// A queue of a plan.
struct PlanQueue<'a> {
    /// The index of its pool.
    pool: usize,
    queue: &'a SurveyedQueue,
    held: QueueHolding,
    /// Changes per minute.
    written: u64,
}

/// Reads the contents of the queues in the pools of one flavor. Counts queues without a move in `left_out`.
async fn read_loads<'a>(
    set: &[&OpenPool],
    contents: &QueueContents<'a>,
    terms: &PlanTerms,
    left_out: &mut u64,
) -> (Vec<PlanQueue<'a>>, Vec<Load>) {
    let QueueContents { pools, queues, written } = contents;
    let index_of = |name: &str| set.iter().position(|pool| pool.entry.name.as_str() == name);
    let place = |queue: &SurveyedQueue| index_of(queue.placement.pool.as_str());
    // The queue of a subscription moves with its source, and counts with it.
    let sources = queues.iter().filter(|queue| queue.at.source().is_none());
    let inside = sources.filter_map(|queue| place(queue).map(|pool| (pool, queue)));
    let copies = copies_of(queues);
    let copies = |queue: &SurveyedQueue| copies.get(&queue.at).map(Vec::as_slice).unwrap_or_default();
    let (mut found, mut loads) = (Vec::new(), Vec::new());
    for some in inside.collect::<Vec<_>>().chunks(limits::COUNT_AT_ONCE) {
        let held = some.iter().map(|(_, queue)| held(pools, queue, copies(queue)));
        for ((pool, queue), held) in some.iter().zip(join_all(held).await) {
            match held {
                Some(held) => {
                    *left_out += u64::from(queue.placement.older.is_some());
                    let ids = iter::once(queue.id).chain(copies(queue).iter().copied());
                    let written: u64 = ids.filter_map(|id| written.get(&id)).sum();
                    let load = Load {
                        pool: *pool,
                        held: held.size(),
                        written: written + limits::BALANCE_QUEUE_CHANGES,
                        // It counts in the pool that it moves to.
                        stays: queue.placement.older.is_some(),
                        avoids: None,
                    };
                    loads.push(terms.load(load, queue.migrated.as_ref(), index_of));
                    found.push(PlanQueue { pool: *pool, queue, held, written });
                }
                None => *left_out += 1,
            }
        }
    }
    (found, loads)
}

/// Plans moves among pools of one flavor.
async fn plan_set(
    set: &[&OpenPool],
    takes: impl Fn(&OpenPool) -> bool,
    contents: &QueueContents<'_>,
    terms: &PlanTerms,
    plan: &mut BalancePlan,
) {
    let (queues, loads) = read_loads(set, contents, terms, &mut plan.left_out).await;
    let shares: Vec<Share> =
        set.iter().map(|pool| Share { weight: pool.entry.pool.weight, takes: takes(pool) }).collect();
    let mut pools = Distribution::new(&shares, &loads);
    let weights: f64 = shares.iter().map(|share| f64::from(share.weight)).sum();
    let sources: Vec<PoolExcess> = (0..set.len())
        .map(|pool| {
            let [stored, written] = pools.excess(pool);
            PoolExcess { share: f64::from(shares[pool].weight) / weights, stored, written }
        })
        .collect();
    let FlavorPlan { moves, gain } = terms.moves_within(&mut pools, plan.moves.len());
    plan.gain = plan.gain.max(gain);
    plan.moves.extend(moves.into_iter().map(|planned| {
        let PlanQueue { pool, queue, held, written } = queues[planned.load];
        let name = |pool: usize| set[pool].entry.name.clone();
        let (from, to) = (name(pool), name(planned.to));
        PlannedMove { at: queue.at.clone(), from, to, held, load: written, source: sources[pool] }
    }));
}

/// Returns the contents of a queue and of its subscriptions in all their pools; none when one of them does not report them.
async fn held(pools: &[Arc<OpenPool>], queue: &SurveyedQueue, copies: &[QueueId]) -> Option<QueueHolding> {
    let mut held = QueueHolding::default();
    for name in iter::once(&queue.placement.pool).chain(&queue.placement.older) {
        let pool = pools.iter().find(|pool| pool.entry.name == *name)?;
        for id in iter::once(&queue.id).chain(copies) {
            let totals = pool.store().ok()?.totals(*id).await.ok()?;
            held.messages += totals.messages;
            held.bytes += totals.bytes;
        }
    }
    Some(held)
}

/// Returns the queues of the subscriptions by their sources.
fn copies_of(queues: &[SurveyedQueue]) -> HashMap<QueueRef, Vec<QueueId>> {
    let mut copies: HashMap<QueueRef, Vec<QueueId>> = HashMap::default();
    for queue in queues {
        if let Some(source) = queue.at.source() {
            copies.entry(source).or_default().push(queue.id);
        }
    }
    copies
}
