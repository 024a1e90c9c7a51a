//! `angarium bench`: the load generator. This module has its arguments and selects the command.
//!
//! ```text
//! mod (arguments, signals) → rounds (the plan of a run) → generator (closed loop, one thread)
//!                                                             → workload (the requests of each protocol) → connection
//!                                                             → tally, cpu (counts and readings)
//!                            → server_process (children) → ceiling (the empty server)
//!                            → figures (calculations) → report (JSON and table)
//! ```
//!
//! It uses only the REST API and SQS, and no inner part of the product. So it can drive any server with these APIs.

mod ceiling;
mod connection;
mod cpu;
mod figures;
mod generator;
mod report;
mod rounds;
mod server_process;
mod tally;
mod workload;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use ceiling::EmptyArgs;
use workload::{Kind, Protocol};

use angarium_settings::units;

/// Load a server and measure it beside an empty one.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum BenchCommand {
    /// Post batches of messages
    Post(LoadArgs),
    /// Claim batches and keep them
    Claim(LoadArgs),
    /// Post a batch, claim as many, delete each under its claim
    Cycle(LoadArgs),
    /// Claim batches and delete them
    Drain(LoadArgs),
    /// The empty server, which the others start by themselves
    #[command(hide = true)]
    Empty(EmptyArgs),
}

/// Arguments of every load.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// Server to load, as http://HOST:PORT; without it one is started, and removed afterwards. Said several times, connections
    /// are spread over replicas of one server
    #[arg(long)]
    pub url: Vec<String>,
    /// Process id of the server at --url, when it is on this machine: its CPU is read
    #[arg(long, requires = "url")]
    pub pid: Option<u32>,
    /// Where the server that is started keeps its tree, as in `angarium serve`
    #[arg(long, default_value = "embedded", conflicts_with = "url")]
    pub coordination: String,
    /// Connections, each with one request in flight
    #[arg(long, default_value_t = 64, value_parser = size(1, 10_000))]
    pub connections: usize,
    /// Measured time of a round
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = seconds(1, 3600))]
    pub seconds: u64,
    /// Time before it in which nothing is counted but errors
    #[arg(long, default_value = "1s", value_name = "DURATION", value_parser = seconds(0, 600))]
    pub warmup: u64,
    /// Protocol of the requests
    #[arg(long, value_enum, default_value_t = Protocol::Rest)]
    pub protocol: Protocol,
    /// Size of a message's body: of a JSON string with its quotes, or of the text in SQS
    #[arg(long, default_value_t = 200, value_name = "SIZE", value_parser = body_size)]
    pub body_bytes: usize,
    /// Messages in a post and in a claim; in SQS 10 at most
    #[arg(long, default_value_t = 1, value_parser = size(1, 1000))]
    pub batch: usize,
    /// Queues, named bench-0 onwards, over which the connections are spread
    #[arg(long, default_value_t = 1, value_parser = size(1, 100_000))]
    pub queues: usize,
    /// Leave the queues that this run has made at --url; without it they are deleted at the end
    #[arg(long, requires = "url")]
    pub keep: bool,
    /// Delete all messages of a claim with one request
    #[arg(long)]
    pub bulk: bool,
    /// Messages that are posted before the first round, spread over the queues
    #[arg(long, default_value_t = 0)]
    pub waiting: u64,
    /// Groups over which messages are spread: the queues are FIFO ones then (SQS)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub groups: Option<u64>,
    /// Rounds of ceiling and server in turn; medians are reported
    #[arg(long, default_value_t = 1, value_parser = size(1, 100))]
    pub rounds: usize,
    /// One JSON document instead of the table
    #[arg(long)]
    pub json: bool,
    /// Leave the empty server out: no cost ratio. Of the REST API it does not know --bulk
    #[arg(long)]
    pub no_ceiling: bool,
    /// Fail when the server's CPU per request is more than this many times the empty server's
    #[arg(long, conflicts_with = "no_ceiling")]
    pub max_cost_ratio: Option<f64>,
}

/// Returns a parser for a size or a count.
fn size(min: u64, max: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(min..=max)
}

/// Returns a parser for a duration.
fn seconds(min: u32, max: u32) -> impl Fn(&str) -> Result<u64, String> + Clone {
    let read = units::seconds_within(min, max);
    move |text| read(text).map(u64::from)
}

fn body_size(text: &str) -> Result<usize, String> {
    units::bytes_within(2, 1 << 20)(text).map(|size| size as usize)
}

/// Runs the command. It takes a few seconds per round, bounded by its arguments whatever the server does. Returns an
/// error, and so a failing exit code, when a request failed, when nothing was answered, or when the cost ratio exceeds
/// its bar. The error's text is for the user (`{:#}`, no backtrace). SIGINT and SIGTERM end the run early and stop its
/// servers.
///
/// All work runs on one blocking thread with its own runtimes, so that the results do not depend on the runtime of the
/// caller.
pub async fn run(args: BenchArgs) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let (kind, load) = match args.command {
        BenchCommand::Post(load) => (Kind::Post, load),
        BenchCommand::Claim(load) => (Kind::Claim, load),
        BenchCommand::Cycle(load) => (Kind::Cycle, load),
        BenchCommand::Drain(load) => (Kind::Drain, load),
        BenchCommand::Empty(empty) => {
            return tokio::task::spawn_blocking(move || ceiling::serve(&empty)).await?;
        }
    };
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let work_stop = stop.clone();
    let mut work = tokio::task::spawn_blocking(move || measure(kind, &load, &work_stop));
    tokio::select! {
        done = &mut work => return done?,
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    stop.cancel();
    work.await?
}

#[expect(clippy::print_stdout, reason = "the result is what the command is for")]
fn measure(kind: Kind, args: &LoadArgs, stop: &CancellationToken) -> anyhow::Result<()> {
    let report = rounds::measure(kind, args, stop)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
    }
    report.verdict(args.max_cost_ratio)
}

/// Parses a command line of a load.
#[cfg(test)]
fn load_args(arguments: &str) -> Result<LoadArgs, clap::Error> {
    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        bench: BenchArgs,
    }
    let words = ["bench"].into_iter().chain(arguments.split_whitespace());
    let parsed = <Program as clap::Parser>::try_parse_from(words)?;
    match parsed.bench.command {
        BenchCommand::Post(load)
        | BenchCommand::Claim(load)
        | BenchCommand::Cycle(load)
        | BenchCommand::Drain(load) => Ok(load),
        BenchCommand::Empty(_) => Err(clap::Error::new(clap::error::ErrorKind::InvalidSubcommand)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_documented_ones() {
        let load = load_args("post").unwrap();
        assert_eq!((load.connections, load.seconds, load.warmup, load.rounds), (64, 5, 1, 1));
        assert_eq!((load.body_bytes, load.batch, load.queues, load.waiting), (200, 1, 1, 0));
        assert_eq!((load.protocol, load.groups), (Protocol::Rest, None));
    }

    #[test]
    fn arguments_out_of_bounds_or_without_sense_are_refused() {
        for bad in [
            "post --connections 0",
            "cycle --batch 1001",
            "post --body-bytes 1",
            "post --seconds 0",
            "post --pid 1",
            "claim --url http://127.0.0.1:1 --coordination embedded",
            "post --no-ceiling --max-cost-ratio 3",
            "post --protocol soap",
            "post --protocol sqs --groups 0",
        ] {
            assert!(load_args(bad).is_err(), "{bad}");
        }
    }
}
