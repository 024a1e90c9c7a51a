//! Logs: structured lines on standard error, without bodies or credentials.
//!
//! An event has a fixed phrase and fields: `docs/logs.md` lists those of the levels error, warn and info.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::stderr;
use std::panic::PanicHookInfo;

use anstream::{AutoStream, ColorChoice};
use tracing::error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, ParseError};

use crate::config::LogFormat;

/// Starts the log with the filter `filter`; panics are logged too. Called once.
pub fn start(format: LogFormat, filter: &str) -> Result<(), ParseError> {
    let filter = EnvFilter::try_new(filter)?;
    // A line that cannot be written is lost: an error message on the same stream would panic the logging thread.
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).log_internal_errors(false);
    match format {
        LogFormat::Text => lines.with_ansi(has_colours()).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// Whether standard error is a terminal with colours, and `NO_COLOR` is not set.
fn has_colours() -> bool {
    AutoStream::choice(&stderr()) != ColorChoice::Never
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
    let (thread, location) = (std::thread::current(), panic.location().map(ToString::to_string));
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    error!(thread = thread.name(), location, error = text, backtrace, "panic");
}

/// Writes the reason why the service does not start as one line of JSON, whatever the filter.
pub fn print_failure(reason: &str) {
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::ERROR).with_writer(stderr);
    let lines = lines.log_internal_errors(false).json().flatten_event(true).finish();
    tracing::subscriber::with_default(lines, || error!(error = reason, "start failed"));
}
