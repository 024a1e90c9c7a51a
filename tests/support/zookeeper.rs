//! Owns private ZooKeeper servers: the packaged jar on its own port and data directory, on the loopback alone.
//! None outlives the test process, even one that is killed: a shell holds the server and ends it when the pipe
//! from here closes.
//!
//! It needs Debian's `libzookeeper-java` and `default-jre-headless`. The jar's manifest names what it needs but
//! for the binding of its log, so the class path is these two jars.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use angarium::coordination::zookeeper::Address;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const JARS: [&str; 2] = ["/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar"];
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
const QUIET: &str = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn";
/// The virtual machine of the tests: small and quick to start rather than quick to run.
const SMALL: &[&str] = &["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
/// As ZooKeeper's own `zkServer.sh` runs it: a heap of 1,000 MB, and all of the compiler.
const AS_DEPLOYED: &[&str] = &["-Xmx1000m"];
/// Milliseconds. Sessions last 2 to 20 of these.
const TICK: u32 = 500;
/// A virtual machine that starts on a busy computer stays well below it.
const START: Duration = Duration::from_secs(60);

/// Runs the server (`$3` and on) with its output in `$1`, says its process id, ends it when stdin closes, and
/// then removes `$2` if that names anything.
const HOLD: &str = r#"log=$1; data=$2; shift 2; "$@" >>"$log" 2>&1 & echo $!
cat >/dev/null; kill -9 $!; wait $! 2>/dev/null; [ -z "$data" ] || rm -rf -- "$data""#;

/// What the shell does with the data when the server has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastWill {
    KeepData,
    /// For a server that lives as long as the process, whose value is never dropped.
    RemoveData,
}

/// A standalone server. Dropping it ends the process and removes its data.
pub struct ZooKeeper {
    data: TempDir,
    port: u16,
    machine: &'static [&'static str],
    running: Option<Running>,
}

struct Running {
    shell: Child,
    server: Pid,
}

impl ZooKeeper {
    /// Starts a server with empty data and waits until it answers.
    pub fn start() -> Self {
        Self::start_with(SMALL, LastWill::KeepData)
    }

    /// As [`ZooKeeper::start`], in the virtual machine that a deployment has. It is fast once it is warm: compiling takes
    /// seconds of load.
    pub fn start_as_deployed() -> Self {
        Self::start_with(AS_DEPLOYED, LastWill::KeepData)
    }

    fn start_with(machine: &'static [&'static str], will: LastWill) -> Self {
        let data = TempDir::new().expect("there is a temporary directory");
        let port = free_port();
        fs::write(data.path().join("zoo.cfg"), settings(data.path(), port)).expect("the directory is ours");
        let running = Some(Running::start(data.path(), port, machine, will));
        Self { data, port, machine, running }
    }

    /// The server that tests share, each below a root of its own. It ends with the test process.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<ZooKeeper> = OnceLock::new();
        SHARED.get_or_init(|| Self::start_with(SMALL, LastWill::RemoveData))
    }

    /// Where it listens.
    pub fn endpoint(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The address of a tree below a root that nobody else uses.
    pub fn fresh_tree(&self) -> Address {
        fresh_tree_at(self.endpoint())
    }

    /// SIGKILL. The data stays for [`ZooKeeper::restart`].
    pub fn kill9(&mut self) {
        drop(self.running.take().expect("the server runs"));
    }

    /// Starts the server on the data it had, and waits until it answers.
    pub fn restart(&mut self) {
        assert!(self.running.is_none(), "the server runs already");
        self.running = Some(Running::start(self.data.path(), self.port, self.machine, LastWill::KeepData));
    }
}

/// As [`ZooKeeper::fresh_tree`], for a server that is reached in another way.
pub fn fresh_tree_at(endpoint: SocketAddr) -> Address {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let next = NEXT.fetch_add(1, Ordering::SeqCst);
    format!("zookeeper://{endpoint}/tests/{next}").parse().expect("it is an address")
}

impl Running {
    fn start(data: &Path, port: u16, machine: &[&str], will: LastWill) -> Self {
        let java = find_java();
        let log = data.join("log");
        let mut shell = Command::new("sh")
            .args(["-c", HOLD, "zookeeper"])
            .arg(&log)
            .arg(if will == LastWill::RemoveData { data } else { Path::new("") })
            .arg(java)
            .args(machine)
            .arg(QUIET)
            .args(["-cp", &JARS.join(":"), MAIN])
            .arg(data.join("zoo.cfg"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut line = String::new();
        let stdout = shell.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("the shell says the process id");
        let server = line.trim().parse().ok().and_then(Pid::from_raw).expect("the shell says the process id");
        let running = Self { shell, server };
        let deadline = Instant::now() + START;
        while !answers(port) {
            let said = fs::read_to_string(&log).unwrap_or_default();
            assert!(Instant::now() < deadline, "ZooKeeper does not answer after {START:?}\n{said}");
            // One that has ended stays a zombie until the shell ends.
            let stat = fs::read_to_string(format!("/proc/{}/stat", running.server.as_raw_nonzero()));
            assert!(stat.is_ok_and(|stat| !stat.contains(") Z")), "ZooKeeper ended at its start\n{said}");
            thread::sleep(Duration::from_millis(50));
        }
        running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only when the server is gone already. The shell reaps it, so the id is still its own.
        let _ = kill_process(self.server, Signal::KILL);
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Whether the server answers a question for its state.
fn answers(port: u16) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"srvr")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer.contains("Mode: standalone"))
    };
    ask().unwrap_or(false)
}

fn settings(data: &Path, port: u16) -> String {
    format!(
        "tickTime={TICK}\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
         admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr\n",
        data.display()
    )
}

fn find_java() -> PathBuf {
    const MISSING: &str = "is missing: run the tests with tests/run, which installs what they need \
                           (libzookeeper-java, default-jre-headless)";
    for jar in JARS {
        assert!(Path::new(jar).exists(), "{jar} {MISSING}");
    }
    let found = Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(found.is_ok_and(|status| status.success()), "java {MISSING}");
    "java".into()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback has a free port");
    listener.local_addr().expect("it is bound").port()
}
