//! The life of servers that tests start. None outlives the test process, even if that is killed: a shell owns the
//! server, and ends it when the pipe from the test process closes.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Max time that a server may take to answer, and max time of other waits. Two busy cores with a cluster of each of
/// several tests need more than a minute; only a failing test waits so long.
pub const START: Duration = Duration::from_secs(240);

/// Runs the server (`$3` and following) with its output in `$1`, and prints its process id. Kills it when stdin closes,
/// then removes `$2` if it is not empty, after a moment in which the server's children end too.
const HOLD: &str = r#"log=$1; data=$2; shift 2; "$@" >>"$log" 2>&1 & echo $!
cat >/dev/null; kill -9 $! 2>/dev/null; wait $! 2>/dev/null; [ -z "$data" ] || { sleep 1; rm -rf -- "$data"; }"#;

/// What the shell does with the data after the server has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LastWill {
    KeepData,
    /// For a server that lives as long as the process, whose value is never dropped.
    RemoveData,
}

/// A server and the shell that owns it. Dropping it sends SIGKILL to the server.
pub struct ShellServer {
    shell: Child,
    pub server: Pid,
}

impl ShellServer {
    /// Starts a server in its directory; its output is appended to `log`.
    pub fn start(dir: &Path, command: &[OsString], will: LastWill) -> Self {
        let mut shell = Command::new("sh")
            .args(["-c", HOLD, "held"])
            .arg(dir.join("log"))
            .arg(if will == LastWill::RemoveData { dir } else { Path::new("") })
            .args(command)
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut line = String::new();
        let stdout = shell.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("the shell prints the process id");
        let server =
            line.trim().parse().ok().and_then(Pid::from_raw).expect("the shell prints the process id");
        Self { shell, server }
    }

    /// Whether the server has ended. It stays a zombie until the shell ends.
    pub fn is_over(&self) -> bool {
        is_over(&self.server.as_raw_nonzero().to_string())
    }

    /// Waits until the server answers. Panics with its output when it ends before, or takes too long.
    pub fn wait_until_it(&self, dir: &Path, mut answers: impl FnMut() -> bool) {
        let deadline = Instant::now() + START;
        while !answers() {
            let output = || fs::read_to_string(dir.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "no answer after {START:?}\n{}", output());
            assert!(!self.is_over(), "it ended at its start\n{}", output());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for ShellServer {
    fn drop(&mut self) {
        // Fails only when the server has ended already. The shell has not reaped it yet, so no other process has its
        // id.
        let _ = kill_process(self.server, Signal::KILL);
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Whether a process has ended, reaped or not.
pub fn is_over(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    !stat.is_ok_and(|stat| !stat.contains(") Z"))
}

/// Waits until the condition is true, for a bounded time.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + START;
    while !is_so() {
        assert!(Instant::now() < deadline, "not after {START:?}: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until nothing prevents the end any more, for a bounded time. `obstacle` states the present one, if there is one.
pub fn wait_out(what: &str, mut obstacle: impl FnMut() -> Option<String>) {
    let deadline = Instant::now() + START;
    while let Some(present) = obstacle() {
        assert!(Instant::now() < deadline, "not after {START:?}: {what}: {present}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns a loopback port without a listener, a different one at each call. It is below the ports that the system
/// gives to clients and to listeners on any port, so a restarted server finds it free.
pub fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const PORTS: u32 = 22_000;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    // Concurrent test runs begin at different ports.
    let own = std::process::id().wrapping_mul(997);
    let mut ports = std::iter::repeat_with(|| {
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        u16::try_from(FIRST + own.wrapping_add(call) % PORTS).expect("it is below 32,000")
    });
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.by_ref().take(PORTS as usize).find(is_free).expect("the loopback has a free port")
}
