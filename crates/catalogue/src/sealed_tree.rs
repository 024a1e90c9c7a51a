//! The tree with its sealed values: reads open them, and commits seal the values of secret nodes.
//!
//! `/meta/seal` begins the sealing, in a commit that sets `/meta/system` too. Before that, each commit with a secret is
//! fenced by the version of `/meta/system` under which `/meta/seal` was missed. So no secret is written in the clear
//! after the sealing has begun, by a replica that has not learned of it either.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch::Receiver;

use super::layout;
use super::sealing::{SealRecord, no_key};
use super::system::System;
use angarium_coordination::{CommitResult, Coordination, Fence, Node, Op, Session, TreeError, Watch};
use angarium_core::limits;
use angarium_sealing::{DataKey, KeyRing, is_sealed};

/// Max attempts of a commit while other replicas join and pools are added.
const TRIES: usize = 8;

/// A tree in which the values of secret nodes may be sealed.
pub(super) struct SealedTree {
    stored: Arc<dyn Coordination>,
    keys: Option<KeyRing>,
    data_key: OnceLock<DataKey>,
    /// Whether every secret is sealed, as this process knows. That is never taken back.
    is_whole: AtomicBool,
    /// Number of sealed values that did not open, and a text about the last one. The lock is held for single accesses.
    damage: Mutex<Option<(u64, String)>>,
}

/// Whether secrets are written sealed.
enum Sealing<'a> {
    Begun(&'a DataKey),
    /// Not yet at this version of `/meta/system`; none when the tree has no installation.
    NotBegun(Option<u32>),
}

impl SealedTree {
    pub(super) fn new(stored: Arc<dyn Coordination>, keys: Option<KeyRing>) -> Self {
        let (is_whole, damage) = (AtomicBool::new(false), Mutex::default());
        Self { stored, keys, data_key: OnceLock::new(), is_whole, damage }
    }

    /// The nodes as they are stored.
    pub(super) fn stored(&self) -> &Arc<dyn Coordination> {
        &self.stored
    }

    pub(super) fn keys(&self) -> Option<&KeyRing> {
        self.keys.as_ref()
    }

    /// See [`Coordination::get`]. A sealed value is returned as it was before it was sealed. In a tree in which every
    /// secret is sealed, one in the clear is refused.
    pub(super) async fn get(&self, path: &str) -> Result<Option<Node>, TreeError> {
        match self.stored.get(path).await? {
            Some(node) if layout::is_secret(path) => {
                let is_whole = self.is_whole().await?;
                self.opened(path, node, is_whole).await
            }
            found => Ok(found),
        }
    }

    /// See [`Coordination::get_many`], and [`SealedTree::get`].
    pub(super) async fn get_many(&self, paths: &[String]) -> Result<Vec<Option<Node>>, TreeError> {
        let mut nodes = self.stored.get_many(paths).await?;
        let mut is_whole = None;
        for (path, found) in paths.iter().zip(&mut nodes).filter(|(path, _)| layout::is_secret(path)) {
            let Some(node) = found.take() else { continue };
            let is_whole = match is_whole {
                Some(is_whole) => is_whole,
                None => *is_whole.insert(self.is_whole().await?),
            };
            *found = self.opened(path, node, is_whole).await?;
        }
        Ok(nodes)
    }

    /// Returns whether every secret of the tree is sealed. Reads the record until it states that, if a key is named.
    async fn is_whole(&self) -> Result<bool, TreeError> {
        if self.is_whole.load(Ordering::Acquire) {
            return Ok(true);
        }
        let Some(ring) = &self.keys else { return Ok(false) };
        let Some(node) = self.stored.get(layout::SEAL).await? else { return Ok(false) };
        let record = SealRecord::read(&node)?;
        let Some(system) = self.stored.get(layout::SYSTEM).await?.filter(|_| record.is_whole()) else {
            return Ok(false);
        };
        // A record that does not open proves nothing: a process may have the key from before a change only.
        let is_whole = record.open(ring, System::read(&system)?.id).is_ok();
        self.is_whole.fetch_or(is_whole, Ordering::AcqRel);
        Ok(is_whole)
    }

