//! Makes one session after the other, lets its commits run, and tells every process which session there is.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};
use zookeeper_client::Error as ZkError;

use super::address::Address;
use super::committer::Committer;
use super::errors::{Verdict, not_sent, verdict};
use super::lease::Lease;
use super::limits;
use super::pieces::PendingPieces;
use super::session::{Session, SessionLoss};
use super::{Link, Session as SessionView, TreeError, ZooKeeperTimeouts};
use angarium_core::limits as core_limits;
use angarium_core::time::millis;

/// The pause before a session is recreated, which doubles up to the longest while that fails.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The pause before a read that got no answer is made again.
pub(super) const AGAIN: Duration = Duration::from_millis(20);

/// What the handle of a tree, its keeper and its reads share.
pub(super) struct Shared {
    pub(super) address: Address,
    pub(super) max_wait: ZooKeeperTimeouts,
    /// The session, while there is one. Set by the keeper alone.
    pub(super) session: watch::Sender<Option<Arc<Session>>>,
    /// What others are told of it. Set by the keeper alone.
    pub(super) view: watch::Sender<SessionView>,
    /// Written while there is a session.
    pub(super) lease: Lease,
    /// Why there is none. The keeper writes it, those who are refused read it.
    pub(super) trouble: Mutex<String>,
    /// Reads that were let in, and those of them that may be on their way at once.
    pub(super) admitted: Arc<Semaphore>,
    pub(super) reading: Semaphore,
    /// The keeper, and each read until its answer: a read that no process waits for is not cancelled.
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

impl Shared {
    pub(super) fn new(address: Address, max_wait: ZooKeeperTimeouts) -> Self {
        Self {
            address,
            max_wait,
            session: watch::Sender::new(None),
            view: watch::Sender::new(SessionView { generation: 0, link: Link::Lost }),
            lease: Lease::default(),
            trouble: Mutex::new("none was made yet".into()),
            admitted: Arc::new(Semaphore::new(limits::TREE_READS)),
            reading: Semaphore::new(core_limits::TREE_READS_AT_ONCE),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Makes one session after the other, and commits in each what waits.
    pub(super) async fn keep(self: Arc<Self>, mut waiting: PendingPieces) {
        let (mut pause, mut away) = (PAUSE.0, None);
        while !self.stop.is_cancelled() {
            let began = Instant::now();
            match self.serve(&mut waiting, &mut away).await {
                Ok(()) => break,
                Err(lost) => {
                    self.tell_lost(&lost, &mut away);
                    *self.trouble.lock() = lost.to_string();
                }
            }
            if began.elapsed() > PAUSE.1 {
                pause = PAUSE.0;
            }
            let jitter = pause.mul_f64(rand::rng().random_range(0.5..1.0));
            tokio::select! {
                () = self.stop.cancelled() => break,
                () = tokio::time::sleep(jitter) => pause = PAUSE.1.min(pause * 2),
            }
        }
    }

    /// Tells the loss of a session once. Before there was one the start tells what is wrong.
    fn tell_lost(&self, lost: &SessionLoss, away: &mut Option<Instant>) {
        if self.view.borrow().generation == 0 || away.is_some() {
            debug!(error = %lost, "zookeeper session not made");
        } else {
            warn!(address = %self.address, error = %lost, "zookeeper session lost");
            *away = Some(Instant::now());
        }
    }

    /// Makes a session and commits in it until it is lost, or the tree is closed.
    async fn serve(
        &self,
        waiting: &mut PendingPieces,
        away: &mut Option<Instant>,
    ) -> Result<(), SessionLoss> {
        let start =
            tokio::time::timeout(self.max_wait.start, Session::start(&self.address, self.max_wait.session));
        let started = tokio::select! {
            () = self.stop.cancelled() => return Ok(()),
            started = start => started,
        };
        let (session, writer) = match started {
            Ok(Ok(started)) => started,
            Ok(Err(error)) => return Err(SessionLoss(error.to_string())),
            Err(_) => return Err(SessionLoss("a session was not ready in time".into())),
        };
        let session = Arc::new(session);
        let id = session.client.session_id();
        match away.take() {
            None => info!(address = %self.address, session = %id, "zookeeper session made"),
            Some(since) => {
                let away_ms = millis(since.elapsed());
                info!(address = %self.address, session = %id, away_ms, "zookeeper session regained");
            }
        }
        // Told before it can be used: who has used it finds it in the view.
        let generation = self.view.borrow().generation + 1;
        self.view.send_replace(SessionView { generation, link: Link::Connected });
        self.session.send_replace(Some(Arc::clone(&session)));
        let writer_commits = self.max_wait.writer_commits;
        let committer = Committer { session: &session, writer, waiting, writer_commits };
        let end = tokio::select! {
            end = committer.run(&self.stop) => end,
            lost = self.watch_link(&session) => Err(lost),
            never = self.lease.keep(&session) => match never {},
        };
        self.lease.end();
        self.session.send_replace(None);
        self.view.send_modify(|view| view.link = Link::Lost);
        session.over.cancel();
        Session::close(session).await;
        end
    }

    /// Tells of each change of the connection until the session has ended. A connection that was lost and is there
    /// again before any process looked is told of too.
    async fn watch_link(&self, session: &Session) -> SessionLoss {
        let (mut connection, mut away) = (session.connection(), None);
        loop {
            if let Err(lost) = connection.changed().await {
                return lost;
            }
            let link = if session.is_connected() { Link::Connected } else { Link::Suspended };
            match (link, away) {
                (Link::Connected, Some(since)) => {
                    info!(away_ms = millis(Instant::elapsed(&since)), "zookeeper connection regained");
                    away = None;
                }
                (Link::Suspended | Link::Lost, None) => {
                    warn!(address = %self.address, "zookeeper connection lost");
                    away = Some(Instant::now());
                }
                _ => {}
            }
            self.view.send_modify(|view| view.link = link);
        }
    }

    /// Asks until there is an answer, or no time left.
    pub(super) async fn ask<T, Answer>(
        &self,
        deadline: Instant,
        ask: impl Fn(Arc<Session>) -> Answer,
    ) -> Result<T, TreeError>
    where
        Answer: Future<Output = Result<T, ZkError>>,
    {
        let _turn = self.reading.acquire().await;
        while Instant::now() < deadline {
            let connected = tokio::time::timeout_at(deadline, self.connected()).await;
            let Ok(Some(session)) = connected else { break };
            match ask(session).await {
                Ok(answer) => return Ok(answer),
                Err(error) if verdict(&error) == Verdict::Unknown => tokio::time::sleep(AGAIN).await,
                Err(error) => return Err(not_sent(&error)),
            }
        }
        Err(self.late())
    }

    /// The session, once it has a connection. None when the tree is closed.
    pub(super) async fn connected(&self) -> Option<Arc<Session>> {
        let mut sessions = self.session.subscribe();
        loop {
            let session = sessions.borrow_and_update().clone();
            let is_up = async {
                match &session {
                    Some(session) => session.connection().up().await.is_ok(),
                    None => false,
                }
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                is_up = is_up => if is_up { return session },
                changed = sessions.changed() => if changed.is_err() { return None } else { continue },
            }
            // There is none, or the keeper is about to make another one.
            tokio::select! {
                () = self.stop.cancelled() => return None,
                changed = sessions.changed() => changed.ok()?,
            }
        }
    }

    pub(super) fn late(&self) -> TreeError {
        match &*self.session.borrow() {
            Some(_) => TreeError::NotSent("ZooKeeper did not answer in time".into()),
            None => TreeError::NotSent(format!("no session with ZooKeeper: {}", self.trouble.lock())),
        }
    }
}
