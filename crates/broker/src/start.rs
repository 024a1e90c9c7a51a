//! Construction of the broker. Components are built from the bottom up, so that none can call one above it.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use angarium_catalogue::{Catalogue, ComponentState, Owner};
use angarium_clock::Clock;
use angarium_cluster as cluster;
use angarium_cluster::replicas::Replica;
use angarium_core::error::Error;
use angarium_core::limits::Limits;
use angarium_metrics::Meter;
use angarium_storage::Tenant;

use crate::background::{Background, BackgroundParts, tree_time};
use crate::backup::Backups;
use crate::balance::{Balance, BalanceParts};
use crate::broker::Broker;
use crate::claims::{Claims, ClaimsParts};
use crate::counting::{Counts, CountsParts};
use crate::explain::{Explanations, ExplanationsParts};
use crate::health::reach::Reach;
use crate::health::{Health, HealthParts};
use crate::holds::{Holds, HoldsParts};
use crate::ledger::accounts::{Quotas, unbounded};
use crate::ledger::quota_ledger::Ledger;
use crate::messages::{Messages, MessagesParts};
use crate::migration::{Migrations, MigrationsParts};
use crate::open_queues::ignored::IgnoredAttributes;
use crate::open_queues::{OpenQueues, OpenQueuesParts};
use crate::pools::Pools;
use crate::queues::{Queues, QueuesParts};
use crate::quotas::admission::{Admission, AdmissionBounds};
use crate::quotas::regional_projects::RegionalProjects;
use crate::quotas::{QuotaCounts, QuotaCountsParts};
use crate::redrive::{Redrive, RedriveParts};
use crate::replica::LocalReplica;
use crate::replica::alarm::Alarms;
use crate::replica::forms::TriedForms;
use crate::replica::receipt_keys::ReceiptKeys;
use crate::replica::task_failures::TaskFailures;
use crate::reports::overview::ReportCache;
use crate::reports::page::Observation;
use crate::reports::{Reports, ReportsParts};
use crate::slot::SlotSurroundings;
use crate::slot::dedup::DedupUsage;
use crate::slot::follow_ups::{FollowUp, FollowUps};
use crate::slots::Slots;
use crate::slots::assignment::FollowedCluster;
use crate::slots::membership::{Membership, Registration};
use crate::stores::table::{PoolSettings, PoolTable};
use crate::subscriptions::{Subscriptions, SubscriptionsParts};
use crate::sweeps::{Sweeps, SweepsParts};
use crate::transfer::remote::TargetEpochs;
use crate::transfer::{MessageTransfers, MessageTransfersParts};
use crate::webhooks::Webhooks;

/// Every component with verbs of the service, once each. They hold the components below them.
pub(crate) struct Components {
    pub(crate) replica: Arc<LocalReplica>,
    pub(crate) slots: Slots,
    pub(crate) pools: Pools,
    pub(crate) quotas: QuotaCounts,
    pub(crate) holds: Holds,
    pub(crate) open_queues: OpenQueues,
    pub(crate) messages: Messages,
    pub(crate) transfers: MessageTransfers,
    pub(crate) migrations: Migrations,
    pub(crate) counting: Counts,
    pub(crate) claims: Claims,
    pub(crate) queues: Queues,
    pub(crate) explanations: Explanations,
    pub(crate) webhooks: Webhooks,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) redrive: Redrive,
    pub(crate) balance: Balance,
    pub(crate) backups: Backups,
    pub(crate) sweeps: Sweeps,
    pub(crate) health: Health,
    pub(crate) reports: Reports,
}

impl Broker {
    /// Registers `replica`, takes the slots that it should serve and that no replica owns, and starts its background
    /// tasks. No project has a quota.
    ///
    /// When there are pools and none can be used, it takes nothing and the error gives the reason. Without any pool the
    /// service starts, so that an operator can add one.
    pub async fn start(
        catalogue: Catalogue,
        settings: &PoolSettings,
        replica: Replica,
        clock: Clock,
        limits: Limits,
    ) -> Result<Self, Error> {
        Self::start_within(catalogue, settings, replica, clock, limits, unbounded()).await
    }

