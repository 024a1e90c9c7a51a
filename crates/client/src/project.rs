//! `angarium project`: hold and release projects, and list the holds of pools and projects. For administrators.

use clap::{Args, Subcommand};

use super::caller::CallerArgs;
use super::failure::Failure;
use super::hold::{self, HoldArgs, Holdable};
use super::listing::ExtentArgs;
use super::remote::encoded;

/// Projects (administrators)
#[derive(Args, Clone, Debug)]
pub struct ProjectArgs {
    #[command(flatten)]
    caller: CallerArgs,
    #[command(subcommand)]
    command: ProjectCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum ProjectCommand {
    /// Hold all queues of a project: no message can be claimed until it is released
    Hold(HoldArgs),
    /// List the holds of projects and of pools, with their reasons
    Holds {
        #[command(flatten)]
        extent: ExtentArgs,
    },
    /// Release a project that is held
    Release {
        /// Its name
        name: String,
    },
}

pub(super) fn run(args: &ProjectArgs) -> Result<(), Failure> {
    let (remote, mut printer) = (args.caller.remote()?, args.caller.printer());
    match &args.command {
        ProjectCommand::Holds { extent } => hold::list(&remote, &mut printer, extent),
        ProjectCommand::Hold(terms) => holdable(&terms.name).hold(&remote, &mut printer, terms),
        ProjectCommand::Release { name } => holdable(name).release(&remote, &mut printer),
    }
}

fn holdable(name: &str) -> Holdable<'_> {
    Holdable { noun: "project", name, group: None, path: format!("/v2/projects/{}", encoded(name)) }
}