    /// Returns a node with its open value; none when it is gone meanwhile.
    async fn opened(&self, path: &str, node: Node, is_whole: bool) -> Result<Option<Node>, TreeError> {
        let node = if is_sealed(&node.data) || !is_whole {
            node
        } else {
            // It may have been read before it was sealed.
            match self.stored.get(path).await? {
                None => return Ok(None),
                Some(node) if is_sealed(&node.data) => node,
                Some(_) => return Err(self.replaced(path)),
            }
        };
        if !is_sealed(&node.data) {
            return Ok(Some(node));
        }
        let key = self.unlocked().await?.ok_or_else(|| not_begun(path))?;
        let Some(data) = key.open(path, &node.data) else { return Err(self.damaged(path)) };
        Ok(Some(Node { data: data.into(), ..node }))
    }

    fn replaced(&self, path: &str) -> TreeError {
        self.note_damage(format!(
            "the value of the node {path} is in the clear although every secret of the tree was sealed: another client has \
             replaced it. If it is right, run `angarium tree seal`"
        ))
    }

    fn damaged(&self, path: &str) -> TreeError {
        self.note_damage(format!(
            "the sealed value of the node {path} does not open: it was changed, or is that of another node"
        ))
    }

    fn note_damage(&self, why: String) -> TreeError {
        let mut damage = self.damage.lock();
        let reads = damage.as_ref().map_or(0, |(reads, _)| *reads);
        *damage = Some((reads + 1, why.clone()));
        TreeError::Damaged(why)
    }

    /// See [`Coordination::commit`]. Values of secret nodes are sealed once the sealing has begun.
    pub(super) async fn commit(&self, fences: &[Fence], ops: &[Op]) -> Result<CommitResult, TreeError> {
        if !ops.iter().any(holds_secret) {
            return self.stored.commit(fences, ops).await;
        }
        for _ in 0..TRIES {
            let version = match self.sealing().await? {
                Sealing::Begun(key) => return self.stored.commit(fences, &sealed(key, ops)?).await,
                Sealing::NotBegun(None) => return self.stored.commit(fences, ops).await,
                Sealing::NotBegun(Some(version)) => version,
            };
            let not_begun = Fence { path: layout::SYSTEM.into(), version };
            let guarded: Vec<Fence> = fences.iter().cloned().chain([not_begun]).collect();
            match self.stored.commit(&guarded, ops).await {
                Err(TreeError::Fenced(fence)) if fence == fences.len() => self.stored.sync().await?,
                done => return done,
            }
        }
        Err(TreeError::NotSent("the record of the installation changes all the time".into()))
    }

    async fn sealing(&self) -> Result<Sealing<'_>, TreeError> {
        if let Some(key) = self.data_key.get() {
            return Ok(Sealing::Begun(key));
        }
        // Read first: a sealing that begins after the second read changes the version.
        let system = self.stored.get(layout::SYSTEM).await?;
        match self.unlocked().await? {
            Some(key) => Ok(Sealing::Begun(key)),
            None => Ok(Sealing::NotBegun(system.map(|node| node.version))),
        }
    }

    /// Returns the data key; none when the sealing has not begun.
    ///
    /// # Errors
    ///
    /// When the keys do not open it.
    pub(super) async fn unlocked(&self) -> Result<Option<&DataKey>, TreeError> {
        if let Some(key) = self.data_key.get() {
            return Ok(Some(key));
        }
        let Some(node) = self.stored.get(layout::SEAL).await? else { return Ok(None) };
        let record = SealRecord::read(&node)?;
        let ring = self.keys.as_ref().ok_or_else(|| no_key(&record))?;
        let system = self.stored.get(layout::SYSTEM).await?;
        let system = system.ok_or_else(|| TreeError::NotSent("the tree is empty".into()))?;
        let key = record.open(ring, System::read(&system)?.id)?;
        Ok(Some(self.data_key.get_or_init(|| key)))
    }

    /// Notes the key of a sealing that this process has begun or ended.
    pub(super) fn unlock(&self, key: DataKey, is_whole: bool) {
        self.data_key.get_or_init(|| key);
        self.is_whole.fetch_or(is_whole, Ordering::AcqRel);
    }

    /// Returns a warning about secrets in the clear although a key is named.
    pub(super) fn clear_warning(&self) -> Option<String> {
        const MEND: &str = "run `angarium tree seal`";
        if self.data_key.get().is_none() {
            return self.keys.as_ref().map(|_| {
                format!("the secrets in the tree are in the clear although --secret-key-file is set: {MEND}")
            });
        }
        let is_whole = self.is_whole.load(Ordering::Acquire);
        (!is_whole)
            .then(|| format!("secrets in the tree may be in the clear, their sealing has not ended: {MEND}"))
    }
}

