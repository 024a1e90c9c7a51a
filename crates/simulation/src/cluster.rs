//! The replicas of a run: each is a process with a broker and its API, which is started again after it has ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use angarium::api::{self, Authentication, Front, PeerFront, Relay, RequestLimits, SqsSettings};
use angarium_broker::{Broker, FirstPool, PoolSettings};
use angarium_catalogue::Catalogue;
use angarium_clock::Clock;
use angarium_cluster::identity::Fingerprint;
use angarium_cluster::peer_client::PeerClient;
use angarium_cluster::random::Random;
use angarium_cluster::replicas::Replica;
use angarium_coordination::{Coordination, embedded};
use angarium_core::error::{Error, Part};
use angarium_core::limits::Limits;
use angarium_core::maps::HashMap;
use angarium_core::names::PoolName;
use angarium_core::pool::PoolUri;
use angarium_core::quota::{Quota, QuotaTable};
use angarium_core::time::Timestamp;
use angarium_engine::placement::Algorithm;
use angarium_journal::{Journal, JournalOptions, View};
use angarium_storage::open::Opener;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use uuid::Uuid;

use crate::faults::Fault;
use crate::journal::{CrashHook, Disk, EMBEDDED, ProcessJournal};
use crate::network::SimulatedPeers;
use crate::pool::{SimulatedOpener, Storages};
use crate::process::Process;
use crate::scheduler::Policy;
use crate::tree::{Ensemble, ProcessSpawn, TreeHandle};
use crate::world::World;

/// The wall clock at the start of every run, in milliseconds since the Unix epoch.
pub const START_MILLIS: u64 = 1_800_000_000_000;

/// How long a process waits for its first session with the tree.
const TREE_START: Duration = Duration::from_secs(30);

/// The greatest number of elements of a path in the tree.
const MAX_DEPTH: u8 = 8;

/// Number of slots of every installation.
const SLOTS: usize = 256;

/// Limits that no request of a run reaches.
const REQUESTS: RequestLimits = RequestLimits {
    requests: 10_000,
    long_polls: 10_000,
    per_address: 10_000,
    project_rate: None,
    body_bytes: 256 << 20,
};

/// Returns the certificate of the processes of a replica. No handshake is simulated.
pub fn certificate_of(number: usize) -> Fingerprint {
    Fingerprint::parse(&format!("{number:064x}")).expect("it has 64 digits")
}

/// The replicas, and all that they stand on. Clones share them.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    world: World,
    ensemble: Ensemble,
    storages: Storages,
    settings: ClusterSettings,
    /// The quotas of all projects, which each replica has at once.
    quotas: watch::Sender<Arc<QuotaTable>>,
    nodes: Mutex<Vec<Node>>,
    /// The disk of the only replica, if its tree and its first pool are in the embedded store.
    disk: Option<Disk>,
    /// The ends of the times for which nothing that the first replica sends reaches the second one.
    cuts: Mutex<BTreeMap<(usize, usize), Duration>>,
}

/// The shape of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// Number of replicas.
    pub replicas: usize,
    /// URIs of its pools; the first one is there from the start.
    pub pools: Vec<String>,
    /// Whether there is one replica with its tree and its first pool in the embedded store.
    pub is_embedded: bool,
    /// How the next task is chosen.
    pub policy: Policy,
}

/// The place of one replica, over all its processes.
#[derive(Default)]
struct Node {
    /// Number of processes that were started there.
    starts: u64,
    process: Option<Process>,
    /// What listens there, once the broker has started.
    listeners: Option<Listeners>,
}

#[derive(Clone)]
struct Listeners {
    front: Front,
    peers: PeerFront,
    broker: Broker,
    clock: Clock,
    tree: ReplicaTree,
}

/// The tree of a process.
#[derive(Clone)]
enum ReplicaTree {
    /// A connection to the ensemble.
    Ensemble(Arc<TreeHandle>),
    /// The tree in its journal.
    Embedded(Arc<dyn Coordination>, Arc<ProcessJournal>),
}

impl ReplicaTree {
    fn coordination(&self) -> Arc<dyn Coordination> {
        match self {
            Self::Ensemble(tree) => Arc::clone(tree) as Arc<dyn Coordination>,
            Self::Embedded(tree, _) => Arc::clone(tree),
        }
    }
}

impl Cluster {
    /// Creates a cluster without running replicas.
    pub fn new(world: World, ensemble: Ensemble, storages: Storages, settings: ClusterSettings) -> Self {
        let nodes = Mutex::new((0..settings.replicas).map(|_| Node::default()).collect());
        let disk = settings.is_embedded.then(|| Disk::new(world.clone(), "of replica-0"));
        let (quotas, cuts) = (watch::Sender::default(), Mutex::default());
        Self(Arc::new(Inner { world, ensemble, storages, settings, quotas, nodes, disk, cuts }))
    }

