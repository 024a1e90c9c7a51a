//! The tree in ZooKeeper by the settings, and the judgement about a tree that other clients of the ensemble can use.

use std::path::Path;
use std::time::Duration;

use tracing::warn;

use super::{StartError, secret_files};
use crate::config::{Config, ConfigError};
use angarium_coordination::zookeeper::{Address, Protection, ZooKeeperTimeouts, ZooKeeperTree};

/// Opens the tree with the identity and the certificates of the settings.
pub(super) async fn open(config: &Config, address: &Address) -> Result<ZooKeeperTree, StartError> {
    let access = config.zookeeper.chosen().map_err(ConfigError::ZooKeeper)?;
    let secrets: [(_, Option<&Path>); 2] = [
        ("zookeeper_auth_file", config.zookeeper.zookeeper_auth_file.as_deref()),
        ("zookeeper_tls_key", config.zookeeper.zookeeper_tls_key.as_deref()),
    ];
    secret_files::warn_of_others(secrets.into_iter().filter_map(|(setting, path)| Some((setting, path?))));
    let session = Duration::from_secs(config.cluster.session_timeout.into());
    let max_wait = ZooKeeperTimeouts { session, ..ZooKeeperTimeouts::default() };
    Ok(ZooKeeperTree::open_with(address.clone(), access, max_wait).await?)
}

/// Refuses or reports a tree that is not closed. An open one on servers of this machine, used without an identity, is a
/// trial and is not reported.
pub(super) async fn judge(
    config: &Config,
    address: &Address,
    tree: &ZooKeeperTree,
) -> Result<(), StartError> {
    let is_strict = config.zookeeper.require_secure_tree;
    match tree.protection() {
        Some(Protection::Closed) if is_strict => check_whole(address, tree).await,
        Some(Protection::Closed) => Ok(()),
        Some(Protection::Shared) if is_strict => Err(StartError::OpenTree(format!(
            "another identity has rights to upper nodes of the tree at {address}, and --require-secure-tree is set: close \
             it with `angarium tree secure`"
        ))),
        Some(Protection::Shared) => {
            warn!(%address, "zookeeper tree shared with another identity");
            Ok(())
        }
        Some(Protection::Open) | None => judge_open(config, address),
    }
}

fn judge_open(config: &Config, address: &Address) -> Result<(), StartError> {
    let has_identity = config.zookeeper.chosen().is_ok_and(|access| access.name_an_identity());
    let next_step = if has_identity {
        "close it with `angarium tree secure`"
    } else {
        "name an identity with --zookeeper-auth-file or --zookeeper-tls-cert, then run `angarium tree secure`"
    };
    if config.zookeeper.require_secure_tree {
        let what = "is open to every client of the ensemble, and --require-secure-tree is set";
        return Err(StartError::OpenTree(format!("the tree at {address} {what}: {next_step}")));
    }
    if !address.is_local() || has_identity {
        warn!(%address, next_step, "zookeeper tree open to other clients");
    }
    Ok(())
}

/// Refuses a tree whose closing was interrupted.
async fn check_whole(address: &Address, tree: &ZooKeeperTree) -> Result<(), StartError> {
    let is_half = tree.is_closed_by_half().await.map_err(|error| StartError::OpenTree(error.to_string()))?;
    if !is_half {
        return Ok(());
    }
    Err(StartError::OpenTree(format!(
        "the closing of the tree at {address} has not ended, and --require-secure-tree is set: run `angarium tree secure` \
         to its end"
    )))
}
