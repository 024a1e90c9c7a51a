//! The error of a service that cannot start and logs as JSON: one line of JSON, like all its lines on standard error.

use std::ffi::OsStr;

use clap::Command;
use thiserror::Error as ThisError;

use crate::telemetry;

/// The setting of the log format, as an argument and as a variable, and its value for JSON.
const ARGUMENT: &str = "--log-format";
const VARIABLE: &str = "ANGARIUM_LOG_FORMAT";
const JSON: &str = "json";

/// An error that was printed already, with the exit code of the process.
#[derive(Debug, ThisError)]
#[error("the error was printed")]
pub(super) struct Printed {
    pub(super) code: u8,
}

/// Prints the reason why the service does not start.
pub(super) fn print(reason: &str, code: u8) -> anyhow::Error {
    telemetry::print_failure(reason.trim_end());
    Printed { code }.into()
}

/// Whether the process will run the service and log as JSON. Called before its arguments are parsed.
pub(super) fn asks_for_json(command: &Command) -> bool {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let is_other = |argument: &OsStr| {
        argument.to_str().is_some_and(|name| name != "serve" && command.find_subcommand(name).is_some())
    };
    if arguments.iter().any(|argument| is_other(argument)) {
        return false;
    }
    let given = arguments.iter().enumerate().rev().find_map(|(at, argument)| {
        let argument = argument.to_str()?;
        match argument.strip_prefix(ARGUMENT)? {
            "" => Some(arguments.get(at + 1)?.to_str()?.to_owned()),
            rest => rest.strip_prefix('=').map(ToOwned::to_owned),
        }
    });
    let named = given.or_else(|| std::env::var_os(VARIABLE)?.into_string().ok());
    named.is_some_and(|form| form == JSON)
}
