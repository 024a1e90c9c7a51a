//! The client commands: the built program as a person or a script runs it, against a real server where there is one for
//! what is asked, and against prepared answers where it is the wire that counts.

mod backup;
mod bench;
mod canned;
mod claims;
mod completions;
mod components;
mod confirmation;
mod consume;
mod contexts;
mod doctor;
mod failures;
mod help;
mod messages;
mod outcomes;
mod output;
mod pools;
mod queues;
mod quotas;
mod sealing;
mod settings;
mod tls;
mod top;
mod topics;
mod tree;

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::server::Server;
use crate::support::terminal::Terminal;

/// The program with an environment of its own: no setting of the machine reaches it.
struct Program {
    home: TempDir,
    url: Option<String>,
    env: Vec<(String, String)>,
}

/// How a run ended.
#[derive(Debug)]
struct CommandResult {
    code: i32,
    out: String,
    err: String,
}

impl Program {
    fn new(url: Option<&str>) -> Self {
        let home = tempfile::tempdir().expect("there is room for a temporary directory");
        Self { home, url: url.map(ToOwned::to_owned), env: Vec::new() }
    }

    fn with_env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_angarium"));
        command.args(args).env_clear().env("HOME", self.home.path()).env("PATH", "/usr/bin:/bin");
        command.envs(self.url.iter().map(|url| ("ANGARIUM_URL", url)));
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    fn run(&self, args: &[&str]) -> CommandResult {
        self.feed(args, b"")
    }

    /// Runs it with this input.
    fn feed(&self, args: &[&str], input: &[u8]) -> CommandResult {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the built program can be started");
        // A command that reads no input may be gone already.
        let _ = child.stdin.take().expect("stdin is piped").write_all(input);
        let output = child.wait_with_output().expect("the program is our child");
        CommandResult {
            code: output.status.code().expect("it ended by itself"),
            out: String::from_utf8(output.stdout).expect("the output is text"),
            err: String::from_utf8(output.stderr).expect("the errors are text"),
        }
    }

    /// What it prints when all leaves well. Panics when it does not.
    fn say(&self, args: &[&str]) -> String {
        let ended = self.run(args);
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{args:?}: {ended:?}");
        ended.out
    }

    /// What it prints, and what it tells beside that, when all leaves well. Panics when it does not.
    fn hint(&self, args: &[&str]) -> (String, String) {
        let ended = self.run(args);
        assert_eq!(ended.code, 0, "{args:?}: {ended:?}");
        (ended.out, ended.err)
    }

    /// Starts it on a terminal of so many columns and lines.
    fn on_terminal(&self, args: &[&str], size: (u16, u16)) -> Terminal {
        let mut command = self.command(args);
        if !self.env.iter().any(|(name, _)| name == "TERM") {
            command.env("TERM", "xterm-256color");
        }
        Terminal::start(command, size)
    }

    /// What it prints with `-o json`.
    fn json(&self, args: &[&str]) -> Value {
        let out = self.say(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{args:?}: {error}: {out}"))
    }

    /// The lines that it prints with `-o plain`.
    fn plain(&self, args: &[&str]) -> Vec<String> {
        self.say(&[args, &["-o", "plain"]].concat()).lines().map(ToOwned::to_owned).collect()
    }
}

/// The program beside a server of its own.
struct Beside {
    program: Program,
    server: Server,
    _data: TempDir,
}

fn beside_a_server() -> Beside {
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    let server = Server::start(data.path());
    Beside { program: Program::new(Some(server.base())), server, _data: data }
}