    /// Returns the world that it is in.
    pub fn world(&self) -> &World {
        &self.0.world
    }

    /// Returns the tree.
    pub fn ensemble(&self) -> &Ensemble {
        &self.0.ensemble
    }

    /// Returns the storages of its pools.
    pub fn storages(&self) -> &Storages {
        &self.0.storages
    }

    /// Returns the number of replicas, running or not.
    pub fn size(&self) -> usize {
        self.0.settings.replicas
    }

    /// Returns the process of a replica and its API for clients, if it runs.
    pub fn client_service(&self, node: usize) -> Option<(Process, Front)> {
        let nodes = self.0.nodes.lock();
        let node = nodes.get(node)?;
        Some((node.process.clone()?, node.listeners.as_ref()?.front.clone()))
    }

    /// Sets the quota of each project.
    pub fn set_quota(&self, quota: Quota) {
        self.0.quotas.send_replace(Arc::new(QuotaTable::new(quota, HashMap::default())));
    }

    /// Returns the latest time that a running replica has; none if none runs.
    pub fn latest_time(&self) -> Option<Timestamp> {
        let nodes = self.0.nodes.lock();
        nodes.iter().filter_map(|node| Some(node.listeners.as_ref()?.clock.now())).max()
    }

    /// Lets nothing that a replica sends reach another one for a while.
    pub fn cut(&self, from: usize, to: usize, time: Duration) {
        self.0.cuts.lock().insert((from, to), self.0.world.elapsed() + time);
    }

