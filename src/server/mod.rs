//! The composition root: opens the stores, connects the parts, serves, and shuts everything down.

mod addresses;
mod backup;
pub mod connection;
pub mod deadline;
pub mod exchange;
mod face;
mod instance;
pub mod limits;
pub mod listener;
mod location;
mod peers;
mod proxy_header;
mod reload;
mod reserve;
pub mod restore;
mod sealing;
mod secret_files;
pub mod source;
mod systemd;
pub mod tls;
pub mod tree;
pub mod unsent;
mod webhooks;
mod zookeeper;

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error as ThisError;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::{info, warn};

use crate::api::{self, PeerFront, RegionalAccess, Relay};
use crate::config::balance::{BalanceMode, BalanceSettings};
use crate::config::{Config, ConfigError, TreeChoice};
use angarium_broker::{
    AutomaticBalance, BackupSource, Broker, FirstPool, PoolSettings, SuccessorProcess, WebhookSender,
};
use angarium_catalogue::Catalogue;
use angarium_clock::Clock;
use angarium_cluster::peer_client::PeerClient;
use angarium_cluster::peers::{PeerTransport, Peers};
use angarium_cluster::replicas::Replica;
use angarium_cluster::tls::PeerTls;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_coordination::{Coordination, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::names::PoolName;
use angarium_core::pool::PoolUri;
use angarium_journal::{Journal, JournalOptions, OpenError};
use angarium_sealing::{KeyFileError, KeyRing};
use angarium_storage::open::PoolOpener;
use backup::HotBackups;
use face::{Face, FaceError};
use instance::{Instance, InstanceError};
use location::LocationError;
use peers::{PeerCertificate, PeerFace, PeerGate, PeerListener};
use tls::Transport;
use webhooks::{HttpWebhooks, WebhooksError};

/// The directory of the embedded tree and the first pool, below the data directory.
const JOURNAL: &str = "journal";

/// The pool of a new installation. Its weight matters only when there are other pools.
const FIRST_POOL: &str = "default";
const FIRST_WEIGHT: u32 = 100;

/// Max projects in a warning.
const LISTED_PROJECTS: usize = 100;

/// Errors at the start of the service.
#[derive(Debug, ThisError)]
pub enum StartError {
    /// The combination of settings is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The client-facing parts cannot be created.
    #[error(transparent)]
    Face(#[from] FaceError),
    /// The sender of webhooks cannot be created.
    #[error(transparent)]
    Webhooks(#[from] WebhooksError),
    /// The service cannot listen on an address.
    #[error("cannot listen on {address} ({setting})")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The setting with the address.
        setting: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// The data directory cannot be used.
    #[error("cannot use {path} as the data directory (--data)")]
    Data {
        /// The path of the directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The identity of the replica cannot be read or is damaged.
    #[error("{0}")]
    Identity(String),
    /// The certificate for the other replicas cannot be made.
    #[error("cannot make the certificate of this replica: {0}")]
    Certificate(String),
    /// The data directory is not where it was.
    #[error("{0}")]
    Elsewhere(String),
    /// Another process uses the data directory.
    #[error("{0} is in use by another process (--data)")]
    InUse(PathBuf),
    /// The embedded stores cannot be opened.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// The ZooKeeper ensemble cannot be used.
    #[error("cannot use ZooKeeper (--coordination)")]
    Tree(#[from] TreeError),
    /// Every client of the ensemble may use the tree, and the settings forbid that.
    #[error("{0}")]
    OpenTree(String),
    /// The keys for the secrets in the tree cannot be read.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    /// The contents of the stores cannot be used. The text has the causes.
    #[error("cannot start: {}", .0.detail())]
    Stores(Error),
}

impl From<Error> for StartError {
    fn from(error: Error) -> Self {
        Self::Stores(error)
    }
}

/// Returns a function with the status text for the service manager.
fn serving_state(broker: Broker) -> impl Fn() -> String {
    move || match broker.check_ready() {
        Ok(()) => "ready".to_owned(),
        Err(error) => format!("not ready: {}", error.detail()),
    }
}

fn joined<P: ToString>(projects: &BTreeSet<P>) -> String {
    projects.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Warns of projects that callers of REST are refused, because an SQS key may reach them by its region.
async fn warn_of_regional_projects(broker: &Broker, face: &Face) {
    if face.sqs.regional_projects() == RegionalAccess::Served {
        return;
    }
    let granted = face.projects().into_iter().filter(|project| project.as_str().contains('@'));
    let granted: BTreeSet<String> =
        granted.map(|project| project.to_string()).take(LISTED_PROJECTS).collect();
    if !granted.is_empty() {
        warn!(
            projects = joined(&granted),
            next_step = "keys of SQS may sign for any region: name the regions with --sqs-regions",
            "regional projects refused"
        );
    }
    match broker.stored_regional_projects(LISTED_PROJECTS).await {
        Ok(stored) if stored.is_empty() => {}
        Ok(stored) => warn!(
            projects = joined(&stored),
            next_step =
                "REST is refused to them, keys of SQS reach them: name the regions with --sqs-regions",
            "queues of regional projects found"
        ),
        Err(error) => warn!(error = %error.detail(), "regional projects not listed"),
    }
}

/// Returns the terms of automatic balance; none when an administrator balances the pools.
fn automatic_balance(settings: &BalanceSettings) -> Option<AutomaticBalance> {
    (settings.balance == BalanceMode::Auto).then(|| AutomaticBalance {
        rate: settings.balance_rate,
        min_gain: f64::from(settings.balance_when) / 100.0,
        interval: Duration::from_secs(settings.balance_every.into()),
    })
}

/// A service that ended by itself, because it runs twice.
#[derive(Debug, ThisError)]
#[error(
    "a copy of the data directory is in use: {0} has the identity of this replica and started later, so this process \
     has stopped. Stop the one that should not run, and remove its data directory"
)]
pub struct ReplicaConflict(SuccessorProcess);

/// A service that is ready to serve.
pub struct Server {
    listener: TcpListener,
    face: Face,
    /// The listener for other replicas; none for a service with one replica.
    peers: Option<PeerFace>,
    webhooks: Arc<HttpWebhooks>,
    /// None when the tree is in ZooKeeper.
    backups: Option<Arc<HotBackups>>,
    broker: Broker,
    tree: Arc<dyn Coordination>,
    clock: Clock,
    _instance: Instance,
}

impl Server {
    /// Opens the stores below the data directory and binds the address. The address is bound first: a second service on
    /// it fails before it accesses any data.
    pub async fn open(config: &Config) -> Result<Self, StartError> {
        config.check()?;
        let limits = config.limits.chosen().map_err(ConfigError::from)?;
        let keys = sealing::keys(config)?;
        let clock = Clock::system();
        let mut face = Face::new(config, &clock)?;
        let failed = |source| StartError::Listen { address: config.listen, setting: "--listen", source };
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let data = open_data(&config.data)?;
        let instance = open_instance(&data)?;
        check_location(config, &data)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let peers = PeerListener::bind(config, &host).await?;
        let address = match &peers {
            Some(peers) => peers.address.clone(),
            None => peers::reached_at(&listener, &host).map_err(failed)?,
        };
        let listeners = [Some(&listener), peers.as_ref().map(|peers| &peers.listener)].into_iter().flatten();
        let listeners = listeners.map(TcpListener::local_addr).collect::<Result<_, _>>().map_err(failed)?;
        let webhooks = Arc::new(HttpWebhooks::new(&config.webhooks, listeners)?);
        let mut replica = Replica::new(instance.id, host, address);
        replica.weight = config.cluster.weight;
        replica.pid = std::process::id();
        replica.secret_keys = keys.as_ref().map(KeyRing::ids).unwrap_or_default();
        let peers = match peers {
            Some(PeerListener { listener, .. }) => {
                let PeerCertificate { first, renewed } = PeerCertificate::open(config, &mut face.reloader)?;
                replica.certificate = Some(first.fingerprint());
                let tls = PeerTls::new(&first, replica.trust.clone()).map_err(StartError::Certificate)?;
                Some(PeerFace { listener, tls, renewed })
            }
            None => None,
        };
        if config.accept_clock {
            clock.accept_steps();
        }
        let (tree, journal) = open_tree(config, &data.join(JOURNAL), &clock).await?;
        let given = journal.clone().map(|journal| (data.join(JOURNAL), journal));
        let opener = PoolOpener::new(&data, clock.clone(), given).with_options(journal_options(config));
        let opener = Arc::new(opener);
        let settings = pool_settings(config, Arc::clone(&opener))?;
        let catalogue = Catalogue::with_keys(Arc::clone(&tree), keys);
        let quotas = face.quotas.clone();
        let broker =
            Broker::start_within(catalogue, &settings, replica, clock.clone(), limits, quotas).await?;
        if let Some(journal) = &journal {
            end_restore(journal, &clock).await?;
        }
        let backups = journal.map(|journal| {
            let tree = (JOURNAL.to_owned(), journal);
            Arc::new(HotBackups::new(tree, opener, clock.clone(), broker.meter().backups()))
        });
        if let Some(backups) = &backups {
            broker.backups_made_by(Arc::clone(backups) as Arc<dyn BackupSource>);
        }
        if !config.webhooks.no_webhooks {
            broker.webhooks_send_by(Arc::clone(&webhooks) as Arc<dyn WebhookSender>);
        }
        warn_of_regional_projects(&broker, &face).await;
        if let Some(terms) = automatic_balance(&config.balance) {
            broker.keep_balanced(terms);
        }
        broker.meter().name_queues(usize::try_from(config.metrics_queues).unwrap_or(usize::MAX));
        Ok(Self { listener, face, peers, webhooks, backups, broker, tree, clock, _instance: instance })
    }

    /// Returns the address that the service listens on.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`, then hands its queues over to other replicas if there are any, finishes the requests in
    /// progress and closes the stores. `finishing` is called when no request is left; the steps after it may wait for a
    /// disk that hangs and block their thread. Stops by itself, with an error, when another process has the identity of
    /// this replica and started later.
    pub async fn run(self, stop: CancellationToken, finishing: impl FnOnce()) -> Result<(), ReplicaConflict> {
        let Face { authentication, requests, transport, connections, proxies, reloader, sqs, .. } = self.face;
        let broker = self.broker.clone();
        let relay = |face: &PeerFace| {
            let peers: Arc<dyn PeerTransport> = Arc::new(Peers::new(Some(face.tls.clone())));
            broker.meet(PeerClient::new(Arc::clone(&peers)));
            Relay::new(broker.clone(), peers)
        };
        let relay = self.peers.as_ref().map(relay);
        let app = api::front(broker.clone(), authentication, requests, self.clock, relay, sqs);
        let meter = broker.meter().clone();
        let (app_of_manager, stop_of_manager) = (app.clone(), stop.clone());
        let manager = systemd::report(app_of_manager, stop_of_manager, serving_state(broker.clone()));
        let _manager = AbortOnDropHandle::new(TaskTracker::new().spawn(manager));
        let _idle_webhooks = AbortOnDropHandle::new(TaskTracker::new().spawn(self.webhooks.close_idle()));
        // Client connections end first; the other replicas may send requests until the clients are disconnected.
        let (no_clients, no_peers) = (CancellationToken::new(), CancellationToken::new());
        let leaving = async {
            let successor = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                successor = broker.successor() => Some(successor),
            };
            stop.cancel();
            systemd::stopping();
            if let Some(backups) = &self.backups {
                backups.stop();
            }
            broker.drain().await;
            broker.stop_waiters();
            no_clients.cancel();
            successor
        };
        let peers = async {
            let Some(PeerFace { listener, tls, renewed }) = self.peers else { return };
            let renewing =
                renewed.map(|renewed| peers::renew_certificate(broker.clone(), tls.clone(), renewed));
            let _renewing = renewing.map(|task| AbortOnDropHandle::new(TaskTracker::new().spawn(task)));
            let app = PeerFront::new(broker.clone(), app.clone(), tls.trust().clone());
            let limits = peers::connection_limits(connections);
            listener::run(
                listener,
                Transport::Peers(PeerGate::new(tls)),
                app,
                limits,
                meter.clone(),
                no_peers.clone(),
            )
            .await;
        };
        let clients = async {
            let (app, meter) = (app.clone(), meter.clone());
            let (listener, stop) = (self.listener, no_clients.clone());
            listener::run_behind(proxies, listener, transport, app, connections, meter, stop).await;
            no_peers.cancel();
        };
        let successor = tokio::select! {
            (successor, ..) = async { tokio::join!(leaving, clients, peers) } => successor,
            () = reloader.run(meter.clone()) => None,
        };
        info!("requests finished");
        finishing();
        if let Some(backups) = &self.backups {
            backups.stop();
            backups.ended().await;
        }
        self.broker.stop().await;
        self.tree.close().await;
        successor.map_or(Ok(()), |successor| Err(ReplicaConflict(successor)))
    }
}

fn open_data(data: &Path) -> Result<PathBuf, StartError> {
    let failed = |source| StartError::Data { path: data.to_owned(), source };
    if data.exists() && !data.is_dir() {
        return Err(failed(std::io::Error::other("it is there and is not a directory")));
    }
    // Messages are private to the user of the service. An existing directory keeps its mode.
    DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(failed)?;
    data.canonicalize().map_err(failed)
}

fn open_instance(data: &Path) -> Result<Instance, StartError> {
    Instance::open(data).map_err(|error| match error {
        InstanceError::InUse => StartError::InUse(data.to_owned()),
        InstanceError::Damaged(why) => StartError::Identity(why),
        InstanceError::Io(source) => StartError::Data { path: data.to_owned(), source },
    })
}

/// Checks that the data directory is where it was, unless the settings state that it was moved.
fn check_location(config: &Config, data: &Path) -> Result<(), StartError> {
    let checked = if config.moved { location::accept(data) } else { location::check(data) };
    checked.map_err(|error| match error {
        LocationError::Elsewhere(why) => StartError::Elsewhere(why),
        LocationError::Io(source) => StartError::Data { path: data.to_owned(), source },
    })
}

fn journal_options(config: &Config) -> JournalOptions {
    JournalOptions {
        reserve: config.reserve,
        accept_damage: config.accept_log_damage,
        commit_deadline: config.waits.commit_timeout,
    }
}

/// Opens the embedded tree in a journal.
async fn embedded_tree(journal: Journal) -> Result<Arc<dyn Coordination>, TreeError> {
    Ok(Arc::new(EmbeddedTree::open(journal).await?))
}

/// Ends the restore of the tree's journal, if it is of one. Until then each start continues at the moment of the
/// backup, so one that fails costs no message a part of its life.
async fn end_restore(journal: &Journal, clock: &Clock) -> Result<(), StartError> {
    let ended = journal.end_restore(clock).await;
    ended.map_err(|error| StartError::Stores(Error::unavailable(Part::Storage, error)))
}

/// Opens the tree, and the journal that it is in. A tree on ZooKeeper has no journal: a pool at the path of the journal
/// is then opened like any other pool, and nothing is created there if its disk is mounted late.
async fn open_tree(
    config: &Config,
    journal: &Path,
    clock: &Clock,
) -> Result<(Arc<dyn Coordination>, Option<Journal>), StartError> {
    match &config.coordination {
        TreeChoice::Embedded => {
            let journal = Journal::open_with(journal, clock, journal_options(config))?;
            Ok((embedded_tree(journal.clone()).await?, Some(journal)))
        }
        TreeChoice::ZooKeeper(address) => {
            let tree = zookeeper::open(config, address).await?;
            zookeeper::judge(config, address, &tree).await?;
            Ok((Arc::new(tree), None))
        }
    }
}

/// Returns the settings of the first pool. With an embedded tree the pool shares the journal of the tree. With
/// ZooKeeper there is a first pool only if the settings name it, so that data is not stored on the disk of one replica
/// by accident.
fn pool_settings(config: &Config, opener: Arc<PoolOpener>) -> Result<PoolSettings, Error> {
    let uri = match (&config.pool, &config.coordination) {
        (Some(uri), _) => Some(PoolUri::new(uri)?),
        (None, TreeChoice::Embedded) => Some(PoolUri::new(&format!("embedded:{JOURNAL}"))?),
        (None, TreeChoice::ZooKeeper(_)) => None,
    };
    let name = PoolName::new(FIRST_POOL)?;
    let first = uri.map(|uri| FirstPool { name, uri, weight: FIRST_WEIGHT });
    Ok(PoolSettings { first, opener, placement: config.placement })
}
