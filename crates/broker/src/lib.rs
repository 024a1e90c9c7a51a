//! What the product does: one file per noun, one method per verb.
//!
//! The broker finds the slot of a queue, opens the queue there, lets its engine decide, and makes the decision
//! durable: claims in the tree, messages in the pool. It never sees a status code, a header or a path of the
//! tree. A change that has begun runs to its end in a task of its own, whether its client still waits or not.

#![warn(missing_docs)]

mod alarm;
mod assignment;
mod attempts;
mod background_tasks;
mod batch_commit;
mod batch_send;
mod bulk;
mod changes;
mod claim_list;
mod claims;
mod closed_queues;
mod components;
mod copy_phase;
mod count_progress;
mod counting_line;
mod deadlines;
mod deepest;
mod dropped;
mod duplicates;
mod expiry;
mod fencing;
mod figure_sums;
mod first_pool;
mod flavors;
mod gates;
mod group_reads;
mod idle_queues;
mod ledger;
mod listing;
mod listing_admission;
mod loads;
mod membership;
mod message_transfer;
mod messages;
mod metadata;
mod migration;
mod move_tasks;
mod observation;
mod open_pool;
mod orphans;
mod overview;
mod pauses;
mod pool_deletion;
mod pool_drain;
mod pool_health;
mod pool_map;
mod pool_recount;
mod pool_refusal;
mod pool_states;
mod pool_table;
mod pool_usage;
mod pool_use;
mod pools;
mod posts;
mod queue_contents;
mod queue_counting;
mod queue_counts;
mod queue_figures;
mod queue_flavor;
mod queue_list;
mod queue_store;
mod queues;
mod quotas;
mod reach;
mod read_failure;
mod ready_caches;
mod receipts;
mod recovery;
mod redrive;
mod regional_projects;
mod release;
mod remote_transfer;
mod renewal;
mod retention;
mod schedule;
mod slot;
mod slot_reservation;
mod slot_table;
mod slot_tasks;
mod slot_writer;
mod survey;
mod sweeps;
mod task_failures;
mod time;
mod transfer_peers;
mod transfer_watch;
mod transfers;
mod unfinished_transfers;
mod visibility;
mod waiters;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{OnceCell, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, debug, info, warn};
use uuid::Uuid;

pub use batch_send::SendEntry;
pub use claim_list::{ClaimFilter, ClaimPage, ListedClaim};
pub use claims::{ClaimView, DeliveryGuard};
pub use components::{ClusterView, ComponentView};
pub use flavors::FlavorView;
pub use listing::{MessageFilter, MessagePage};
pub use messages::{MessageView, PostResult};
pub use migration::{Destination, MigrationView};
pub use move_tasks::MoveRefusal;
pub use overview::{PartReport, ReplicaReport, StatsReport};
pub use pool_drain::DrainView;
pub use pool_health::{HealthReport, PoolHealth, PoolReport};
pub use pool_map::{MappedPool, PoolMap};
pub use pool_table::{FirstPool, PoolSettings};
pub use pools::PoolView;
pub use posts::PostResults;
pub use queue_list::{QueueFilter, QueuePage, QueueView};
pub use queues::QueueDescription;
pub use quotas::{QuotaView, Quotas};
pub use receipts::{Receive, ReceiveResult, VisibilityResult};
pub use renewal::ClaimStatus;
pub use slot_table::SlotLocation;
pub use survey::{BalancePlan, PlannedMove, QueueHolding, Survey};

use alarm::Alarms;
pub use angarium_catalogue::Act;
use angarium_catalogue::{Catalogue, ComponentState, Owner};
use angarium_clock::Clock;
use angarium_cluster as cluster;
use angarium_cluster::peer_client::PeerClient;
pub use angarium_cluster::peer_client::QueueCounts;
use angarium_cluster::replicas::Replica;
use angarium_core::error::{Error, Part};
use angarium_core::limits::Limits;
use angarium_core::receipt::ReceiptKey;
use angarium_metrics::Meter;
use angarium_storage::StoreError;
use assignment::{Assignment, FollowedCluster};
use duplicates::DedupUsage;
use ledger::Ledger;
use listing_admission::ListingAdmission;
use membership::Membership;
use observation::Observation;
use pool_table::PoolTable;
use pool_use::PoolUse;
use reach::Reach;
use regional_projects::RegionalProjects;
use remote_transfer::TargetEpochs;
use slot_table::SlotTable;
use task_failures::TaskFailures;

