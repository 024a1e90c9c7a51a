//! The cluster without containers, started and stopped with its one word.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::path;
use crate::support::client::Client;
use angarium_testbed::settings::test_tools;

/// Much more than it takes, also on a machine that is busy with other tests.
const START: Duration = Duration::from_secs(300);
const STOP: Duration = Duration::from_secs(60);
/// Ports from its first one on.
const PORTS: u16 = 43;

/// `docker/dev`, ended with the value.
struct Dev(Child);

impl Drop for Dev {
    fn drop(&mut self) {
        // Fails only when it has ended. It ends by this signal, and takes all its servers along.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// The first of as many free ports in a row, below those that the system gives out.
fn first_port() -> u16 {
    let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let mut first = (16_000..31_000).step_by(usize::from(PORTS));
    first.find(|first| (*first..*first + PORTS).all(is_free)).expect("some ports are free")
}

#[test]
fn one_word_starts_a_cluster_and_a_signal_stops_all_of_it() {
    let port = first_port();
    let mut child = Command::new(path("docker/dev"))
        .arg(port.to_string())
        .env("ANGARIUM", env!("CARGO_BIN_EXE_angarium"))
        .env("ANGARIUM_TEST_TOOLS", test_tools())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the script starts");
    let said = BufReader::new(child.stdout.take().expect("it is piped"));
    let dev = Dev(child);
    let start = Instant::now();
    let mut lines = said.lines().map_while(Result::ok);
    let address = format!("http://127.0.0.1:{port}");
    assert!(lines.any(|line| line.ends_with(&format!("the cluster answers at {address}"))));
    assert!(start.elapsed() < START, "{:?}", start.elapsed());

    let client = Client::new(&address);
    assert_eq!(client.post_messages("q", &[json!(1)]).unwrap().status, StatusCode::CREATED);
    let claimed = client.claim("q", 1, 60).unwrap().granted().unwrap();
    assert_eq!(claimed.messages[0].body, json!(1));
    let components = client.get("/v2/components").unwrap().json();
    assert_eq!(components["components"].as_array().unwrap().len(), 3);
    let pools = client.get("/v2/pools").unwrap().json();
    assert_eq!(pools["pools"].as_array().unwrap().len(), 2);

    drop(dev);
    let end = Instant::now();
    for port in port..port + PORTS {
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
            assert!(end.elapsed() < STOP, "somebody still listens on port {port}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
