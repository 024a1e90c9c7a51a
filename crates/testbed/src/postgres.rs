//! Private PostgreSQL servers, each with its own port and data directory, on the loopback only, single or with a
//! standby. None outlives the test process.
//!
//! They need Debian's `postgresql-15`, or another server of version 13 or later. The server refuses to run as root: for
//! a root caller it runs as the user `nobody`.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::held::{LastWill, START, ShellServer, free_port, is_over, wait_until};

/// The user and group `nobody`.
const NOBODY: u32 = 65_534;
/// The password of its clients. It must appear in no log and in no answer.
pub const PASSWORD: &str = "s3cret-of-the-test";
const SETTINGS: &str = "
    listen_addresses = '127.0.0.1'
    unix_socket_directories = ''
    max_connections = 200
    shared_buffers = '32MB'
    autovacuum_naptime = 1
    wal_level = replica
    max_wal_senders = 5
";

/// A server. Dropping it ends the process and removes its data.
pub struct Postgres {
    dir: TempDir,
    port: u16,
    will: LastWill,
    running: Option<ShellServer>,
}

impl Postgres {
    /// Starts a server with these settings and an empty database, and waits until it answers.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_with(settings, LastWill::KeepData)
    }

    /// The server that tests share, each with its own schema. It ends with the test process.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| Self::start_with(&[], LastWill::RemoveData))
    }

    fn start_with(settings: &[&str], will: LastWill) -> Self {
        let mut server = Self::prepared(will);
        let password = server.dir.path().join("password");
        server.write(&password, PASSWORD);
        let made = server
            .run("initdb")
            .args([
                "--username=angarium",
                "--auth=scram-sha-256",
                "--no-locale",
                "--encoding=UTF8",
                "--no-sync",
            ])
            .arg(format!("--pwfile={}", password.display()))
            .arg(server.data())
            .output();
        let made = made.expect("there is a shell");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        server.configure(settings);
        server.restart();
        server
    }

    /// Starts a server that also accepts TLS, with these files.
    pub fn start_with_tls(certificate: &Path, key: &Path) -> Self {
        let mut server = Self::start(&[]);
        let (to_certificate, to_key) = (server.data().join("tls.pem"), server.data().join("tls.key"));
        for (from, to) in [(certificate, &to_certificate), (key, &to_key)] {
            server.write(to, &fs::read_to_string(from).expect("the file is there"));
        }
        server.configure(&["ssl = on", "ssl_cert_file = 'tls.pem'", "ssl_key_file = 'tls.key'"]);
        server.kill9();
        server.restart();
        server
    }

    fn prepared(will: LastWill) -> Self {
        let dir = TempDir::new().expect("there is a temporary directory");
        let server = Self { dir, port: free_port(), will, running: None };
        server.give(server.dir.path());
        server
    }

    /// Starts a standby of this server, and waits until each commit of this server waits for it.
    pub fn follow(&self) -> Self {
        let mut standby = Self::prepared(LastWill::KeepData);
        let copied = standby
            .run("pg_basebackup")
            .env("PGPASSWORD", PASSWORD)
            .args(["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"])
            .arg(format!("--dbname=host=127.0.0.1 port={} user=angarium application_name=standby", self.port))
            .arg("--pgdata")
            .arg(standby.data())
            .output()
            .expect("there is a shell");
        assert!(copied.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&copied.stderr));
        // The copy has written these settings without the password, which the standby needs.
        let settings = format!(
            "primary_conninfo = 'host=127.0.0.1 port={} user=angarium password={PASSWORD} application_name=standby'",
            self.port
        );
        standby.configure(&[&settings]);
        standby.restart();
        self.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
        self.sql("SELECT pg_reload_conf()");
        wait_until("the standby is synchronous", || {
            self.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"
        });
        standby
    }

    /// Promotes a standby, so that it accepts writes.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote(true, 60)"), "t");
        // It has no standby itself.
        self.sql("ALTER SYSTEM SET synchronous_standby_names = ''");
        self.sql("SELECT pg_reload_conf()");
    }

    /// Writes the settings for the next start, in place of the earlier ones.
    pub fn configure(&self, settings: &[&str]) {
        let text = format!("{SETTINGS}\nport = {}\n{}\n", self.port, settings.join("\n"));
        self.write(&self.data().join("postgresql.conf"), &text);
    }

    fn write(&self, path: &Path, text: &str) {
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
            .expect("the directory is ours");
        file.write_all(text.as_bytes()).expect("the disk has room");
        self.give(path);
    }

    /// Gives a file to the user that runs the server.
    fn give(&self, path: &Path) {
        if is_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
        }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Returns a command for a program of the server, as its user.
    fn run(&self, program: &str) -> Command {
        let program = programs().join(program);
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(self.dir.path());
        command
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The content of its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The URI of a pool on it, with these parameters.
    pub fn uri(&self, parameters: &str) -> String {
        format!("postgres://angarium:{PASSWORD}@127.0.0.1:{}/postgres?{parameters}", self.port)
    }

    /// The URI of a pool on the one of two servers that accepts writes.
    pub fn uri_of_both(&self, other: &Self) -> String {
        let (one, two) = (self.port, other.port);
        format!("postgres://angarium:{PASSWORD}@127.0.0.1:{one},127.0.0.1:{two}/postgres")
    }

    /// The URI of a pool that no other test uses.
    pub fn fresh_uri(&self) -> String {
        self.uri(&format!("schema={}", fresh_schema()))
    }

    /// Runs a statement and returns its result, with columns separated by `|`.
    pub fn sql(&self, text: &str) -> String {
        let mut command = self.psql(text);
        let done = command.output().expect("psql is in postgresql-client");
        assert!(done.status.success(), "{text}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }

    /// Returns a command for the server's own load generator, with the login data.
    pub fn pgbench(&self) -> Command {
        let mut command = Command::new(programs().join("pgbench"));
        command.env("PGPASSWORD", PASSWORD).args([
            "-h",
            "127.0.0.1",
            "-U",
            "angarium",
            "-d",
            "postgres",
            "-p",
            &self.port.to_string(),
        ]);
        command
    }

    /// Returns the statements of `pg_dump` that create a schema with its contents.
    pub fn dump(&self, schema: &str) -> String {
        let mut command = Command::new(programs().join("pg_dump"));
        command.env("PGPASSWORD", PASSWORD).args(["-h", "127.0.0.1", "-U", "angarium", "-d", "postgres"]);
        let done = command.args(["-p", &self.port.to_string(), "--schema", schema]).output();
        let done = done.expect("pg_dump is beside the server");
        assert!(done.status.success(), "pg_dump: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("the database is in UTF-8")
    }

    /// Runs the statements of [`Postgres::dump`].
    pub fn load(&self, dump: &str) {
        let file = self.dir.path().join("dump");
        fs::write(&file, dump).expect("the directory is ours");
        let done = self.psql("SELECT 1").arg("-f").arg(&file).output().expect("psql is there");
        assert!(done.status.success(), "psql: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn psql(&self, text: &str) -> Command {
        let mut command = Command::new(programs().join("psql"));
        command
            .env("PGPASSWORD", PASSWORD)
            .args(["-h", "127.0.0.1", "-U", "angarium", "-d", "postgres", "-X", "-A", "-t", "-q"])
            .args(["-v", "ON_ERROR_STOP=1", "-p", &self.port.to_string(), "-c", text]);
        command
    }

    /// Opens a session that holds the locks of `text` until the value is dropped.
    pub fn hold(&self, text: &str) -> Holder {
        let name = fresh_schema();
        let mut psql = self.psql("BEGIN");
        psql.env("PGAPPNAME", &name).args(["-c", text, "-c", "\\echo held", "-c", "SELECT pg_sleep(600)"]);
        let mut child = psql.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("psql is there");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line == "held")), "{text} takes what it is to hold");
        // While it sleeps, the server does not notice that its client has gone.
        let end = self.psql(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'"
        ));
        Holder { child, end }
    }

    /// Copies its data while it is stopped, for [`Postgres::go_back`].
    pub fn keep_data(&self) {
        self.replace_data(&self.data(), &self.dir.path().join("kept"));
    }

    /// Replaces the data by the copy while the server is stopped: the server has lost its last writes.
    pub fn go_back(&self) {
        self.replace_data(&self.dir.path().join("kept"), &self.data());
    }

    fn replace_data(&self, from: &Path, to: &Path) {
        assert!(self.running.is_none(), "the server runs");
        if to.exists() {
            fs::remove_dir_all(to).expect("the directory is ours");
        }
        let copied = Command::new("cp").arg("-a").args([from, to]).status().expect("there is cp");
        assert!(copied.success(), "cp: {copied}");
    }

    /// Sends SIGKILL to the server, and waits until its sessions have noticed: a session may still answer a last
    /// statement. The data stays for [`Postgres::restart`].
    pub fn kill9(&mut self) {
        let running = self.running.take().expect("the server runs");
        let server = running.server.as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
        drop(running);
        for child in children.expect("the server runs").split_whitespace() {
            wait_until("its sessions end", || is_over(child));
        }
    }

    /// Starts the server on its data, and waits until it answers.
    pub fn restart(&mut self) {
        assert!(self.running.is_none(), "the server runs already");
        let deadline = Instant::now() + START;
        let mut server = self.run("postgres");
        server.arg("-D").arg(self.data());
        let command: Vec<_> =
            std::iter::once(server.get_program()).chain(server.get_args()).map(OsStr::to_owned).collect();
        loop {
            let running = ShellServer::start(self.dir.path(), &command, self.will);
            while !running.is_over() {
                if self.answers() {
                    self.running = Some(running);
                    return;
                }
                assert!(Instant::now() < deadline, "no answer after {START:?}\n{}", self.log());
                thread::sleep(Duration::from_millis(50));
            }
            // Sessions of a killed server may still hold its memory.
            assert!(Instant::now() < deadline, "PostgreSQL ends at its start\n{}", self.log());
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn answers(&self) -> bool {
        let mut psql = self.psql("SELECT 1");
        psql.stderr(Stdio::null()).output().is_ok_and(|done| done.status.success())
    }
}

/// A session with an open transaction.
pub struct Holder {
    child: Child,
    end: Command,
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Fails only when the server is gone, and the session with it.
        let _ = self.end.output();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The directory of the server's programs.
fn programs() -> PathBuf {
    let packaged = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    let mut found: Vec<_> = packaged
        .map(|version| version.path().join("bin"))
        .filter(|bin| bin.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().expect(
        "PostgreSQL is missing: run the tests with tests/run, which installs what they need (postgresql)",
    )
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns a schema that no other test has.
pub fn fresh_schema() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("test_{}", NEXT.fetch_add(1, Ordering::SeqCst))
}
