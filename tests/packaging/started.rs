//! The program started with the exact command and environment of each packaging file: a user posts to every one of them.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use super::launch::{Launch, assert_usable};
use super::{text, words, yaml};
use crate::support::balancer::Balancer;
use angarium_testbed::held::{free_port, wait_until};
use angarium_testbed::postgres::Postgres;
use angarium_testbed::redis::{Redis, SYNCED};
use angarium_testbed::zookeeper::ZooKeeper;

const KUBERNETES: &str = "packaging/kubernetes/angarium.yaml";

/// The lines of commands in the head of a file, continued ones joined, each without its comment.
fn commands(file: &str) -> Vec<String> {
    let head: Vec<_> =
        text(file).lines().map_while(|line| line.strip_prefix('#').map(str::to_owned)).collect();
    let joined = head.join("\n").replace("\\\n", " ");
    let commands = joined.lines().filter_map(|line| line.strip_prefix("   "));
    commands.map(|line| line.split(" # ").next().unwrap().trim().to_owned()).collect()
}

/// The words of the command in the head of a file that begins so.
#[track_caller]
pub fn command(file: &str, begin: &str) -> Vec<String> {
    let commands = commands(file);
    let found = commands.iter().find(|line| line.starts_with(begin));
    words(found.unwrap_or_else(|| panic!("no {begin} in {commands:?}")))
}

/// The values of a flag that is repeated, each with its name.
fn pairs<'a>(words: &'a [String], flag: &str) -> Vec<(&'a str, &'a str)> {
    let values = words.windows(2).filter(|two| two[0] == flag).map(|two| two[1].as_str());
    values.map(|value| value.split_once('=').unwrap()).collect()
}

#[test]
fn docker_run_line_starts_a_usable_service() {
    let run = command("docker/Dockerfile", "docker run");
    assert_eq!(run.last().unwrap(), "angarium", "arguments after the image are not expected: {run:?}");
    let given = pairs(&run, "--env");
    let given = given.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let service = Launch::of_image(None, given).start();
    assert_usable(&service.client());
    assert_eq!(service.health(), Some(0));
    let page = text("docs/installing.md");
    assert!(page.lines().any(|line| words(line) == run), "the page has another line");
}

#[test]
fn compose_service_takes_its_own_try_line() {
    let zookeeper = ZooKeeper::start();
    let file = yaml("docker/compose.yaml").remove(0);
    let launch = || {
        let launch = Launch::of_compose(&file["services"]["angarium"]);
        launch.replace("zookeeper:2181", &zookeeper.endpoint().to_string())
    };
    // Without its pool it refuses posts, and is not healthy.
    let tree = |name: &str| format!("{}/{name}", zookeeper.endpoint());
    let poor = launch().without("ANGARIUM_POOL").replace(&tree("angarium"), &tree("poor")).start();
    assert_eq!(poor.client().get("/livez").unwrap().status, 200);
    assert_eq!(poor.client().post_messages("q", &[Value::Null]).unwrap().status, 503);
    assert_ne!(poor.health(), Some(0), "healthy means usable");
    let service = launch().start();
    assert_eq!(service.try_line(), 201, "{}", service.printed());
    assert_usable(&service.client());
    assert_eq!(service.health(), Some(0));
}

