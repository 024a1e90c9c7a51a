//! The nodes of one server, and the evaluation of one commit against them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use angarium_coordination::{CommitResult, Fence, Mode, Node, Op, Refusal, Stat, TreeError, numbered};
use angarium_core::limits;
use angarium_core::time::Timestamp;
use bytes::Bytes;

/// Number of a session at the leader. It grows, and no two sessions share one.
pub(super) type SessionId = u64;

/// A stored node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeState {
    pub(super) data: Bytes,
    pub(super) version: u32,
    /// The transaction that last set its data.
    pub(super) modified: u64,
    /// The transaction that created it.
    pub(super) created: u64,
    pub(super) time: Timestamp,
    /// The session of an ephemeral node.
    pub(super) owner: Option<SessionId>,
    pub(super) children: u32,
    /// The number of the next numbered child.
    pub(super) next_child: u64,
}

impl NodeState {
    fn node(&self) -> Node {
        Node {
            data: self.data.clone(),
            version: self.version,
            modified: self.modified,
            children: self.children,
            time: self.time,
        }
    }
}

/// One committed change of the tree, as every server applies it.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) zxid: u64,
    /// The new state of each changed node; none for a deleted one.
    pub(super) nodes: BTreeMap<String, Option<NodeState>>,
    /// Paths of the created, set and deleted nodes, in the order of the operations.
    pub(super) paths: Vec<String>,
    /// The session that this transaction ends.
    pub(super) ended: Option<SessionId>,
}

/// All nodes, as one server has them.
pub(super) struct Nodes {
    nodes: BTreeMap<String, NodeState>,
    /// The names of the children of each node that has some.
    names: BTreeMap<String, BTreeSet<String>>,
}

impl Nodes {
    /// The tree at its start: the root alone.
    pub(super) fn new() -> Self {
        let nodes = BTreeMap::from([("/".to_owned(), NodeState::default())]);
        Self { nodes, names: BTreeMap::new() }
    }

    pub(super) fn get(&self, path: &str) -> Option<Node> {
        self.nodes.get(path).map(NodeState::node)
    }

    /// Returns the names of at most `max` children of `path` after the name `after`.
    pub(super) fn children_behind(&self, path: &str, after: Option<&str>, max: usize) -> Vec<String> {
        let Some(names) = self.names.get(path) else { return Vec::new() };
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        names.range::<str, _>((begin, Bound::Unbounded)).take(max).cloned().collect()
    }

    /// Returns the paths of the ephemeral nodes of a session.
    pub(super) fn owned_by(&self, session: SessionId) -> Vec<String> {
        let owned = self.nodes.iter().filter(|(_, node)| node.owner == Some(session));
        owned.map(|(path, _)| path.clone()).collect()
    }

    /// Returns the data of each node.
    pub(super) fn data(&self) -> BTreeMap<String, Bytes> {
        self.nodes.iter().map(|(path, node)| (path.clone(), node.data.clone())).collect()
    }

    pub(super) fn apply(&mut self, transaction: &Transaction) {
        for (path, state) in &transaction.nodes {
            match state {
                Some(state) => self.put(path, state.clone()),
                None => self.remove(path),
            }
        }
    }

    fn put(&mut self, path: &str, state: NodeState) {
        if self.nodes.insert(path.to_owned(), state).is_none()
            && let Some((parent, name)) = split(path)
        {
            self.names.entry(parent.to_owned()).or_default().insert(name.to_owned());
        }
    }

    fn remove(&mut self, path: &str) {
        self.nodes.remove(path);
        let Some((parent, name)) = split(path) else { return };
        if let Some(names) = self.names.get_mut(parent) {
            names.remove(name);
            if names.is_empty() {
                self.names.remove(parent);
            }
        }
    }
}

/// Returns the path of the parent and the name; none for the root.
fn split(path: &str) -> Option<(&str, &str)> {
    match path.rsplit_once('/')? {
        ("", "") => None,
        ("", name) => Some(("/", name)),
        (parent, name) => Some((parent, name)),
    }
}

/// The staged changes of one commit, with the rules of the embedded tree.
pub(super) struct StagedCommit<'a> {
    nodes: &'a Nodes,
    session: SessionId,
    now: Timestamp,
    changes: Transaction,
}

impl<'a> StagedCommit<'a> {
    pub(super) fn begin(nodes: &'a Nodes, session: SessionId, zxid: u64, now: Timestamp) -> Self {
        let changes = Transaction { zxid, nodes: BTreeMap::new(), paths: Vec::new(), ended: None };
        Self { nodes, session, now, changes }
    }