    /// As [`Broker::start`], with quotas, which may change while the broker runs.
    pub async fn start_within(
        catalogue: Catalogue,
        settings: &PoolSettings,
        replica: Replica,
        clock: Clock,
        limits: Limits,
        quotas: Quotas,
    ) -> Result<Self, Error> {
        let system = catalogue.system(replica.random.uuid()).await?;
        tree_time::begin(&catalogue, &clock).await?;
        let generation = system.generation;
        let replica = Replica { nonce: replica.random.uuid(), ..replica };
        let tenant = pool_tenant(&catalogue, &clock, &replica, generation);
        let stores = PoolTable::new(system, settings, replica.random.clone()).used_by(tenant);
        stores.open_all(&catalogue, settings.first.as_ref(), &replica).await?;
        stores.check_start(&catalogue, replica.instance).await?;
        stores.tell_states();
        let membership = register(&catalogue, &clock, &replica).await?;
        let meter = Meter::default();
        let replica = Arc::new(LocalReplica {
            owner: Owner { instance: replica.instance, address: replica.address, nonce: replica.nonce },
            random: replica.random,
            generation,
            alarms: Alarms::default(),
            failures: TaskFailures::new(meter.clone()),
            outages: stores.outages(),
            receipt_keys: ReceiptKeys::default(),
            forms: TriedForms::default(),
            peer_client: OnceLock::new(),
            tasks: replica.tasks,
            stop: CancellationToken::new(),
            successor: OnceLock::new(),
            succeeded: CancellationToken::new(),
            waits: CancellationToken::new(),
            catalogue,
            clock,
            limits,
            meter,
        });
        let (follow_ups, list) = FollowUps::new();
        let ledger = Arc::new(Ledger::new(quotas));
        let around = SlotSurroundings::new(replica, Arc::new(stores), ledger, follow_ups);
        Self::assemble(around, membership).begin(list).await
    }

    /// Takes the slots that this replica should serve, and starts the background tasks.
    async fn begin(self, follow_ups: UnboundedReceiver<FollowUp>) -> Result<Self, Error> {
        let (pools, slots) = (&self.0.pools, &self.0.slots);
        pools.reopen_marked_pools().await;
        slots.set_state(ComponentState::Running).await;
        let mut following = FollowedCluster::new();
        let free = slots.catch_up_slots(&mut following).await?;
        slots.take_all(free).await.map_err(|(_, error)| error)?;
        let background = self.0.background();
        background.start_follow_ups(follow_ups);
        background.start_background_tasks(following);
        Ok(self)
    }

    /// Ends the background tasks and waits until every change in progress has ended.
    pub async fn stop(&self) {
        self.stop_waiters();
        let replica = &self.0.replica;
        replica.stop.cancel();
        replica.tasks.finish().await;
    }

    /// Builds the components, each on the ones below it.
    fn assemble(around: SlotSurroundings, membership: Membership) -> Self {
        let SlotSurroundings { replica, stores, ledger, dedup, .. } = around.clone();
        let slots = Slots::new(around, membership);
        let pools = Pools::new(&replica, &stores, &slots);
        let quotas = QuotaCounts::new(QuotaCountsParts {
            replica: Arc::clone(&replica),
            stores: Arc::clone(&stores),
            ledger: Arc::clone(&ledger),
            slots: slots.clone(),
            pools: pools.clone(),
            regional_projects: RegionalProjects::default(),
            listing_turns: Admission::new(&AdmissionBounds::LISTINGS),
            peek_turns: Admission::new(&AdmissionBounds::PEEKS),
            webhook_turns: Admission::new(&AdmissionBounds::WEBHOOKS),
        });
        let open_queues = OpenQueues::new(OpenQueuesParts {
            replica: Arc::clone(&replica),
            stores: Arc::clone(&stores),
            ledger: Arc::clone(&ledger),
            slots: slots.clone(),
            pools: pools.clone(),
            quotas: quotas.clone(),
            ignored: IgnoredAttributes::default(),
        });
        let lower = LowerComponents { replica, stores, ledger, slots, pools, quotas, open_queues };
        Self(Arc::new(lower.complete(dedup)))
    }
}

