//! Owns a whole cluster on the loopback: three ZooKeeper servers, a pool in Redis and one in PostgreSQL, replicas, a load balancer, and between
//! all of them wires that can be cut. It never judges.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use angarium_core::names::{ProjectId, QueueName, QueueRef};
use http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::balancer::Balancer;
use super::client::{Client, NoAnswer};
use super::server::{Server, ServerBuilder};
use angarium_testbed::held::{free_port, wait_out, wait_until};
use angarium_testbed::postgres::Postgres;
use angarium_testbed::proxy::{Proxy, Wire};
use angarium_testbed::redis::{Redis, SYNCED};
use angarium_testbed::zookeeper::{Ensemble, fresh_tree_at};

/// How many replicas there are.
pub const REPLICAS: usize = 3;

/// A part that a replica reaches over a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Tree,
    Pool,
    Peers,
}

/// Dropping it ends all processes and removes their data.
pub struct Cluster {
    pub balancer: Balancer,
    /// The address of the tree, as replicas reach it.
    pub coordination: String,
    members: Vec<Member>,
    pub ensemble: Ensemble,
    tree: Vec<Proxy>,
    /// To the storage of each pool.
    pools: Vec<Proxy>,
    _redis: Redis,
    _postgres: Option<Postgres>,
    _dir: TempDir,
    /// Carries the wires.
    runtime: Runtime,
}

struct Member {
    address: SocketAddr,
    builder: ServerBuilder,
    server: Option<Server>,
    /// The way of the others to it.
    peers: Proxy,
}

/// What a replica does not reach, by the list of replicas.
fn reach(component: &Value) -> String {
    ["address", "passed_over", "unreached_pools", "unreached_replicas"]
        .map(|field| component[field].to_string())
        .join(" ")
}

impl Cluster {
    /// Starts everything and waits until each replica serves its share of the slots.
    pub fn start() -> Self {
        Self::start_with(|builder| builder)
    }

    /// The same, with replicas that are started in a way of their own.
    pub fn start_with(own: impl Fn(ServerBuilder) -> ServerBuilder) -> Self {
        let runtime = Runtime::new().expect("a runtime starts");
        let (ensemble, redis) = (Ensemble::start(), Redis::start(SYNCED));
        let dir = TempDir::new().expect("there is a temporary directory");
        let wire = |to: SocketAddr| runtime.block_on(Proxy::start(to));
        let tree: Vec<_> = ensemble.0.iter().map(|server| wire(server.endpoint())).collect();
        let pool = wire((Ipv4Addr::LOCALHOST, redis.port()).into());
        let servers = tree.iter().map(|proxy| proxy.address().to_string()).collect::<Vec<_>>().join(",");
        let (root, storage) = (fresh_tree_at(&servers), format!("redis://{}", pool.address()));
        let member = |number: usize| {
            let local = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
            let (address, peer_listen) = (local(), local());
            let peers = wire(peer_listen);
            let builder = ServerBuilder::new(&dir.path().join(number.to_string()))
                .listen(address)
                .arg("--coordination")
                .arg(root.to_string())
                .arg("--pool")
                .arg(&storage)
                .arg("--peer-listen")
                .arg(peer_listen.to_string())
                .arg("--advertise")
                .arg(peers.address().to_string());
            Member { address, builder: own(builder), server: None, peers }
        };
        let mut members: Vec<_> = (0..REPLICAS).map(member).collect();
        // The first registers the pool.
        members.iter_mut().for_each(|member| member.server = Some(member.builder.start()));
        let addresses: Vec<_> = members.iter().map(|member| member.address).collect();
        let balancer = Balancer::start(addresses.try_into().expect("there are as many as it takes"));
        let cluster = Self {
            balancer,
            coordination: root.to_string(),
            members,
            ensemble,
            tree,
            pools: vec![pool],
            _redis: redis,
            _postgres: None,
            _dir: dir,
            runtime,
        };
        cluster.await_calm();
        cluster
    }

