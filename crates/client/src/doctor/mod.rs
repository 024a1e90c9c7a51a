//! `angarium doctor`: checks a server from outside and a data directory on this machine, and gives advice. Changes
//! nothing.

mod data;
mod queues;
mod server;
mod store;
mod subscriptions;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::caller::CallerArgs;
use super::failure::Failure;
use super::printer::Display;
use super::table::Table;

/// Check a server for faults, and advise how to mend them
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    #[command(flatten)]
    caller: CallerArgs,
    /// Data directory of a service on this machine, to be looked at as well
    #[arg(long, env = "ANGARIUM_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Explain this queue; may be given several times. Without it, those whose ready messages wait, of the first 200
    #[arg(long = "queue", value_name = "NAME")]
    queues: Vec<String>,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// No problem.
    Ok,
    /// It works, but deserves attention.
    Warning,
    /// A problem.
    Wrong,
    /// The check could not run.
    Skipped,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Wrong => "WRONG",
            Self::Skipped => "skipped",
        }
    }
}

/// A check with its result.
#[derive(Clone, Debug, Serialize)]
struct Check {
    /// Name of the check.
    name: String,
    verdict: Verdict,
    /// Finding.
    found: String,
    /// Advice for the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn ok(name: &str, found: impl Into<String>) -> Self {
        Self { name: name.to_owned(), verdict: Verdict::Ok, found: found.into(), advice: None }
    }

    fn skipped(name: &str, found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Skipped, ..Self::ok(name, found) }
    }

    fn warning(name: &str, found: impl Into<String>, advice: &str) -> Self {
        Self { verdict: Verdict::Warning, advice: Some(advice.to_owned()), ..Self::ok(name, found) }
    }

    fn wrong(name: &str, found: impl Into<String>, advice: &str) -> Self {
        Self { verdict: Verdict::Wrong, ..Self::warning(name, found, advice) }
    }
}

pub(super) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let mut checks = server::checks(&args.caller, &args.queues)?;
    if let Some(data) = &args.data {
        checks.extend(data::checks(data));
        checks.extend(store::checks(data));
    }
    let json = serde_json::to_string(&checks).map_err(|error| Failure::Found(error.to_string()))?;
    let plain = checks.iter().map(|check| format!("{} {}", check.verdict.as_str(), check.name)).collect();
    args.caller.printer().show(&Display { people: format_checks(&checks), json, plain })?;
    match checks.iter().filter(|check| check.verdict == Verdict::Wrong).count() {
        0 => Ok(()),
        1 => Err(Failure::Found("1 check found something wrong".into())),
        wrong => Err(Failure::Found(format!("{wrong} checks found something wrong"))),
    }
}

/// Formats the checks for a person, each with its advice below it.
fn format_checks(checks: &[Check]) -> String {
    let row =
        |first: &str, second: &str, found: &str| vec![first.to_owned(), second.to_owned(), found.to_owned()];
    let rows: Vec<_> = checks
        .iter()
        .flat_map(|check| {
            let advice = check.advice.as_ref().map(|advice| row("", "", &format!("→ {advice}")));
            // An error may have several lines, a table cell only one.
            let found = check.found.replace('\n', ";");
            std::iter::once(row(check.verdict.as_str(), &check.name, &found)).chain(advice)
        })
        .collect();
    Table::new(&["", "", ""]).rows(&rows)
}
