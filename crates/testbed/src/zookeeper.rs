//! Private ZooKeeper servers: the packaged jar with its own port and data directory, on the loopback only. None
//! outlives the test process.
//!
//! They need Debian's `libzookeeper-java` and `default-jre-headless`. The manifest of the jar names all its
//! dependencies except the binding of its log and what Netty needs for TLS.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use angarium_coordination::zookeeper::Address;
use tempfile::TempDir;

use super::authority::{Authority, Certified};
use super::held::{LastWill, ShellServer, free_port, wait_until};

const JARS: [&str; 4] = [
    "/usr/share/java/zookeeper.jar",
    "/usr/share/java/slf4j-simple.jar",
    "/usr/share/java/netty-codec.jar",
    "/usr/share/java/netty-resolver.jar",
];
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
const QUIET: &str = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn";
/// Options of the virtual machine for tests: it is small and starts fast, but runs slowly.
const SMALL: &[&str] = &["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
/// Options as in ZooKeeper's own `zkServer.sh`: a heap of 1,000 MB, and the full compiler.
const AS_DEPLOYED: &[&str] = &["-Xmx1000m"];
/// Tick of a server; a session lasts 2 to 20 ticks.
pub const TICK: Duration = Duration::from_millis(500);
/// The session timeout that a server grants: replicas ask for a longer one.
pub const SESSION: Duration = TICK.saturating_mul(20);

/// A server, single or in an [`Ensemble`]. Dropping it ends the process and removes its data.
pub struct ZooKeeper {
    data: TempDir,
    port: u16,
    /// The port of TLS; none without it.
    secure_port: Option<u16>,
    machine: &'static [&'static str],
    /// Further options of the virtual machine.
    options: Vec<String>,
    /// Further settings.
    extra: String,
    /// What runs the virtual machine in place of ourselves, with its arguments.
    through: Vec<OsString>,
    running: Option<ShellServer>,
}

impl ZooKeeper {
    /// Starts a server with empty data and waits until it answers.
    pub fn start() -> Self {
        Self::start_with(SMALL, LastWill::KeepData)
    }

    /// Like [`ZooKeeper::start`], with the virtual machine of a deployment. It is fast after some seconds of load,
    /// which compile its code.
    pub fn start_as_deployed() -> Self {
        Self::start_with(AS_DEPLOYED, LastWill::KeepData)
    }

    /// As [`ZooKeeper::start`], run by another program, which must become it.
    pub fn start_through(command: &[String]) -> Self {
        let through = command.iter().map(Into::into).collect();
        Self::start_one(Self { through, ..Self::new(SMALL) }, LastWill::KeepData)
    }

    /// Starts a server that authenticates clients by SASL, as one of these users, and serves others too.
    pub fn start_with_logins(logins: &[(&str, &str)]) -> Self {
        let mut server = Self::new(SMALL);
        server.take_logins(logins);
        Self::start_one(server, LastWill::KeepData)
    }

    fn take_logins(&mut self, logins: &[(&str, &str)]) {
        let users: String =
            logins.iter().map(|(user, password)| format!(" user_{user}=\"{password}\"")).collect();
        let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
        let jaas = self.data.path().join("jaas.conf");
        fs::write(&jaas, format!("Server {{ {module} required{users}; }};\n"))
            .expect("the directory is ours");
        self.options = vec![format!("-Djava.security.auth.login.config={}", jaas.display())];
        self.extra = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n".into();
    }

    /// Starts a server with a port of TLS too, which demands a certificate of this authority.
    pub fn start_with_tls(authority: &Authority, certified: &Certified) -> Self {
        let mut server = Self::new(SMALL);
        server.take_certificate(authority, certified);
        Self::start_one(server, LastWill::KeepData)
    }

    fn take_certificate(&mut self, authority: &Authority, certified: &Certified) {
        let port = free_port();
        self.secure_port = Some(port);
        self.extra = format!(
            "secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={}\nssl.keyStore.type=PEM\n\
             ssl.trustStore.location={}\nssl.trustStore.type=PEM\nssl.clientAuth=need\n",
            certified.both.display(),
            authority.file().display()
        );
    }