    /// Adds a pool in PostgreSQL, for queues of a flavor of this name.
    pub fn add_postgres(&mut self, flavor: &str) {
        let postgres = Postgres::start(&[]);
        let wire = self.runtime.block_on(Proxy::start((Ipv4Addr::LOCALHOST, postgres.port()).into()));
        let uri = postgres
            .uri("")
            .replace(&format!(":{}/", postgres.port()), &format!(":{}/", wire.address().port()));
        let client = self.client();
        let pool = client.put("/v2/pools/rows", Some(&json!({"uri": uri, "weight": 100, "flavor": flavor})));
        assert_eq!(pool.expect("it answers").status, StatusCode::CREATED);
        let made = client.put(&format!("/v2/flavors/{flavor}"), Some(&json!({"pool_list": ["rows"]})));
        assert_eq!(made.expect("it answers").status, StatusCode::CREATED);
        self.pools.push(wire);
        self._postgres = Some(postgres);
    }

    /// A client of the load balancer.
    pub fn client(&self) -> Client {
        Client::new(&self.balancer.base())
    }

    /// `http://ADDRESS` of one replica.
    pub fn base_of(&self, replica: usize) -> String {
        format!("http://{}", self.members[replica].address)
    }

    /// A client of one replica.
    pub fn client_of(&self, replica: usize) -> Client {
        Client::new(&format!("http://{}", self.members[replica].address))
    }

    /// What each replica that runs said last.
    pub fn last_lines(&self) -> String {
        self.members.iter().filter_map(|member| Some(member.server.as_ref()?.last_lines())).collect()
    }

    fn server(&self, replica: usize) -> &Server {
        self.members[replica].server.as_ref().expect("the replica runs")
    }

    /// Bytes of memory that the replicas have in use together.
    pub fn memory(&self) -> u64 {
        let resident = |member: &Member| {
            let process = member.server.as_ref().map_or(0, Server::pid);
            let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or_default()
                * 1024
        };
        self.members.iter().map(resident).sum()
    }

    /// How many slots each replica owns, and how many replicas are registered, as one of them states. Asks it until it
    /// answers.
    pub fn owned(&self, asked: usize) -> (Vec<usize>, usize) {
        let mut components = None;
        wait_until("a replica lists all replicas", || {
            components = self.components(asked);
            components.is_some()
        });
        let components = components.expect("it has answered");
        (self.shares_in(&components).iter().map(Vec::len).collect(), components.len())
    }

    /// SIGKILL.
    pub fn kill9(&mut self, replica: usize) {
        self.members[replica].server.take().expect("the replica runs").kill9();
    }

    /// SIGTERM, then waits for the end.
    pub fn leave(&mut self, replica: usize) {
        let ended = self.members[replica].server.take().expect("the replica runs").terminate();
        assert!(ended.success(), "{ended}");
    }

    /// Has a replica be started in another way from its next start on.
    pub fn change(&mut self, replica: usize, own: impl Fn(ServerBuilder) -> ServerBuilder) {
        let member = &mut self.members[replica];
        member.builder = own(member.builder.clone());
    }

    /// Starts a replica that is not there, on the data it had.
    pub fn enter(&mut self, replica: usize) {
        let member = &mut self.members[replica];
        assert!(member.server.is_none(), "the replica runs already");
        member.server = Some(member.builder.start());
    }

