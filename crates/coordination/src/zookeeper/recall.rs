//! Reconstruction of the result of an applied commit whose answer was lost.

use std::collections::HashMap;

use zookeeper_client::{Client, Error as ZkError};

use super::multi::{number_in, stat_of};
use super::{CommitResult, Mode, Op, Stat, path};

/// Reconstructs the result of an applied commit whose answer was lost. `transaction` is the number of the commit.
///
/// Returns none when the tree no longer shows the result, because another process has set one of the nodes since.
pub(super) async fn recall(
    client: &Client,
    ops: &[Op],
    transaction: u64,
) -> Result<Option<CommitResult>, ZkError> {
    let mut versions: HashMap<&str, u32> = HashMap::new();
    let mut committed = Vec::with_capacity(ops.len());
    for (index, op) in ops.iter().enumerate() {
        let version = match op {
            Op::Create { path, mode: Mode::Numbered, .. } => {
                let Some(number) = number_after(client, path, transaction).await? else { return Ok(None) };
                committed.push(Some(Stat { version: 0, modified: transaction, number: Some(number) }));
                continue;
            }
            Op::Create { path, .. } => {
                versions.insert(path, 0);
                None
            }
            Op::Delete { path } => {
                versions.remove(path.as_str());
                None
            }
            Op::Set { version: Some(version), .. } => Some(version.wrapping_add(1)),
            Op::Set { path, .. } => match versions.get(path.as_str()) {
                Some(version) => Some(version.wrapping_add(1)),
                None => match version_after(client, path, transaction).await? {
                    Some(last) => Some(last.wrapping_sub(sets_of(path, &ops[index + 1..]))),
                    None => return Ok(None),
                },
            },
        };
        if let Some(version) = version {
            versions.insert(op.path(), version);
        }
        committed.push(version.map(|version| Stat { version, modified: transaction, number: None }));
    }
    Ok(Some(committed))
}

/// Returns the version of a node, if `transaction` was the last to set it.
async fn version_after(client: &Client, path: &str, transaction: u64) -> Result<Option<u32>, ZkError> {
    let stat = client.check_stat(path).await?.map(|stat| stat_of(&stat));
    Ok(stat.filter(|stat| stat.modified == transaction).map(|stat| stat.version))
}

fn sets_of(path: &str, ops: &[Op]) -> u32 {
    let sets = ops.iter().filter(|op| matches!(op, Op::Set { .. }) && op.path() == path).count();
    u32::try_from(sets).unwrap_or(u32::MAX)
}

/// Returns the number in the name of the one node that `transaction` created; none when there are several or it is
/// gone.
async fn number_after(client: &Client, path: &str, transaction: u64) -> Result<Option<u64>, ZkError> {
    let directory = path::parent(path).unwrap_or("/");
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut found = None;
    for child in client.list_children(directory).await? {
        let Some(number) = child.strip_prefix(name).and_then(number_in) else { continue };
        let stat = client.check_stat(&format!("{}/{child}", directory.trim_end_matches('/'))).await?;
        if stat.is_some_and(|stat| stat.czxid.cast_unsigned() == transaction)
            && found.replace(number).is_some()
        {
            return Ok(None);
        }
    }
    Ok(found)
}
