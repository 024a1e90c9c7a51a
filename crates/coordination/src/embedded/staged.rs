//! The changes of one commit, held back until every fence and operation is checked.

use std::collections::HashMap;

use bytes::Bytes;

use super::stored::{self, StoredNode};
use super::{CommitResult, Fence, Mode, Node, Op, Refusal, Stat, TreeError, not_sent, numbered, path, root};
use angarium_core::limits;
use angarium_core::time::Timestamp;
use angarium_journal::{Space, Txn};

/// The staged changes of one commit.
pub(super) struct StagedCommit<'t, 'a> {
    txn: &'t mut Txn<'a>,
    nodes: HashMap<String, Option<StoredNode>>,
    /// Paths of nodes whose ephemeral state changes, with the new state.
    ephemerals: Vec<(String, bool)>,
    /// The number of this commit.
    transaction: u64,
    now: Timestamp,
}

impl<'t, 'a> StagedCommit<'t, 'a> {
    pub(super) fn begin(txn: &'t mut Txn<'a>) -> Result<Self, TreeError> {
        let last = txn.get(Space::Tree, stored::TRANSACTION_KEY).map_err(not_sent)?;
        let transaction = stored::decode_transaction(last.as_deref())? + 1;
        let now = txn.now();
        Ok(Self { txn, nodes: HashMap::new(), ephemerals: Vec::new(), transaction, now })
    }

    fn stored(&self, path: &str) -> Result<Option<StoredNode>, TreeError> {
        if let Some(staged) = self.nodes.get(path) {
            return Ok(staged.clone());
        }
        let value = self.txn.get(Space::Tree, &stored::node_key(path)).map_err(not_sent)?;
        let stored = value.as_ref().map(stored::decode).transpose()?;
        Ok(stored.or_else(|| (path == "/").then(|| StoredNode { node: root(), is_ephemeral: false })))
    }

    pub(super) fn check(&self, fences: &[Fence]) -> Result<(), TreeError> {
        for (index, fence) in fences.iter().enumerate() {
            if self.stored(&fence.path)?.is_none_or(|stored| stored.node.version != fence.version) {
                return Err(TreeError::Fenced(index));
            }
        }
        Ok(())
    }

    pub(super) fn apply(&mut self, ops: &[Op]) -> Result<CommitResult, TreeError> {
        let mut committed = Vec::with_capacity(ops.len());
        for (index, op) in ops.iter().enumerate() {
            committed.push(match op {
                Op::Create { path, data, mode } => self.create(index, path, data, *mode)?,
                Op::Set { path, data, version } => Some(self.set(index, path, data, *version)?),
                Op::Delete { path } => self.delete(index, path)?,
            });
        }
        Ok(committed)
    }

    fn create(&mut self, op: usize, path: &str, data: &Bytes, mode: Mode) -> Result<Option<Stat>, TreeError> {
        let refused = |why| Err(TreeError::Refused { op, why });
        let (path, number) = match mode {
            Mode::Persistent | Mode::Ephemeral => (path.to_owned(), None),
            Mode::Numbered => self.free_number(path)?,
        };
        if self.stored(&path)?.is_some() {
            return refused(Refusal::NodeExists);
        }
        let Some((parent_path, mut parent)) = self.parent(&path)? else { return refused(Refusal::NoNode) };
        if parent.is_ephemeral {
            return refused(Refusal::NoNode);
        }
        if parent.node.children as usize >= limits::TREE_CHILDREN {
            return refused(Refusal::Full);
        }
        parent.node.children += 1;
        self.nodes.insert(parent_path, Some(parent));
        let (modified, time) = (self.transaction, self.now);
        let node = Node { data: data.clone(), version: 0, modified, children: 0, time };
        let is_ephemeral = mode != Mode::Persistent;
        if is_ephemeral {
            self.ephemerals.push((path.clone(), true));
        }
        self.nodes.insert(path, Some(StoredNode { node, is_ephemeral }));
        Ok(number.map(|_| Stat { version: 0, modified, number }))
    }

    /// Returns the path and the number of a new numbered node. The number is the transaction, which only grows; further
    /// numbered nodes of the same commit get the next free numbers.
    fn free_number(&self, path: &str) -> Result<(String, Option<u64>), TreeError> {
        let mut number = self.transaction;
        loop {
            let named = numbered(path, number);
            if self.stored(&named)?.is_none() {
                return Ok((named, Some(number)));
            }
            number += 1;
        }
    }

    fn set(&mut self, op: usize, path: &str, data: &Bytes, version: Option<u32>) -> Result<Stat, TreeError> {
        let refused = |why| Err(TreeError::Refused { op, why });
        let Some(mut stored) = self.stored(path)? else { return refused(Refusal::NoNode) };
        let node = &mut stored.node;
        if version.is_some_and(|version| version != node.version) {
            return refused(Refusal::BadVersion);
        }
        node.version += 1;
        node.modified = self.transaction;
        node.time = self.now;
        node.data = data.clone();
        let stat = Stat { version: node.version, modified: node.modified, number: None };
        self.nodes.insert(path.to_owned(), Some(stored));
        Ok(stat)
    }

    fn delete(&mut self, op: usize, path: &str) -> Result<Option<Stat>, TreeError> {
        let refused = |why| Err(TreeError::Refused { op, why });
        let Some(stored) = self.stored(path)? else { return refused(Refusal::NoNode) };
        if stored.node.children > 0 {
            return refused(Refusal::NotEmpty);
        }
        let Some((parent_path, mut parent)) = self.parent(path)? else { return refused(Refusal::NoNode) };
        parent.node.children = parent.node.children.saturating_sub(1);
        self.nodes.insert(parent_path, Some(parent));
        if stored.is_ephemeral {
            self.ephemerals.push((path.to_owned(), false));
        }
        self.nodes.insert(path.to_owned(), None);
        Ok(None)
    }

    fn parent(&self, path: &str) -> Result<Option<(String, StoredNode)>, TreeError> {
        let Some(parent) = path::parent(path) else { return Ok(None) };
        Ok(self.stored(parent)?.map(|stored| (parent.to_owned(), stored)))
    }

    /// Deletes the ephemeral nodes of a session that has ended.
    pub(super) fn remove_all(mut self, paths: &[String]) -> Result<(), TreeError> {
        for path in paths {
            if self.stored(path)?.is_some_and(|stored| stored.is_ephemeral) {
                self.delete(0, path)?;
            }
        }
        self.write();
        Ok(())
    }

    /// Passes the changes to the journal.
    pub(super) fn write(self) {
        if self.nodes.is_empty() {
            return;
        }
        for (path, stored) in self.nodes {
            let key = stored::node_key(&path);
            match stored {
                Some(stored) => self.txn.put(Space::Tree, key, stored::encode(&stored)),
                None => self.txn.remove(Space::Tree, key),
            }
        }
        for (path, is_ephemeral) in self.ephemerals {
            let key = stored::ephemeral_key(&path);
            if is_ephemeral {
                self.txn.put(Space::Tree, key, Bytes::new())
            } else {
                self.txn.remove(Space::Tree, key)
            }
        }
        let transaction = Bytes::copy_from_slice(&self.transaction.to_be_bytes());
        self.txn.put(Space::Tree, Bytes::from_static(stored::TRANSACTION_KEY), transaction);
    }
}
