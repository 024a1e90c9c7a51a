//! `angarium tree`: exports the tree to a file, imports it into another tree, seals its secrets, and closes a tree in
//! ZooKeeper to other clients.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use super::runtime;
use crate::config::Config;
use crate::server::tree::{self, DataKeyChange};

#[derive(Args, Debug)]
pub(super) struct TreeArgs {
    /// Which way
    #[arg(value_enum, value_name = "ACTION")]
    action: Action,

    /// The file of an export or import. One that is there is not replaced. It holds what the URIs of pools hold:
    /// passwords too, unless they are sealed
    #[arg(value_name = "FILE", required_if_eq_any([("action", "export"), ("action", "import")]))]
    file: Option<PathBuf>,

    /// At an import: hold the transfers of all pools, which are restored from copies of other moments, until each is
    /// released by `angarium pool release`
    #[arg(long)]
    hold_transfers: bool,

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
    /// Seal the secrets in the tree under the first key of --secret-key-file, and name each node
    Seal,
    /// Close a tree in ZooKeeper to all clients but those with the identity of the settings, and name each node
    Secure,
}

pub(super) fn run(args: &TreeArgs) -> anyhow::Result<()> {
    let config = &args.config;
    if args.hold_transfers && !matches!(args.action, Action::Import) {
        bail!("--hold-transfers is for an import");
    }
    let (done, path, what) = match (args.action, &args.file) {
        (Action::Export, Some(path)) => (export(config, path)?, path, "written to"),
        (Action::Import, Some(path)) => (import(args, path)?, path, "put in place from"),
        (Action::Secure, None) => return secure(config),
        (Action::Seal, None) => return seal(config),
        (Action::Secure, Some(_)) => bail!("'secure' takes no file"),
        (Action::Seal, Some(_)) => bail!("'seal' takes no file"),
        (Action::Export | Action::Import, None) => bail!("the file is missing"),
    };
    let (nodes, id, generation) = (done.nodes, done.system.id, done.system.generation);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{nodes} nodes of installation {id}, generation {generation}, {what} {}", path.display())?;
    Ok(())
}

fn secure(config: &Config) -> anyhow::Result<()> {
    // The list is a record for the operator; the work does not depend on its reader.
    let mut closed = |path: &str| drop(writeln!(std::io::stdout(), "closed {path}"));
    let done = runtime()?.block_on(tree::secure(config, &mut closed))?;
    let (nodes, closed, passes) = (done.nodes, done.closed, done.passes);
    writeln!(std::io::stdout(), "{nodes} nodes are closed, {closed} of them now, in {passes} passes")?;
    Ok(())
}

fn seal(config: &Config) -> anyhow::Result<()> {
    // As with the closing, the list is a record for the operator.
    let mut sealed = |path: &str| drop(writeln!(std::io::stdout(), "sealed {path}"));
    let done = runtime()?.block_on(tree::seal(config, &mut sealed))?;
    let (nodes, sealed, generation) = (done.nodes, done.sealed, done.generation);
    let data_key = match done.data_key {
        DataKeyChange::Created => "made, and sealed",
        DataKeyChange::Resealed => "sealed again, now",
        DataKeyChange::Unchanged => "sealed",
    };
    writeln!(
        std::io::stdout(),
        "{nodes} nodes are sealed, {sealed} of them now; the data key is {data_key} under the key '{generation}'"
    )?;
    Ok(())
}

fn export(config: &Config, path: &Path) -> anyhow::Result<tree::TreeExport> {
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

fn import(args: &TreeArgs, path: &Path) -> anyhow::Result<tree::TreeExport> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (mut lines, config) = (BufReader::new(file).lines(), &args.config);
    let runtime = runtime()?;
    let done = if args.hold_transfers {
        runtime.block_on(tree::import_held(config, &mut lines))
    } else {
        runtime.block_on(tree::import(config, &mut lines))
    };
    Ok(done?)
}
