//! Owns private ZooKeeper servers: the packaged jar on its own port and data directory, on the loopback alone.
//! None outlives the test process.
//!
//! It needs Debian's `libzookeeper-java` and `default-jre-headless`. The jar's manifest names what it needs but
//! for the binding of its log, so the class path is these two jars.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use angarium::coordination::zookeeper::Address;
use tempfile::TempDir;

use super::held::{Held, LastWill, free_port};

const JARS: [&str; 2] = ["/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar"];
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
const QUIET: &str = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn";
/// The virtual machine of the tests: small and quick to start rather than quick to run.
const SMALL: &[&str] = &["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
/// As ZooKeeper's own `zkServer.sh` runs it: a heap of 1,000 MB, and all of the compiler.
const AS_DEPLOYED: &[&str] = &["-Xmx1000m"];
/// Milliseconds. Sessions last 2 to 20 of these.
const TICK: u32 = 500;

/// A standalone server. Dropping it ends the process and removes its data.
pub struct ZooKeeper {
    data: TempDir,
    port: u16,
    machine: &'static [&'static str],
    running: Option<Held>,
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
        let running = Some(run(data.path(), port, machine, will));
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
        self.running = Some(run(self.data.path(), self.port, self.machine, LastWill::KeepData));
    }
}

/// As [`ZooKeeper::fresh_tree`], for a server that is reached in another way.
pub fn fresh_tree_at(endpoint: SocketAddr) -> Address {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let next = NEXT.fetch_add(1, Ordering::SeqCst);
    format!("zookeeper://{endpoint}/tests/{next}").parse().expect("it is an address")
}

/// Starts a server on its data, and waits until it answers.
fn run(data: &Path, port: u16, machine: &[&str], will: LastWill) -> Held {
    let mut command: Vec<OsString> = vec![find_java().into()];
    command.extend(machine.iter().chain([&QUIET, &"-cp"]).map(Into::into));
    command.extend([JARS.join(":").into(), MAIN.into(), data.join("zoo.cfg").into()]);
    let held = Held::start(data, &command, will);
    held.wait_until_it(data, || answers(port));
    held
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
