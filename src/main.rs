//! Arguments to configuration to command to exit code.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match angarium::cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("angarium: {error:#}");
            ExitCode::FAILURE
        }
    }
}
