//! How many children directories have, so that none gets more than it may: ZooKeeper has no such bound.
//!
//! Before a node is created, the size of its directory is read once in the life of a session; from then on it is
//! counted, and it is read again before the bound refuses anything, and whenever the directory is listed. So the
//! bound is exact where this session alone creates nodes, as below a slot, whose new owner lists it first. Nodes
//! that others create in the meantime are not seen: by as many a directory may become too large.

use std::collections::HashMap;

use parking_lot::Mutex;
use zookeeper_client::{Client, Error as ZkError};

use super::pieces::Piece;
use super::{Op, path};
use angarium_core::limits;

/// Directories that are remembered. There are 16,384 of claims, and one for each project in each slot.
const REMEMBERED: usize = 65_536;

/// Known sizes. The lock is held for single look-ups: the committer counts, listings correct.
#[derive(Default)]
pub(super) struct Directories(Mutex<HashMap<String, usize>>);

impl Directories {
    /// Remembers what a directory was read to hold.
    pub(super) fn note(&self, directory: &str, children: usize) {
        let mut sizes = self.0.lock();
        if sizes.len() >= REMEMBERED {
            // They are read again when they are needed.
            sizes.clear();
        }
        sizes.insert(directory.to_owned(), children);
    }

    /// Reads the sizes that these commits need and that are not known, or that would be over the bound.
    pub(super) async fn learn(&self, client: &Client, pieces: &[Piece]) -> Result<(), ZkError> {
        let mut growth: HashMap<&str, usize> = HashMap::new();
        for op in pieces.iter().flat_map(|piece| &piece.ops) {
            if let Op::Create { path, .. } = op {
                *growth.entry(path::parent(path).unwrap_or("/")).or_default() += 1;
            }
        }
        let needed: Vec<&str> = {
            let sizes = self.0.lock();
            let fits = |(directory, more): (&&str, &usize)| {
                sizes.get(*directory).is_some_and(|size| size + more <= limits::TREE_CHILDREN)
            };
            growth.iter().filter(|pair| !fits(*pair)).map(|(directory, _)| *directory).collect()
        };
        // Requests go out when they are made, so the answers of all take one round trip.
        let asked: Vec<_> =
            needed.iter().map(|directory| (directory, client.check_stat(directory))).collect();
        for (directory, stat) in asked {
            if let Some(stat) = stat.await? {
                self.note(directory, usize::try_from(stat.num_children).unwrap_or(0));
            }
        }
        Ok(())
    }

    /// The sizes as they change in the course of a multi.
    pub(super) fn plan(&self) -> Plan<'_> {
        Plan { known: self, sizes: HashMap::new() }
    }

    /// Counts what commits did.
    pub(super) fn count(&self, pieces: &[Piece]) {
        let mut sizes = self.0.lock();
        for op in pieces.iter().flat_map(|piece| &piece.ops) {
            let Some(size) = path::parent(op.path()).and_then(|parent| sizes.get_mut(parent)) else {
                continue;
            };
            match op {
                Op::Create { .. } => *size += 1,
                Op::Delete { .. } => *size = size.saturating_sub(1),
                Op::Set { .. } => {}
            }
        }
    }
}

/// See [`Directories::plan`].
pub(super) struct Plan<'a> {
    known: &'a Directories,
    sizes: HashMap<String, usize>,
}

impl Plan<'_> {
    /// Makes room for a node that is created. False when its directory is full.
    pub(super) fn grow(&mut self, path: &str) -> bool {
        let size = self.size(path);
        let fits = *size < limits::TREE_CHILDREN;
        *size += usize::from(fits);
        fits
    }

    /// Makes room by a node that is deleted.
    pub(super) fn shrink(&mut self, path: &str) {
        let size = self.size(path);
        *size = size.saturating_sub(1);
    }

    fn size(&mut self, path: &str) -> &mut usize {
        let directory = path::parent(path).unwrap_or("/");
        // A directory that is not there yet is empty when it arrives.
        let known = || self.known.0.lock().get(directory).copied().unwrap_or(0);
        self.sizes.entry(directory.to_owned()).or_insert_with(known)
    }
}
