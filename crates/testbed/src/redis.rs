//! Private Redis servers: single, as a cluster, or under Sentinels; each with its own port and directory, on the
//! loopback only. None outlives the test process.
//!
//! They need Debian's `redis-tools`: its program that checks dumps is the server under another name.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::Commands;
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

use super::held::{LastWill, ShellServer, free_port, wait_until};

const PROGRAM: &str = "/usr/bin/redis-check-rdb";
/// Settings with which a pool reaches the class `sync`.
pub const SYNCED: &[&str] = &["appendonly yes", "appendfsync always", "save \"\""];

/// A server. Dropping it ends the process and removes its data.
pub struct Redis {
    data: TempDir,
    port: u16,
    /// The TLS port, if the server has one.
    tls_port: Option<u16>,
    arguments: Vec<String>,
    will: LastWill,
    running: Option<ShellServer>,
}

impl Redis {
    /// Starts a server with these settings and empty data, and waits until it answers.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_with(free_port(), settings, &[], LastWill::KeepData)
    }

    /// Starts a server that also accepts TLS, with these files.
    pub fn start_with_tls(certificate: &str, key: &str, authority: &str) -> Self {
        let port = free_port();
        let redis = Self::start(&[
            &format!("tls-port {port}"),
            &format!("tls-cert-file {certificate}"),
            &format!("tls-key-file {key}"),
            &format!("tls-ca-cert-file {authority}"),
            "tls-auth-clients no",
        ]);
        Self { tls_port: Some(port), ..redis }
    }

    fn start_with(port: u16, settings: &[&str], arguments: &[&str], will: LastWill) -> Self {
        let data = TempDir::new().expect("there is a temporary directory");
        assert!(
            Path::new(PROGRAM).exists(),
            "{PROGRAM} is missing: run the tests with tests/run, which installs what they need (redis-tools)"
        );
        symlink(PROGRAM, data.path().join("redis-server")).expect("the directory is ours");
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let mut redis = Self { data, port, tls_port: None, arguments, will, running: None };
        redis.configure(settings);
        redis.restart();
        redis
    }

    /// Writes the settings for the next start.
    fn configure(&self, settings: &[&str]) {
        let dir = self.data.path();
        let text = format!(
            "port {}\nbind 127.0.0.1\ndir {}\nlogfile \"\"\n{}\n",
            self.port,
            dir.display(),
            settings.join("\n")
        );
        fs::write(dir.join("redis.conf"), text).expect("the directory is ours");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn tls_port(&self) -> u16 {
        self.tls_port.expect("it was started with TLS")
    }

    /// The directory of its data.
    pub fn data(&self) -> &Path {
        self.data.path()
    }

    /// The URI of a pool on it, with these parameters.
    pub fn uri(&self, parameters: &str) -> String {
        format!("redis://127.0.0.1:{}/0?{parameters}", self.port)
    }

    /// Returns a separate connection for the test.
    pub fn connect(&self) -> redis::Connection {
        let client = redis::Client::open(("127.0.0.1", self.port)).expect("it is an address");
        client.get_connection().expect("the server runs")
    }

    /// Cuts all client connections except the one that this call uses.
    pub fn cut_connections(&self) {
        let cut = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").query(&mut self.connect());
        let _: u64 = cut.expect("connections can be cut");
    }

    /// Changes a setting at run time.
    pub fn set(&self, name: &str, value: &str) {
        let mut connection = self.connect();
        let done: redis::RedisResult<()> =
            redis::cmd("CONFIG").arg("SET").arg(name).arg(value).query(&mut connection);
        done.expect("the setting is accepted");
    }

    /// Sends SIGKILL. The data stays for [`Redis::restart`].
    pub fn kill9(&mut self) {
        drop(self.running.take().expect("the server runs"));
    }

    /// Stops the process with its connections open, so it does not answer.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let running = self.running.as_ref().expect("the server runs");
        kill_process(running.server, signal).expect("the server is our child");
    }

    /// Starts the server on its data, and waits until it answers.
    pub fn restart(&mut self) {
        assert!(self.running.is_none(), "the server runs already");
        let dir = self.data.path();
        let mut command = vec![dir.join("redis-server").into_os_string(), dir.join("redis.conf").into()];
        command.extend(self.arguments.iter().map(Into::into));
        let running = ShellServer::start(dir, &command, self.will);
        running.wait_until_it(dir, || self.answers());
        self.running = Some(running);
    }

    /// Whether it answers, and has loaded its data.
    fn answers(&self) -> bool {
        let ask = || {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"PING\r\n")?;
            let mut answer = [0; 7];
            stream.read_exact(&mut answer)?;
            std::io::Result::Ok(answer)
        };
        ask().is_ok_and(|answer| [b"+PONG\r\n", b"-NOAUTH"].contains(&&answer))
    }
}

