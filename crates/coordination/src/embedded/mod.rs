//! The tree in the journal, for a single process: ZooKeeper's rules and bounds without ZooKeeper.
//!
//! A commit is one piece of the committer's work, so commits of many callers share a sync and are decided one after the
//! other. The tree is not kept in memory: a hundred thousand queues cost disk, not memory. Each opening is a session,
//! and removes the ephemeral nodes of the session before.

mod listing;
mod staged;
mod stored;

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::watch::Watches;
use super::{
    CommitResult, Coordination, Fence, Link, Mode, Node, Op, Refusal, Session, Stat, TreeError, Watch,
    check_bounds, numbered, path,
};
use angarium_core::time::Timestamp;
use angarium_journal::{Journal, JournalError, Space, Txn};
pub use listing::nodes;
use staged::StagedCommit;

/// Starts a task that a tree needs beside its callers.
pub type TaskSpawn = Arc<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

/// The embedded tree.
pub struct EmbeddedTree {
    journal: Journal,
    watches: Arc<Watches>,
    session: watch::Sender<Session>,
    /// Tasks that notify the watchers of commits whose callers have left.
    tasks: TaskTracker,
    /// Starts these tasks; without it, the runtime of the caller does.
    spawn: Option<TaskSpawn>,
}

impl EmbeddedTree {
    /// Opens the tree in `journal`, and removes the ephemeral nodes that the last session left there. Open one handle
    /// at a time, because a handle notifies its watchers of its own commits only.
    pub async fn open(journal: Journal) -> Result<Self, TreeError> {
        let prefix = stored::ephemeral_prefix();
        let view = journal.view().map_err(not_sent)?;
        let keys = view.scan(Space::Tree, &prefix, &prefix);
        let paths = keys.map(|pair| pair.map(|(key, _)| String::from_utf8_lossy(&key[1..]).into_owned()));
        let paths: Vec<String> = paths.collect::<Result<_, _>>().map_err(not_sent)?;
        drop(view);
        if !paths.is_empty() {
            let remove = move |txn: &mut Txn<'_>| StagedCommit::begin(txn)?.remove_all(&paths);
            journal.commit(remove).await.map_err(not_sent)??;
        }
        let (session, _) = watch::channel(Session { generation: 1, link: Link::Connected });
        Ok(Self { journal, watches: Arc::default(), session, tasks: TaskTracker::new(), spawn: None })
    }

    /// Returns the tree with another way to start its tasks than the runtime of its callers: a simulation decides when
    /// each of them runs.
    pub fn with_spawn(self, spawn: TaskSpawn) -> Self {
        Self { spawn: Some(spawn), ..self }
    }

    /// Runs a read, which may wait for the disk, where the journal runs its reads.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Journal) -> Result<T, TreeError> + Send + 'static,
    ) -> Result<T, TreeError> {
        self.journal.read(read).await.map_err(not_sent)?
    }
}

fn node(journal: &Journal, path: &str) -> Result<Option<Node>, TreeError> {
    path::check(path)?;
    // A view hides a commit in flight. The next read must be consistent with this one.
    let view = journal.view().map_err(not_sent)?;
    let value = view.get(Space::Tree, &stored::node_key(path)).map_err(not_sent)?;
    let stored = value.as_ref().map(stored::decode).transpose()?;
    Ok(stored.map(|stored| stored.node).or_else(|| (path == "/").then(root)))
}

/// Returns the names of at most `max` children of `path` after the name `after`.
fn children(
    journal: &Journal,
    path: &str,
    after: Option<&str>,
    max: usize,
) -> Result<Vec<String>, TreeError> {
    path::check(path)?;
    let prefix = stored::children_prefix(path);
    let name = |key: Bytes| String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
    let mut from = prefix.clone();
    if let Some(after) = after {
        from.extend_from_slice(after.as_bytes());
        // The smallest key after that name.
        from.push(0);
    }
    let view = journal.view().map_err(not_sent)?;
    let pairs = view.scan(Space::Tree, &prefix, &from).take(max);
    pairs.map(|pair| pair.map(|(key, _)| name(key)).map_err(not_sent)).collect()
}

#[async_trait]
impl Coordination for EmbeddedTree {
    async fn get(&self, path: &str) -> Result<Option<Node>, TreeError> {
        let path = path.to_owned();
        self.read(move |journal| node(journal, &path)).await
    }

    async fn get_many(&self, paths: &[String]) -> Result<Vec<Option<Node>>, TreeError> {
        let paths = paths.to_vec();
        self.read(move |journal| paths.iter().map(|path| node(journal, path)).collect()).await
    }

