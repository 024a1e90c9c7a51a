//! The entry point: parses arguments, runs the command, returns the exit code.

use std::io::Write;
use std::process::ExitCode;

/// The reason for this allocator: a request makes dozens of small allocations on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match angarium::commands::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = angarium::commands::exit_code(&error);
            if code != 0 && !angarium::commands::is_printed(&error) {
                // If standard error is closed too, the error cannot be reported.
                let _ = writeln!(std::io::stderr(), "angarium: {error:#}");
            }
            ExitCode::from(code)
        }
    }
}