    fn start_with(machine: &'static [&'static str], will: LastWill) -> Self {
        Self::start_one(Self::new(machine), will)
    }

    fn start_one(mut server: Self, will: LastWill) -> Self {
        fs::write(server.data.path().join("zoo.cfg"), server.settings()).expect("the directory is ours");
        server.run(will);
        server.wait();
        server
    }

    /// A server that does not run yet and has no settings.
    fn new(machine: &'static [&'static str]) -> Self {
        let data = TempDir::new().expect("there is a temporary directory");
        Self {
            data,
            port: free_port(),
            secure_port: None,
            machine,
            options: Vec::new(),
            extra: String::new(),
            through: Vec::new(),
            running: None,
        }
    }

    /// Settings of every server.
    fn settings(&self) -> String {
        format!(
            "tickTime={}\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\n\
             admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr,wchs\n{}",
            TICK.as_millis(),
            self.data.path().display(),
            self.port,
            self.extra
        )
    }

    fn run(&mut self, will: LastWill) {
        let data = self.data.path();
        let mut command = self.through.clone();
        command.push(find_java().into());
        command.extend(self.machine.iter().chain([&QUIET]).map(Into::into));
        command.extend(self.options.iter().map(Into::into));
        command.push("-cp".into());
        command.extend([JARS.join(":").into(), MAIN.into(), data.join("zoo.cfg").into()]);
        self.running = Some(ShellServer::start(data, &command, will));
    }

    /// Waits until it serves: a server of an ensemble does that only with a majority.
    fn wait(&self) {
        let running = self.running.as_ref().expect("the server runs");
        running.wait_until_it(self.data.path(), || self.mode().is_some());
    }

    /// `standalone`, `leader` or `follower`; none when it does not serve.
    fn mode(&self) -> Option<String> {
        let answer = self.four_letter_reply("srvr")?;
        answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(ToOwned::to_owned)
    }

    /// The answer to one of its four-letter words.
    fn four_letter_reply(&self, word: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.endpoint()).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        stream.write_all(word.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// Number of watches that its clients have set.
    pub fn watches(&self) -> usize {
        let answer = self.four_letter_reply("wchs").expect("it answers");
        let total = answer.lines().find_map(|line| line.strip_prefix("Total watches:"));
        total.and_then(|total| total.trim().parse().ok()).unwrap_or_else(|| panic!("no total: {answer}"))
    }

    /// Number of requests that it has received.
    pub fn received(&self) -> u64 {
        let answer = self.four_letter_reply("srvr").expect("it answers");
        let received = answer.lines().find_map(|line| line.strip_prefix("Received: "));
        received.and_then(|count| count.trim().parse().ok()).unwrap_or_else(|| panic!("no count: {answer}"))
    }

    /// Bytes of its heap in use after a collection. It needs `jcmd` of a JDK.
    pub fn heap_after_collection(&self) -> u64 {
        let process = self.running.as_ref().expect("the server runs").server.as_raw_nonzero().to_string();
        let ask = |command: &str| {
            let done = Command::new("jcmd").args([&process, command]).output();
            let done = done.unwrap_or_else(|error| panic!("jcmd: {error}: it comes with a JDK"));
            assert!(done.status.success(), "jcmd {command}: {}", String::from_utf8_lossy(&done.stderr));
            String::from_utf8_lossy(&done.stdout).into_owned()
        };
        ask("GC.run");
        // The young and the old generation have a line each, or there is one line for both.
        let heap = ask("GC.heap_info");
        let used = |line: &str| line.split(" used ").nth(1)?.split('K').next()?.parse::<u64>().ok();
        let parts = heap.lines().filter(|line| !line.contains("space") && !line.contains("Metaspace"));
        parts.filter_map(used).sum::<u64>() * 1024
    }

    /// The server that tests share, each with its own root. It ends with the test process.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<ZooKeeper> = OnceLock::new();
        SHARED.get_or_init(|| Self::start_with(SMALL, LastWill::RemoveData))
    }

    /// The address on which it listens.
    pub fn endpoint(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The port of TLS.
    pub fn secure_port(&self) -> u16 {
        self.secure_port.expect("it was started with TLS")
    }

    /// The address of a tree with a root that no other test uses.
    pub fn fresh_tree(&self) -> Address {
        fresh_tree_at(&self.endpoint().to_string())
    }

    /// Sends SIGKILL. The data stays for [`ZooKeeper::restart`].
    pub fn kill9(&mut self) {
        drop(self.running.take().expect("the server runs"));
    }

    /// Starts the server on its data, and waits until it answers.
    pub fn restart(&mut self) {
        assert!(self.running.is_none(), "the server runs already");
        self.run(LastWill::KeepData);
        self.wait();
    }
}

