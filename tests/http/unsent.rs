//! Clients that do not read their answers: what they cost in memory, and that others are served meanwhile.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::json;
use socket2::{Domain, Socket, Type};

use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::wait_until;

const MIB: usize = 1 << 20;

/// A client that takes few bytes at a time from the network.
fn narrow(server: &Server) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let address: SocketAddr = server.base().trim_start_matches("http://").parse().unwrap();
    assert_eq!(address.ip(), Ipv4Addr::LOCALHOST);
    socket.connect(&address.into()).unwrap();
    socket.into()
}

#[test]
fn unread_answers_stay_within_their_budget() {
    let data = tempfile::tempdir().unwrap();
    let server = ServerBuilder::new(data.path()).arg("--max-unsent-bytes=33554432").start();
    let client = server.client();
    for _ in 0..20 {
        let posted =
            client.post("/v2/queues/q/messages", &json!({"messages": [{"body": "x".repeat(250_000)}]}));
        assert_eq!(posted.unwrap().status, 201);
    }
    let list = "/v2/queues/q/messages?limit=20&echo=true";
    let whole = client.get(list).unwrap().body.len();
    assert!(whole > 4 * MIB, "{whole}");
    let before = server.memory_at_rest();
    let sockets: Vec<_> = (0..60)
        .map(|_| {
            let mut socket = narrow(&server);
            write!(socket, "GET {list} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").unwrap();
            // Long enough for its answer to be made.
            thread::sleep(Duration::from_millis(50));
            socket
        })
        .collect();
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 200 * MIB, "answers of {} MiB keep {} MiB", 60 * whole / MIB, grown / MIB);
    // The ages of messages may have a digit more.
    assert!(client.get(list).unwrap().body.len() >= whole, "who reads is served");

    let page = || String::from_utf8(client.get("/metrics").unwrap().body).unwrap();
    wait_until("few connections are left", || {
        let page = page();
        let open = page.lines().find_map(|line| line.strip_prefix("angarium_connections "));
        let open: usize = open.unwrap_or_else(|| panic!("{page}")).parse().unwrap();
        open <= 2 + 32 * MIB / whole
    });
    let page = page();
    for (name, least) in [("bytes", MIB), ("limit_bytes", 32 * MIB), ("ended_total", 1)] {
        let series = format!("angarium_budget_{name}{{budget=\"answers\"}} ");
        let value = page.lines().find_map(|line| line.strip_prefix(&series));
        let value: usize = value.unwrap_or_else(|| panic!("{page}")).parse().unwrap();
        assert!(value >= least, "{name} is {value}");
    }
    drop(sockets);
}
