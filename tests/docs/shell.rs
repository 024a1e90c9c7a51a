//! Runs the shell blocks of the documents, all of a page in one shell, against real servers. A block that another test runs, or
//! that would build the program once more, is in a table with its reason.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::page::{ROOT, all, read, shell_blocks};
use crate::support::server::Server;
use angarium_testbed::held::free_port;
use angarium_testbed::postgres::Postgres;
use angarium_testbed::redis::{Redis, SYNCED};
use angarium_testbed::settings;
use angarium_testbed::zookeeper::ZooKeeper;

/// Blocks that do not run here, by page and first words.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("README.md", "cargo run --release", "tests/run builds and runs the program"),
    ("CONTRIBUTING.md", "cargo build", "tests/run builds and runs the tests"),
    ("docs/authentication.md", "openstack user create", "http::keystone, against a stand-in of Keystone"),
    ("docs/authentication.md", "openstack messaging", "clients::, against a stand-in of Keystone"),
    ("docs/authentication.md", "openstack --os-auth-type", "clients::, with tokens of the file"),
    ("docs/installing.md", "cargo install", "tests/run builds the program"),
    ("docs/installing.md", "docker build", "packaging::started, packaging::image"),
    ("docs/cluster.md", "docker/dev", "packaging::dev, packaging::cluster"),
    ("docs/cluster.md", "# 1. One machine", "faults::growth"),
    ("docs/cluster.md", "tests/prepare", "faults::cluster"),
    ("docs/backup.md", "# 1. No message leaves", "cluster::backup, with the tools of the servers"),
    ("docs/backup.md", "# 1. Stop all replicas", "cluster::backup"),
];

/// What a page expects to find.
#[derive(Clone, Copy)]
enum Around {
    /// A service at 127.0.0.1:8888.
    Service,
    /// Nothing: it starts its own services.
    Nothing,
    /// ZooKeeper, Redis and PostgreSQL at their usual ports.
    Servers,
    /// A service, and servers for its pools.
    ServiceAndServers,
}

/// A page whose blocks run.
struct Page {
    path: &'static str,
    around: Around,
    /// Shell before the first block.
    before: &'static str,
    /// Requests that may be refused, as a pattern: a block may look for what is gone by then.
    refused: &'static str,
    /// What the blocks print, among other things.
    shows: &'static [&'static str],
}

