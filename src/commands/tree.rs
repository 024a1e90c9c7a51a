//! `angarium tree`: exports the tree to a file, and imports it into another tree.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::runtime;
use crate::config::Config;
use crate::server::tree;

#[derive(Args, Debug)]
pub(super) struct TreeArgs {
    /// Which way
    #[arg(value_enum, value_name = "ACTION")]
    action: Action,

    /// The file. One that is there is not replaced. It holds what the URIs of pools hold: passwords too
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Where the tree is: `--coordination`, and for the embedded one `--data`
    #[command(flatten)]
    config: Config,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Action {
    /// Write the tree to the file
    Export,
    /// Put what the file holds into a tree that is empty
    Import,
}

pub(super) fn run(args: &TreeArgs) -> anyhow::Result<()> {
    let (config, path) = (&args.config, &args.file);
    let (done, what) = match args.action {
        Action::Export => (export(config, path)?, "written to"),
        Action::Import => (import(config, path)?, "put in place from"),
    };
    let (nodes, id, generation) = (done.nodes, done.system.id, done.system.generation);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{nodes} nodes of installation {id}, generation {generation}, {what} {}", path.display())?;
    Ok(())
}

fn export(config: &Config, path: &Path) -> anyhow::Result<tree::Backup> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = BufWriter::new(file);
    let written = runtime()?
        .block_on(tree::export(config, &mut |line| out.write_all(line)))
        .map_err(anyhow::Error::from)
        .and_then(|done| {
            out.flush()?;
            out.get_ref().sync_all()?;
            Ok(done)
        });
    if written.is_err() {
        // A partial tree is useless. If the file cannot be removed, its content still shows that it is incomplete.
        let _ = std::fs::remove_file(path);
    }
    written
}

fn import(config: &Config, path: &Path) -> anyhow::Result<tree::Backup> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut lines = BufReader::new(file).lines();
    Ok(runtime()?.block_on(tree::import(config, &mut lines))?)
}
