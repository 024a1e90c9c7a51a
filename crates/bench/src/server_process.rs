//! A server started for a run: this executable as a child process, with its address and its data directory. Dropping
//! the value stops the child and removes the data, on success and on error.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::ceiling::EmptyArgs;
use super::connection::Target;

/// Max wait for the line with the address.
const START: Duration = Duration::from_secs(10);

/// Max wait for the end of a child after the signal.
const END: Duration = Duration::from_secs(5);

/// The text before the address in a server's output.
const LISTENING: &str = "listening on http://";

/// A running child process.
pub struct ServerProcess {
    child: Child,
    url: String,
    /// Dropped after the child has ended, because it is the last field.
    _data: Option<FreshDirectory>,
}

impl ServerProcess {
    /// Starts the product on a free loopback port, with a new data directory below the system's temporary directory
    /// (`TMPDIR` changes it: a directory in memory makes every sync free) and with its tree at `coordination`. Other
    /// settings have their defaults.
    pub fn product(coordination: &str) -> anyhow::Result<Self> {
        let data = FreshDirectory::create()?;
        let mut command = this_executable()?;
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
        command.args(["--coordination", coordination, "--pool", "embedded:journal"]);
        Self::start(command, Some(data)).context("starting the server")
    }

    /// Starts the empty server with answers of the given sizes.
    pub fn ceiling(args: &EmptyArgs) -> anyhow::Result<Self> {
        let mut command = this_executable()?;
        command.args(["bench", "empty", "--listen", &args.listen.to_string()]);
        command.args(["--post-answer-bytes", &args.post_answer_bytes.to_string()]);
        command.args(["--claim-answer-bytes", &args.claim_answer_bytes.to_string()]);
        command.args(["--batch", &args.batch.to_string()]);
        Self::start(command, None).context("starting the empty server")
    }

    fn start(mut command: Command, data: Option<FreshDirectory>) -> anyhow::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take();
        // From here on, an early return drops this value, which stops the child.
        let mut process = Self { child, url: String::new(), _data: data };
        process.url = address(stdout.context("the child's standard output is a pipe")?)?;
        Ok(process)
    }

    /// Returns the address of the server.
    pub fn target(&self) -> anyhow::Result<Target> {
        Target::parse(&self.url)
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns an error when the server has ended on its own.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the server at {} has ended during the run: {status}", self.url),
            None => Ok(()),
        }
    }

    /// Sends SIGTERM, waits, then kills the child. An error only means that it has already ended.
    fn end(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        let max_wait = Instant::now() + END;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > max_wait {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.end();
    }
}

fn this_executable() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("the path of this executable")?))
}

/// Waits for the line with the address. Further output is read and dropped until the child ends, because a full pipe
/// would block the server.
fn address(stdout: ChildStdout) -> anyhow::Result<String> {
    let (found, wait) = mpsc::sync_channel(1);
    thread::Builder::new().name("server-output".into()).spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some(url) = url_in(&line) {
                // Only the first address is received.
                let _ = found.try_send(url);
            }
        }
    })?;
    match wait.recv_timeout(START) {
        Ok(url) => Ok(url),
        Err(RecvTimeoutError::Timeout) => bail!("no line with \"{LISTENING}\" within {} s", START.as_secs()),
        Err(RecvTimeoutError::Disconnected) => bail!("it ended before it listened"),
    }
}

/// Returns `http://ADDR` from a line of output, plain text or a JSON log line.
fn url_in(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(LISTENING)?;
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || ".:[]-".contains(c))).unwrap_or(rest.len());
    let address = rest[..end].trim_end_matches('.');
    (!address.is_empty()).then(|| format!("http://{address}"))
}

/// A temporary directory, removed on drop.
struct FreshDirectory(PathBuf);

impl FreshDirectory {
    fn create() -> anyhow::Result<Self> {
        let name = format!("angarium-bench-{}-{:08x}", std::process::id(), rand::random::<u32>());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for FreshDirectory {
    fn drop(&mut self) {
        // If the removal fails, the name of the directory tells its origin.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_text_and_in_json() {
        let plain = url_in("angarium 0.1.0 listening on http://127.0.0.1:4567");
        assert_eq!(plain.as_deref(), Some("http://127.0.0.1:4567"));
        let json = url_in(r#"{"level":"INFO","message":"listening on http://[::1]:80","x":1}"#);
        assert_eq!(json.as_deref(), Some("http://[::1]:80"));
        let sentence = url_in("listening on http://127.0.0.1:80.");
        assert_eq!(sentence.as_deref(), Some("http://127.0.0.1:80"));
        assert_eq!(url_in("opening the store"), None);
        assert_eq!(url_in("listening on http://"), None);
    }

    #[test]
    fn fresh_directory_is_removed_on_drop() {
        let fresh = FreshDirectory::create().unwrap();
        let path = fresh.path().to_owned();
        std::fs::write(path.join("log"), b"x").unwrap();
        drop(fresh);
        assert!(!path.exists());
    }

    #[test]
    fn silent_child_exit_is_an_error() {
        let started = ServerProcess::start(Command::new("true"), None);
        assert!(started.is_err());
    }

    #[test]
    fn a_child_ends_with_its_value() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo listening on http://127.0.0.1:9; exec sleep 60"]);
        let process = ServerProcess::start(command, None).unwrap();
        let pid = process.pid();
        assert!(process.target().is_ok());
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
