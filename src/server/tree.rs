//! Export of the tree without a running service, its import before the first start, the sealing of its secrets, and its
//! closing to other clients of ZooKeeper.

use std::io;
use std::sync::Arc;

use thiserror::Error as ThisError;

use super::instance::Instance;
use super::{JOURNAL, StartError, open_data, open_instance, open_tree, sealing, zookeeper};
use crate::config::{Config, TreeChoice};
use angarium_catalogue::{Catalogue, ImportedTransfers};
pub use angarium_catalogue::{DataKeyChange, ExportError, SealedSecrets, TreeExport};
use angarium_clock::Clock;
use angarium_coordination::Coordination;
use angarium_coordination::zookeeper::{SecureError, SecuredTree, ZooKeeperTree};
use angarium_core::error::Error;

/// Errors of these.
#[derive(Debug, ThisError)]
pub enum TreeFileError {
    /// The tree cannot be opened.
    #[error(transparent)]
    Open(#[from] StartError),
    /// The tree or the file cannot be used.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The tree is not closed, or not known to be.
    #[error("the tree is not secured")]
    Secure(#[from] SecureError),
    /// No service has used the tree.
    #[error("no service has used the tree at {0}: check --coordination, and --data for an embedded one")]
    NoTree(String),
    /// The secrets are not sealed, or not all of them.
    #[error("the secrets are not sealed: {}", .0.detail())]
    Seal(Error),
    /// No key is named.
    #[error("name the file of the keys by --secret-key-file")]
    NoKey,
    /// An embedded tree is a directory of this machine.
    #[error("--coordination names no ZooKeeper: an embedded tree is guarded by the rights of its directory")]
    NotInZooKeeper,
}

/// Closes a tree in ZooKeeper to all but the identity of the settings. Services with that identity keep running. Calls
/// `closed` after each node.
pub async fn secure(
    config: &Config,
    closed: &mut (dyn FnMut(&str) + Send),
) -> Result<SecuredTree, TreeFileError> {
    let TreeChoice::ZooKeeper(address) = &config.coordination else {
        return Err(TreeFileError::NotInZooKeeper);
    };
    let tree: Arc<ZooKeeperTree> = Arc::new(zookeeper::open(config, address).await?);
    let is_used = Catalogue::new(Arc::clone(&tree) as Arc<dyn Coordination>).is_begun().await;
    let done = match is_used {
        Ok(true) => tree.secure(closed).await.map_err(TreeFileError::from),
        Ok(false) => Err(TreeFileError::NoTree(address.to_string())),
        Err(error) => Err(ExportError::from(error).into()),
    };
    tree.close().await;
    done
}

/// Seals the secrets of the tree under the first key of the file. An embedded tree must not be in use; with ZooKeeper,
/// services with the key keep running. Calls `sealed` after each node.
pub async fn seal(
    config: &Config,
    sealed: &mut (dyn FnMut(&str) + Send),
) -> Result<SealedSecrets, TreeFileError> {
    let keys = sealing::keys(config).map_err(StartError::from)?.ok_or(TreeFileError::NoKey)?;
    let place = match &config.coordination {
        TreeChoice::Embedded => config.data.display().to_string(),
        TreeChoice::ZooKeeper(address) => address.to_string(),
    };
    if config.coordination == TreeChoice::Embedded && !config.data.join(JOURNAL).is_dir() {
        return Err(TreeFileError::NoTree(place));
    }
    let (tree, _instance) = open(config).await?;
    let catalogue = Catalogue::with_keys(Arc::clone(&tree), Some(keys));
    let done = match catalogue.is_begun().await {
        Ok(true) => catalogue.seal(sealed).await.map_err(TreeFileError::Seal),
        Ok(false) => Err(TreeFileError::NoTree(place)),
        Err(error) => Err(TreeFileError::Seal(error)),
    };
    tree.close().await;
    done
}

/// Passes the lines of the tree to `write`. An embedded tree must not be in use; with ZooKeeper, services may keep
/// running.
pub async fn export(
    config: &Config,
    write: &mut (dyn FnMut(&[u8]) -> io::Result<()> + Send),
) -> Result<TreeExport, TreeFileError> {
    if config.coordination == TreeChoice::Embedded && !config.data.join(JOURNAL).is_dir() {
        return Err(ExportError::Empty.into());
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
) -> Result<TreeExport, TreeFileError> {
    import_with(config, lines, ImportedTransfers::Continued).await
}

/// As [`import`], for the tree of a cluster whose pools are restored from copies of other moments: no message leaves a
/// pool until its hold is released.
pub async fn import_held(
    config: &Config,
    lines: &mut (dyn Iterator<Item = io::Result<String>> + Send),
) -> Result<TreeExport, TreeFileError> {
    import_with(config, lines, ImportedTransfers::Held(Clock::system().now())).await
}

async fn import_with(
    config: &Config,
    lines: &mut (dyn Iterator<Item = io::Result<String>> + Send),
    transfers: ImportedTransfers,
) -> Result<TreeExport, TreeFileError> {
    let (tree, _instance) = open(config).await?;
    let seconds = Clock::system().now().as_millis() / 1_000;
    let generation = u32::try_from(seconds).unwrap_or(u32::MAX);
    let done = Catalogue::new(Arc::clone(&tree)).import(lines, generation, transfers).await;
    tree.close().await;
    Ok(done?)
}

/// Opens the tree, and locks an embedded one.
async fn open(config: &Config) -> Result<(Arc<dyn Coordination>, Option<Instance>), StartError> {
    if let TreeChoice::ZooKeeper(address) = &config.coordination {
        config.check()?;
        let tree = zookeeper::open(config, address).await?;
        return Ok((Arc::new(tree), None));
    }
    let data = open_data(&config.data)?;
    let instance = open_instance(&data)?;
    let (tree, _) = open_tree(config, &data.join(JOURNAL), &Clock::system()).await?;
    Ok((tree, Some(instance)))
}
