//! The tree in Apache ZooKeeper: one session at a time, rebuilt when it expires, and one commit under way in it.
//!
//! This is the one home of the `zookeeper-client` crate, and it owns what that leaves to its user: no bound on
//! what waits, no deadline, no size check, operations that outlive their futures, and a client that ends with its
//! session. What a caller is told about a commit is true even when connections break: see [`committer`].
//!
//! Paths below the root that the address names are the tree's. Of its own this part keeps `/run/writers/{session}`:
//! ephemeral, made with each session, holding the number of the session's last commit.

mod address;
mod committer;
mod directories;
mod errors;
mod keeper;
mod lease;
pub mod limits;
mod multi;
mod pieces;
mod reachability;
mod recall;
mod session;
mod watches;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::{info, warn};
use zookeeper_client::Error as ZkError;

pub use address::Address;

use super::watch::Mailbox;
use super::{
    CommitResult, Coordination, Fence, Link, Mode, Node, Op, Refusal, Session, Stat, TreeError, Watch,
    check_bounds, path, size,
};
use angarium_core::limits as core_limits;
use angarium_core::time::{Timestamp, millis};
use keeper::Shared;
use pieces::{PendingPieces, Piece};
use session::Session as Live;

/// How patient the tree is.
#[derive(Clone, Copy, Debug)]
pub struct ZooKeeperTimeouts {
    /// The session timeout to ask for. Servers grant 2 to 20 of their ticks.
    pub session: Duration,
    /// An operation without an answer after this time has failed.
    pub operation: Duration,
    /// How long the first session may take.
    pub start: Duration,
    /// Commits of a session after which it uses another node to number them.
    pub writer_commits: i32,
}

impl Default for ZooKeeperTimeouts {
    fn default() -> Self {
        Self {
            session: Duration::from_secs(core_limits::TREE_SESSION_DEFAULT.into()),
            operation: limits::TREE_DEADLINE,
            start: limits::TREE_START,
            // Versions of nodes end at twice this number.
            writer_commits: 1 << 30,
        }
    }
}

/// The tree in ZooKeeper. Dropping it ends its session soon after; [`Coordination::close`] waits for that.
pub struct ZooKeeperTree {
    shared: Arc<Shared>,
    commits: mpsc::Sender<Piece>,
}

impl ZooKeeperTree {
    /// Makes the first session. The root of the tree is made too when it is missing, with its parents.
    pub async fn open(address: Address, max_wait: ZooKeeperTimeouts) -> Result<Self, TreeError> {
        info!(%address, timeout_ms = millis(max_wait.start), "waiting for zookeeper");
        let (commits, waiting) = PendingPieces::bounded();
        let shared = Arc::new(Shared::new(address, max_wait));
        shared.tasks.spawn(Arc::clone(&shared).keep(waiting));
        // From here on a return stops the keeper.
        let tree = Self { shared, commits };
        let mut sessions = tree.shared.session.subscribe();
        let started = tokio::time::timeout(max_wait.start, sessions.wait_for(Option::is_some)).await;
        if !started.is_ok_and(|session| session.is_ok()) {
            let trouble = tree.shared.trouble.lock().clone();
            let found = reachability::diagnose(tree.shared.address.servers()).await.unwrap_or(trouble);
            return Err(TreeError::NotSent(format!("{}: {found}", tree.shared.address)));
        }
        Ok(tree)
    }

    /// Asks until there is an answer or no time left. `ask` may be called more than once, for reads may.
    async fn read<T, Ask, Answer>(&self, ask: Ask) -> Result<T, TreeError>
    where
        T: Send + 'static,
        Ask: Fn(Arc<Live>) -> Answer + Send + Sync + 'static,
        Answer: Future<Output = Result<T, ZkError>> + Send,
    {
        let busy = |_| TreeError::NotSent("too many reads of the tree at once".into());
        let admitted = Arc::clone(&self.shared.admitted).try_acquire_owned().map_err(busy)?;
        let deadline = Instant::now() + self.shared.max_wait.operation;
        let shared = Arc::clone(&self.shared);
        let reading = self.shared.tasks.spawn(async move {
            let answer = shared.ask(deadline, ask).await;
            drop(admitted);
            answer
        });
        match tokio::time::timeout_at(deadline, reading).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(self.shared.late()),
        }
    }
}

