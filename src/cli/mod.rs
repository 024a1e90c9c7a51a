//! The commands of the program, one file each. Only this layer and `main` print.

mod bench;
mod config;
mod openapi;
mod serve;
mod token;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{Config, layers};

/// A durable message queue.
#[derive(Debug, Parser)]
#[command(name = "angarium", version, about, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    config: Config,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service; this is done when no command is named
    Serve(Config),
    /// Print the settings that the service would start with, and where each comes from
    Config(Config),
    /// Load a server, and measure it beside an empty one
    Bench(bench::BenchArgs),
    /// Tokens, by which the service knows its callers
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Print the OpenAPI document of the service
    Openapi(openapi::OpenapiArgs),
}

/// Carries out the command that the arguments of the process name.
pub fn run() -> anyhow::Result<()> {
    let given = layers::read(Cli::command())?;
    let cli = Cli::from_arg_matches(&given.matches).unwrap_or_else(|error| error.exit());
    match cli.command.unwrap_or(Command::Serve(cli.config)) {
        Command::Serve(config) => serve::run(config),
        Command::Config(config) => config::run(&given, &config),
        Command::Bench(args) => runtime()?.block_on(bench::run(args)),
        Command::Token(command) => token::run(command),
        Command::Openapi(args) => openapi::run(&args),
    }
}

/// The runtime of a command that does more than print: a thread for each core.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}
