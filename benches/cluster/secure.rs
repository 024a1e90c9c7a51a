//! `angarium tree secure` on a tree with very many nodes, while replicas serve: what it takes, how it continues after
//! SIGKILL, and how long clients wait meanwhile.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use zookeeper_client::{Acls, Client as Raw, CreateMode, Error as ZkError};

use crate::support::pauses::{Route, Stopper, watch};
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::redis::{Redis, SYNCED};
use angarium_testbed::zookeeper::ZooKeeper;

const LOGIN: &str = "angarium:secret";
/// The name of the file with it.
const LOGINS: &str = "logins";
/// Nodes of one directory.
const FOLDER: usize = 1_000;
/// Bytes of a node: those of a claim's record.
const NODE: [u8; 256] = [b'x'; 256];
/// Requests to ZooKeeper at once.
const AT_ONCE: usize = 64;
/// Queues of each replica whose pauses are measured.
const WATCHED: usize = 4;
/// Interval of looks at the memory of the command.
const LOOK: Duration = Duration::from_millis(10);

/// What was measured.
pub struct Securing {
    /// Time of the command, of one run after another: without an interruption, killed, continued, with nothing to do.
    pub runs: [Run; 4],
    /// Open nodes that are left.
    pub open: usize,
    /// The longest time of a client of the replicas without a success meanwhile.
    pub pause: Duration,
}

/// One run of the command.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub took: Duration,
    /// Nodes that it has named as closed.
    pub closed: usize,
    /// Most bytes of memory.
    pub memory: u64,
    /// Its last line.
    pub report: String,
}

/// An open tree with many nodes and two replicas that have an identity.
struct OpenTree {
    address: String,
    servers: Vec<Server>,
    runtime: Runtime,
    client: Raw,
    root: String,
    dir: TempDir,
}

pub fn measure(nodes: usize) -> Securing {
    let zookeeper = ZooKeeper::start_as_deployed();
    let redis = Redis::start(SYNCED);
    let whole = OpenTree::make(&zookeeper, &redis, "whole", nodes);
    let (run, first_pause) = whole.watched(|| whole.secure(|_| true));
    let mut open = whole.open_nodes();
    drop(whole);
    let tree = OpenTree::make(&zookeeper, &redis, "interrupted", nodes);
    let (runs, second_pause) = tree.watched(|| {
        let killed = tree.secure(|closed| closed < nodes / 2);
        tree.create_open("between-the-runs");
        let continued = tree.secure(|closed| {
            if closed == 1 {
                // This pass knows the children of the root already.
                tree.create_open("between-the-passes");
            }
            true
        });
        [killed, continued, tree.secure(|_| true)]
    });
    open += tree.open_nodes();
    let [killed, continued, nothing] = runs;
    Securing { runs: [run, killed, continued, nothing], open, pause: first_pause.max(second_pause) }
}

impl OpenTree {
    fn make(zookeeper: &ZooKeeper, redis: &Redis, name: &str, nodes: usize) -> Self {
        let (address, dir) = (zookeeper.fresh_tree().to_string(), TempDir::new().expect("a directory"));
        let pool = redis.uri(&format!("prefix=secure-{name}"));
        let logins = dir.path().join(LOGINS);
        fs::write(&logins, format!("digest {LOGIN}\n")).expect("the directory is ours");
        let builder = |number: usize| {
            let builder = ServerBuilder::new(&dir.path().join(number.to_string()));
            builder.arg("--coordination").arg(&address).arg("--pool").arg(&pool)
        };
        // A tree that begins without an identity is open.
        assert!(builder(0).start().terminate().success());
        let with_identity = |number| builder(number).arg("--zookeeper-auth-file").arg(&logins).start();
        let servers: Vec<Server> = (0..2).map(with_identity).collect();
        let rest = address.strip_prefix("zookeeper://").expect("an address");
        let (endpoint, root) = rest.split_at(rest.find('/').expect("a root"));
        let runtime = Runtime::new().expect("a runtime");
        let connector = Raw::connector().with_auth("digest", LOGIN.as_bytes());
        let client = runtime.block_on(connector.connect(endpoint)).expect("a session");
        let root = root.to_owned();
        let tree = Self { address, servers, runtime, client, root, dir };
        tree.fill(nodes);
        tree
    }

