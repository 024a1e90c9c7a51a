//! The commands of the program, one file each. Only this module and `main` print.

mod backup;
mod completions;
mod config;
mod docs;
mod failure;
mod help;
mod here;
mod openapi;
mod serve;
mod token;
mod tree;

use angarium_bench as bench;
use angarium_client as client;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::layers::{self, Unread};
use crate::config::{Config, LogFormat};
use crate::server::ReplicaConflict;

/// A durable message queue.
#[derive(Debug, Parser)]
#[command(name = "angarium", version, about, args_conflicts_with_subcommands = true, after_help = client::EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    config: Config,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service; the default without a command
    Serve(Config),
    /// Print the settings that the service would start with, and where each is from
    Config(Config),
    /// Load a server, and measure it beside an empty one
    Bench(bench::BenchArgs),
    /// Create tokens, by which callers authenticate
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Write the tree to a file while no service uses it, or put it into an empty tree: queues, pools, claims; no message
    Tree(tree::TreeArgs),
    /// Check a backup: every byte of it, against its own sums
    Verify(backup::VerifyArgs),
    /// Make a new data directory of a backup
    Restore(backup::RestoreArgs),
    #[command(flatten)]
    Client(client::ClientCommand),
    /// Print the OpenAPI document of the service
    Openapi(openapi::OpenapiArgs),
    /// Print a page of the documentation that is made of the program
    #[command(hide = true)]
    Docs(docs::DocsArgs),
    /// Print the script that completes arguments in a shell
    Completions(completions::CompletionsArgs),
}

/// Runs the command in the arguments of the process.
pub fn run() -> anyhow::Result<()> {
    let command = help::shaped(Cli::command());
    let logs_json = failure::asks_for_json(&command);
    let given = match layers::read(command) {
        Ok(given) => given,
        Err(Unread::Arguments(error)) if !(logs_json && error.use_stderr()) => error.exit(),
        Err(error) if logs_json => return Err(failure::print(&error.to_string(), 2)),
        Err(error) => return Err(error.into()),
    };
    let cli = Cli::from_arg_matches(&given.matches).unwrap_or_else(|error| error.exit());
    match cli.command.unwrap_or(Command::Serve(cli.config)) {
        Command::Serve(config) => {
            let logs_json = config.log_format == LogFormat::Json;
            let served = serve::run(config, &given.doubtful);
            served.map_err(|error| match logs_json {
                true => failure::print(&format!("{error:#}"), exit_code(&error)),
                false => error,
            })
        }
        Command::Config(config) => config::run(&given, &config),
        Command::Bench(args) => runtime()?.block_on(bench::run(args)),
        Command::Token(command) => token::run(command),
        Command::Tree(args) => tree::run(&args),
        Command::Verify(args) => backup::verify(&args),
        Command::Restore(args) => backup::run_restore(&args),
        Command::Client(command) => Ok(client::run(command, here::root)?),
        Command::Openapi(args) => openapi::run(&args),
        Command::Docs(args) => docs::run(&args, Cli::command()),
        Command::Completions(args) => completions::run(&args),
    }
}

/// Whether an error of [`run`] was printed already, as a line of JSON.
pub fn is_printed(error: &anyhow::Error) -> bool {
    error.is::<failure::Printed>()
}

/// The exit code of a service that has stopped because it runs twice. A manager that starts it again would stop the other
/// one.
const REPLICA_CONFLICT: u8 = 6;

/// Returns the exit code for an error of [`run`]: the help documents the codes of client commands, every other one is
/// 1. The code is 0 if the reader of the output has closed it.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let closed = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
    if let Some(printed) = error.downcast_ref::<failure::Printed>() {
        return printed.code;
    }
    if error.is::<ReplicaConflict>() {
        return REPLICA_CONFLICT;
    }
    match (error.downcast_ref::<client::Failure>(), error.downcast_ref::<std::io::Error>()) {
        (Some(failure), _) => failure.exit_code(),
        (None, Some(error)) if closed(error) => 0,
        (None, _) => 1,
    }
}

/// Creates the runtime of a command that does more than print, with one thread for each core.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}