/// Returns this process as the tenant of its pools; none with a tree that several replicas share, which has sessions.
fn pool_tenant(catalogue: &Catalogue, clock: &Clock, replica: &Replica, generation: u32) -> Option<Tenant> {
    catalogue.session_timeout().is_none().then(|| Tenant {
        generation,
        nonce: replica.nonce,
        started: clock.now(),
        pid: replica.pid,
        address: replica.address.clone(),
        host: replica.host.clone(),
    })
}

/// Registers the replica in the state `Starting`, and agrees with running replicas on the time.
async fn register(catalogue: &Catalogue, clock: &Clock, replica: &Replica) -> Result<Membership, Error> {
    // Taken before the first write, so that the loss of the session is noticed from here on.
    let sessions = catalogue.session();
    let generation = sessions.borrow().generation;
    let me = replica.component(ComponentState::Starting, clock.now());
    let found = tree_time::find_record(catalogue, clock).await?;
    let cluster::replicas::Registration { node, started } =
        cluster::replicas::join(catalogue, &replica.host, &me).await?;
    tree_time::begin_beside(catalogue, clock, replica.instance, found).await?;
    Ok(Membership::new(replica.clone(), Registration { started, node, generation }, sessions))
}

/// The components up to `open_queues`: all others are built on these.
struct LowerComponents {
    replica: Arc<LocalReplica>,
    stores: Arc<PoolTable>,
    ledger: Arc<Ledger>,
    slots: Slots,
    pools: Pools,
    quotas: QuotaCounts,
    open_queues: OpenQueues,
}

impl LowerComponents {
    fn complete(self, dedup: Arc<DedupUsage>) -> Components {
        let (messages, transfers, migrations, counting) =
            (self.messages(), self.transfers(), self.migrations(), self.counting());
        let queues = self.queues(&transfers, &migrations, &counting);
        let claims = self.claims();
        let webhooks = Webhooks::new(&self.replica, &self.slots, &self.open_queues, &self.quotas, &claims);
        let subscriptions = self.subscriptions(&queues, &webhooks);
        let redrive = self.redrive(&transfers, &queues);
        let balance = self.balance(&migrations, &transfers);
        let health = self.health();
        let reports = self.reports(&balance, &health);
        Components {
            claims,
            explanations: self.explanations(&messages, &webhooks),
            sweeps: self.sweeps(dedup),
            messages,
            transfers,
            migrations,
            counting,
            queues,
            webhooks,
            subscriptions,
            redrive,
            balance,
            backups: Backups::new(&self.pools),
            health,
            reports,
            holds: self.holds(),
            replica: self.replica,
            slots: self.slots,
            pools: self.pools,
            quotas: self.quotas,
            open_queues: self.open_queues,
        }
    }

    fn holds(&self) -> Holds {
        Holds::new(HoldsParts {
            replica: Arc::clone(&self.replica),
            slots: self.slots.clone(),
            pools: self.pools.clone(),
        })
    }

    fn messages(&self) -> Messages {
        Messages::new(MessagesParts {
            replica: Arc::clone(&self.replica),
            slots: self.slots.clone(),
            quotas: self.quotas.clone(),
            open_queues: self.open_queues.clone(),
        })
    }

    fn transfers(&self) -> MessageTransfers {
        MessageTransfers::new(MessageTransfersParts {
            replica: Arc::clone(&self.replica),
            stores: Arc::clone(&self.stores),
            slots: self.slots.clone(),
            pools: self.pools.clone(),
            quotas: self.quotas.clone(),
            open_queues: self.open_queues.clone(),
            target_epochs: TargetEpochs::default(),
        })
    }

    fn migrations(&self) -> Migrations {
        Migrations::new(MigrationsParts {
            replica: Arc::clone(&self.replica),
            stores: Arc::clone(&self.stores),
            slots: self.slots.clone(),
            pools: self.pools.clone(),
            open_queues: self.open_queues.clone(),
        })
    }

    fn counting(&self) -> Counts {
        Counts::new(CountsParts {
            replica: Arc::clone(&self.replica),
            slots: self.slots.clone(),
            open_queues: self.open_queues.clone(),
        })
    }

    fn claims(&self) -> Claims {
        Claims::new(ClaimsParts {
            replica: Arc::clone(&self.replica),
            slots: self.slots.clone(),
            open_queues: self.open_queues.clone(),
            quotas: self.quotas.clone(),
        })
    }

