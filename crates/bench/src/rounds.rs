//! The plan of a run: which servers to start, and in which order to load them. This module never sends a request and
//! never calculates.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio_util::sync::CancellationToken;

use super::LoadArgs;
use super::ceiling::EmptyArgs;
use super::connection::Target;
use super::figures::{Figures, Round};
use super::generator::{Load, WindowResult, create, drive, fill, probe, remove};
use super::report::{Conditions, Report};
use super::server_process::ServerProcess;
use super::tally::{Tally, Verb};
use super::workload::{Kind, Protocol, Workload};

/// One of the two servers, with its load.
struct Side {
    load: Load,
    /// The child process, stopped on drop; none for an existing server.
    process: Option<ServerProcess>,
}

/// Starts the needed servers, loads ceiling and server in turn, and stops the started servers, on success and on error.
/// Blocks for `rounds` × (`warmup` + `seconds`) × 2, plus the starts, each of which is bounded.
pub fn measure(kind: Kind, args: &LoadArgs, stop: &CancellationToken) -> anyhow::Result<Report> {
    ensure!(
        args.max_cost_ratio.is_none() || args.url.is_empty() || args.pid.is_some(),
        "--max-cost-ratio needs the server's CPU: give --pid, or leave --url out"
    );
    check(args)?;
    let mut server = Side::server(kind, args)?;
    let mut made = Vec::new();
    let measured = create(&server.load, &mut made).and_then(|()| load(kind, args, &mut server, stop));
    // The queues of a server that was started here are removed with its data.
    if !args.keep && server.process.is_none() {
        let removed = remove(&server.load, &made).context("the queues of this run could not be deleted");
        return measured.and_then(|report| removed.map(|()| report));
    }
    measured
}

/// Fills the queues, and loads ceiling and server in turn.
fn load(kind: Kind, args: &LoadArgs, server: &mut Side, stop: &CancellationToken) -> anyhow::Result<Report> {
    // Filled before the probe, so that the probe's claim returns messages.
    fill(&server.load, args.waiting, stop)?;
    let answers = probe(&server.load)?;
    let has_ceiling = !args.no_ceiling && supports(args);
    let mut ceiling = if has_ceiling { Some(Side::ceiling(kind, args, &answers)?) } else { None };
    let mut report = Report::new(kind.name(), Conditions::of(args));
    for _ in 0..args.rounds {
        // The two windows of a round follow each other directly, so that a slow drift of the machine affects both.
        let empty = ceiling.as_mut().map(|ceiling| ceiling.window(&mut report, stop)).transpose()?;
        let full = server.window(&mut report, stop)?;
        report.add(Round::new(full, empty));
    }
    report.conclude();
    Ok(report)
}

/// Checks combinations of arguments.
fn check(args: &LoadArgs) -> anyhow::Result<()> {
    match args.protocol {
        Protocol::Rest => ensure!(args.groups.is_none(), "--groups is for --protocol sqs"),
        Protocol::Sqs => ensure!(args.batch <= 10, "--batch: SQS takes 10 messages at most"),
    }
    ensure!(
        supports(args) || args.max_cost_ratio.is_none(),
        "--max-cost-ratio: of the REST API the empty server does not know --bulk"
    );
    Ok(())
}

/// Returns whether the empty server supports the requests of the run.
fn supports(args: &LoadArgs) -> bool {
    args.protocol == Protocol::Sqs || !args.bulk
}

impl Side {
    fn server(kind: Kind, args: &LoadArgs) -> anyhow::Result<Self> {
        if args.url.is_empty() {
            return Self::started("server", kind, args, ServerProcess::product(&args.coordination)?);
        }
        let targets = args.url.iter().map(|url| Target::parse(url)).collect::<Result<_, _>>()?;
        Self::new("server", kind, args, targets, args.pid)
    }

    /// Starts an empty server whose answers have the sizes that the probe received from the server.
    fn ceiling(kind: Kind, args: &LoadArgs, answers: &Tally) -> anyhow::Result<Self> {
        let process = ServerProcess::ceiling(&EmptyArgs {
            listen: ([127, 0, 0, 1], 0).into(),
            post_answer_bytes: answers.of(Verb::Post).mean_bytes().max(1),
            claim_answer_bytes: answers.of(Verb::Claim).mean_bytes().max(1),
            batch: args.batch,
        })?;
        let side = Self::started("ceiling", kind, args, process)?;
        probe(&side.load)?;
        Ok(side)
    }

    fn started(
        name: &'static str,
        kind: Kind,
        args: &LoadArgs,
        process: ServerProcess,
    ) -> anyhow::Result<Self> {
        let side = Self::new(name, kind, args, vec![process.target()?], Some(process.pid()))?;
        Ok(Self { process: Some(process), ..side })
    }

    fn new(
        name: &'static str,
        kind: Kind,
        args: &LoadArgs,
        targets: Vec<Target>,
        pid: Option<u32>,
    ) -> anyhow::Result<Self> {
        let workload =
            Workload::new(kind, args, &targets[0]).with_context(|| format!("the requests for the {name}"))?;
        let load = Load {
            name,
            targets,
            pid,
            workload: Rc::new(workload),
            connections: args.connections,
            warmup: Duration::from_secs(args.warmup),
            window: Duration::from_secs(args.seconds),
        };
        Ok(Self { load, process: None })
    }

    /// Runs one warm-up and one measured window.
    fn window(&mut self, report: &mut Report, stop: &CancellationToken) -> anyhow::Result<Figures> {
        let measured: WindowResult = drive(&self.load, stop)?;
        if let Some(process) = &mut self.process {
            process.check_alive()?;
        }
        report.note_errors(self.load.name, &measured.tally);
        Ok(Figures::of(&measured))
    }
}
