//! One request of many commits: the writer's node, the fences, the work, and whose each of its parts is.

use std::collections::HashMap;

use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriteResult};

use super::directories::Directories;
use super::errors::{Verdict, not_sent, verdict};
use super::pieces::Piece;
use super::writer::Writer;
use super::{Committed, Fence, Op, Refusal, Stat, TreeError};

/// A multi as it is sent.
pub(super) struct Multi<'a> {
    pieces: &'a [Piece],
    /// Each fence once, with the place of its check.
    checks: HashMap<&'a Fence, usize>,
    /// Creations, by their place among all operations, that find their directory full.
    full: Vec<usize>,
}

impl<'a> Multi<'a> {
    pub(super) fn of(pieces: &'a [Piece]) -> Self {
        let mut checks = HashMap::new();
        for fence in pieces.iter().flat_map(|piece| &piece.fences) {
            let next = checks.len();
            checks.entry(fence).or_insert(next);
        }
        Self { pieces, checks, full: Vec::new() }
    }

    /// Sends it under the writer's next number. When this is dropped the request goes out all the same.
    pub(super) async fn send(
        &mut self,
        client: &Client,
        writer: &Writer,
        directories: &Directories,
    ) -> Result<Vec<MultiWriteResult>, MultiWriteError> {
        let mut multi = client.new_multi_writer();
        multi.add_set_data(writer.path(), &writer.mark(), Some(writer.version()))?;
        let mut checks: Vec<(&&Fence, &usize)> = self.checks.iter().collect();
        checks.sort_unstable_by_key(|(_, place)| **place);
        for (fence, _) in checks {
            multi.add_check_version(&fence.path, expected(fence.version))?;
        }
        let mut plan = directories.plan();
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for (place, op) in self.pieces.iter().flat_map(|piece| &piece.ops).enumerate() {
            match op {
                Op::Create { path, data } if plan.grow(path) => multi.add_create(path, data, &options)?,
                // Always refused, as BadVersion when the node exists and as NoNode when not; and only if all
                // before it in the multi holds, as if ZooKeeper itself had the bound.
                Op::Create { path, .. } => {
                    self.full.push(place);
                    multi.add_delete(path, Some(NEVER))?;
                }
                Op::Set { path, data, version } => multi.add_set_data(path, data, version.map(expected))?,
                Op::Delete { path } => {
                    plan.shrink(path);
                    multi.add_delete(path, None)?;
                }
            }
        }
        multi.commit().await
    }

    /// What the pieces are told when the part at `index` was refused; none for those that it does not concern.
    /// None at all when it is the writer's node that was refused.
    pub(super) fn refusals(&self, index: usize, error: &ZkError) -> Option<Vec<Option<TreeError>>> {
        let index = index.checked_sub(1)?;
        let Some(place) = index.checked_sub(self.checks.len()) else {
            return Some(self.pieces.iter().map(|piece| self.fenced(piece, index, error)).collect());
        };
        let mut start = 0;
        let refusals = self.pieces.iter().map(|piece| {
            let op = place.checked_sub(start).filter(|op| *op < piece.ops.len());
            start += piece.ops.len();
            op.map(|op| self.refused(op, place, error))
        });
        Some(refusals.collect())
    }

    /// Whether a piece is fenced if the check at `failed` failed and those before it held. A piece with a fence
    /// before that one which was not checked is tried again: its answer names the first that fails.
    fn fenced(&self, piece: &Piece, failed: usize, error: &ZkError) -> Option<TreeError> {
        let place = |fence: &Fence| self.checks.get(fence).copied();
        let first =
            piece.fences.iter().position(|fence| place(fence).is_some_and(|place| place >= failed))?;
        if place(&piece.fences[first]) != Some(failed) {
            return None;
        }
        Some(match verdict(error) {
            Verdict::Refused(_) => TreeError::Fenced(first),
            Verdict::NotDone | Verdict::Unknown => not_sent(error),
        })
    }

    fn refused(&self, op: usize, place: usize, error: &ZkError) -> TreeError {
        let why = match verdict(error) {
            Verdict::Refused(Refusal::NoNode) if self.full.contains(&place) => Refusal::Full,
            Verdict::Refused(Refusal::BadVersion) if self.full.contains(&place) => Refusal::NodeExists,
            Verdict::Refused(why) => why,
            Verdict::NotDone | Verdict::Unknown => return not_sent(error),
        };
        TreeError::Refused { op, why }
    }

    /// What each piece did, and the version of the writer's node.
    pub(super) fn committed(&self, results: Vec<MultiWriteResult>) -> Option<(i32, Vec<Committed>)> {
        let mut results = results.into_iter();
        let MultiWriteResult::SetData { stat: writer } = results.next()? else { return None };
        let mut results = results.skip(self.checks.len());
        let mut committed = Vec::with_capacity(self.pieces.len());
        for piece in self.pieces {
            let mut stats = Vec::with_capacity(piece.ops.len());
            for _ in &piece.ops {
                stats.push(match results.next()? {
                    MultiWriteResult::SetData { stat } => Some(stat_of(&stat)),
                    // The Stat of a create in a multi is no Stat before 3.8.2, and nobody needs it.
                    _ => None,
                });
            }
            committed.push(stats);
        }
        Some((writer.version, committed))
    }
}

/// A version that no node has until it was set two thousand million times.
const NEVER: i32 = i32::MIN;

/// A version as ZooKeeper counts them: signed, and -1 means any.
fn expected(version: u32) -> i32 {
    match version.cast_signed() {
        -1 => NEVER,
        version => version,
    }
}

pub(super) fn stat_of(stat: &zookeeper_client::Stat) -> Stat {
    Stat { version: stat.version.cast_unsigned(), modified: stat.mzxid.cast_unsigned() }
}

/// What an applied commit did, found out afterwards because its answer was lost. `transaction` is its number.
///
/// None when it can no longer be told, since somebody else has set one of its nodes in the meantime.
pub(super) async fn recall(
    client: &Client,
    ops: &[Op],
    transaction: u64,
) -> Result<Option<Committed>, ZkError> {
    let mut versions: HashMap<&str, u32> = HashMap::new();
    let mut committed = Vec::with_capacity(ops.len());
    for (index, op) in ops.iter().enumerate() {
        let version = match op {
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
        committed.push(version.map(|version| Stat { version, modified: transaction }));
    }
    Ok(Some(committed))
}

/// The version of a node, if `transaction` was the last to set it.
async fn version_after(client: &Client, path: &str, transaction: u64) -> Result<Option<u32>, ZkError> {
    let stat = client.check_stat(path).await?.map(|stat| stat_of(&stat));
    Ok(stat.filter(|stat| stat.modified == transaction).map(|stat| stat.version))
}

fn sets_of(path: &str, ops: &[Op]) -> u32 {
    let sets = ops.iter().filter(|op| matches!(op, Op::Set { .. }) && op.path() == path).count();
    u32::try_from(sets).unwrap_or(u32::MAX)
}
