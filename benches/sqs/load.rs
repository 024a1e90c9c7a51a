//! One run of the load generator of the product as a child, and the figures of its report.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::server::Server;

/// Bytes of a body (issue 9's figures are for them).
const BODY: &str = "256";

/// What a run brought: the medians of its rounds.
pub struct Report(Value);

impl Report {
    /// Messages that came to their end in a second.
    pub fn messages(&self) -> f64 {
        self.figure("server", "messages_per_second")
    }

    /// Requests that the empty handler answers in a second, with the same generator.
    pub fn empty_requests(&self) -> f64 {
        self.figure("ceiling", "requests_per_second")
    }

    /// The service's CPU for a message, in requests of the empty handler.
    pub fn cost(&self) -> f64 {
        let requests = self.figure("server", "requests_per_second") / self.messages();
        let cpu = |side| self.figure(side, "server_us_per_request");
        requests * cpu("server") / cpu("ceiling")
    }

    fn figure(&self, side: &str, name: &str) -> f64 {
        self.0[side][name].as_f64().expect("the report has it")
    }
}

/// Runs `angarium bench` with these words, in SQS, against a service of its own and the empty handler.
pub fn run(words: &str) -> Report {
    with(words.split_whitespace())
}

/// The same against a server that is there, without the empty handler.
pub fn run_against(server: &Server, words: &str) -> Report {
    with(words.split_whitespace().chain(["--no-ceiling", "--keep", "--url", server.base()]))
}

fn with<'a>(words: impl Iterator<Item = &'a str>) -> Report {
    let output = Command::new(env!("CARGO_BIN_EXE_angarium"))
        .arg("bench")
        .args(words)
        .args(["--protocol", "sqs", "--json", "--body-bytes", BODY])
        .stderr(Stdio::null())
        .output()
        .expect("the built program can be started");
    assert!(output.status.success(), "the load failed: {}", String::from_utf8_lossy(&output.stdout));
    Report(serde_json::from_slice(&output.stdout).expect("the report is JSON"))
}
