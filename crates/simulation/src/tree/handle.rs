//! The handle of one process.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use angarium_coordination::{
    CommitResult, Coordination, Fence, Link, Node, Op, Session, TreeError, Watch, check_bounds,
};
use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::Instant;

use super::ensemble::Ensemble;
use super::leader::LeaderAnswer;
use super::link::{Connection, Shared};
use super::nodes::Nodes;
use super::pieces::Piece;
use super::{DEADLINE, SESSION_TIMEOUT};
use crate::faults::Fault;
use angarium_core::limits;

/// Pause before a read without an answer is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Starts a task of a process, which may pause or end it.
pub type ProcessSpawn = Arc<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

/// The tree, as one process has it. Dropping it lets its tasks close the session soon after. If these are gone by then,
/// as in a crash, the session ends by its timeout.
pub struct TreeHandle {
    shared: Arc<Shared>,
}

impl TreeHandle {
    /// Opens the tree for the process `name`, whose tasks `spawn` starts. There is no session yet: see
    /// [`TreeHandle::ready`].
    pub fn open(ensemble: Ensemble, name: String, spawn: ProcessSpawn) -> Self {
        let shared = Arc::new(Shared::new(ensemble, name));
        spawn(Box::pin(Arc::clone(&shared).keep()));
        spawn(Box::pin(Arc::clone(&shared).run_committer()));
        Self { shared }
    }

    /// Waits for the first session.
    pub async fn ready(&self, max_wait: Duration) -> Result<(), TreeError> {
        let mut view = self.shared.view.subscribe();
        let ready = view.wait_for(|session| session.link == Link::Connected);
        match tokio::time::timeout(max_wait, ready).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(TreeError::NotSent("no session with the tree".into())),
        }
    }

    /// Cuts the process off from the servers for a while. Its session stays if that is short.
    pub fn cut(&self, duration: Duration) {
        self.shared.cut(duration);
    }

    /// Repeats a read until it has an answer or the deadline passes.
    async fn read<T: Send>(
        &self,
        deadline: Instant,
        read: impl Fn(&Nodes) -> T + Send + Sync,
    ) -> Result<T, TreeError> {
        let reading = async {
            loop {
                let connection = self.shared.connected().await;
                if let Some(answer) = self.attempt(connection, &read).await {
                    return answer;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        };
        self.before(deadline, reading).await
    }

    /// Waits for a call until its deadline or until the tree is closed.
    async fn before<T>(&self, deadline: Instant, call: impl Future<Output = T>) -> Result<T, TreeError> {
        tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => Err(TreeError::NotSent("the tree is closed".into())),
            answer = tokio::time::timeout_at(deadline, call) => {
                answer.map_err(|_| TreeError::NotSent("the tree did not answer in time".into()))
            }
        }
    }

    /// Reads at the connected server. None when there is no answer.
    async fn attempt<T>(&self, connection: Connection, read: impl Fn(&Nodes) -> T) -> Option<T> {
        if !self.arrives().await || !self.shared.is_current(connection) {
            return None;
        }
        let (answer, zxid) = self.shared.ensemble.read(connection.server, read);
        self.shared.ensemble.world().hop().await;
        if !self.shared.is_current(connection) {
            return None;
        }
        self.shared.see(zxid);
        Some(answer)
    }

    /// Sends a request that may be repeated. Returns whether it arrives.
    async fn arrives(&self) -> bool {
        let world = self.shared.ensemble.world();
        if world.happens(Fault::TreeRefused) {
            return false;
        }
        world.hop().await;
        if world.happens(Fault::TreeLost) {
            tokio::time::sleep(Duration::from_millis(500 + world.below(2_500))).await;
            return false;
        }
        if world.happens(Fault::TreeSlow) {
            tokio::time::sleep(Duration::from_millis(500 + world.below(9_500))).await;
        } else if self.shared.ensemble.has_slow_reads() && world.below(3) == 0 {
            tokio::time::sleep(Duration::from_millis(200 + world.below(3_800))).await;
        }
        true
    }

    /// Waits until the connected server has all that the leader has now. Returns false when there is no answer.
    async fn sync_once(&self, connection: Connection) -> bool {
        let ensemble = &self.shared.ensemble;
        if !self.arrives().await || !self.shared.is_current(connection) {
            return false;
        }
        let LeaderAnswer::Served(last) = ensemble.sync(connection.session) else { return false };
        ensemble.world().hop().await;
        tokio::select! {
            biased;
            () = self.shared.lost(connection) => return false,
            () = ensemble.applied(connection.server, last) => {}
        }
        ensemble.world().hop().await;
        if !self.shared.is_current(connection) {
            return false;
        }
        self.shared.see(last);
        true
    }
}