    fn fill(&self, nodes: usize) {
        self.create_open("filled");
        (0..nodes.div_ceil(FOLDER)).for_each(|folder| self.create_open(&format!("filled/{folder}")));
        self.runtime.block_on(async {
            let mut writers = JoinSet::new();
            for first in 0..AT_ONCE {
                let (client, root) = (self.client.clone(), self.root.clone());
                writers.spawn(async move {
                    let everyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
                    for number in (first..nodes).step_by(AT_ONCE) {
                        let path = format!("{root}/filled/{}/{number}", number / FOLDER);
                        client.create(&path, &NODE, &everyone).await.expect("the node is new");
                    }
                });
            }
            while let Some(ended) = writers.join_next().await {
                ended.expect("it does not panic");
            }
        });
    }

    /// Creates a node that every client may use.
    fn create_open(&self, path: &str) {
        let everyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let path = format!("{}/{path}", self.root);
        self.runtime.block_on(self.client.create(&path, b"", &everyone)).expect("the node is new");
    }

    /// Returns the longest pause of clients of the replicas too.
    fn watched<T>(&self, change: impl FnOnce() -> T) -> (T, Duration) {
        let route = |server: &Server| Route::Replica(server.base().to_owned());
        let routes: Vec<_> = self.servers.iter().map(route).collect();
        let (changed, traffic) = watch(&routes, WATCHED, change);
        traffic.assert_kept("securing", Duration::from_secs(60), &self.servers[0].client());
        (changed, traffic.longest())
    }

    /// Runs the command. Kills it when `goes_on`, which is told the number of closed nodes, returns false.
    fn secure(&self, mut goes_on: impl FnMut(usize) -> bool) -> Run {
        let begun = Instant::now();
        let mut command = Command::new(env!("CARGO_BIN_EXE_angarium"));
        command.args(["tree", "secure", "--coordination", &self.address]).arg("--zookeeper-auth-file");
        let started = command.arg(self.dir.path().join(LOGINS)).stdout(Stdio::piped()).spawn();
        let mut child = started.expect("the program starts");
        let (status, is_over) = (format!("/proc/{}/status", child.id()), AtomicBool::new(false));
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut run = Run::default();
        thread::scope(|scope| {
            let looking = scope.spawn(|| most_memory(&status, &is_over));
            let stopper = Stopper(&is_over);
            for line in lines.map_while(Result::ok) {
                if !line.starts_with("closed ") {
                    run.report = line;
                    continue;
                }
                run.closed += 1;
                if !goes_on(run.closed) {
                    child.kill().expect("it runs");
                    "killed".clone_into(&mut run.report);
                    break;
                }
            }
            child.wait().expect("it is our child");
            run.took = begun.elapsed();
            drop(stopper);
            run.memory = looking.join().expect("it does not panic");
        });
        run
    }

    /// Returns the number of nodes with rights for every client.
    fn open_nodes(&self) -> usize {
        self.runtime.block_on(async {
            let (mut open, mut waiting, mut looks) = (0, vec![self.root.clone()], JoinSet::new());
            while !waiting.is_empty() || !looks.is_empty() {
                while looks.len() < AT_ONCE
                    && let Some(path) = waiting.pop()
                {
                    looks.spawn(look(self.client.clone(), path));
                }
                let found = looks.join_next().await.expect("there is one").expect("it does not panic");
                open += usize::from(found.is_open);
                waiting.extend(found.children);
            }
            open
        })
    }
}

/// A node of the tree.
#[derive(Default)]
struct SeenNode {
    is_open: bool,
    children: Vec<String>,
}

async fn look(client: Raw, path: String) -> SeenNode {
    let found = client.get_acl(&path).await;
    // It has ended with the work of a replica.
    if matches!(found, Err(ZkError::NoNode)) {
        return SeenNode::default();
    }
    let (acl, _) = found.expect("the server answers");
    let names = client.list_children(&path).await.unwrap_or_default();
    let children = names.iter().map(|name| format!("{path}/{name}")).collect();
    SeenNode { is_open: acl.iter().any(|entry| entry.scheme() == "world"), children }
}

/// Returns the most bytes of memory of a process until it has ended.
fn most_memory(status: &str, is_over: &AtomicBool) -> u64 {
    let mut most = 0;
    while !is_over.load(Ordering::Relaxed) {
        let text = fs::read_to_string(status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        most = most.max(peak.and_then(|peak| peak.parse().ok()).unwrap_or_default());
        thread::sleep(LOOK);
    }
    most * 1024
}
