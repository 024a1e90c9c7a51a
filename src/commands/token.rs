//! `angarium token`: creates tokens for the file that `angarium serve --tokens` reads.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};

use crate::config::tokens;
use angarium_core::access::{Role, TokenHash, new_token};
use angarium_core::names::ProjectId;

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token: prints it, and what is to be in the file of tokens for it
    New(NewToken),
}

#[derive(Args, Debug)]
pub(super) struct NewToken {
    /// Whose queues it uses
    #[arg(long, value_name = "ID")]
    project: String,

    /// What it may do: `member`, `reader` that changes nothing, or `admin` for every project and the pools
    #[arg(long, default_value = "member")]
    role: Role,

    /// What people call it
    #[arg(long)]
    name: Option<String>,

    /// Append to this file, which is made when missing, and print only the token
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
}

pub(super) fn run(command: TokenCommand) -> anyhow::Result<()> {
    match command {
        TokenCommand::New(args) => new(&args),
    }
}

fn new(args: &NewToken) -> anyhow::Result<()> {
    anyhow::ensure!(!args.project.is_empty(), "a token needs a project");
    let project = ProjectId::new(&args.project)?;
    // This generator is seeded by the operating system and suitable for secrets.
    let token = new_token(&mut rand::rng());
    let entry = tokens::entry(&TokenHash::of(&token), &project, args.role, args.name.as_deref());
    let mut out = std::io::stdout().lock();
    match &args.tokens {
        None => write!(out, "{token}\n\n{entry}")?,
        Some(path) => {
            let mut file = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(path)
                .with_context(|| format!("cannot write {}", path.display()))?;
            file.write_all(format!("{entry}\n").as_bytes())?;
            file.sync_all()?;
            writeln!(out, "{token}")?;
        }
    }
    out.flush()?;
    Ok(())
}