impl Drop for TreeHandle {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

/// Checks a path by the rule for the paths of fences.
fn check_path(path: &str) -> Result<(), TreeError> {
    check_bounds(&[Fence { path: path.to_owned(), version: 0 }], &[])
}

#[async_trait]
impl Coordination for TreeHandle {
    async fn get(&self, path: &str) -> Result<Option<Node>, TreeError> {
        check_path(path)?;
        self.read(Instant::now() + DEADLINE, |nodes| nodes.get(path)).await
    }

    /// Reads parts of the paths at different instants.
    async fn get_many(&self, paths: &[String]) -> Result<Vec<Option<Node>>, TreeError> {
        paths.iter().try_for_each(|path| check_path(path))?;
        let deadline = Instant::now() + DEADLINE;
        let mut found = Vec::with_capacity(paths.len());
        while found.len() < paths.len() {
            let draw = self.shared.ensemble.world().below(limits::TREE_READS_AT_ONCE as u64);
            let max = usize::try_from(draw).unwrap_or(0) + 1;
            let part = &paths[found.len()..paths.len().min(found.len() + max)];
            let read = |nodes: &Nodes| part.iter().map(|path| nodes.get(path)).collect::<Vec<_>>();
            found.extend(self.read(deadline, read).await?);
        }
        Ok(found)
    }

    async fn children(&self, path: &str) -> Result<Vec<String>, TreeError> {
        check_path(path)?;
        self.read(Instant::now() + DEADLINE, |nodes| nodes.children_behind(path, None, usize::MAX)).await
    }

    async fn sync(&self) -> Result<(), TreeError> {
        let syncing = async {
            loop {
                let connection = self.shared.connected().await;
                if self.sync_once(connection).await {
                    return;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        };
        self.before(Instant::now() + DEADLINE, syncing).await
    }

    async fn commit(&self, fences: &[Fence], ops: &[Op]) -> Result<CommitResult, TreeError> {
        check_bounds(fences, ops)?;
        if fences.is_empty() && ops.is_empty() {
            return Ok(CommitResult::new());
        }
        let (piece, ticket) = Piece::new(fences, ops);
        self.shared.push(piece)?;
        ticket.outcome().await
    }

    fn watch_tree(&self, path: &str) -> Result<Watch, TreeError> {
        check_path(path)?;
        Ok(self.shared.watch(path))
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.shared.view.subscribe()
    }

    fn session_timeout(&self) -> Option<Duration> {
        Some(SESSION_TIMEOUT)
    }

    fn check_open(&self) -> Result<(), TreeError> {
        self.shared.check_open()
    }

    fn check_lease(&self) -> Result<(), TreeError> {
        self.shared.check_lease()
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn check_alive(&self) -> Result<(), TreeError> {
        Ok(())
    }

    /// Waits for the running commit and for the end of the session, but not for ever: the tasks of the process may be
    /// gone.
    async fn close(&self) {
        self.shared.stop.cancel();
        let _ = tokio::time::timeout(DEADLINE, self.shared.closed()).await;
    }
}
