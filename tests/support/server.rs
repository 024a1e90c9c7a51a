//! Owns the life of one real server: the built program as a child process on a data directory.
//! It never outlives its value, never waits without a bound and never speaks HTTP itself.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use super::client::Client;
use angarium_testbed::held::START;

/// Max time until a server has ended: well above what its hand-over of slots and its farewell to clients may take.
const STOP: Duration = Duration::from_secs(90);
/// Lines of each stream that are kept for the message of a failing test.
const KEPT_LINES: usize = 200;
const READY: &str = "listening on ";

/// How to start a server. Start it as often as wanted: the data directory is kept.
#[derive(Clone)]
pub struct ServerBuilder {
    data: PathBuf,
    program: PathBuf,
    listen: SocketAddr,
    /// What runs the program in place of ourselves, with its arguments.
    through: Vec<String>,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

/// A running server. Dropping it kills the process.
pub struct Server {
    child: Child,
    base: String,
    output: Output,
}

impl ServerBuilder {
    pub fn new(data: &Path) -> Self {
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let (data, program) = (data.to_owned(), env!("CARGO_BIN_EXE_angarium").into());
        Self { data, program, listen, through: Vec::new(), args: Vec::new(), env: Vec::new() }
    }

    /// Has this program run in place of the one that was built.
    pub fn program(mut self, path: PathBuf) -> Self {
        self.program = path;
        self
    }

    /// Has it listen here, in place of any free port.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Has the program run by another one, which must become it: signals go to the same process.
    pub fn through(mut self, command: &[String]) -> Self {
        self.through = command.to_vec();
        self
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Starts the server and waits until it listens. Panics with the server's last lines if it does not.
    pub fn start(&self) -> Server {
        let (mut server, address) = self.spawn();
        match address.recv_timeout(START) {
            Ok(base) => server.base = base,
            Err(RecvTimeoutError::Timeout) => panic!("not ready after {START:?}\n{}", server.last_lines()),
            Err(RecvTimeoutError::Disconnected) => panic!("ended at start\n{}", server.last_words()),
        }
        server
    }

    /// Starts the server and waits until it listens, or ends by itself: then there is none.
    pub fn try_start(&self) -> Option<Server> {
        let (mut server, address) = self.spawn();
        match address.recv_timeout(START) {
            Ok(base) => server.base = base,
            Err(RecvTimeoutError::Timeout) => panic!("not ready after {START:?}\n{}", server.last_lines()),
            Err(RecvTimeoutError::Disconnected) => {
                server.last_words();
                return None;
            }
        }
        Some(server)
    }

    /// Starts a server that must not come to listen, and returns what it said before it ended.
    pub fn start_refused(&self) -> String {
        let (mut server, address) = self.spawn();
        match address.recv_timeout(START) {
            Ok(base) => panic!("it listens on {base}\n{}", server.last_lines()),
            Err(RecvTimeoutError::Timeout) => panic!("no end after {START:?}\n{}", server.last_lines()),
            Err(RecvTimeoutError::Disconnected) => server.last_words(),
        }
    }

    fn spawn(&self) -> (Server, Receiver<String>) {
        let mut words = self.through.iter().map(AsRef::as_ref).chain([self.program.as_os_str()]);
        let mut child = Command::new(words.next().expect("the program is one"))
            .args(words)
            .args(["serve", "--listen", &self.listen.to_string(), "--data"])
            .arg(&self.data)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the built program can be started");
        let output = Output::default();
        let (ready, address) = mpsc::sync_channel(1);
        output.keep("out", child.stdout.take().expect("stdout is piped"), ready.clone());
        output.keep("err", child.stderr.take().expect("stderr is piped"), ready);
        (Server { child, base: String::new(), output }, address)
    }
}

impl Server {
    /// A server with default settings on this data directory.
    pub fn start(data: &Path) -> Self {
        ServerBuilder::new(data).start()
    }

    /// `http://ADDRESS`.
    pub fn base(&self) -> &str {
        &self.base
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// A new client: its own connections.
    pub fn client(&self) -> Client {
        Client::new(&self.base)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Bytes of its memory that are resident.
    pub fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says it");
        let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("it is a number");
        kib * 1024
    }

    /// The same once the start has come to rest, for comparison with later values. The allocator gives threads
    /// memory by pieces of 2 MiB when they first work, which some do half a second after the start.
    pub fn memory_at_rest(&self) -> usize {
        let mut last = 0;
        let mut equal = 0;
        for _ in 0..100 {
            let now = self.memory();
            equal = if now.abs_diff(last) < 1 << 20 { equal + 1 } else { 0 };
            last = now;
            if equal == 5 {
                break;
            }
            thread::sleep(Duration::from_millis(300));
        }
        last
    }

    /// SIGHUP.
    pub fn hang_up(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).expect("the server is our child");
    }