#[test]
fn compose_cluster_is_usable_behind_its_balancer() {
    let (zookeeper, redis, postgres) = (ZooKeeper::start(), Redis::start(SYNCED), Postgres::start(&[]));
    let file = yaml("docker/cluster.yaml").remove(0);
    let services = &file["services"];
    let ports: BTreeMap<_, _> =
        ["replica-1", "replica-2", "replica-3"].map(|name| (name, (free_port(), free_port()))).into();
    let start = |name: &str| {
        let (port, peers) = ports[name];
        let launch = Launch::of_compose(&services[name]);
        let launch = (1..=3).fold(launch, |launch, server| {
            launch.replace(&format!("zookeeper-{server}:2181"), &zookeeper.endpoint().to_string())
        });
        launch
            .replace("redis:6379", &format!("127.0.0.1:{}", redis.port()))
            .replace(&format!("{name}:8889"), &format!("127.0.0.1:{peers}"))
            .replace(":8889", &format!(":{peers}"))
            .start_at(port)
    };
    // At once, as `up` does: they make the tree together.
    let replicas: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = ports.keys().map(|name| scope.spawn(|| start(name))).collect();
        starts.into_iter().map(|started| started.join().expect("the replica starts")).collect()
    });
    for replica in &replicas {
        wait_until("the replica is healthy", || replica.health() == Some(0));
    }
    let uri = postgres.uri("");
    let place = uri.strip_prefix("postgres://").unwrap().trim_end_matches('?');
    let pools = Launch::of_compose(&services["pools"])
        .replace("replica-1:8888", &format!("127.0.0.1:{}", replicas[0].port()))
        .replace("angarium@postgres:5432/angarium", place);
    // The second time is another `up`.
    for _ in 0..2 {
        let ended = pools.run();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
    let addresses: Vec<_> = ports.values().map(|(port, _)| ([127, 0, 0, 1], *port).into()).collect();
    let balancer = Balancer::start(addresses.try_into().unwrap());
    let client = crate::support::client::Client::new(&balancer.base());
    wait_until("the balancer is healthy", || balancer_health(&services["balancer"], &balancer.base()));
    assert_usable(&client);
    let pools = client.get("/v2/pools").unwrap().json();
    assert_eq!(pools["pools"].as_array().unwrap().len(), 2, "{pools}");
    assert_eq!(client.get("/v2/components").unwrap().json()["components"].as_array().unwrap().len(), 3);
    drop(replicas);
    wait_until("the balancer without replicas is unhealthy", || {
        !balancer_health(&services["balancer"], &balancer.base())
    });
}

/// Whether the health check of the compose file succeeds against a balancer.
fn balancer_health(service: &Value, base: &str) -> bool {
    let check = super::strings(&service["healthcheck"]["test"]);
    assert_eq!(check[0], "CMD");
    let check: Vec<_> = check[1..].iter().map(|word| word.replace("$$", "$")).collect();
    let ended = Command::new(&check[0])
        .args(&check[1..])
        .env("BALANCER_LISTEN", base.strip_prefix("http://").unwrap())
        .output()
        .unwrap();
    ended.status.success()
}

#[test]
fn compose_wait_ignores_ended_services() {
    // `up --wait` waits until each service runs or is healthy. It waits for the success of one that ends by itself only
    // where another service depends on that.
    let file = yaml("docker/cluster.yaml").remove(0);
    let services = file["services"].as_object().unwrap();
    let ends = |service: &&Value| service["restart"] != "unless-stopped";
    let ending: Vec<_> = services.iter().filter(|(_, service)| ends(service)).map(|(name, _)| name).collect();
    assert_eq!(ending, ["pools"]);
    for name in ending {
        let awaited =
            |service: &Value| service["depends_on"][name]["condition"] == "service_completed_successfully";
        assert!(services.values().any(awaited), "nothing awaits the end of {name}");
    }
}

/// The environment of the container of the StatefulSet, in the pod `angarium-0`. `secret` has what the Secret has.
fn pod_environment(documents: &[Value], secret: &[(&str, &str)]) -> BTreeMap<String, String> {
    let of_kind = |kind: &str| documents.iter().find(|object| object["kind"] == kind).unwrap();
    let set = of_kind("StatefulSet");
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let mapped = of_kind("ConfigMap")["data"].as_object().unwrap().iter();
    let mut environment: BTreeMap<_, _> =
        mapped.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect();
    for variable in container["env"].as_array().unwrap() {
        let (name, from) = (variable["name"].as_str().unwrap(), &variable["valueFrom"]);
        let value = match (&variable["value"], &from["fieldRef"]["fieldPath"], &from["secretKeyRef"]["key"]) {
            (Value::String(text), ..) => text.clone(),
            (_, Value::String(field), _) if field == "metadata.name" => "angarium-0".to_owned(),
            (_, Value::String(field), _) if field == "metadata.namespace" => "default".to_owned(),
            (.., Value::String(key)) => {
                assert_eq!(from["secretKeyRef"]["name"], "angarium");
                secret.iter().find(|(name, _)| name == key).expect("the Secret has it").1.to_owned()
            }
            _ => panic!("{variable} is from elsewhere"),
        };
        let expanded =
            environment.iter().fold(value, |value, (name, own)| value.replace(&format!("$({name})"), own));
        environment.insert(name.to_owned(), expanded);
    }
    environment
}

