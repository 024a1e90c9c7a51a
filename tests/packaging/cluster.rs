//! The cluster three times over: without containers (`docker/dev`), as containers, on Kubernetes. All of them start the service
//! with the same settings, behind the same probes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::dockerfile::Dockerfile;
use super::{settings, strings, text, words, yaml};

const COMPOSE: &str = "docker/cluster.yaml";
const KUBERNETES: &str = "packaging/kubernetes/angarium.yaml";
/// Who is let in is for each of them to say.
const OF_ACCESS: [&str; 3] = ["ANGARIUM_TOKENS", "ANGARIUM_INSECURE_NO_AUTH", "ANGARIUM_ALLOWED_HOST"];

fn compose() -> Value {
    yaml(COMPOSE).remove(0)
}

/// The objects of a kind, of which there is one of a name at most.
fn kubernetes(kind: &str) -> Vec<Value> {
    yaml(KUBERNETES).into_iter().filter(|object| object["kind"] == kind).collect()
}

fn container() -> Value {
    kubernetes("StatefulSet").remove(0)["spec"]["template"]["spec"]["containers"][0].take()
}

fn replicas(compose: &Value) -> Vec<(&String, &Value)> {
    let services = compose["services"].as_object().unwrap();
    services.iter().filter(|(name, _)| name.starts_with("replica-")).collect()
}

/// The lines of `docker/dev` that begin with this, its continued lines joined.
fn dev(begin: &str) -> String {
    let joined = text("docker/dev").replace("\\\n", " ");
    joined.lines().find(|line| line.trim_start().starts_with(begin)).unwrap().trim().to_owned()
}

/// The settings that `docker/dev` starts a replica with, as names of variables.
fn settings_of_dev() -> BTreeSet<String> {
    let flags = words(&dev("start \"replica-$id\""));
    let names = flags.iter().filter_map(|word| word.strip_prefix("--"));
    names.map(|name| format!("ANGARIUM_{}", name.to_uppercase().replace('-', "_"))).collect()
}

/// Those of `names` that are settings and not of access, with those that the image sets where it must be told.
fn compared<'a>(names: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
    let known = settings("serve");
    let ours = names.filter(|name| name.starts_with("ANGARIUM_"));
    let ours = ours.inspect(|name| assert!(known.contains(name), "{name} is no setting"));
    let image = ["ANGARIUM_LISTEN", "ANGARIUM_DATA"].map(ToOwned::to_owned);
    ours.filter(|name| !OF_ACCESS.contains(&name.as_str())).cloned().chain(image).collect()
}

