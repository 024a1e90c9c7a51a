//! The tree in Apache ZooKeeper: one session at a time, replaced when it expires, with one commit in flight.
//!
//! Only this module uses the `zookeeper-client` crate. It adds what that crate leaves to its user: bounds on waiting
//! work, deadlines, size checks, operations that outlive their futures, and a new client after each session. The
//! outcome that a caller gets for a commit is true even when connections break: see [`committer`].
//!
//! The paths below the root of the address belong to the tree. This module itself uses `/run/writers/{session}`: an
//! ephemeral node, created with each session, with the number of the session's last commit.

mod access;
mod address;
mod committer;
mod directories;
mod errors;
mod keeper;
mod lease;
pub mod limits;
mod multi;
mod pieces;
mod protection;
mod reachability;
mod recall;
mod secure;
mod session;
mod survey;
mod tls;
mod walk;
mod watches;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::{info, warn};
use zookeeper_client::Error as ZkError;

pub use access::{AccessError, AccessFiles, CertificateFiles};
pub use address::Address;
pub use protection::Protection;
pub use secure::{SecureError, SecuredTree};

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

/// Timeouts of the tree, and the lifetime of its writer's nodes.
#[derive(Clone, Copy, Debug)]
pub struct ZooKeeperTimeouts {
    /// Session timeout to request. Servers grant 2 to 20 of their ticks.
    pub session: Duration,
    /// An operation fails without an answer after this time.
    pub operation: Duration,
    /// Max time until the first session exists.
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
            // Half of the max version of a node.
            writer_commits: 1 << 30,
        }
    }
}

/// Number of refused sessions after which a start fails at once. The client's DIGEST-MD5 may fail by chance.
const START_REFUSALS: u32 = 3;

/// The tree in ZooKeeper. Dropping it ends its session soon after; [`Coordination::close`] waits for that.
pub struct ZooKeeperTree {
    shared: Arc<Shared>,
    commits: mpsc::Sender<Piece>,
}

impl ZooKeeperTree {
    /// Opens a tree without an identity and without TLS: see [`ZooKeeperTree::open_with`].
    pub async fn open(address: Address, max_wait: ZooKeeperTimeouts) -> Result<Self, TreeError> {
        Self::open_with(address, AccessFiles::default(), max_wait).await
    }

    /// Waits for the first session. Creates the root of the tree, with its parents, when it is missing.
    pub async fn open_with(
        address: Address,
        access: AccessFiles,
        max_wait: ZooKeeperTimeouts,
    ) -> Result<Self, TreeError> {
        access.check(&address).map_err(|error| TreeError::NotSent(error.to_string()))?;
        info!(%address, timeout_ms = millis(max_wait.start), "waiting for zookeeper");
        let (commits, waiting) = PendingPieces::bounded();
        let shared = Arc::new(Shared::new(address, access, max_wait));
        shared.tasks.spawn(Arc::clone(&shared).keep(waiting));
        // From here on, dropping the tree stops the keeper.
        let tree = Self { shared, commits };
        let (mut sessions, mut refusals) =
            (tree.shared.session.subscribe(), tree.shared.refusals.subscribe());
        let faults = tokio::select! {
            biased;
            Ok(_) = sessions.wait_for(Option::is_some) => return Ok(tree),
            Ok(_) = refusals.wait_for(|refusals| *refusals >= START_REFUSALS) => None,
            faults = tree.shared.lasting_faults() => Some(faults),
            () = tokio::time::sleep(max_wait.start) => tree.shared.diagnose().await.map(|faults| faults.text),
        };
        let found = faults.unwrap_or_else(|| tree.shared.last_error.lock().clone());
        Err(TreeError::NotSent(format!("{}: {found}", tree.shared.address)))
    }

    /// Returns who may use the nodes of the tree, as far as the current session knows; none without a session.
    pub fn protection(&self) -> Option<Protection> {
        self.shared.session.borrow().as_ref().map(|session| session.protection())
    }

    /// Returns whether the closing of the tree has begun and not ended, so that nodes of it may be open.
    ///
    /// # Errors
    ///
    /// ZooKeeper did not answer.
    pub async fn is_closed_by_half(&self) -> Result<bool, SecureError> {
        match self.shared.connected().await {
            Some(session) => Ok(Protection::is_unfinished(&session.client).await?),
            None => Err(SecureError::ZooKeeper("the tree is closed".into())),
        }
    }

    /// Closes the tree to all but the identity of this session, while replicas with that identity use it. Calls
    /// `closed` after each node. After an error or an interruption the same call continues.
    pub async fn secure(&self, closed: &mut (dyn FnMut(&str) + Send)) -> Result<SecuredTree, SecureError> {
        match self.shared.connected().await {
            Some(session) => secure::secure(&session, closed).await,
            None => Err(SecureError::ZooKeeper("the tree is closed".into())),
        }
    }

    /// Repeats a read until it has an answer or the deadline passes. So `request` may run more than once.
    async fn read<T, Request, Answer>(&self, request: Request) -> Result<T, TreeError>
    where
        T: Send + 'static,
        Request: Fn(Arc<Live>) -> Answer + Send + Sync + 'static,
        Answer: Future<Output = Result<T, ZkError>> + Send,
    {
        let busy = |_| TreeError::NotSent("too many reads of the tree at once".into());
        let admitted = Arc::clone(&self.shared.admitted).try_acquire_owned().map_err(busy)?;
        let deadline = Instant::now() + self.shared.max_wait.operation;
        let shared = Arc::clone(&self.shared);
        let reading = self.shared.tasks.spawn(async move {
            let answer = shared.request(deadline, request).await;
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

    fn warning(&self) -> Option<String> {
        if self.shared.address.is_local() && !self.shared.access.name_an_identity() {
            return None;
        }
        self.shared.survey.warning(self.shared.session.borrow().as_deref())
    }

    /// Returns the requested timeout, which the servers may have changed.
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

    /// The tree's time is that of the leading server.
    fn keeps_time(&self) -> bool {
        true
    }

    /// The keeper replaces a lost session.
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

/// The client sends requests at creation, so the answers of a chunk together take one round trip.
async fn get_many(session: Arc<Live>, paths: Arc<[String]>) -> Result<Vec<Option<Node>>, ZkError> {
    let mut nodes = Vec::with_capacity(paths.len());
    for chunk in paths.chunks(core_limits::TREE_READS_AT_ONCE) {
        let requests: Vec<_> = chunk.iter().map(|path| session.client.get_data(path)).collect();
        for answer in requests {
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