/// A cluster of three masters, each with a replica.
pub struct RedisCluster {
    pub nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts the servers and joins them.
    pub fn start() -> Self {
        Self::start_with(LastWill::KeepData)
    }

    /// The cluster that tests share, each with its own prefix. It ends with the test process.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<RedisCluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::start_with(LastWill::RemoveData))
    }

    fn start_with(will: LastWill) -> Self {
        let node = |_| {
            let bus = format!("cluster-port {}", free_port());
            let mut settings = SYNCED.to_vec();
            settings.extend(["cluster-enabled yes", "cluster-node-timeout 2000", &bus]);
            Redis::start_with(free_port(), &settings, &[], will)
        };
        let cluster = Self { nodes: (0..6).map(node).collect() };
        let addresses = cluster.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port));
        let joined = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(addresses)
            .args(["--cluster-replicas", "1", "--cluster-yes"])
            .output()
            .expect("redis-cli is in redis-tools");
        assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stdout));
        wait_until("the cluster is whole", || cluster.nodes.iter().all(Self::is_whole));
        cluster
    }

    /// Whether the node sees all slots served, and its replication is connected.
    fn is_whole(node: &Redis) -> bool {
        let mut connection = node.connect();
        let state: String = redis::cmd("CLUSTER").arg("INFO").query(&mut connection).unwrap_or_default();
        let info: String = redis::cmd("INFO").arg("replication").query(&mut connection).unwrap_or_default();
        let is_linked = info.contains("role:master") && info.contains("connected_slaves:1")
            || info.contains("master_link_status:up");
        state.contains("cluster_state:ok") && is_linked
    }

    pub fn uri(&self, parameters: &str) -> String {
        let nodes: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis-cluster://{}?{parameters}", nodes.join(","))
    }

    pub fn fresh_uri(&self) -> String {
        self.uri(&format!("prefix={}", fresh_prefix()))
    }

    /// The master that serves a key.
    pub fn master_of(&mut self, key: &str) -> &mut Redis {
        let serves = |node: &Redis| {
            let read: redis::RedisResult<Option<String>> = node.connect().get(key);
            read.is_ok()
        };
        self.nodes.iter_mut().find(|node| serves(node)).expect("a node serves the key")
    }
}

/// A master with a replica, and three Sentinels that watch them.
pub struct RedisSentinels {
    pub master: Redis,
    pub replica: Redis,
    sentinels: Vec<Redis>,
}

impl RedisSentinels {
    /// Starts them all, and waits until the Sentinels know each other and the replica.
    pub fn start(settings: &[&str]) -> Self {
        let master = Redis::start(settings);
        let follows = format!("replicaof 127.0.0.1 {}", master.port);
        let mut of_replica = settings.to_vec();
        of_replica.push(&follows);
        let replica = Redis::start(&of_replica);
        let watch = format!(
            "sentinel monitor main 127.0.0.1 {} 2\nsentinel down-after-milliseconds main 1000\n\
             sentinel failover-timeout main 4000",
            master.port
        );
        let sentinel = |_| Redis::start_with(free_port(), &[&watch], &["--sentinel"], LastWill::KeepData);
        let sentinels: Vec<_> = (0..3).map(sentinel).collect();
        let whole = Self { master, replica, sentinels };
        wait_until("the Sentinels know each other", || whole.sentinels.iter().all(Self::knows_all));
        // The Sentinels may know the replica before its first copy is complete.
        wait_until("the replica follows", || {
            let info: String =
                redis::cmd("INFO").arg("replication").query(&mut whole.master.connect()).unwrap_or_default();
            info.contains("state=online")
        });
        whole
    }

    fn knows_all(sentinel: &Redis) -> bool {
        let info: String =
            redis::cmd("INFO").arg("sentinel").query(&mut sentinel.connect()).unwrap_or_default();
        info.contains("status=ok") && info.contains("slaves=1,sentinels=3")
    }

    pub fn uri(&self, parameters: &str) -> String {
        let nodes: Vec<_> = self.sentinels.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis-sentinel://{}/main?{parameters}", nodes.join(","))
    }
}

/// Returns a prefix of keys that no other test has.
pub fn fresh_prefix() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("test-{}", NEXT.fetch_add(1, Ordering::SeqCst))
}
