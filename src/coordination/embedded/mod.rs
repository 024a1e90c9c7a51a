//! The tree in the journal, for a process alone: ZooKeeper's rules and bounds without ZooKeeper.
//!
//! A commit is one piece of the committer's work, so commits of many callers share a sync and are decided one
//! after the other. There is no copy of the tree in memory: a hundred thousand queues cost disk, not memory.

mod stored;

use std::collections::HashMap;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Committed, Coordination, Fence, Node, Op, Refusal, Stat, TreeError, check_bounds, path};
use crate::domain::limits;
use crate::journal::{Journal, JournalError, Space, Txn};

/// The embedded tree.
pub struct EmbeddedTree {
    journal: Journal,
}

impl EmbeddedTree {
    /// The tree in `journal`.
    pub fn new(journal: Journal) -> Self {
        Self { journal }
    }
}

#[async_trait]
impl Coordination for EmbeddedTree {
    async fn get(&self, path: &str) -> Result<Option<Node>, TreeError> {
        path::check(path)?;
        let value = self.journal.get(Space::Tree, &stored::node_key(path)).map_err(not_sent)?;
        let node = value.as_ref().map(stored::decode).transpose()?;
        Ok(node.or_else(|| (path == "/").then(root)))
    }

    async fn children(&self, path: &str) -> Result<Vec<String>, TreeError> {
        path::check(path)?;
        let prefix = stored::children_prefix(path);
        let name = |key: Bytes| String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
        let view = self.journal.view().map_err(not_sent)?;
        let pairs = view.scan(Space::Tree, &prefix, &prefix);
        pairs.map(|pair| pair.map(|(key, _)| name(key)).map_err(not_sent)).collect()
    }

    async fn commit(&self, fences: &[Fence], ops: &[Op]) -> Result<Committed, TreeError> {
        check_bounds(fences, ops)?;
        let (fences, ops) = (fences.to_vec(), ops.to_vec());
        let work = move |txn: &mut Txn<'_>| {
            let mut staged = Staged::begin(txn)?;
            staged.check(&fences)?;
            let committed = staged.apply(&ops)?;
            staged.write();
            Ok(committed)
        };
        self.journal.commit(work).await.map_err(not_sent)?
    }

    fn check_open(&self) -> Result<(), TreeError> {
        self.journal.check_open().map_err(not_sent)
    }

    /// A journal that a failed write has closed stays closed.
    fn check_alive(&self) -> Result<(), TreeError> {
        self.check_open()
    }
}

fn not_sent(error: JournalError) -> TreeError {
    match error {
        JournalError::Busy | JournalError::Closed(_) | JournalError::Read(_) => {
            TreeError::NotSent(error.to_string())
        }
        JournalError::Unknown(_) => TreeError::Unknown(error.to_string()),
    }
}

/// The root exists from the start, as in ZooKeeper.
fn root() -> Node {
    Node { data: Bytes::new(), version: 0, modified: 0, children: 0 }
}

/// The changes of one commit, held back until all of them are known to be good.
struct Staged<'t, 'a> {
    txn: &'t mut Txn<'a>,
    nodes: HashMap<String, Option<Node>>,
    /// The number of this commit.
    transaction: u64,
}

impl<'t, 'a> Staged<'t, 'a> {
    fn begin(txn: &'t mut Txn<'a>) -> Result<Self, TreeError> {
        let last = txn.get(Space::Tree, stored::TRANSACTION_KEY).map_err(not_sent)?;
        let transaction = stored::decode_transaction(last.as_deref())? + 1;
        Ok(Self { txn, nodes: HashMap::new(), transaction })
    }

    fn node(&self, path: &str) -> Result<Option<Node>, TreeError> {
        if let Some(staged) = self.nodes.get(path) {
            return Ok(staged.clone());
        }
        let value = self.txn.get(Space::Tree, &stored::node_key(path)).map_err(not_sent)?;
        let node = value.as_ref().map(stored::decode).transpose()?;
        Ok(node.or_else(|| (path == "/").then(root)))
    }

    fn check(&self, fences: &[Fence]) -> Result<(), TreeError> {
        for (index, fence) in fences.iter().enumerate() {
            if self.node(&fence.path)?.is_none_or(|node| node.version != fence.version) {
                return Err(TreeError::Fenced(index));
            }
        }
        Ok(())
    }

    fn apply(&mut self, ops: &[Op]) -> Result<Committed, TreeError> {
        let mut committed = Vec::with_capacity(ops.len());
        for (index, op) in ops.iter().enumerate() {
            committed.push(match op {
                Op::Create { path, data } => self.create(index, path, data)?,
                Op::Set { path, data, version } => Some(self.set(index, path, data, *version)?),
                Op::Delete { path } => self.delete(index, path)?,
            });
        }
        Ok(committed)
    }

    fn create(&mut self, op: usize, path: &str, data: &Bytes) -> Result<Option<Stat>, TreeError> {
        let refused = |why| Err(TreeError::Refused { op, why });
        if self.node(path)?.is_some() {
            return refused(Refusal::NodeExists);
        }
        let Some((parent_path, mut parent)) = self.parent(path)? else { return refused(Refusal::NoNode) };
        if parent.children as usize >= limits::TREE_CHILDREN {
            return refused(Refusal::Full);
        }
        parent.children += 1;
        self.nodes.insert(parent_path, Some(parent));
        let node = Node { data: data.clone(), version: 0, modified: self.transaction, children: 0 };
        self.nodes.insert(path.to_owned(), Some(node));
        Ok(None)
    }

    fn set(&mut self, op: usize, path: &str, data: &Bytes, version: Option<u32>) -> Result<Stat, TreeError> {
        let refused = |why| Err(TreeError::Refused { op, why });
        let Some(mut node) = self.node(path)? else { return refused(Refusal::NoNode) };
        if version.is_some_and(|version| version != node.version) {
            return refused(Refusal::BadVersion);
        }
        node.version += 1;
        node.modified = self.transaction;
        node.data = data.clone();
        let stat = Stat { version: node.version, modified: node.modified };
        self.nodes.insert(path.to_owned(), Some(node));
        Ok(stat)
    }

    fn delete(&mut self, op: usize, path: &str) -> Result<Option<Stat>, TreeError> {
        let refused = |why| Err(TreeError::Refused { op, why });
        let Some(node) = self.node(path)? else { return refused(Refusal::NoNode) };
        if node.children > 0 {
            return refused(Refusal::NotEmpty);
        }
        let Some((parent_path, mut parent)) = self.parent(path)? else { return refused(Refusal::NoNode) };
        parent.children = parent.children.saturating_sub(1);
        self.nodes.insert(parent_path, Some(parent));
        self.nodes.insert(path.to_owned(), None);
        Ok(None)
    }

    fn parent(&self, path: &str) -> Result<Option<(String, Node)>, TreeError> {
        let Some(parent) = path::parent(path) else { return Ok(None) };
        Ok(self.node(parent)?.map(|node| (parent.to_owned(), node)))
    }

    fn write(self) {
        if self.nodes.is_empty() {
            return;
        }
        for (path, node) in self.nodes {
            let key = stored::node_key(&path);
            match node {
                Some(node) => self.txn.put(Space::Tree, key, stored::encode(&node)),
                None => self.txn.remove(Space::Tree, key),
            }
        }
        let transaction = Bytes::copy_from_slice(&self.transaction.to_be_bytes());
        self.txn.put(Space::Tree, Bytes::from_static(stored::TRANSACTION_KEY), transaction);
    }
}
