//! Export of the tree without a running service, and its import before the first start.

use std::io;
use std::sync::Arc;

use thiserror::Error as ThisError;

use super::instance::Instance;
use super::{JOURNAL, StartError, open_data, open_instance, open_tree};
use crate::config::{Config, TreeChoice};
use angarium_catalogue::Catalogue;
pub use angarium_catalogue::{Backup, BackupError};
use angarium_clock::Clock;
use angarium_coordination::Coordination;
use angarium_coordination::zookeeper::{ZooKeeperTimeouts, ZooKeeperTree};

/// Errors of an export or import.
#[derive(Debug, ThisError)]
pub enum TreeFileError {
    /// The tree cannot be opened.
    #[error(transparent)]
    Open(#[from] StartError),
    /// The tree or the file cannot be used.
    #[error(transparent)]
    Backup(#[from] BackupError),
}

/// Passes the lines of the tree to `write`. An embedded tree must not be in use; with ZooKeeper, services may keep
/// running.
pub async fn export(
    config: &Config,
    write: &mut (dyn FnMut(&[u8]) -> io::Result<()> + Send),
) -> Result<Backup, TreeFileError> {
    if config.coordination == TreeChoice::Embedded && !config.data.join(JOURNAL).is_dir() {
        return Err(BackupError::Empty.into());
    }
    let (tree, _instance) = open(config).await?;
    let done = Catalogue::new(Arc::clone(&tree)).export(write).await;
    tree.close().await;
    Ok(done?)
}

/// Imports the lines into an empty tree. Its generation is the current time in seconds, unless the lines have the same
/// or a greater one. So after a second import the pools, which remember the generation of the first, do not fence the
/// tree out.
pub async fn import(
    config: &Config,
    lines: &mut (dyn Iterator<Item = io::Result<String>> + Send),
) -> Result<Backup, TreeFileError> {
    let (tree, _instance) = open(config).await?;
    let seconds = Clock::system().now().as_millis() / 1_000;
    let generation = u32::try_from(seconds).unwrap_or(u32::MAX);
    let done = Catalogue::new(Arc::clone(&tree)).import(lines, generation).await;
    tree.close().await;
    Ok(done?)
}

/// Opens the tree, and locks an embedded one.
async fn open(config: &Config) -> Result<(Arc<dyn Coordination>, Option<Instance>), StartError> {
    if let TreeChoice::ZooKeeper(address) = &config.coordination {
        let tree = ZooKeeperTree::open(address.clone(), ZooKeeperTimeouts::default()).await?;
        return Ok((Arc::new(tree), None));
    }
    let data = open_data(&config.data)?;
    let instance = open_instance(&data)?;
    let (tree, _) = open_tree(config, &data.join(JOURNAL), &Clock::system()).await?;
    Ok((tree, Some(instance)))
}