#[test]
fn pod_is_usable_with_generated_secret() {
    let (zookeeper, redis) = (ZooKeeper::start(), Redis::start(SYNCED));
    let documents = yaml(KUBERNETES);
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_angarium"))
        .args(&command(KUBERNETES, "angarium token new")[1..])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let secret = command(KUBERNETES, "kubectl create secret generic angarium");
    let literals: Vec<_> =
        secret.iter().filter_map(|word| word.strip_prefix("--from-literal=")?.split_once('=')).collect();
    let files: Vec<_> = secret.iter().filter_map(|word| word.strip_prefix("--from-file=")).collect();
    assert_eq!(files, ["tokens.toml"]);
    let spec =
        &documents.iter().find(|object| object["kind"] == "StatefulSet").unwrap()["spec"]["template"]["spec"];
    let volume = &spec["volumes"][0];
    assert_eq!(
        (&volume["secret"]["secretName"], &volume["secret"]["items"][0]["key"]),
        (&"angarium".into(), &"tokens.toml".into())
    );
    let arguments = super::strings(&spec["containers"][0]["args"]);
    let peers = free_port();
    let endpoint = zookeeper.endpoint().to_string();
    let launch = Launch::of_image(Some(&arguments), pod_environment(&documents, &literals));
    let advertised = launch.variable("ANGARIUM_ADVERTISE").to_owned();
    assert_eq!(advertised, "angarium-0.angarium-peers:8889");
    let pod = (0..3)
        .fold(launch, |launch, server| {
            launch.replace(&format!("zookeeper-{server}.zookeeper:2181"), &endpoint)
        })
        .replace("redis:6379", &format!("127.0.0.1:{}", redis.port()))
        .replace("/etc/angarium/", &format!("{}/", dir.path().display()))
        .replace("angarium-0.angarium-peers:8889", &format!("127.0.0.1:{peers}"))
        .replace(":8889", &format!(":{peers}"))
        .start();
    assert_eq!(pod.client().post_messages("q", &[Value::Null]).unwrap().status, 401);
    assert_usable(&pod.client().with_header("Authorization", &format!("Bearer {token}")));
    assert_eq!(pod.health(), Some(0));
}

#[test]
fn apply_on_kubernetes_writes_over_no_token() {
    let documents = yaml(KUBERNETES);
    assert!(documents.iter().all(|object| object["kind"] != "Secret"), "each apply would empty it");
    let applied = command(KUBERNETES, "kubectl apply");
    assert_eq!(applied.last().unwrap(), KUBERNETES);
}

#[test]
fn kubernetes_image_is_the_pushed_one() {
    let documents = yaml(KUBERNETES);
    let set = documents.iter().find(|object| object["kind"] == "StatefulSet").unwrap();
    let image = set["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap();
    assert_eq!(command(KUBERNETES, "docker push").last().unwrap(), image);
    let built = command(KUBERNETES, "docker build");
    assert!(built.windows(2).any(|two| two[0] == "--tag" && two[1] == image), "{built:?}");
    // A registry, and a version: a name alone is one of Docker Hub, and `latest` changes under the replicas.
    let (name, version) = image.rsplit_once(':').expect("it has a version");
    assert!(name.split('/').next().unwrap().contains('.'), "{image} names no registry");
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn unit_of_systemd_starts_a_usable_service() {
    let service = super::unit::launch().with("ANGARIUM_LISTEN", "127.0.0.1:8888").start();
    assert_usable(&service.client());
}
