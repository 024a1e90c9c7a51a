//! What a service manager such as systemd is told, on a socket of its kind.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use http::StatusCode;
use rustix::process::Signal;

use crate::support::server::ServerBuilder;

/// The interval of the watchdog.
const WATCHDOG: Duration = Duration::from_secs(2);
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The next message that has `line` as one of its lines, and when it came.
fn receive(socket: &UnixDatagram, line: &str) -> Instant {
    let (start, mut text) = (Instant::now(), [0; 4_096]);
    loop {
        assert!(start.elapsed() < MAX_WAIT, "{line} does not come");
        match socket.recv(&mut text) {
            Ok(read) => {
                if String::from_utf8_lossy(&text[..read]).lines().any(|found| found.starts_with(line)) {
                    return Instant::now();
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn service_manager_is_told_of_readiness_life_and_stop() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let builder = ServerBuilder::new(&data.path().join("data"));
    let server =
        builder.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string()).start();
    receive(&socket, "READY=1");
    assert_eq!(server.client().get("/livez").unwrap().status, StatusCode::OK);
    let beats: Vec<Instant> = (0..5).map(|_| receive(&socket, "WATCHDOG=1")).collect();
    let mut pauses: Vec<Duration> = beats.windows(2).map(|pair| pair[1] - pair[0]).collect();
    pauses.sort_unstable();
    // A busy machine delays some of them.
    assert!(pauses[pauses.len() / 2] < WATCHDOG / 2 + Duration::from_millis(300), "{pauses:?}");
    // A process that does not run is not alive.
    server.signal(Signal::STOP);
    while socket.recv(&mut [0; 4_096]).is_ok() {}
    server.signal(Signal::CONT);
    receive(&socket, "WATCHDOG=1");
    let stopping = std::thread::spawn(move || {
        receive(&socket, "STOPPING=1");
    });
    assert!(server.terminate().success());
    stopping.join().unwrap();
}
