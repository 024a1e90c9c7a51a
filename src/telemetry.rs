//! Logs: structured lines on standard error. Never a body or a credential.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::config::LogFormat;

/// Begins to log what `filter` lets through. Called once.
pub fn start(format: LogFormat, filter: &str) -> Result<(), ParseError> {
    let filter = EnvFilter::try_new(filter)?;
    // A line that cannot be written is lost. Complaining of it on the same stream would panic whoever logs.
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    Ok(())
}
