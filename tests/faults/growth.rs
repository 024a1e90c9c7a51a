//! Owns the walk from one machine to a cluster, as docs/cluster.md tells it: its commands are run as written there, but for
//! addresses, while clients of one URL post and claim all the time. Nothing acknowledged is lost, doubled or out of order.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use http::StatusCode;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use tempfile::TempDir;

use super::crash::{assert_kept, create_queues};
use super::drain::drain;
use super::history::History;
use super::load::{Load, QUEUES};
use super::verdict::judge;
use crate::support::client::Client;
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::{free_port, wait_until};
use angarium_testbed::postgres::Postgres;
use angarium_testbed::redis::{Redis, SYNCED};
use angarium_testbed::settings;
use angarium_testbed::zookeeper::ZooKeeper;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cluster.md");
const HEADING: &str = "## From one machine to a cluster\n";
/// Ports of the page that are listened on.
const PORTS: [&str; 6] = ["127.0.0.1:8888", ":8889", ":8801", ":8802", ":8803", ":8804"];

/// The commands of the section, one a line, with addresses of this test.
fn commands(replaced: &[(String, String)]) -> VecDeque<String> {
    let text = std::fs::read_to_string(PAGE).unwrap();
    let section = text.split(HEADING).nth(1).expect("the heading is there");
    let section = section.split("\n## ").next().expect("it ends");
    let blocks = section.split("```sh\n").skip(1).map(|block| block.split("```").next().expect("it ends"));
    let mut commands = blocks.collect::<String>().replace("\\\n", " ");
    for (there, here) in replaced {
        assert!(commands.contains(there.as_str()), "{there} is not on the page");
        commands = commands.replace(there, here);
    }
    let lines = commands.lines().map(|line| line.split(" #").next().expect("there is one").trim());
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(ToOwned::to_owned).collect()
}

/// The machines, and who walks.
struct Walk<'a> {
    dir: &'a Path,
    base: String,
    servers: Vec<Server>,
}

impl Walk<'_> {
    fn client(&self) -> Client {
        Client::new(&self.base)
    }

    fn step(&mut self, command: &str) {
        eprintln!("{command}");
        if command.starts_with("kill ") {
            assert!(self.servers.pop().expect("one runs").terminate().success());
        } else if let Some(settings) = command.strip_prefix("angarium serve") {
            self.serve(&settings.split_whitespace().collect::<Vec<_>>());
        } else {
            self.run(command);
        }
        thread::sleep(Duration::from_millis(300));
    }

    fn serve(&mut self, settings: &[&str]) {
        let of = |name: &str| settings.iter().position(|word| *word == name).map(|at| settings[at + 1]);
        let listen = of("--listen").unwrap_or_else(|| self.base.strip_prefix("http://").expect("it is one"));
        let listen: SocketAddr = listen.parse().expect("it is an address");
        let data = self.dir.join(of("--data").unwrap_or("angarium-data"));
        // Claims that the load gives up must not hold a queue up for long.
        let builder = ServerBuilder::new(&data).listen(listen).env("ANGARIUM_MIN_CLAIM_TTL", "1");
        let mut rest = settings.iter();
        let mut others = Vec::new();
        while let Some(word) = rest.next() {
            match *word {
                "--listen" | "--data" => drop(rest.next()),
                word => others.push(word),
            }
        }
        self.servers.push(others.into_iter().fold(builder, ServerBuilder::arg).start());
    }

    fn run(&self, command: &str) {
        let programs = Path::new(env!("CARGO_BIN_EXE_angarium")).parent().expect("it lies somewhere");
        let ended = Command::new("bash")
            .args(["-c", command])
            .current_dir(self.dir)
            .env_clear()
            .env("HOME", self.dir)
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .env("ANGARIUM_URL", &self.base)
            .output()
            .expect("bash is there");
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{command}: {told}");
        eprintln!("{}", String::from_utf8_lossy(&ended.stdout));
    }
}

fn is_shared_by(client: &Client, replicas: usize) -> bool {
    let Ok(shown) = client.get("/v2/components") else { return false };
    let components = shown.json()["components"].as_array().cloned().unwrap_or_default();
    let slots = |one: &Value| one["slots"].as_array().map_or(0, Vec::len);
    components.len() == replicas && components.iter().all(|one| slots(one) > 0)
}

#[test]
fn service_grows_from_one_machine_to_a_cluster_as_shown() {
    let mut dice = StdRng::seed_from_u64(settings::seed("growth"));
    let dir = TempDir::new().expect("a temporary directory");
    let redis = Redis::start(SYNCED);
    let ports: Vec<(String, String)> = PORTS
        .iter()
        .map(|there| {
            let (host, _) = there.split_once(':').expect("there is a port");
            ((*there).to_owned(), format!("{host}:{}", free_port()))
        })
        .collect();
    let base = format!("http://{}", ports[0].1);
    let first: SocketAddr = ports[0].1.parse().expect("it is an address");
    assert_eq!(first.ip(), Ipv4Addr::LOCALHOST);
    let mut replaced = vec![
        ("zookeeper://127.0.0.1:2181/angarium".to_owned(), ZooKeeper::shared().fresh_tree().to_string()),
        ("redis://127.0.0.1:6379".to_owned(), redis.uri("")),
        ("postgres://127.0.0.1/angarium".to_owned(), Postgres::shared().fresh_uri()),
    ];
    replaced.extend(ports);
    let mut commands = commands(&replaced);
    let mut walk = Walk { dir: dir.path(), base: base.clone(), servers: Vec::new() };
    walk.step(&commands.pop_front().expect("it begins with a service"));
    create_queues(&walk.client(), false);
    let (history, mut load) = (History::new(), Load::balanced().with_claims_of(1..=2));
    load.run_while(&base, &history, &mut dice, || {
        thread::sleep(Duration::from_secs(1));
        commands.iter().for_each(|command| walk.step(command));
        wait_until("three replicas share the slots", || is_shared_by(&walk.client(), 3));
        thread::sleep(Duration::from_secs(2));
    });
    assert_eq!(walk.servers.len(), 3);
    assert_eq!(walk.client().get("/v2/pools/default").unwrap().status, StatusCode::NOT_FOUND);
    let totals = walk.client().get("/v2/admin/map?format=json").unwrap().json();
    let queues = |pool: &Value| pool["queues"].as_u64().unwrap_or_default();
    let placed: u64 = totals["pools"].as_array().expect("there are pools").iter().map(queues).sum();
    assert_eq!(placed, QUEUES.len() as u64, "{totals}");
    drain(&walk.client(), &history);
    assert_kept("growth", 1, &judge(&history.record()));
}