/// The service without its faces. Clones share it.
#[derive(Clone)]
pub struct Broker(Arc<Shared>);

struct Shared {
    catalogue: Catalogue,
    /// The pools as they are now.
    pools: PoolTable,
    /// The slots as they are served.
    slot_table: SlotTable,
    assignment: Assignment,
    alarms: Alarms,
    clock: Clock,
    /// What clients may ask for.
    limits: Limits,
    /// What is counted and measured.
    meter: Meter,
    /// Where pages of metrics look.
    watch: Observation,
    membership: Membership,
    /// What receipts are made with; read when the first one is.
    receipt_key: OnceCell<ReceiptKey>,
    quotas: Quotas,
    /// What the accounts with quotas hold.
    ledger: Arc<Ledger>,
    regional_projects: RegionalProjects,
    /// As what this process takes slots.
    owner: Owner,
    /// The greater part of every epoch.
    generation: u32,
    /// The way to ask other replicas; a service that is alone has none.
    peer_client: OnceLock<PeerClient>,
    heard: TargetEpochs,
    /// Of listings that look through many names.
    listing_turns: ListingAdmission,
    /// Ids of deduplication that all queues remember.
    duplicates: DedupUsage,
    reach: Reach,
    pool_use: PoolUse,
    /// See [`overview`].
    memory: overview::ReportCache,
    /// When it was last tried whether messages may be stored as retained. Held to look and to note.
    retention_tried: Mutex<Option<Instant>>,
    task_failures: TaskFailures,
    /// Every task of the broker, so that a shutdown can wait for the changes that have begun.
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Ends the claims that wait for messages.
    waits: CancellationToken,
    /// Why it was not ready when it was last asked. Held to compare and replace it.
    unready: Mutex<Option<String>>,
}

impl Broker {
    /// Registers `replica`, takes the slots that should be its and no caller has, and begins its background tasks. No
    /// project has a quota.
    ///
    /// When there are pools and none can be used nothing is taken, and the error states why. Without any pool the
    /// service starts, so that one can be added.
    pub async fn start(
        catalogue: Catalogue,
        settings: &PoolSettings,
        replica: Replica,
        clock: Clock,
        limits: Limits,
    ) -> Result<Self, Error> {
        Self::start_within(catalogue, settings, replica, clock, limits, quotas::unbounded()).await
    }