    async fn children(&self, path: &str) -> Result<Vec<String>, TreeError> {
        self.children_behind(path, None, usize::MAX).await
    }

    /// Reads only the page.
    async fn children_behind(
        &self,
        path: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<String>, TreeError> {
        let (path, after) = (path.to_owned(), after.map(ToOwned::to_owned));
        self.read(move |journal| children(journal, &path, after.as_deref(), max)).await
    }

    async fn commit(&self, fences: &[Fence], ops: &[Op]) -> Result<CommitResult, TreeError> {
        check_bounds(fences, ops)?;
        let (fences, ops): (Vec<Fence>, Arc<[Op]>) = (fences.to_vec(), ops.into());
        let notifier = WatchNotifier { tree: self, ops: Some(Arc::clone(&ops)) };
        let work = move |txn: &mut Txn<'_>| {
            let mut staged = StagedCommit::begin(txn)?;
            staged.check(&fences)?;
            let committed = staged.apply(&ops)?;
            staged.write();
            Ok(committed)
        };
        let outcome = self.journal.commit(work).await.map_err(not_sent)?;
        notifier.notify(&outcome);
        outcome
    }

    fn watch_tree(&self, path: &str) -> Result<Watch, TreeError> {
        path::check(path)?;
        Ok(self.watches.open(path))
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.session.subscribe()
    }

    fn damage(&self) -> Option<(u64, String)> {
        self.journal.damage().map(|met| (met.reads, met.text))
    }

    fn check_open(&self) -> Result<(), TreeError> {
        self.journal.check_open().map_err(not_sent)
    }

    /// No other process can have taken anything, so an open journal is enough.
    fn check_lease(&self) -> Result<(), TreeError> {
        self.check_open()
    }

    fn keeps_time(&self) -> bool {
        false
    }

    /// The journal opens itself again after a failed write.
    fn check_alive(&self) -> Result<(), TreeError> {
        self.journal.check_alive().map_err(not_sent)
    }

    async fn close(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.watches.end();
    }
}

/// Notifies the watchers of the changes of a commit once it is durable, even if its caller has left by then.
struct WatchNotifier<'a> {
    tree: &'a EmbeddedTree,
    /// The operations; none once the watchers are notified.
    ops: Option<Arc<[Op]>>,
}

impl WatchNotifier<'_> {
    fn notify(mut self, outcome: &Result<CommitResult, TreeError>) {
        let ops = self.ops.take();
        if let (Some(ops), Ok(committed)) = (ops, outcome) {
            for (op, stat) in ops.iter().zip(committed) {
                match stat.and_then(|stat| stat.number) {
                    Some(number) => self.tree.watches.changed(&numbered(op.path(), number)),
                    None => self.tree.watches.changed(op.path()),
                }
            }
        }
    }
}

impl Drop for WatchNotifier<'_> {
    fn drop(&mut self) {
        let Some(ops) = self.ops.take().filter(|_| self.tree.watches.any()) else { return };
        // Outside of a runtime no watcher is left.
        let Ok(runtime) = Handle::try_current() else { return };
        let (journal, watches) = (self.tree.journal.clone(), Arc::clone(&self.tree.watches));
        let notify = async move {
            // The journal runs work in order. When this work is done, the commit is done too, unless it was refused.
            let _ = journal.commit(|_| ()).await;
            ops.iter().for_each(|op| watches.changed(parent_if_numbered(op)));
        };
        match &self.tree.spawn {
            Some(spawn) => spawn(Box::pin(self.tree.tasks.track_future(notify))),
            None => drop(self.tree.tasks.spawn_on(notify, &runtime)),
        }
    }
}

/// Returns the path to report. The number of a numbered node is unknown here, so its parent is reported.
fn parent_if_numbered(op: &Op) -> &str {
    match op {
        Op::Create { path, mode: Mode::Numbered, .. } => path::parent(path).unwrap_or("/"),
        op => op.path(),
    }
}

fn not_sent(error: JournalError) -> TreeError {
    match error {
        JournalError::Busy | JournalError::Closed(_) | JournalError::Read(_) => {
            TreeError::NotSent(error.to_string())
        }
        JournalError::Damaged(_) => TreeError::Damaged(error.to_string()),
        JournalError::Unknown(_) => TreeError::Unknown(error.to_string()),
    }
}

/// The root always exists, as in ZooKeeper.
fn root() -> Node {
    Node { data: Bytes::new(), version: 0, modified: 0, children: 0, time: Timestamp::default() }
}