impl Drop for ZooKeeperTree {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

#[async_trait]
impl Coordination for ZooKeeperTree {
    async fn get(&self, path: &str) -> Result<Option<Node>, TreeError> {
        path::check(path)?;
        let path: Arc<str> = path.into();
        self.read(move |session| get(session, Arc::clone(&path))).await
    }

    async fn get_many(&self, paths: &[String]) -> Result<Vec<Option<Node>>, TreeError> {
        paths.iter().try_for_each(|path| path::check(path))?;
        let paths: Arc<[String]> = paths.into();
        self.read(move |session| get_many(session, Arc::clone(&paths))).await
    }

    async fn children(&self, path: &str) -> Result<Vec<String>, TreeError> {
        path::check(path)?;
        let path: Arc<str> = path.into();
        self.read(move |session| children(session, Arc::clone(&path))).await
    }

    async fn sync(&self) -> Result<(), TreeError> {
        self.read(|session| async move { session.client.sync("/").await }).await
    }

    async fn commit(&self, fences: &[Fence], ops: &[Op]) -> Result<CommitResult, TreeError> {
        check_bounds(fences, ops)?;
        if fences.is_empty() && ops.is_empty() {
            return Ok(CommitResult::new());
        }
        let (piece, ticket) = Piece::new(fences, ops);
        match self.commits.try_send(piece) {
            Ok(()) => ticket.outcome(self.shared.max_wait.operation).await,
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(TreeError::NotSent("too many commits wait for ZooKeeper".into()))
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(TreeError::NotSent("the tree is closed".into())),
        }
    }

    fn watch_tree(&self, path: &str) -> Result<Watch, TreeError> {
        path::check(path)?;
        let (mailbox, watch) = Mailbox::open(path);
        self.shared.tasks.spawn(Arc::clone(&self.shared).feed(mailbox));
        Ok(watch)
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.shared.view.subscribe()
    }

    /// As it was asked for.
    fn session_timeout(&self) -> Option<Duration> {
        Some(self.shared.max_wait.session)
    }

    fn check_open(&self) -> Result<(), TreeError> {
        match &*self.shared.session.borrow() {
            Some(session) if session.is_connected() => Ok(()),
            Some(_) => Err(TreeError::NotSent("no connection to ZooKeeper".into())),
            None => Err(self.shared.late()),
        }
    }

    fn check_lease(&self) -> Result<(), TreeError> {
        self.shared.lease.check()
    }

    /// Of the server that leads.
    fn keeps_time(&self) -> bool {
        true
    }

    /// A session that is lost is made again.
    fn check_alive(&self) -> Result<(), TreeError> {
        Ok(())
    }

    async fn close(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        if tokio::time::timeout(self.shared.max_wait.operation, self.shared.tasks.wait()).await.is_err() {
            warn!("zookeeper requests without answer at stop");
        }
    }
}

async fn get(session: Arc<Live>, path: Arc<str>) -> Result<Option<Node>, ZkError> {
    found(session.client.get_data(&path).await)
}

/// Requests go out when they are made, so the answers of some take one round trip.
async fn get_many(session: Arc<Live>, paths: Arc<[String]>) -> Result<Vec<Option<Node>>, ZkError> {
    let mut nodes = Vec::with_capacity(paths.len());
    for some in paths.chunks(core_limits::TREE_READS_AT_ONCE) {
        let asked: Vec<_> = some.iter().map(|path| session.client.get_data(path)).collect();
        for answer in asked {
            nodes.push(found(answer.await)?);
        }
    }
    Ok(nodes)
}

fn found(answer: Result<(Vec<u8>, zookeeper_client::Stat), ZkError>) -> Result<Option<Node>, ZkError> {
    match answer {
        Ok((data, stat)) => {
            let Stat { version, modified, .. } = multi::stat_of(&stat);
            let time = Timestamp::from_millis(u64::try_from(stat.mtime).unwrap_or(0));
            let children = stat.num_children.cast_unsigned();
            Ok(Some(Node { data: data.into(), version, modified, children, time }))
        }
        Err(ZkError::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn children(session: Arc<Live>, path: Arc<str>) -> Result<Vec<String>, ZkError> {
    match session.client.list_children(&path).await {
        Ok(mut names) => {
            names.sort_unstable();
            session.directories.note(&path, names.len());
            Ok(names)
        }
        Err(ZkError::NoNode) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
