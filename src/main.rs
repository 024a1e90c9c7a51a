//! Arguments to configuration to command to exit code.

use std::io::Write;
use std::process::ExitCode;

/// A request makes some dozens of small allocations on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match angarium::commands::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = angarium::commands::exit_code(&error);
            if code != 0 && !angarium::commands::is_printed(&error) {
                // No caller can be told that no caller can be told.
                let _ = writeln!(std::io::stderr(), "angarium: {error:#}");
            }
            ExitCode::from(code)
        }
    }
}