    /// Whether what a replica sends to another one is lost now.
    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        let end = self.0.cuts.lock().get(&(from, to)).copied();
        !self.0.world.is_healed() && end.is_some_and(|end| self.0.world.elapsed() < end)
    }

    /// Returns the number of the replica at an address.
    pub fn number_of(address: &str) -> Option<usize> {
        address.strip_prefix("replica-")?.strip_suffix(":1")?.parse().ok()
    }

    /// Returns the process of the replica at an address and its API for replicas, if it runs.
    pub fn peer_service(&self, address: &str) -> Option<(Process, PeerFront)> {
        let number = Self::number_of(address)?;
        let nodes = self.0.nodes.lock();
        let node = nodes.get(number)?;
        Some((node.process.clone()?, node.listeners.as_ref()?.peers.clone()))
    }

    /// Returns the process of a replica, if there is one.
    pub fn process(&self, node: usize) -> Option<Process> {
        self.0.nodes.lock().get(node)?.process.clone()
    }

    /// Returns the connection of a replica to the tree, if it runs.
    pub fn tree(&self, node: usize) -> Option<Arc<TreeHandle>> {
        match &self.0.nodes.lock().get(node)?.listeners.as_ref()?.tree {
            ReplicaTree::Ensemble(tree) => Some(Arc::clone(tree)),
            ReplicaTree::Embedded(..) => None,
        }
    }

    /// Whether the tree and the first pool are in the embedded store.
    pub fn is_embedded(&self) -> bool {
        self.0.disk.is_some()
    }

    /// Lets the process with the embedded store end after every so many operations on its disk, until the world is
    /// healed.
    pub fn crash_every(&self, operations: Option<u64>) {
        if let Some(disk) = &self.0.disk {
            disk.crash_every(operations);
        }
    }

    /// Returns the open journal of the replica with the embedded store, if it runs.
    pub fn journal(&self) -> Option<Journal> {
        match &self.0.nodes.lock().first()?.listeners.as_ref()?.tree {
            ReplicaTree::Ensemble(_) => None,
            ReplicaTree::Embedded(_, journal) => Some(journal.journal()),
        }
    }

    /// Returns the data of all nodes of the tree; none of an embedded one while no process serves it.
    pub fn nodes(&self) -> BTreeMap<String, Bytes> {
        if self.0.disk.is_none() {
            return self.0.ensemble.dump();
        }
        let view = self.journal().and_then(|journal| journal.view().ok());
        let nodes =
            |view: &View| (1..=MAX_DEPTH).flat_map(|depth| embedded::nodes(view, depth, "/")).collect();
        view.map(|view| nodes(&view)).unwrap_or_default()
    }

    /// Pauses the process of a replica for a time. Returns it, or none when no process of the replica runs.
    pub fn pause(&self, node: usize, time: Duration) -> Option<Process> {
        let process = self.process(node)?;
        self.world().count(Fault::ProcessPause);
        process.pause();
        let paused = process.clone();
        self.world().spawn(async move {
            tokio::time::sleep(time).await;
            paused.resume();
        });
        Some(process)
    }

    /// Ends the session of a replica with the tree.
    pub fn end_session(&self, node: usize) {
        if let Some(process) = self.process(node) {
            self.0.ensemble.end_session_of(process.name());
        }
    }

    /// Whether all replicas run, as the registry has them, and every slot has an owner.
    pub fn is_whole(&self) -> bool {
        if self.0.nodes.lock().iter().any(|node| node.listeners.is_none()) {
            return false;
        }
        let (mut running, mut owners) = (0, 0);
        for (path, data) in self.nodes() {
            let parts: Vec<&str> = path.split('/').collect();
            match parts[..] {
                ["", "meta", "components", "replica", _] => {
                    let record: serde_json::Value = serde_json::from_slice(&data).unwrap_or_default();
                    running += usize::from(record["state"] == "running");
                }
                ["", "meta", "slots", _, "owner"] => owners += 1,
                _ => {}
            }
        }
        running == self.size() && owners == SLOTS
    }

    /// Returns the pools of each queue by its name, as the tree has them.
    pub fn placements(&self) -> BTreeMap<String, Vec<String>> {
        let nodes = self.nodes();
        let placed = nodes.iter().filter_map(|(path, data)| {
            let ["", "queues", _, _, name] = path.split('/').collect::<Vec<_>>()[..] else { return None };
            let record: serde_json::Value = serde_json::from_slice(data).ok()?;
            let pools = record["placement"].as_array()?.iter().filter_map(|pool| pool.as_str());
            Some((name.to_owned(), pools.map(str::to_owned).collect()))
        });
        placed.collect()
    }

    /// Returns the path of a hold that the tree has.
    pub fn first_hold(&self) -> Option<String> {
        let is_hold = |path: &&String| {
            let parts: Vec<&str> = path.split('/').collect();
            let is_of_slot = matches!(parts[..], ["", "run", _, "holds" | "group_holds", _]);
            is_of_slot || matches!(parts[..], ["", "meta", "holds", _, _])
        };
        self.nodes().keys().find(is_hold).cloned()
    }

    /// Starts a replica that has no process, and tries again until it serves. Returns at once.
    pub fn start(&self, number: usize) {
        let process = {
            let mut nodes = self.0.nodes.lock();
            let Some(node) = nodes.get_mut(number) else { return };
            if node.process.is_some() {
                return;
            }
            node.starts += 1;
            let name = format!("replica-{number}.{}", node.starts);
            let process = Process::start(self.0.world.clone(), name);
            node.process = Some(process.clone());
            process
        };
        let cluster = self.clone();
        let running = process.clone();
        let task = process.tasks().spawn(async move { cluster.run(number, &running).await });
        let cluster = self.clone();
        self.0.world.spawn(async move {
            let outcome = task.await;
            let Ok(Err(error)) = outcome else { return };
            cluster.0.world.note(|| format!("{} cannot start: {error}", process.name()));
            process.crash();
            cluster.forget(number, &process);
            tokio::time::sleep(Duration::from_millis(500 + cluster.0.world.below(2_000))).await;
            cluster.start(number);
        });
    }

    /// Builds the broker of a process and its API.
    async fn run(&self, number: usize, process: &Process) -> Result<(), Error> {
        let world = &self.0.world;
        // The clock of each machine is off by up to a second.
        let clock = Clock::of_runtime(START_MILLIS + world.elapsed_millis() + world.below(1_000));
        let tree = match &self.0.disk {
            None => self.connect(process).await,
            Some(disk) => self.open_journal(disk, process, &clock).await,
        };
        let tree = tree.map_err(|error| Error::unavailable(Part::Coordination, error.to_string()))?;
        let instance = u128::try_from(number + 1).unwrap_or(1);
        let address = format!("replica-{number}:1");
        let replica = Replica {
            random: Random::seeded(world.below(u64::MAX)),
            tasks: process.tasks(),
            certificate: Some(certificate_of(number)),
            ..Replica::new(Uuid::from_u128(instance), format!("host-{number}"), address)
        };
        let trust = replica.trust.clone();
        let catalogue = Catalogue::new(tree.coordination());
        let settings = self.pool_settings(process, &tree)?;
        let (quotas, limits) = (self.0.quotas.subscribe(), Limits::ZAQAR);
        let broker =
            Broker::start_within(catalogue, &settings, replica, clock.clone(), limits, quotas).await?;
        let peers = Arc::new(SimulatedPeers::new(self.clone(), number, process.name().to_owned()));
        broker.meet(PeerClient::new(peers.clone()));
        let relay = Relay::new(broker.clone(), peers);
        let off = Authentication::Off(Arc::default());
        let front =
            api::front(broker.clone(), off, REQUESTS, clock.clone(), Some(relay), SqsSettings::default());
        let peers = PeerFront::new(broker.clone(), front.clone(), trust);
        if let Some(node) = self.0.nodes.lock().get_mut(number) {
            node.listeners = Some(Listeners { front, peers, broker, clock, tree });
        }
        world.note(|| format!("{} serves", process.name()));
        Ok(())
    }

    /// Connects a process to the ensemble.
    async fn connect(&self, process: &Process) -> anyhow::Result<ReplicaTree> {
        // The broker waits at its stop for its own tasks only.
        let for_tree = process.tasks();
        let spawn: ProcessSpawn = Arc::new(move |task| drop(for_tree.spawn(task)));
        let tree = TreeHandle::open(self.0.ensemble.clone(), process.name().to_owned(), spawn);
        tree.ready(TREE_START).await?;
        Ok(ReplicaTree::Ensemble(Arc::new(tree)))
    }

    /// Opens the journal of a process and the tree in it.
    async fn open_journal(
        &self,
        disk: &Disk,
        process: &Process,
        clock: &Clock,
    ) -> anyhow::Result<ReplicaTree> {
        let (cluster, ending) = (self.clone(), process.clone());
        let crash: CrashHook = Arc::new(move || cluster.end(0, &ending, Duration::from_secs(1)));
        let journal = ProcessJournal::open_with(disk, process, clock, JournalOptions::default(), crash)?;
        let tree = Arc::new(journal.tree().await?);
        Ok(ReplicaTree::Embedded(tree, Arc::new(journal)))
    }

    fn pool_settings(&self, process: &Process, tree: &ReplicaTree) -> Result<PoolSettings, Error> {
        let others = SimulatedOpener::new(self.0.storages.clone(), process.name().to_owned());
        let (uri, opener): (&str, Arc<dyn Opener>) = match tree {
            ReplicaTree::Ensemble(_) => (&self.0.settings.pools[0], Arc::new(others)),
            ReplicaTree::Embedded(_, journal) => (EMBEDDED, Arc::new(journal.opener(others))),
        };
        let first = Some(FirstPool { name: PoolName::new("default")?, uri: PoolUri::new(uri)?, weight: 1 });
        Ok(PoolSettings { first, opener, placement: Algorithm::default() })
    }

    /// Forgets all processes at the end of a run. Each refers to the others, and so to itself.
    pub fn clear(&self) {
        let ended = std::mem::take(&mut *self.0.nodes.lock());
        drop(ended);
    }

    /// Forgets a process that has ended, unless another one has taken its place.
    fn forget(&self, number: usize, process: &Process) {
        let ended = {
            let mut nodes = self.0.nodes.lock();
            let Some(node) = nodes.get_mut(number) else { return };
            if node.process.as_ref().is_none_or(|current| current.name() != process.name()) {
                return;
            }
            node.process = None;
            node.listeners.take()
        };
        // Its last handles may have work to do.
        drop(ended);
    }

    /// Ends the process of a replica at once, and starts the next one after `pause`.
    pub fn crash(&self, number: usize, pause: Duration) {
        let Some(process) = self.process(number) else { return };
        self.0.world.count(Fault::ProcessCrash);
        self.end(number, &process, pause);
    }

    /// Ends a process at once, perhaps with the power of its machine.
    fn end(&self, number: usize, process: &Process, pause: Duration) {
        process.crash();
        self.forget(number, process);
        if let Some(disk) = &self.0.disk
            && self.0.world.below(2) == 0
        {
            disk.cut_power();
        }
        self.start_after(number, pause);
    }

    /// Ends the process of a replica in order, as by SIGTERM, and starts the next one after `pause`.
    pub fn stop(&self, number: usize, pause: Duration) {
        let (process, listeners) = {
            let nodes = self.0.nodes.lock();
            let Some(node) = nodes.get(number) else { return };
            let (Some(process), Some(listeners)) = (&node.process, &node.listeners) else { return };
            (process.clone(), listeners.clone())
        };
        self.0.world.count(Fault::ProcessStop);
        let cluster = self.clone();
        let stopping = async move {
            let Listeners { broker, tree, .. } = listeners;
            broker.drain().await;
            broker.stop_waiters();
            // Clients have a moment to get their answers.
            tokio::time::sleep(Duration::from_secs(1)).await;
            broker.stop().await;
            tree.coordination().close().await;
            if let ReplicaTree::Embedded(_, journal) = tree {
                journal.close().await;
            }
        };
        let task = process.tasks().spawn(stopping);
        self.0.world.spawn(async move {
            // A process that crashes meanwhile is started by its crash.
            if task.await.is_ok() {
                process.crash();
                cluster.forget(number, &process);
                cluster.start_after(number, pause);
            }
        });
    }

    fn start_after(&self, number: usize, pause: Duration) {
        let cluster = self.clone();
        self.0.world.spawn(async move {
            tokio::time::sleep(pause).await;
            cluster.start(number);
        });
    }
}