/// Three servers; the ensemble works without one of them.
pub struct Ensemble(pub [ZooKeeper; 3]);

impl Ensemble {
    /// Starts three servers with empty data and waits until all of them serve.
    pub fn start() -> Self {
        Self::start_each([(); 3].map(|()| ZooKeeper::new(SMALL)))
    }

    /// As [`Ensemble::start`], each as [`ZooKeeper::start_with_logins`].
    pub fn start_with_logins(logins: &[(&str, &str)]) -> Self {
        let mut servers = [(); 3].map(|()| ZooKeeper::new(SMALL));
        servers.iter_mut().for_each(|server| server.take_logins(logins));
        Self::start_each(servers)
    }

    /// As [`Ensemble::start`], each as [`ZooKeeper::start_with_tls`].
    pub fn start_with_tls(authority: &Authority, certified: &Certified) -> Self {
        let mut servers = [(); 3].map(|()| ZooKeeper::new(SMALL));
        servers.iter_mut().for_each(|server| server.take_certificate(authority, certified));
        Self::start_each(servers)
    }

    fn start_each(mut servers: [ZooKeeper; 3]) -> Self {
        let members: String = (1..)
            .zip(&servers)
            .map(|(id, _)| format!("server.{id}=127.0.0.1:{}:{}\n", free_port(), free_port()))
            .collect();
        for (id, server) in (1..).zip(&mut servers) {
            let dir = server.data.path();
            // Max ticks in which a follower may join, and max ticks that it may be behind.
            let settings = format!("{}initLimit=20\nsyncLimit=6\n{members}", server.settings());
            fs::write(dir.join("zoo.cfg"), settings).expect("the directory is ours");
            fs::write(dir.join("myid"), format!("{id}\n")).expect("the directory is ours");
            server.run(LastWill::KeepData);
        }
        servers.iter().for_each(ZooKeeper::wait);
        Self(servers)
    }

    /// The address of a tree with a root that no other test uses.
    pub fn fresh_tree(&self) -> Address {
        fresh_tree_at(&self.0.each_ref().map(|server| server.endpoint().to_string()).join(","))
    }

    /// Sends SIGKILL to all of them. The data stays.
    pub fn kill9(&mut self) {
        self.0.iter_mut().for_each(ZooKeeper::kill9);
    }

    /// Starts all of them on their data, and waits until they serve.
    pub fn restart(&mut self) {
        self.0.iter_mut().for_each(|server| server.run(LastWill::KeepData));
        self.0.iter().for_each(ZooKeeper::wait);
    }

    /// The index of the leader. Waits for an election.
    pub fn leader(&self) -> usize {
        let leads = |server: &ZooKeeper| server.mode().is_some_and(|mode| mode == "leader");
        let mut found = None;
        wait_until("a server leads", || {
            found = self.0.iter().position(leads);
            found.is_some()
        });
        found.expect("it was found")
    }
}

/// Like [`ZooKeeper::fresh_tree`], for a server that is reached by another address.
pub fn fresh_tree_at(endpoints: &str) -> Address {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let next = NEXT.fetch_add(1, Ordering::SeqCst);
    format!("zookeeper://{endpoints}/tests/{next}").parse().expect("it is an address")
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
