//! A client of HTTP/1.1 that is gone without a word, as when its machine lost power: its half of the connection is no
//! more, and nothing reports it.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::server::ServerBuilder;

/// Sends a request, waits for the end of stdin, and drops the socket in repair mode (19), in which the system tells the
/// other side nothing. It needs the right to administer the network.
const CLIENT: &str = r"
import socket, sys
client = socket.create_connection((sys.argv[1], int(sys.argv[2])))
client.sendall(sys.argv[3].encode())
sys.stdin.read()
client.setsockopt(socket.IPPROTO_TCP, 19, 1)
client.close()
";

/// Seconds for which the claim would wait.
const WAIT: u64 = 20;

fn wait_for_waiting_claims(client: &Client, wanted: &str, most: Duration) {
    let start = Instant::now();
    loop {
        let page = client.get("/metrics").unwrap().text();
        let waiting = page.lines().find_map(|line| line.strip_prefix("angarium_waiting_claims "));
        if waiting == Some(wanted) {
            return;
        }
        assert!(start.elapsed() < most, "{waiting:?} claims wait, and not {wanted}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn vanished_waiting_client_is_detected() {
    let data = TempDir::new().unwrap();
    let server = ServerBuilder::new(data.path()).arg("--probe-after").arg("1s").start();
    let client = server.client();
    let (host, port) = server.base().strip_prefix("http://").unwrap().rsplit_once(':').unwrap();
    let request =
        format!("POST /v2/queues/q/claims?wait={WAIT} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
    let mut vanishing = Command::new("python3")
        .args(["-c", CLIENT, host, port, &request])
        .stdin(Stdio::piped())
        .spawn()
        .expect("there is a python3");
    wait_for_waiting_claims(&client, "1", Duration::from_secs(10));
    vanishing.stdin.take().expect("stdin is piped").flush().unwrap();
    let left = vanishing.wait().unwrap();
    assert!(left.success(), "it could not vanish: this test needs the rights of root");
    wait_for_waiting_claims(&client, "0", Duration::from_secs(WAIT - 6));
}
