//! The image: what it runs, as whom, on which files; and whether it can be built from what it copies.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::dockerfile::{Copy, Dockerfile, list};
use super::{path, settings, takes, text};
use crate::support::server::{Server, ServerBuilder};

const FILE: &str = "docker/Dockerfile";

/// The words of the health check, and its flags.
fn health_check(file: &Dockerfile) -> (Vec<String>, &str) {
    let (flags, command) = file.last("HEALTHCHECK").split_once("CMD ").expect("it runs a command");
    (list(command), flags)
}

#[test]
fn image_runs_its_program_with_valid_arguments() {
    let file = Dockerfile::read(FILE);
    let entry = list(file.last("ENTRYPOINT"));
    let placed: Vec<_> = file.all("COPY").map(|copy| Copy::of(copy).target).collect();
    assert!(placed.contains(&entry[0].as_str()), "{entry:?} is not in {placed:?}");
    let arguments = [&entry[1..], &list(file.last("CMD"))].concat();
    assert!(takes(&arguments), "{arguments:?}");
}

#[test]
fn the_health_check_works_against_the_service() {
    let file = Dockerfile::read(FILE);
    let (command, flags) = health_check(&file);
    assert_eq!(command[0], list(file.last("ENTRYPOINT"))[0]);
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    let check = |server: &str, more: &[(&str, &str)]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_angarium"));
        let listen = server.rsplit_once('/').unwrap().1;
        program.args(&command[1..]).env_clear().env("ANGARIUM_LISTEN", listen).envs(more.iter().copied());
        program.output().unwrap().status.code()
    };
    assert_eq!(check(server.base(), &[]), Some(0));
    assert_eq!(check("http://127.0.0.1:1", &[]), Some(3));
    // As the service is told by the environment, so is the check, TLS among it.
    let tls = [("ANGARIUM_TLS_CERT", "server.pem"), ("ANGARIUM_TLS_KEY", "key.pem")];
    let tls = tls.map(|(name, file)| (name, path(&format!("tests/cli/tls/{file}")).display().to_string()));
    let tls = tls.each_ref().map(|(name, file)| (*name, file.as_str()));
    let other = tempfile::tempdir().unwrap();
    let secure =
        tls.iter().fold(ServerBuilder::new(other.path()), |server, (name, file)| server.env(name, file));
    let secure = secure.start();
    assert_eq!(check(secure.base(), &tls), Some(0));
    assert_eq!(check(secure.base(), &[]), Some(3));
    // It gives up by itself before it is given up.
    let limit = command.iter().skip_while(|word| *word != "--timeout").nth(1).unwrap();
    let timeout = flags.split("--timeout=").nth(1).unwrap().split('s').next().unwrap();
    assert!(limit.parse::<u32>().unwrap() < timeout.parse().unwrap());
}

#[test]
fn port_is_the_default_of_clients() {
    let file = Dockerfile::read(FILE);
    let listen: std::net::SocketAddr = file.env("ANGARIUM_LISTEN").parse().unwrap();
    assert!(listen.ip().is_unspecified(), "nothing outside of the container would reach {listen}");
    assert_eq!(file.last("EXPOSE"), listen.port().to_string());
    let help = super::program(&super::words("ping --help"));
    let usual = format!("default http://127.0.0.1:{}", listen.port());
    assert!(String::from_utf8(help.stdout).unwrap().contains(&usual), "the health check asks elsewhere");
}

#[test]
fn the_settings_of_the_image_are_settings_of_the_service() {
    let (file, known) = (Dockerfile::read(FILE), settings("serve"));
    for name in file.env_names() {
        assert!(known.iter().any(|setting| setting == name), "{name} is none of {known:?}");
    }
}

#[test]
fn the_service_is_not_root_and_owns_its_data_alone() {
    let file = Dockerfile::read(FILE);
    let (user, data) = (file.last("USER"), file.env("ANGARIUM_DATA"));
    assert!(user.split(':').all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)), "USER {user}");
    assert_eq!(file.last("VOLUME"), data);
    let copies: Vec<_> = file.all("COPY").map(Copy::of).collect();
    let owned = copies.iter().find(|copy| copy.target == data).expect("the data directory is made");
    assert!(owned.flags.contains(&format!("--chown={user}").as_str()), "{:?}", owned.flags);
    assert!(file.last("RUN").contains(&format!("install -d -m 0700 /image{data}")));
}

#[test]
fn the_compiler_of_the_image_is_new_enough() {
    let file = Dockerfile::read(FILE);
    let version = |text: &str| -> Vec<u32> { text.split('.').map(|part| part.parse().unwrap()).collect() };
    let tag = file.all("FROM").next().unwrap().strip_prefix("rust:").expect("it builds with Rust's image");
    let manifest: toml::Table = text("Cargo.toml").parse().unwrap();
    let needed = manifest["workspace"]["package"]["rust-version"].as_str().unwrap();
    assert!(version(tag.split('-').next().unwrap()) >= version(needed), "{tag} is older than {needed}");
}

/// Copies a file or a folder of the repository.
fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
        return;
    }
    for entry in fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display())) {
        let name = entry.unwrap().file_name();
        copy(&from.join(&name), &to.join(&name));
    }
}

#[test]
fn copied_files_exist_and_suffice_for_cargo() {
    let file = Dockerfile::read(FILE);
    let allowed = text("docker/Dockerfile.dockerignore");
    let place = tempfile::tempdir().unwrap();
    for taken in file.all("COPY").map(Copy::of).filter(|copy| !copy.is_from_a_stage()) {
        for source in &taken.sources {
            assert!(allowed.lines().any(|line| line == format!("!{source}")), "{source} is left out");
            copy(&path(source), &place.path().join(source));
        }
    }
    let read = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&read.stdout).unwrap();
    for target in metadata["packages"][0]["targets"].as_array().unwrap() {
        let source = Path::new(target["src_path"].as_str().unwrap());
        assert!(source.exists(), "{} is not copied", source.display());
    }
}