    fn stored(&self, path: &str) -> Option<&NodeState> {
        match self.changes.nodes.get(path) {
            Some(staged) => staged.as_ref(),
            None => self.nodes.nodes.get(path),
        }
    }

    fn stage(&mut self, path: &str, state: Option<NodeState>) {
        self.changes.nodes.insert(path.to_owned(), state);
    }

    pub(super) fn check(&self, fences: &[Fence]) -> Result<(), TreeError> {
        let fails = |fence: &Fence| self.stored(&fence.path).is_none_or(|node| node.version != fence.version);
        fences.iter().position(fails).map_or(Ok(()), |index| Err(TreeError::Fenced(index)))
    }

    pub(super) fn apply(&mut self, ops: &[Op]) -> Result<CommitResult, TreeError> {
        let mut committed = Vec::with_capacity(ops.len());
        for (op_index, op) in ops.iter().enumerate() {
            let stat = match op {
                Op::Create { path, data, mode } => self.create(path, data, *mode),
                Op::Set { path, data, version } => self.set(path, data, *version).map(Some),
                Op::Delete { path } => self.delete(path).map(|()| None),
            };
            committed.push(stat.map_err(|why| TreeError::Refused { op: op_index, why })?);
        }
        Ok(committed)
    }

    fn create(&mut self, path: &str, data: &Bytes, mode: Mode) -> Result<Option<Stat>, Refusal> {
        let (path, number) = match mode {
            Mode::Persistent | Mode::Ephemeral => (path.to_owned(), None),
            Mode::Numbered => self.free_number(path)?,
        };
        if self.stored(&path).is_some() {
            return Err(Refusal::NodeExists);
        }
        let (parent_path, _) = split(&path).ok_or(Refusal::NoNode)?;
        let mut parent = self.stored(parent_path).ok_or(Refusal::NoNode)?.clone();
        if parent.owner.is_some() {
            return Err(Refusal::NoNode);
        }
        if parent.children as usize >= limits::TREE_CHILDREN {
            return Err(Refusal::Full);
        }
        parent.children += 1;
        parent.next_child = number.map_or(parent.next_child, |number| number.max(parent.next_child)) + 1;
        self.stage(parent_path, Some(parent));
        let zxid = self.changes.zxid;
        let node = NodeState {
            data: data.clone(),
            modified: zxid,
            created: zxid,
            time: self.now,
            owner: (mode != Mode::Persistent).then_some(self.session),
            ..NodeState::default()
        };
        self.stage(&path, Some(node));
        self.changes.paths.push(path);
        Ok(number.map(|number| Stat { version: 0, modified: zxid, number: Some(number) }))
    }

    /// Returns the path and the number of a new numbered node: the next free number of its directory.
    fn free_number(&self, path: &str) -> Result<(String, Option<u64>), Refusal> {
        let (parent, _) = split(path).ok_or(Refusal::NoNode)?;
        let mut number = self.stored(parent).ok_or(Refusal::NoNode)?.next_child;
        loop {
            let named = numbered(path, number);
            if self.stored(&named).is_none() {
                return Ok((named, Some(number)));
            }
            number += 1;
        }
    }

    fn set(&mut self, path: &str, data: &Bytes, version: Option<u32>) -> Result<Stat, Refusal> {
        let mut node = self.stored(path).ok_or(Refusal::NoNode)?.clone();
        if version.is_some_and(|version| version != node.version) {
            return Err(Refusal::BadVersion);
        }
        node.version += 1;
        node.modified = self.changes.zxid;
        node.time = self.now;
        node.data = data.clone();
        let stat = Stat { version: node.version, modified: node.modified, number: None };
        self.stage(path, Some(node));
        self.changes.paths.push(path.to_owned());
        Ok(stat)
    }

    fn delete(&mut self, path: &str) -> Result<(), Refusal> {
        if self.stored(path).ok_or(Refusal::NoNode)?.children > 0 {
            return Err(Refusal::NotEmpty);
        }
        let (parent_path, _) = split(path).ok_or(Refusal::NoNode)?;
        let mut parent = self.stored(parent_path).ok_or(Refusal::NoNode)?.clone();
        parent.children = parent.children.saturating_sub(1);
        self.stage(parent_path, Some(parent));
        self.stage(path, None);
        self.changes.paths.push(path.to_owned());
        Ok(())
    }

    /// Deletes the ephemeral nodes of the session, which ends.
    pub(super) fn end_session(&mut self, owned: &[String]) -> Result<(), Refusal> {
        self.changes.ended = Some(self.session);
        owned.iter().try_for_each(|path| self.delete(path))
    }

    pub(super) fn finish(self) -> Transaction {
        self.changes
    }
}