    /// The last lines of both streams.
    pub fn last_lines(&self) -> String {
        self.output.text()
    }

    /// For a process that has closed its stdout: leaves it a moment to end by itself and to be read out.
    fn last_words(&mut self) -> String {
        thread::sleep(Duration::from_millis(200));
        // Fails only when the process is gone already.
        let _ = self.child.kill();
        let status = self.child.wait();
        format!("{status:?}\n{}", self.last_lines())
    }

    /// Sends a signal that does not end it.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the server is our child");
    }

    /// SIGKILL. Returns when the process is gone with all its threads. Panics if it had ended by itself.
    pub fn kill9(mut self) {
        let ended = self.child.try_wait().expect("the server is our child");
        assert!(ended.is_none(), "ended by itself: {ended:?}\n{}", self.last_lines());
        self.child.kill().expect("the server is our child");
        self.child.wait().expect("the server is our child");
    }

    /// Waits until it has ended by itself. Panics if it does not in time.
    pub fn await_end(self) -> ExitStatus {
        self.await_end_until(Instant::now() + STOP)
    }

    /// As [`Server::await_end`]. Returns the status, and the last lines of both streams.
    pub fn await_last_words(mut self) -> String {
        let deadline = Instant::now() + STOP;
        while self.child.try_wait().expect("the server is our child").is_none() {
            assert!(Instant::now() < deadline, "it does not end\n{}", self.last_lines());
            thread::sleep(Duration::from_millis(5));
        }
        self.last_words()
    }

    /// SIGTERM, then waits for the end. Panics if the server does not end in time.
    pub fn terminate(self) -> ExitStatus {
        self.terminate_within(STOP)
    }

    /// As [`Server::terminate`], with a time for the end.
    pub fn terminate_within(self, time: Duration) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("the server is our child");
        self.await_end_until(Instant::now() + time)
    }

    fn await_end_until(mut self, deadline: Instant) -> ExitStatus {
        loop {
            if let Some(status) = self.child.try_wait().expect("the server is our child") {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end\n{}", self.last_lines());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last lines of a child. Each reading thread holds the lock for one line at a time.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<VecDeque<String>>>);

impl Output {
    /// Drains a stream to its end in a thread of its own, so that the child never blocks on a full pipe.
    /// Sends the address of the first line that names one.
    fn keep(&self, name: &'static str, stream: impl Read + Send + 'static, ready: SyncSender<String>) {
        let kept = self.clone();
        thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                // A full channel means that the address is known already; a closed one, that no caller asks.
                if let Some(base) = address_in(&line) {
                    let _ = ready.try_send(base);
                }
                kept.push(format!("{name}: {line}"));
            }
        });
    }

    fn push(&self, line: String) {
        let mut lines = self.0.lock();
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn text(&self) -> String {
        self.0.lock().iter().map(|line| format!("  {line}\n")).collect()
    }
}

/// `http://ADDRESS`, or `https://ADDRESS`, from the line that states where the server listens: that for people, or the
/// event of a log in JSON.
fn address_in(line: &str) -> Option<String> {
    let event = serde_json::from_str(line).unwrap_or(serde_json::Value::Null);
    let url = event["url"].as_str().filter(|_| event["message"] == "listening");
    let address = url.or_else(|| line.split_once(READY)?.1.split_whitespace().next())?;
    let is_url = ["http://", "https://"].iter().any(|scheme| address.starts_with(scheme));
    is_url.then(|| address.to_owned())
}

#[test]
fn address_is_read_from_plain_and_json_lines() {
    let base = Some("http://127.0.0.1:80".to_owned());
    assert_eq!(address_in("angarium listening on http://127.0.0.1:80"), base);
    assert_eq!(address_in(r#"{"message":"listening","url":"http://127.0.0.1:80"}"#), base);
    assert_eq!(address_in("listening on https://[::1]:80").as_deref(), Some("https://[::1]:80"));
    assert_eq!(address_in("listening on nothing"), None);
}
