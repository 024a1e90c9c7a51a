//! Owns a private load balancer: HAProxy with the settings that the project ships, on the loopback alone. It does not
//! outlive the test process.
//!
//! It needs HAProxy, which `tests/prepare` puts beside the other tools.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use tempfile::TempDir;

use angarium_testbed::held::{LastWill, ShellServer, free_port};
use angarium_testbed::settings::test_tools;

const SETTINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docker/haproxy.cfg");
/// The names that the settings give to the replicas.
const REPLICAS: [&str; 3] = ["REPLICA_ONE", "REPLICA_TWO", "REPLICA_THREE"];

/// A running load balancer. Dropping it ends the process.
pub struct Balancer {
    port: u16,
    _running: ShellServer,
    _dir: TempDir,
}

impl Balancer {
    /// Starts it in front of these addresses and waits until it listens. Replicas may come and go later.
    pub fn start(replicas: [SocketAddr; 3]) -> Self {
        let dir = TempDir::new().expect("there is a temporary directory");
        let program = test_tools().join("bin/haproxy");
        assert!(
            program.exists(),
            "{} is missing: run the tests with tests/run, which puts it there",
            program.display()
        );
        let port = free_port();
        let mut command: Vec<OsString> =
            vec!["env".into(), format!("BALANCER_LISTEN=127.0.0.1:{port}").into()];
        let named = REPLICAS.iter().zip(replicas).map(|(name, address)| format!("{name}={address}").into());
        command.extend(named);
        command.extend([program.into(), "-db".into(), "-f".into(), SETTINGS.into()]);
        let running = ShellServer::start(dir.path(), &command, LastWill::KeepData);
        running.wait_until_it(dir.path(), || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        Self { port, _running: running, _dir: dir }
    }

    /// `http://ADDRESS`.
    pub fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}