#[test]
fn all_three_start_replicas_with_the_same_settings() {
    let dev = settings_of_dev();
    let (compose, container) = (compose(), container());
    assert_eq!(replicas(&compose).len(), 3);
    for (name, replica) in replicas(&compose) {
        assert_eq!(compared(replica["environment"].as_object().unwrap().keys()), dev, "{name}");
    }
    let mapped = kubernetes("ConfigMap").remove(0)["data"].take();
    let named: Vec<_> = container["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(compared(mapped.as_object().unwrap().keys().chain(&named)), dev);
}

#[test]
fn service_names_are_allowed_hosts() {
    let compose = compose();
    for (name, replica) in replicas(&compose) {
        let allowed = replica["environment"]["ANGARIUM_ALLOWED_HOST"].as_str().unwrap();
        let allowed: Vec<_> = allowed.split(',').collect();
        assert!(allowed.contains(&name.as_str()) && allowed.contains(&"balancer"), "{name}: {allowed:?}");
    }
    let container = container();
    let variables = container["env"].as_array().unwrap();
    let allowed = variables.iter().find(|one| one["name"] == "ANGARIUM_ALLOWED_HOST").unwrap();
    for service in kubernetes("Service").iter().filter(|one| one["spec"]["clusterIP"] != "None") {
        let name = service["metadata"]["name"].as_str().unwrap();
        assert!(allowed["value"].as_str().unwrap().split(',').any(|host| host == name), "{name}");
    }
    let image = Dockerfile::read("docker/Dockerfile");
    let single = &yaml("docker/compose.yaml")[0]["services"]["angarium"]["environment"];
    assert_eq!(single["ANGARIUM_ALLOWED_HOST"], image.env("ANGARIUM_ALLOWED_HOST"));
}

#[test]
fn all_three_keep_the_tree_on_three_servers_of_zookeeper() {
    let compose = compose();
    let servers = |tree: &str| {
        let (hosts, root) = tree.strip_prefix("zookeeper://").unwrap().split_once('/').unwrap();
        assert_eq!(root, "angarium");
        hosts.split(',').map(|host| host.split(':').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (name, replica) in replicas(&compose) {
        let hosts = servers(replica["environment"]["ANGARIUM_COORDINATION"].as_str().unwrap());
        assert_eq!(hosts.len(), 3, "{name}");
        for host in hosts {
            let server = &compose["services"][&host];
            assert!(server["image"].as_str().unwrap().starts_with("zookeeper:"), "{host}");
            assert!(server["environment"]["ZOO_SERVERS"].as_str().unwrap().contains(&format!("={host}:")));
            assert_eq!(replica["depends_on"][&host]["condition"], "service_healthy");
        }
    }
    let mapped = kubernetes("ConfigMap").remove(0);
    assert_eq!(servers(mapped["data"]["ANGARIUM_COORDINATION"].as_str().unwrap()).len(), 3);
    assert!(dev("local id tree=").contains("$(port 11),127.0.0.1:$(port 12),127.0.0.1:$(port 13)/angarium"));
}

#[test]
fn each_replica_advertises_its_peer_address() {
    let compose = compose();
    for (name, replica) in replicas(&compose) {
        let listened = replica["environment"]["ANGARIUM_PEER_LISTEN"].as_str().unwrap();
        let port = listened.split(':').next_back().unwrap();
        assert_eq!(replica["environment"]["ANGARIUM_ADVERTISE"], format!("{name}:{port}"));
    }
    let container = container();
    let advertised =
        container["env"].as_array().unwrap().iter().find(|one| one["name"] == "ANGARIUM_ADVERTISE");
    let service = &kubernetes("StatefulSet").remove(0)["spec"]["serviceName"];
    let peers = kubernetes("Service").into_iter().find(|one| one["metadata"]["name"] == *service).unwrap();
    assert_eq!(peers["spec"]["clusterIP"], "None");
    assert_eq!(peers["spec"]["publishNotReadyAddresses"], true);
    let port = &peers["spec"]["ports"][0]["port"];
    let expected = format!("$(POD_NAME).{}:{port}", service.as_str().unwrap());
    assert_eq!(advertised.unwrap()["value"], expected);
    let mapped = kubernetes("ConfigMap").remove(0);
    let listened = mapped["data"]["ANGARIUM_PEER_LISTEN"].as_str().unwrap().to_owned();
    assert!(listened.ends_with(&format!(":{port}")));
}

#[test]
fn shared_balancer_settings_check_readiness() {
    let (compose, balancer) = (compose(), text("docker/haproxy.cfg"));
    let service = &compose["services"]["balancer"];
    assert!(strings(&service["volumes"])[0].starts_with("./haproxy.cfg:"));
    let variables: BTreeSet<_> =
        balancer.split("\"$").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let given: BTreeSet<_> = service["environment"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(variables, given);
    let started = dev("start balancer");
    assert!(started.contains("docker/haproxy.cfg"));
    for name in variables {
        assert!(started.contains(&format!("{name}=")), "{name}");
    }
    let image = Dockerfile::read("docker/Dockerfile");
    for (name, _) in replicas(&compose) {
        let address = format!("{name}:{}", image.last("EXPOSE"));
        assert!(
            service["environment"].as_object().unwrap().values().any(|value| *value == address),
            "{name}"
        );
    }
    let ports = strings(&service["ports"]);
    assert!(ports.iter().all(|port| port.starts_with("127.0.0.1:")), "{ports:?}");
    let asked = balancer.lines().find_map(|line| line.trim().strip_prefix("option httpchk GET ")).unwrap();
    let container = container();
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], asked);
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
    assert_eq!(container["startupProbe"]["httpGet"]["path"], "/livez");
}

#[test]
fn both_redis_starters_pass_equal_settings() {
    let compose = compose();
    let command = strings(&compose["services"]["redis"]["command"]).join(" ");
    let started = dev("start redis").replace("''", "");
    for setting in ["--appendonly yes", "--appendfsync always", "--save", "--maxmemory-policy noeviction"] {
        assert!(command.contains(setting) && started.contains(setting), "{setting}");
    }
}

#[test]
fn on_kubernetes_replicas_are_apart_and_go_one_by_one() {
    let set = kubernetes("StatefulSet").remove(0);
    let template = &set["spec"]["template"];
    let labels = &template["metadata"]["labels"];
    let budget = kubernetes("PodDisruptionBudget").remove(0);
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    assert_eq!(&budget["spec"]["selector"]["matchLabels"], labels);
    let apart =
        &template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(apart["topologyKey"], "kubernetes.io/hostname");
    assert_eq!(&apart["labelSelector"]["matchLabels"], labels);
    for service in kubernetes("Service") {
        assert_eq!(&service["spec"]["selector"], labels);
        for port in service["spec"]["ports"].as_array().unwrap() {
            let target = container();
            let ports = target["ports"].as_array().unwrap();
            assert!(ports.iter().any(|one| one["name"] == port["targetPort"]), "{port}");
        }
    }
    // The user, the port and the directory of the image.
    let image = Dockerfile::read("docker/Dockerfile");
    let user = template["spec"]["securityContext"]["runAsUser"].to_string();
    assert!(image.last("USER").starts_with(&user), "{user}");
    let container = container();
    assert_eq!(container["ports"][0]["containerPort"].to_string(), image.last("EXPOSE"));
    assert_eq!(container["volumeMounts"][0]["mountPath"], image.env("ANGARIUM_DATA"));
}

#[test]
fn replica_gets_everything_needed_to_hand_over_slots() {
    let (compose, set) = (compose(), kubernetes("StatefulSet").remove(0));
    let seconds = set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
    for (name, replica) in replicas(&compose) {
        assert_eq!(replica["stop_grace_period"], format!("{seconds}s"), "{name}");
    }
}
