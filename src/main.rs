//! Arguments to configuration to command to exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    match angarium::cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("angarium: {error:#}");
            ExitCode::FAILURE
        }
    }
}