    fn queues(&self, transfers: &MessageTransfers, migrations: &Migrations, counting: &Counts) -> Queues {
        Queues::new(QueuesParts {
            replica: Arc::clone(&self.replica),
            ledger: Arc::clone(&self.ledger),
            slots: self.slots.clone(),
            pools: self.pools.clone(),
            quotas: self.quotas.clone(),
            open_queues: self.open_queues.clone(),
            transfers: transfers.clone(),
            migrations: migrations.clone(),
            counting: counting.clone(),
        })
    }

    fn subscriptions(&self, queues: &Queues, webhooks: &Webhooks) -> Subscriptions {
        Subscriptions::new(SubscriptionsParts {
            replica: Arc::clone(&self.replica),
            ledger: Arc::clone(&self.ledger),
            slots: self.slots.clone(),
            pools: self.pools.clone(),
            quotas: self.quotas.clone(),
            open_queues: self.open_queues.clone(),
            queues: queues.clone(),
            webhooks: webhooks.clone(),
        })
    }

    fn explanations(&self, messages: &Messages, webhooks: &Webhooks) -> Explanations {
        Explanations::new(ExplanationsParts {
            replica: Arc::clone(&self.replica),
            stores: Arc::clone(&self.stores),
            slots: self.slots.clone(),
            open_queues: self.open_queues.clone(),
            messages: messages.clone(),
            webhooks: webhooks.clone(),
        })
    }

    fn redrive(&self, transfers: &MessageTransfers, queues: &Queues) -> Redrive {
        Redrive::new(RedriveParts {
            replica: Arc::clone(&self.replica),
            stores: Arc::clone(&self.stores),
            slots: self.slots.clone(),
            open_queues: self.open_queues.clone(),
            transfers: transfers.clone(),
            queues: queues.clone(),
            quotas: self.quotas.clone(),
        })
    }

    fn balance(&self, migrations: &Migrations, transfers: &MessageTransfers) -> Balance {
        Balance::new(BalanceParts {
            replica: Arc::clone(&self.replica),
            stores: Arc::clone(&self.stores),
            slots: self.slots.clone(),
            pools: self.pools.clone(),
            open_queues: self.open_queues.clone(),
            migrations: migrations.clone(),
            transfers: transfers.clone(),
            ledger: Arc::clone(&self.ledger),
        })
    }

    fn sweeps(&self, dedup: Arc<DedupUsage>) -> Sweeps {
        Sweeps::new(SweepsParts {
            replica: Arc::clone(&self.replica),
            stores: Arc::clone(&self.stores),
            slots: self.slots.clone(),
            open_queues: self.open_queues.clone(),
            dedup,
        })
    }

    fn health(&self) -> Health {
        Health::new(HealthParts {
            replica: Arc::clone(&self.replica),
            stores: Arc::clone(&self.stores),
            slots: self.slots.clone(),
            pools: self.pools.clone(),
            reach: Reach::default(),
            unready: Mutex::default(),
        })
    }

    fn reports(&self, balance: &Balance, health: &Health) -> Reports {
        Reports::new(ReportsParts {
            replica: Arc::clone(&self.replica),
            stores: Arc::clone(&self.stores),
            slots: self.slots.clone(),
            pools: self.pools.clone(),
            quotas: self.quotas.clone(),
            balance: balance.clone(),
            health: health.clone(),
            watch: Observation::default(),
            memory: ReportCache::default(),
        })
    }
}

impl Components {
    fn background(&self) -> Background {
        Background::new(BackgroundParts {
            replica: Arc::clone(&self.replica),
            slots: self.slots.clone(),
            pools: self.pools.clone(),
            quotas: self.quotas.clone(),
            holds: self.holds.clone(),
            counting: self.counting.clone(),
            claims: self.claims.clone(),
            queues: self.queues.clone(),
            webhooks: self.webhooks.clone(),
            subscriptions: self.subscriptions.clone(),
            redrive: self.redrive.clone(),
            balance: self.balance.clone(),
            sweeps: self.sweeps.clone(),
            health: self.health.clone(),
            reports: self.reports.clone(),
            messages: self.messages.clone(),
            transfers: self.transfers.clone(),
            migrations: self.migrations.clone(),
        })
    }
}