const fn page(path: &'static str, around: Around, shows: &'static [&'static str]) -> Page {
    Page { path, around, before: "", refused: "", shows }
}

const GUIDE: &[Page] = &[
    page("README.md", Around::Service, &["201 Created", "\"order\": 1", "204 No Content", "hello"]),
    page(
        "docs/guide/rest.md",
        Around::Service,
        &["201 Created", "\"ttl\":120", "X-OpenStack-Request-Id", "\"body_bytes\":18"],
    ),
    page("docs/guide/sqs.md", Around::Service, &["'VisibilityTimeout': '60'"]),
    page(
        "docs/guide/command-line.md",
        Around::Service,
        &["queue orders is created", "posted 1000 messages", "hello", "one more", "is gone", "REPLICA"],
    ),
    page("docs/guide/fifo.md", Around::Service, &["\"claimed\":2", "\"total\":3"]),
    page("docs/guide/dead-letters.md", Around::Service, &["poison", "204 No Content", "COMPLETED"]),
    page("docs/guide/long-polling.md", Around::Service, &["201 Created", "work"]),
    page(
        "docs/guide/outcomes.md",
        Around::Service,
        &["\"pages\": 12", "transferred", "no space", "\"customer:7\""],
    ),
    page(
        "docs/guide/redrive.md",
        Around::Service,
        &["\"matches\":1", "202 Accepted", "\"moved\":1", "\"state\":\"ready\"", "1 of 1 messages match"],
    ),
    page("docs/guide/peek.md", Around::Service, &["\"by\":\"worker 7\"", "\"looked_at\":2", "claimed "]),
    page(
        "docs/guide/explain.md",
        Around::Service,
        &["A claim gets nothing now: 1 message is claimed by", "worker 7"],
    ),
    page(
        "docs/guide/hold.md",
        Around::Service,
        &["x-held: bad deploy 1.4.2", "because the queue is held", "is released"],
    ),
    page(
        "docs/guide/subscriptions.md",
        Around::Service,
        &[
            "\"subscription_id\"",
            "{\"order\": 1}",
            "{\"kwh\": 7}",
            "pull:graphs",
            "\"total\": 250",
            "\"body\":3",
            "1 message was left out",
        ],
    ),
    page(
        "docs/guide/topics.md",
        Around::Service,
        &[
            "201 Created",
            "{\"order\": 1}",
            "This is a topic with 1 subscription",
            "topic alerts is created",
            "alerts",
        ],
    ),
    page("docs/guide/durability.md", Around::Service, &["\"durability\":\"relaxed\""]),
    page("docs/coming-from/sqs.md", Around::Service, &[]),
    page("docs/coming-from/elasticmq.md", Around::Service, &["127.0.0.1:"]),
    page("docs/coming-from/rabbitmq.md", Around::Service, &["working on", "second"]),
    page("docs/coming-from/kafka.md", Around::Service, &["\"amount\": 5"]),
    page("docs/coming-from/zaqar.md", Around::Service, &["201 Created", "demo"]),
    page("docs/coming-from/zaqar-notifications.md", Around::Service, &["\"confirmed\":true", "86400"]),
];

const OPERATION: &[Page] = &[
    Page {
        before: "echo 'log_format = \"json\"' > angarium.toml",
        ..page("docs/installing.md", Around::Nothing, &["200 OK", "log_format = \"json\""])
    },
    page("docs/authentication.md", Around::Nothing, &["201 Created", "\"pools\""]),
    Page {
        before: "angarium serve --data one-machine; stop",
        ..page(
            "docs/security.md",
            Around::Servers,
            &["nodes are closed, 0 of them now", "1 nodes are sealed, 1 of them now"],
        )
    },
    page("docs/quotas.md", Around::Nothing, &["50"]),
    page("docs/monitoring.md", Around::Service, &["200 OK", "angarium_build_info"]),
    page("docs/performance.md", Around::Nothing, &["cost ratio"]),
];

const POOLS: &[Page] = &[
    Page { refused: "/migrate", ..page("docs/pools/overview.md", Around::Service, &["\"flavor\":\"fast\""]) },
    page("docs/pools/redis.md", Around::ServiceAndServers, &["cache"]),
    page("docs/pools/postgresql.md", Around::ServiceAndServers, &["table"]),
];

const CLUSTERS: &[Page] = &[
    Page {
        before: "angarium token new --project operators --role admin --tokens tokens.toml > admin.token",
        ..page("docs/cluster.md", Around::Servers, &["\"slots\""])
    },
    Page {
        before: "angarium serve --data angarium-data; stop",
        ..page("docs/backup.md", Around::Servers, &["friday is a backup", "friday is whole", "\"order\": 1"])
    },
];

const CLIENTS: &[Page] = &[page("docs/guide/clients.md", Around::Nothing, &[])];

const EXAMPLES: &[Page] = &[page(
    "examples/README.md",
    Around::Service,
    &[
        "worker.py: done 3",
        "worker.ts: done 3",
        "worker.go: done 3",
        "worker-rust: done 3",
        "a task has run",
        "fifo.py: in order",
        "dead_letters.py: moved back",
        "none missing, none twice",
        "10 orders can be claimed again",
        "51 orders shipped, none lost, none twice",
    ],
)];

const CATS: &[Page] = &[page("examples/cats/README.md", Around::Nothing, &["cats: one chain of 100"])];

const FANOUT: &[Page] = &[page(
    "examples/fanout/README.md",
    Around::Nothing,
    &["fanout: 40 orders, each read once by each reader"],
)];

/// Addresses of the documents that are listened on; each becomes a free port.
const LISTENED: [&str; 5] = ["8888", "8443", "8889", "8801", "8802"];

/// The blocks of a page that run here, one after the other.
fn blocks(path: &str) -> Vec<String> {
    let runs_elsewhere =
        |block: &String| ELSEWHERE.iter().any(|(page, begin, _)| *page == path && block.starts_with(begin));
    shell_blocks(&read(path)).into_iter().filter(|block| !runs_elsewhere(block)).collect()
}

/// Puts the addresses of this run in place of those of the documents.
fn addressed(text: &str, ports: &BTreeMap<&str, u16>) -> String {
    // No test listens beyond this machine.
    let text = text.replace("0.0.0.0:", "127.0.0.1:");
    ports.iter().fold(text, |text, (written, port)| {
        let hosts = ["127.0.0.1", "localhost"];
        hosts
            .iter()
            .fold(text, |text, host| text.replace(&format!("{host}:{written}"), &format!("{host}:{port}")))
    })
}

fn run(page: &Page) {
    eprintln!("{}", page.path);
    let dir = tempfile::tempdir().expect("there is room for a temporary directory");
    let with_service = matches!(page.around, Around::Service | Around::ServiceAndServers);
    let with_servers = matches!(page.around, Around::Servers | Around::ServiceAndServers);
    let service = with_service.then(|| Server::start(&dir.path().join("service")));
    let mut ports: BTreeMap<&str, u16> = LISTENED.iter().map(|written| (*written, free_port())).collect();
    if let Some(service) = &service {
        let port = service.base().rsplit(':').next().and_then(|port| port.parse().ok());
        ports.insert("8888", port.expect("it listens on a port"));
    }
    let mut script = addressed(&format!("{}\n{}", page.before, blocks(page.path).concat()), &ports);
    let redis = with_servers.then(|| Redis::start(SYNCED));
    if let Some(redis) = &redis {
        let tree = ZooKeeper::shared().fresh_tree().to_string();
        script = script
            .replace("zookeeper://127.0.0.1:2181/angarium", &tree)
            .replace("redis://127.0.0.1:6379", &redis.uri(""))
            .replace("postgres://127.0.0.1/angarium", &Postgres::shared().fresh_uri());
    }
    let folder = dir.path().join("page");
    std::fs::create_dir(&folder).expect("there is room");
    for shared in ["examples", "openapi"] {
        symlink(Path::new(ROOT).join(shared), folder.join(shared)).expect("the name is free");
    }
    std::fs::write(dir.path().join("page.sh"), format!("{}\n{script}", read("tests/docs/prelude.sh")))
        .expect("there is room");
    let mut shell = shell(dir.path(), ports["8888"], page, !script.contains("context set"));
    let mut child = shell.current_dir(folder).spawn().expect("bash is there");
    // The shell ends what it started when this end closes.
    let held = child.stdin.take();
    let ended = child.wait_with_output().expect("it can be waited for");
    drop(held);
    let [out, err] = [&ended.stdout, &ended.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let service = service.map(|service| service.last_lines()).unwrap_or_default();
    assert!(ended.status.success(), "{}:\n{out}\n{err}\n{service}", page.path);
    for text in page.shows {
        let is_shown = out.to_lowercase().contains(&text.to_lowercase()) || err.contains(text);
        assert!(is_shown, "{}: no {text:?} in\n{out}\n{err}", page.path);
    }
}

/// The shell for a page, with nothing of this machine's environment but its tools.
fn shell(dir: &Path, port: u16, page: &Page, with_url: bool) -> Command {
    let programs = Path::new(env!("CARGO_BIN_EXE_angarium")).parent().expect("it is in a folder");
    let tools = settings::test_tools();
    let mut shell = Command::new("timeout");
    shell.args(["--kill-after=5", "400", "bash"]).arg(dir.join("page.sh"));
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    shell.env_clear().env("HOME", dir).env("NO_PROXY", "*").env("TOOLS", &tools).env("HOUSE", ROOT);
    shell.env("PATH", format!("{}:{}:/usr/bin:/bin", programs.display(), tools.join("bin").display()));
    shell.env("MAY_BE_REFUSED", page.refused).env("PYTHONDONTWRITEBYTECODE", "1");
    shell.env("ANGARIUM_LISTEN", format!("127.0.0.1:{port}"));
    shell.env("AWS_EC2_METADATA_DISABLED", "true");
    shell.env("CARGO_PROGRAM", env!("CARGO")).env("RUST_HOME", settings::cargo_home());
    if with_url {
        shell.env("ANGARIUM_URL", format!("http://127.0.0.1:{port}"));
    }
    shell
}

#[test]
fn blocks_of_the_guide_run() {
    GUIDE.iter().for_each(run);
}

#[test]
fn blocks_of_the_operation_run() {
    OPERATION.iter().for_each(run);
}

#[test]
fn blocks_of_the_pools_run() {
    POOLS.iter().for_each(run);
}

#[test]
fn blocks_of_the_clusters_run() {
    CLUSTERS.iter().for_each(run);
}

#[test]
fn blocks_of_the_generated_clients_run() {
    CLIENTS.iter().for_each(run);
}

#[test]
fn examples_run() {
    EXAMPLES.iter().for_each(run);
}

#[test]
fn killed_cats_leave_one_chain() {
    CATS.iter().for_each(run);
}

#[test]
fn fanned_out_orders_reach_each_reader_once() {
    FANOUT.iter().for_each(run);
}

#[test]
fn every_page_with_blocks_is_run() {
    let groups = [GUIDE, OPERATION, POOLS, CLUSTERS, CLIENTS, EXAMPLES, CATS, FANOUT];
    let run: Vec<&str> = groups.iter().flat_map(|group| group.iter().map(|page| page.path)).collect();
    for path in all() {
        let has_blocks = !blocks(&path).is_empty();
        assert_eq!(
            has_blocks,
            run.contains(&path.as_str()),
            "{path} has shell blocks that run: {has_blocks}"
        );
    }
    for (path, begin, reason) in ELSEWHERE {
        let found = shell_blocks(&read(path)).iter().filter(|block| block.starts_with(begin)).count();
        assert_eq!(found, 1, "{path}: {begin}: {reason}");
    }
}