/// The other methods of the tree, see [`Coordination`].
impl SealedTree {
    pub(super) async fn children(&self, path: &str) -> Result<Vec<String>, TreeError> {
        self.stored.children(path).await
    }

    pub(super) async fn children_behind(
        &self,
        path: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<String>, TreeError> {
        self.stored.children_behind(path, after, max).await
    }

    pub(super) async fn sync(&self) -> Result<(), TreeError> {
        self.stored.sync().await
    }

    pub(super) fn watch_tree(&self, path: &str) -> Result<Watch, TreeError> {
        self.stored.watch_tree(path)
    }

    pub(super) fn session(&self) -> Receiver<Session> {
        self.stored.session()
    }

    pub(super) fn session_timeout(&self) -> Option<Duration> {
        self.stored.session_timeout()
    }

    pub(super) fn damage(&self) -> Option<(u64, String)> {
        let (own, below) = (self.damage.lock().clone(), self.stored.damage());
        match (own, below) {
            (Some((own, text)), Some((below, more))) => Some((own + below, format!("{text}; {more}"))),
            (own, below) => own.or(below),
        }
    }

    pub(super) fn warning(&self) -> Option<String> {
        self.stored.warning()
    }

    pub(super) fn check_open(&self) -> Result<(), TreeError> {
        self.stored.check_open()
    }

    pub(super) fn check_lease(&self) -> Result<(), TreeError> {
        self.stored.check_lease()
    }

    pub(super) fn keeps_time(&self) -> bool {
        self.stored.keeps_time()
    }

    pub(super) fn check_alive(&self) -> Result<(), TreeError> {
        self.stored.check_alive()
    }
}

fn holds_secret(op: &Op) -> bool {
    !matches!(op, Op::Delete { .. }) && layout::is_secret(op.path())
}

/// Returns the operations with the values of secret nodes sealed.
fn sealed(key: &DataKey, ops: &[Op]) -> Result<Vec<Op>, TreeError> {
    let seal = |op: &Op| {
        let mut op = op.clone();
        if holds_secret(&op)
            && let Op::Create { path, data, .. } | Op::Set { path, data, .. } = &mut op
        {
            *data = sealed_value(key, path, data)?.into();
        }
        Ok(op)
    };
    ops.iter().map(seal).collect()
}

/// Returns the sealed form of a value, which must fit into a node.
pub(super) fn sealed_value(key: &DataKey, path: &str, data: &[u8]) -> Result<Vec<u8>, TreeError> {
    let sealed = key.seal(path, data);
    if sealed.len() > limits::TREE_VALUE_BYTES {
        return Err(TreeError::Bounds("more than 96 KiB in a value that is sealed"));
    }
    Ok(sealed)
}

fn not_begun(path: &str) -> TreeError {
    TreeError::Damaged(format!("the value of the node {path} is sealed, and {} is missing", layout::SEAL))
}
