//! One request with many commits: the writer's node, the fences, the operations, and a map from each part to its
//! commit.

use std::collections::HashMap;

use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriteResult};

use super::directories::Directories;
use super::errors::{Verdict, not_sent, verdict};
use super::pieces::Piece;
use super::writer::Writer;
use super::{CommitResult, Fence, Mode, Op, Refusal, Stat, TreeError};

/// A multi before it is sent.
pub(super) struct Multi<'a> {
    pieces: &'a [Piece],
    /// Each distinct fence, with the index of its check.
    checks: HashMap<&'a Fence, usize>,
    /// Indexes, among all operations, of creations whose directory is full.
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

    /// Sends the multi with the writer's next number. Dropping this future does not withdraw the request.
    pub(super) async fn send(
        &mut self,
        client: &Client,
        writer: &Writer,
        directories: &Directories,
    ) -> Result<Vec<MultiWriteResult>, MultiWriteError> {
        let mut multi = client.new_multi_writer();
        multi.add_set_data(writer.path(), &writer.mark(), Some(writer.version()))?;
        let mut checks: Vec<(&&Fence, &usize)> = self.checks.iter().collect();
        checks.sort_unstable_by_key(|(_, check)| **check);
        for (fence, _) in checks {
            multi.add_check_version(&fence.path, expected(fence.version))?;
        }
        let (mut plan, acls) = (directories.plan(), writer.protection().acls());
        for (op_index, op) in self.pieces.iter().flat_map(|piece| &piece.ops).enumerate() {
            match op {
                Op::Create { path, data, mode } if plan.grow(path) => {
                    multi.add_create(path, data, &create_mode(*mode).with_acls(acls))?;
                }
                // Always refused: as BadVersion if the node exists, as NoNode if not, and only if everything before it
                // in the multi holds. So the result is the same as if ZooKeeper itself had the bound.
                Op::Create { path, .. } => {
                    self.full.push(op_index);
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

    /// Returns the error of each piece when the part at `index` was refused; none for the pieces that it does not
    /// concern. Returns none at all when the writer's node was refused.
    pub(super) fn refusals(&self, index: usize, error: &ZkError) -> Option<Vec<Option<TreeError>>> {
        let index = index.checked_sub(1)?;
        let Some(op_index) = index.checked_sub(self.checks.len()) else {
            return Some(self.pieces.iter().map(|piece| self.fenced(piece, index, error)).collect());
        };
        let mut start = 0;
        let refusals = self.pieces.iter().map(|piece| {
            let op = op_index.checked_sub(start).filter(|op| *op < piece.ops.len());
            start += piece.ops.len();
            op.map(|op| self.refused(op, op_index, error))
        });
        Some(refusals.collect())
    }

    /// Returns the error of a piece after the check at `failed` failed and the checks before it held. A piece with an
    /// earlier unchecked fence is tried again, because its error must name its first failing fence.
    fn fenced(&self, piece: &Piece, failed: usize, error: &ZkError) -> Option<TreeError> {
        let check_index = |fence: &Fence| self.checks.get(fence).copied();
        let first =
            piece.fences.iter().position(|fence| check_index(fence).is_some_and(|check| check >= failed))?;
        if check_index(&piece.fences[first]) != Some(failed) {
            return None;
        }
        Some(match verdict(error) {
            Verdict::Refused(_) => TreeError::Fenced(first),
            Verdict::NotDone | Verdict::Unknown => not_sent(error),
        })
    }

    fn refused(&self, op: usize, op_index: usize, error: &ZkError) -> TreeError {
        let why = match verdict(error) {
            Verdict::Refused(Refusal::NoNode) if self.full.contains(&op_index) => Refusal::Full,
            Verdict::Refused(Refusal::BadVersion) if self.full.contains(&op_index) => Refusal::NodeExists,
            Verdict::Refused(why) => why,
            Verdict::NotDone | Verdict::Unknown => return not_sent(error),
        };
        TreeError::Refused { op, why }
    }

    /// Returns the result of each piece, and the new version of the writer's node.
    pub(super) fn committed(&self, results: Vec<MultiWriteResult>) -> Option<(i32, Vec<CommitResult>)> {
        let mut results = results.into_iter();
        let MultiWriteResult::SetData { stat: writer } = results.next()? else { return None };
        let transaction = writer.mzxid.cast_unsigned();
        let mut results = results.skip(self.checks.len());
        let mut committed = Vec::with_capacity(self.pieces.len());
        for piece in self.pieces {
            let mut stats = Vec::with_capacity(piece.ops.len());
            for op in &piece.ops {
                stats.push(match (op, results.next()?) {
                    (_, MultiWriteResult::SetData { stat }) => Some(stat_of(&stat)),
                    // Before 3.8.2, a create in a multi does not return a Stat.
                    (Op::Create { mode: Mode::Numbered, .. }, MultiWriteResult::Create { path, .. }) => {
                        Some(Stat { version: 0, modified: transaction, number: number_in(&path) })
                    }
                    _ => None,
                });
            }
            committed.push(stats);
        }
        Some((writer.version, committed))
    }
}

fn create_mode(mode: Mode) -> CreateMode {
    match mode {
        Mode::Persistent => CreateMode::Persistent,
        Mode::Ephemeral => CreateMode::Ephemeral,
        Mode::Numbered => CreateMode::EphemeralSequential,
    }
}

/// Returns the number that ZooKeeper appended to a name: ten digits.
pub(super) fn number_in(path: &str) -> Option<u64> {
    path.get(path.len().checked_sub(10)?..)?.parse().ok()
}

/// A version that no node has before it was set two thousand million times.
const NEVER: i32 = i32::MIN;

/// Converts a version to ZooKeeper's signed form, in which -1 means any version.
fn expected(version: u32) -> i32 {
    match version.cast_signed() {
        -1 => NEVER,
        version => version,
    }
}

pub(super) fn stat_of(stat: &zookeeper_client::Stat) -> Stat {
    Stat { version: stat.version.cast_unsigned(), modified: stat.mzxid.cast_unsigned(), number: None }
}
