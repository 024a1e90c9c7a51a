//! One request of many commits: the writer's node, the fences, the work, and whose each of its parts is.

use std::collections::HashMap;

use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriteResult};

use super::directories::Directories;
use super::errors::{Verdict, not_sent, verdict};
use super::pieces::Piece;
use super::writer::Writer;
use super::{CommitResult, Fence, Mode, Op, Refusal, Stat, TreeError};

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

    /// Sends it under the writer's next number. When this is dropped the request is sent all the same.
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
        for (place, op) in self.pieces.iter().flat_map(|piece| &piece.ops).enumerate() {
            match op {
                Op::Create { path, data, mode } if plan.grow(path) => {
                    multi.add_create(path, data, &create_mode(*mode).with_acls(Acls::anyone_all()))?;
                }
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
                    // The Stat of a create in a multi is no Stat before 3.8.2.
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

/// The number that ZooKeeper added to a name: ten digits.
pub(super) fn number_in(path: &str) -> Option<u64> {
    path.get(path.len().checked_sub(10)?..)?.parse().ok()
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
    Stat { version: stat.version.cast_unsigned(), modified: stat.mzxid.cast_unsigned(), number: None }
}
