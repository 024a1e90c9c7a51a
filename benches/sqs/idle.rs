//! What long polls cost that no caller answers.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::support::server::{Server, ServerBuilder};

/// The longest wait there is, which is longer than the window.
const WAIT: &str = "20";
/// Until all are known to wait.
const SETTLE: Duration = Duration::from_secs(2);
const WINDOW: Duration = Duration::from_secs(10);

/// The CPU of the service in a window without any caller, and in one with so many long polls of empty queues.
pub fn cpu_without_and_with(polls: usize) -> [Duration; 2] {
    let data = tempfile::tempdir().expect("a directory");
    let server = ServerBuilder::new(data.path()).start();
    let address = server.base().trim_start_matches("http://").to_owned();
    for queue in 0..10 {
        let created = server.client().create_queue(&format!("idle-{queue}")).expect("it answers");
        assert_eq!(created.status, 201);
    }
    thread::sleep(SETTLE);
    let without = cpu_of_window(&server);
    let waiting: Vec<TcpStream> = (0..polls).map(|number| poll(&address, number % 10)).collect();
    thread::sleep(SETTLE);
    let with = cpu_of_window(&server);
    let answered = waiting.iter().filter(|stream| is_answered(stream)).count();
    assert_eq!(answered, 0, "they wait all the time");
    [without, with]
}

fn cpu_of_window(server: &Server) -> Duration {
    let before = cpu(server);
    thread::sleep(WINDOW);
    cpu(server) - before
}

/// The CPU of a process so far, to a tick of 10 ms for each of user and system.
fn cpu(server: &Server) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid())).expect("the server runs");
    let (_, fields) = stat.rsplit_once(')').expect("its name is in brackets");
    let ticks = fields.split_ascii_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u32>());
    Duration::from_millis(10) * ticks.map(|ticks| ticks.expect("it is a number")).sum::<u32>()
}

fn poll(address: &str, queue: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let body = format!(r#"{{"QueueUrl":"idle-{queue}","WaitTimeSeconds":{WAIT}}}"#);
    write!(
        stream,
        "POST / HTTP/1.1\r\nhost: {address}\r\nx-amz-target: AmazonSQS.ReceiveMessage\r\n\
         content-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("it reads");
    stream
}

fn is_answered(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("it is a socket");
    stream.peek(&mut [0]).is_ok()
}
