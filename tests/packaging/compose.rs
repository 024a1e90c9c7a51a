//! The compose file of one service.

use serde_json::Value;

use super::dockerfile::Dockerfile;
use super::{path, settings, strings, takes, text, yaml};

fn compose() -> Value {
    yaml("docker/compose.yaml").remove(0)
}

#[test]
fn service_is_built_from_dockerfile_with_valid_arguments() {
    let service = &compose()["services"]["angarium"];
    let context = path("docker").join(service["build"]["context"].as_str().unwrap());
    assert!(context.join(service["build"]["dockerfile"].as_str().unwrap()).is_file());
    let command = strings(&service["command"]);
    assert!(takes(&command), "{command:?}");
    let known = settings("serve");
    for name in service["environment"].as_object().unwrap().keys() {
        assert!(known.contains(name), "{name} is none of {known:?}");
    }
}

#[test]
fn tree_service_of_compose_is_healthy_first() {
    let file = compose();
    let command = strings(&file["services"]["angarium"]["command"]);
    let tree = command.iter().skip_while(|word| *word != "--coordination").nth(1).unwrap();
    let host = tree.strip_prefix("zookeeper://").unwrap().split(':').next().unwrap();
    assert!(file["services"][host]["image"].as_str().unwrap().starts_with("zookeeper:"));
    assert_eq!(file["services"]["angarium"]["depends_on"][host]["condition"], "service_healthy");
    assert!(file["services"][host]["healthcheck"]["test"].is_array());
}

#[test]
fn the_port_is_published_on_loopback_only() {
    let image = Dockerfile::read("docker/Dockerfile");
    let ports = strings(&compose()["services"]["angarium"]["ports"]);
    assert_eq!(ports, [format!("127.0.0.1:8888:{}", image.last("EXPOSE"))]);
}

#[test]
fn lasting_data_is_in_volumes() {
    let (file, image) = (compose(), Dockerfile::read("docker/Dockerfile"));
    let mounts = |service: &str| strings(&file["services"][service]["volumes"]);
    let [data] = &mounts("angarium")[..] else { panic!("one directory is kept") };
    assert!(data.ends_with(&format!(":{}", image.env("ANGARIUM_DATA"))), "{data}");
    // Those that the image of ZooKeeper names.
    for kept in ["/data", "/datalog"] {
        assert!(mounts("zookeeper").iter().any(|mount| mount.ends_with(&format!(":{kept}"))), "{kept}");
    }
    for mount in ["angarium", "zookeeper"].into_iter().flat_map(mounts) {
        let volume = mount.split(':').next().unwrap().to_owned();
        assert!(file["volumes"].as_object().unwrap().contains_key(&volume), "{volume} is not declared");
    }
}

#[test]
fn the_commands_in_the_comments_are_the_ones_of_the_files() {
    let comments = text("docker/compose.yaml");
    let exec = comments.lines().find_map(|line| line.split("exec angarium ").nth(1)).unwrap();
    let words = super::words(exec);
    assert_eq!(
        words[0],
        super::dockerfile::list(Dockerfile::read("docker/Dockerfile").last("ENTRYPOINT"))[0]
    );
    assert!(takes(&words[1..]), "{exec}");
}