    /// SIGSTOP.
    pub fn freeze(&self, replica: usize) {
        self.server(replica).signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn thaw(&self, replica: usize) {
        self.server(replica).signal(Signal::CONT);
    }

    /// What becomes of everything between a replica and a part, in one direction or both. The other replicas have their
    /// own wires.
    pub fn cut(&self, replica: usize, part: Part, wire: Wire) {
        let process = self.server(replica).pid();
        match part {
            Part::Tree => self.tree.iter().for_each(|proxy| proxy.set_of(process, wire)),
            Part::Pool => self.pools.iter().for_each(|proxy| proxy.set_of(process, wire)),
            Part::Peers => {
                let others = self.members.iter().enumerate().filter(|(number, _)| *number != replica);
                others.for_each(|(_, member)| member.peers.set_of(process, wire));
                self.members[replica].peers.set(wire);
            }
        }
    }

    /// The same of one pool alone, by the order in which they were added.
    pub fn cut_pool(&self, replica: usize, pool: usize, wire: Wire) {
        self.pools[pool].set_of(self.server(replica).pid(), wire);
    }

    /// Makes all wires whole.
    pub fn heal(&self) {
        let peers = self.members.iter().map(|member| &member.peers);
        self.tree.iter().chain(&self.pools).chain(peers).for_each(|proxy| proxy.set(Wire::Whole));
    }

    /// Waits until every replica that runs is ready, and all slots have an owner of which each serves about its share.
    pub fn await_calm(&self) {
        wait_out("the cluster is calm", || self.unrest());
    }

    /// Why the cluster is not calm; none when it is.
    fn unrest(&self) -> Option<String> {
        let running: Vec<_> =
            (0..REPLICAS).filter(|replica| self.members[*replica].server.is_some()).collect();
        // Each has half of an even share at least.
        let least = 256 / running.len() / 2;
        let mut reasons = running.iter().map(|replica| self.unreadiness(*replica));
        reasons.find_map(|reason| reason).or_else(|| {
            running.iter().find_map(|asked| {
                let Some(components) = self.components(*asked) else {
                    return Some(format!("replica {asked} does not show the components"));
                };
                let counts: Vec<usize> = self.shares_in(&components).iter().map(Vec::len).collect();
                let is_even = counts.iter().sum::<usize>() == 256
                    && running.iter().all(|replica| counts[*replica] >= least);
                let reach: Vec<_> = components.iter().map(reach).collect();
                (!is_even).then(|| {
                    format!("by replica {asked}, the numbers of slots are {counts:?}, the reach {reach:?}")
                })
            })
        })
    }

    /// Why a replica does not serve with a session; none when it does. Without one it may be ready too, and shows the
    /// slots that it knew last.
    fn unreadiness(&self, replica: usize) -> Option<String> {
        let client = Client::with_timeout(&format!("http://{}", self.members[replica].address), PROBE);
        let answer = match client.get("/readyz") {
            Ok(answer) => answer,
            Err(NoAnswer(why)) => return Some(format!("replica {replica} does not answer: {why}")),
        };
        let has_session = || !answer.json()["warnings"].to_string().contains("no session");
        let is_ready = answer.status == StatusCode::OK && has_session();
        (!is_ready).then(|| format!("replica {replica} answers {}: {}", answer.status, answer.text()))
    }

    /// The registered replicas, as one of them states; none without its answer.
    fn components(&self, asked: usize) -> Option<Vec<Value>> {
        let client = Client::with_timeout(&format!("http://{}", self.members[asked].address), PROBE);
        let answer = client.get("/v2/components").ok()?;
        answer.json()["components"].as_array().cloned()
    }

    /// The slots of each replica, by its number here.
    fn shares_in(&self, components: &[Value]) -> Vec<Vec<u64>> {
        let share = |member: &Member| {
            let address = member.peers.address().to_string();
            let own = components.iter().find(|component| component["address"] == *address);
            let slots = own.and_then(|component| component["slots"].as_array()).into_iter().flatten();
            slots.filter_map(Value::as_u64).collect()
        };
        self.members.iter().map(share).collect()
    }

    /// The slot of a queue of the default project.
    pub fn slot_of(queue: &str) -> u64 {
        let (project, name) = (ProjectId::new("").expect("it is the default"), QueueName::new(queue));
        u64::from(QueueRef { project, name: name.expect("it is a name") }.slot().0)
    }

    /// Which replica owns a queue of the default project, as another one states.
    pub fn owner_of(&self, queue: &str) -> usize {
        let slot = Self::slot_of(queue);
        let mut owner = None;
        wait_until("the slot has an owner", || {
            let shares = self.components(0).map(|components| self.shares_in(&components));
            owner = shares.and_then(|shares| shares.iter().position(|slots| slots.contains(&slot)));
            owner.is_some()
        });
        owner.expect("it was found")
    }

    /// Until a claim through the load balancer is granted on this queue, into which it posts first.
    pub fn gap(&self, queue: &str) -> Duration {
        let (client, start) = (Client::with_timeout(&self.balancer.base(), ATTEMPT), Instant::now());
        let served = |client: &Client| {
            let posted = client.post_messages(queue, &[Value::Null]);
            posted.is_ok_and(|answer| answer.status == StatusCode::CREATED)
                && client.claim(queue, 1, 60).is_ok_and(|answer| answer.status == StatusCode::CREATED)
        };
        wait_until("a claim is granted", || served(&client));
        start.elapsed()
    }
}

/// How long a replica may take to answer while something is broken. A busy machine takes seconds for an answer.
const PROBE: Duration = Duration::from_secs(5);

/// How long one attempt of a client of the load balancer may take, before it is repeated.
const ATTEMPT: Duration = Duration::from_secs(2);
