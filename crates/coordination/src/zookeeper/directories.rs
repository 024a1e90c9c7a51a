//! Number of children of directories. The committer uses it to enforce the bound, because ZooKeeper has none.
//!
//! The size of a directory is read before the first creation in it in a session, and counted from then on. It is read
//! again before a creation is refused, and whenever the directory is listed. So the bound is exact where only this
//! session creates nodes, as below a slot, whose new owner lists it first. Nodes that other processes create in the
//! meantime are not counted: a directory may exceed the bound by their number.

use std::collections::HashMap;

use parking_lot::Mutex;
use zookeeper_client::{Client, Error as ZkError};

use super::pieces::Piece;
use super::{Op, path};
use angarium_core::limits;

/// Max number of remembered directories. There are 16,384 of claims, and one per project and slot.
const REMEMBERED: usize = 65_536;

/// Known sizes. The lock is held for single lookups: the committer counts, listings correct the count.
#[derive(Default)]
pub(super) struct Directories(Mutex<HashMap<String, usize>>);

impl Directories {
    /// Records the size of a directory that was read.
    pub(super) fn note(&self, directory: &str, children: usize) {
        let mut sizes = self.0.lock();
        if sizes.len() >= REMEMBERED {
            // Forgotten sizes are read again when they are needed.
            sizes.clear();
        }
        sizes.insert(directory.to_owned(), children);
    }

    /// Reads the sizes that these commits need and that are unknown or would exceed the bound.
    pub(super) async fn load(&self, client: &Client, pieces: &[Piece]) -> Result<(), ZkError> {
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
        // The client sends requests at creation, so all answers together take one round trip.
        let requests: Vec<_> =
            needed.iter().map(|directory| (directory, client.check_stat(directory))).collect();
        for (directory, stat) in requests {
            if let Some(stat) = stat.await? {
                self.note(directory, usize::try_from(stat.num_children).unwrap_or(0));
            }
        }
        Ok(())
    }

    /// Returns the sizes as they change in the course of a multi.
    pub(super) fn plan(&self) -> Plan<'_> {
        Plan { known: self, sizes: HashMap::new() }
    }

    /// Counts the changes of applied commits.
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

/// Directory sizes in the course of a multi.
pub(super) struct Plan<'a> {
    known: &'a Directories,
    sizes: HashMap<String, usize>,
}

impl Plan<'_> {
    /// Counts a created node. Returns false, without counting it, when its directory is full.
    pub(super) fn grow(&mut self, path: &str) -> bool {
        let size = self.size(path);
        let fits = *size < limits::TREE_CHILDREN;
        *size += usize::from(fits);
        fits
    }

    /// Counts a deleted node.
    pub(super) fn shrink(&mut self, path: &str) {
        let size = self.size(path);
        *size = size.saturating_sub(1);
    }

    fn size(&mut self, path: &str) -> &mut usize {
        let directory = path::parent(path).unwrap_or("/");
        // A directory that does not exist yet is empty when it is created.
        let known = || self.known.0.lock().get(directory).copied().unwrap_or(0);
        self.sizes.entry(directory.to_owned()).or_insert_with(known)
    }
}