    /// As [`Broker::start`], with quotas, which may change while it runs.
    pub async fn start_within(
        catalogue: Catalogue,
        settings: &PoolSettings,
        replica: Replica,
        clock: Clock,
        limits: Limits,
        quotas: Quotas,
    ) -> Result<Self, Error> {
        let system = catalogue.system(Uuid::new_v4()).await?;
        time::begin(&catalogue, &clock).await?;
        let generation = system.generation;
        let pools = PoolTable::new(system, settings);
        pools.open_all(&catalogue, settings.first.as_ref(), &replica).await?;
        pools.check_start(&catalogue, replica.instance).await?;
        pools.tell_states();
        // Before anything is put in place: a session that is lost on the way is noticed.
        let sessions = catalogue.session();
        let session = sessions.borrow().generation;
        let started = clock.now();
        let me = replica.component(ComponentState::Starting, started);
        let found = time::find_record(&catalogue, &clock).await?;
        let node = cluster::replicas::join(&catalogue, &replica.host, &me).await?;
        time::begin_beside(&catalogue, &clock, replica.instance, found).await?;
        let owner =
            Owner { instance: replica.instance, address: replica.address.clone(), nonce: Uuid::new_v4() };
        let (tasks, stop, waits) = (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
        let membership = Membership::new(replica, (started, node), session, sessions);
        let (meter, watch, ledger) = (Meter::default(), Observation::default(), Arc::default());
        let task_failures = TaskFailures::new(meter.clone());
        let shared = Shared {
            catalogue,
            pools,
            slot_table: SlotTable::new(),
            assignment: Assignment::default(),
            alarms: Alarms::default(),
            clock,
            limits,
            meter,
            watch,
            membership,
            receipt_key: OnceCell::new(),
            quotas,
            ledger,
            regional_projects: RegionalProjects::default(),
            owner,
            generation,
            peer_client: OnceLock::new(),
            heard: TargetEpochs::default(),
            listing_turns: ListingAdmission::default(),
            duplicates: DedupUsage::default(),
            reach: Reach::default(),
            pool_use: PoolUse::default(),
            memory: overview::ReportCache::default(),
            retention_tried: Mutex::default(),
            task_failures,
            tasks,
            stop,
            waits,
            unready: Mutex::default(),
        };
        let broker = Self(Arc::new(shared));
        broker.reopen_marked_pools().await;
        broker.set_state(ComponentState::Running).await;
        let mut following = FollowedCluster::new();
        let free = broker.catch_up_slots(&mut following).await?;
        broker.take_all(free).await.map_err(|(_, error)| error)?;
        broker.start_background_tasks(following);
        Ok(broker)
    }

    /// What clients may ask for. A caller that makes a value of input checks it by these.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// From here on no claim waits for messages: those that do are told that there is nothing.
    pub fn stop_waiters(&self) {
        self.0.waits.cancel();
    }

    /// Ends the background tasks and waits until every change that has begun is at its end.
    pub async fn stop(&self) {
        self.stop_waiters();
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Whether only a restart can help: the embedded tree closes itself after a failed write.
    pub fn check_alive(&self) -> Result<(), Error> {
        self.0.catalogue.check_alive()
    }

    /// What it counts and measures.
    pub fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// Whether clients should ask this replica: some pool accepts writes, the replica is a member in the session there
    /// is or no other is known to do better (see [`reach`]), and no caller has told it to stop. Probes ask this again
    /// and again, so it is logged when the answer changes, and not where it is given.
    pub fn check_ready(&self) -> Result<(), Error> {
        let ready = self.find_ready();
        let why = ready.as_ref().err().map(pool_health::reason);
        let mut unready = self.0.unready.lock();
        if *unready != why {
            match &why {
                Some(reason) => warn!(reason, "not ready"),
                None => info!("ready again"),
            }
            *unready = why;
        }
        ready
    }

    fn find_ready(&self) -> Result<(), Error> {
        if self.0.waits.is_cancelled() {
            return Err(Error::unavailable(Part::Server, "the service is stopping"));
        }
        if self.is_leaving() {
            return Err(Error::unavailable(Part::Server, "the replica hands its queues over to others"));
        }
        self.check_session()?;
        self.0.pools.check_open()
    }

    /// Brings to its end what no caller waits for any more; the shutdown does.
    pub fn drain_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.tasks.spawn(work);
    }

    /// Runs a change to its end in a task of its own and hands back its answer. When no caller waits for the
    /// answer any more it is dropped there.
    async fn carry_out<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let task = async move {
            if let Err(Err(error)) = reply.send(change.await) {
                debug!(error = %error.detail(), "change failed without its client");
            }
        };
        // What it logs is of the request that began it.
        self.0.tasks.spawn(task.in_current_span());
        answer.await.unwrap_or_else(|_| Err(Error::unknown(Part::Server, "a task ended without an answer")))
    }
}

/// What a failed call to this part, a pool or a storage that is to be one, means to a request.
fn storage_failed(part: Part, error: StoreError) -> Error {
    match error {
        StoreError::Full => Error::Full,
        error @ StoreError::Damaged(_) => Error::damaged(part, error),
        error if error.nothing_written() => Error::unavailable(part, error),
        error => Error::unknown(part, error),
    }
}
