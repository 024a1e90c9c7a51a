//! `angarium completions`: prints the script with which a shell completes the program's arguments.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;

/// Print the script that completes arguments in a shell.
#[derive(Args, Clone, Debug)]
pub(super) struct CompletionsArgs {
    /// The shell, as in `source <(angarium completions bash)`
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "angarium", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}
