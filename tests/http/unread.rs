//! Refusals of requests whose body no client reads: a client that is still sending sees the answer, and the connection
//! stays. A socket by hand, since a client of HTTP would hide what happens on it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::support::server::Server;

const PIECE: usize = 256 * 1024;
const PIECES: usize = 12;

/// Sends a request with a large body piece by piece and returns the status of the answer, and then that of a second
/// request on the same connection.
fn statuses(server: &Server, head: &str) -> [u16; 2] {
    let address = server.base().trim_start_matches("http://");
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let length = PIECE * PIECES;
    write!(socket, "{head}\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n").unwrap();
    for _ in 0..PIECES {
        // Long enough for a server that has answered to close in between.
        thread::sleep(Duration::from_millis(20));
        socket.write_all(&[b' '; PIECE]).expect("the server reads on");
    }
    let mut answers = BufReader::new(socket.try_clone().unwrap());
    let first = status(&mut answers);
    socket.write_all(b"GET /v2/ping HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    [first, status(&mut answers)]
}

/// The status of the next answer, which is read whole.
fn status(answers: &mut impl BufRead) -> u16 {
    let mut line = String::new();
    answers.read_line(&mut line).expect("there is an answer");
    let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
    let mut length = 0;
    loop {
        line.clear();
        answers.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse().unwrap();
        }
    }
    answers.read_exact(&mut vec![0; length]).unwrap();
    status
}

#[test]
fn early_refusal_reaches_a_sending_client() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    for (head, expected) in [
        ("POST /v2/queues/q/messages HTTP/1.1\r\naccept: text/html", 406),
        ("POST /v2/queues/q/messages HTTP/1.1\r\nclient-id: x", 400),
        ("POST /v2/queues/a%20b/messages HTTP/1.1", 400),
        ("PUT /v2/pools/p HTTP/1.1\r\nx-roles: member", 403),
        ("POST /v2/nothing HTTP/1.1", 404),
        ("POST /v2/queues/q HTTP/1.1", 405),
    ] {
        assert_eq!(statuses(&server, head), [expected, 204], "{head}");
    }
}

#[test]
fn client_expecting_continue_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut socket = TcpStream::connect(server.base().trim_start_matches("http://")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = "PUT /v2/pools/p HTTP/1.1\r\nhost: localhost\r\nx-roles: member\r\nexpect: 100-continue\r\ncontent-length: 9";
    write!(socket, "{head}\r\n\r\n").unwrap();
    assert_eq!(status(&mut BufReader::new(socket)), 403);
}
