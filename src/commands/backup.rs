//! `angarium verify` and `angarium restore`: check a backup, and make a data directory of one.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args;

use super::runtime;
use crate::server::restore::{RestoreSource, restore};
use angarium_backup::{Manifest, open, read};
use angarium_core::time::Timestamp;
use angarium_sealing::KeyRing;

#[derive(Args, Debug)]
pub(super) struct VerifyArgs {
    /// Directory of the backup; `-` reads it from standard input
    #[arg(value_name = "DIR")]
    source: PathBuf,
}

#[derive(Args, Debug)]
pub(super) struct RestoreArgs {
    /// Directory of the backup; `-` reads it from standard input
    #[arg(value_name = "DIR")]
    source: PathBuf,

    /// The new data directory, which is absent or empty
    #[arg(long, visible_alias = "data-dir", value_name = "NEW")]
    data: PathBuf,

    /// File of the keys for the secrets in the tree, if the service had one
    #[arg(long, env = "ANGARIUM_SECRET_KEY_FILE", value_name = "FILE")]
    secret_key_file: Option<PathBuf>,
}

pub(super) fn verify(args: &VerifyArgs) -> anyhow::Result<()> {
    let manifest = if args.source.as_os_str() == "-" {
        read(io::stdin().lock(), &mut ())?
    } else {
        open(&args.source)?.read(&mut ())?
    };
    let mut out = io::stdout().lock();
    writeln!(out, "{} is whole: {}", args.source.display(), summary(&manifest))?;
    for part in manifest.parts.iter().filter(|part| part.pairs > 0) {
        let (journal, space) = (&part.journal, &part.space);
        writeln!(out, "{journal}/{space} {} records {} bytes", part.pairs, part.bytes)?;
    }
    Ok(())
}

pub(super) fn run_restore(args: &RestoreArgs) -> anyhow::Result<()> {
    ensure!(!args.data.as_os_str().is_empty(), "the new data directory has no name");
    let keys = args.secret_key_file.as_deref().map(KeyRing::read).transpose()?;
    let runtime = runtime()?;
    let mut input = io::stdin().lock();
    let source = if args.source.as_os_str() == "-" {
        RestoreSource::Stream(&mut input as &mut dyn Read)
    } else {
        RestoreSource::Directory(&args.source)
    };
    let done = restore(source, &args.data, keys, runtime.handle())
        .with_context(|| format!("{} is not restored", args.source.display()))?;
    let (data, manifest) = (args.data.display(), &done.manifest);
    let mut out = io::stdout().lock();
    writeln!(out, "{data} is restored: {}; generation {}", summary(manifest), done.generation)?;
    if let Some(warning) = &done.warning {
        writeln!(out, "{warning}")?;
    }
    if done.holds_transfers() {
        let names = manifest.head.outside.join(", ");
        writeln!(
            out,
            "the messages of these pools are stored elsewhere, and are not in the backup: {names}. So the transfers \
             of all pools are held: start the service, compare the pools, then release each one (angarium pool release)"
        )?;
    }
    Ok(())
}

/// Describes a backup in a few words.
fn summary(manifest: &Manifest) -> String {
    let head = &manifest.head;
    let at = Timestamp::from_millis(head.clock).calendar();
    let (pairs, bytes) = (manifest.pairs(), manifest.bytes());
    format!(
        "installation {} at {at}, by version {}, {pairs} records, {bytes} bytes",
        head.installation, head.program
    )
}
