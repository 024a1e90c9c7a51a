//! The keeper: creates one session after the other, runs the committer in each, and publishes the current session.

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

use super::access::AccessFiles;
use super::address::Address;
use super::committer::Committer;
use super::errors::{Verdict, not_sent, verdict};
use super::lease::Lease;
use super::limits;
use super::pieces::PendingPieces;
use super::reachability::{self, ServerFaults};
use super::session::{Session, SessionFailure, SessionLoss};
use super::survey::Survey;
use super::writer::Writer;
use super::{Link, Session as SessionView, TreeError, ZooKeeperTimeouts};
use angarium_core::limits as core_limits;
use angarium_core::time::millis;

/// Min and max pause before a session is created again. The pause doubles while this fails.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Pause between two looks at the servers during a start.
const FAULT_PAUSE: Duration = Duration::from_secs(2);

/// Looks in a row by which faults at all servers end a start.
const FAULT_LOOKS: u32 = 3;

/// Pause before a read without an answer is sent again.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// State shared by the handle of a tree, its keeper and its reads.
pub(super) struct Shared {
    pub(super) address: Address,
    /// Read for each session.
    pub(super) access: AccessFiles,
    pub(super) max_wait: ZooKeeperTimeouts,
    /// The current session; none while there is none. Only the keeper sets it.
    pub(super) session: watch::Sender<Option<Arc<Session>>>,
    /// The published view of the session. Only the keeper sets it.
    pub(super) view: watch::Sender<SessionView>,
    /// The lease of the session. Renewed while there is a session.
    pub(super) lease: Lease,
    /// Why there is no session. The keeper writes it, refused calls report it.
    pub(super) last_error: Mutex<String>,
    /// Number of sessions refused in a row for reasons that do not pass by themselves.
    pub(super) refusals: watch::Sender<u32>,
    /// Open nodes.
    pub(super) survey: Survey,
    /// Bounds the admitted reads, and `reading` those of them that may be in flight at once.
    pub(super) admitted: Arc<Semaphore>,
    pub(super) reading: Semaphore,
    /// The keeper, and each read until its answer: a read is not cancelled when its caller leaves.
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

impl Shared {
    pub(super) fn new(address: Address, access: AccessFiles, max_wait: ZooKeeperTimeouts) -> Self {
        Self {
            address,
            access,
            max_wait,
            session: watch::Sender::new(None),
            view: watch::Sender::new(SessionView { generation: 0, link: Link::Lost }),
            lease: Lease::default(),
            last_error: Mutex::new("none was made yet".into()),
            refusals: watch::Sender::new(0),
            survey: Survey::default(),
            admitted: Arc::new(Semaphore::new(limits::TREE_READS)),
            reading: Semaphore::new(core_limits::TREE_READS_AT_ONCE),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Creates one session after the other, and runs the committer in each.
    pub(super) async fn keep(self: Arc<Self>, mut waiting: PendingPieces) {
        let (mut pause, mut away) = (PAUSE.0, None);
        while !self.stop.is_cancelled() {
            let began = Instant::now();
            match self.serve(&mut waiting, &mut away).await {
                Ok(()) => break,
                Err(lost) => {
                    self.log_loss(&lost, &mut away);
                    *self.last_error.lock() = lost.to_string();
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

    /// Logs the loss of a session once, and the first refusal of another one, which only an operator can end. Before the
    /// first session the error of the start reports the cause.
    fn log_loss(&self, lost: &SessionLoss, away: &mut Option<Instant>) {
        if self.view.borrow().generation == 0 || away.is_some() {
            if away.is_some() && *self.refusals.borrow() == 1 {
                warn!(address = %self.address, error = %lost, "zookeeper session refused");
            } else {
                debug!(error = %lost, "zookeeper session not made");
            }
        } else {
            warn!(address = %self.address, error = %lost, "zookeeper session lost");
            *away = Some(Instant::now());
        }
    }

    /// Creates a session and runs the committer until the session is lost or the tree is closed.
    async fn serve(
        &self,
        waiting: &mut PendingPieces,
        away: &mut Option<Instant>,
    ) -> Result<(), SessionLoss> {
        let started = tokio::select! {
            () = self.stop.cancelled() => return Ok(()),
            started = self.start_session() => started,
        };
        let (session, writer) = started?;
        let session = Arc::new(session);
        let id = session.client.session_id();
        match away.take() {
            None => info!(address = %self.address, session = %id, "zookeeper session made"),
            Some(since) => {
                let away_ms = millis(since.elapsed());
                info!(address = %self.address, session = %id, away_ms, "zookeeper session regained");
            }
        }
        // Published before the session can be used, so every user of the session finds it in the view.
        let generation = self.view.borrow().generation + 1;
        self.view.send_replace(SessionView { generation, link: Link::Connected });
        self.session.send_replace(Some(Arc::clone(&session)));
        let writer_commits = self.max_wait.writer_commits;
        let committer = Committer { session: &session, writer, waiting, writer_commits };
        let end = tokio::select! {
            end = committer.run(&self.stop) => end,
            lost = self.watch_link(&session) => Err(lost),
            never = self.lease.keep(&session) => match never {},
            never = session.follow_protection() => match never {},
            never = self.survey.keep(&session) => match never {},
        };
        self.lease.end();
        self.session.send_replace(None);
        self.view.send_modify(|view| view.link = Link::Lost);
        session.ended.cancel();
        Session::close(session).await;
        end
    }

    async fn start_session(&self) -> Result<(Session, Writer), SessionLoss> {
        let start = async {
            let access = self.access.read(&self.address)?;
            Session::start(&self.address, &access, self.max_wait.session).await
        };
        let failure: SessionFailure = match tokio::time::timeout(self.max_wait.start, start).await {
            Ok(Ok(started)) => {
                self.refusals.send_replace(0);
                return Ok(started);
            }
            Ok(Err(failure)) => failure,
            Err(_) => return Err(SessionLoss("a session was not ready in time".into())),
        };
        // Written before the refusal is counted: the last refusal of a start is reported with this text.
        *self.last_error.lock() = failure.to_string();
        self.refusals.send_modify(|refusals| *refusals = if failure.lasts() { *refusals + 1 } else { 0 });
        Err(SessionLoss(failure.to_string()))
    }

    /// Publishes each change of the connection until the session ends. A connection that is lost and regained before
    /// any receiver looks is published too.
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

    /// Repeats a read until it has an answer or the deadline passes.
    pub(super) async fn request<T, Answer>(
        &self,
        deadline: Instant,
        request: impl Fn(Arc<Session>) -> Answer,
    ) -> Result<T, TreeError>
    where
        Answer: Future<Output = Result<T, ZkError>>,
    {
        let _permit = self.reading.acquire().await;
        while Instant::now() < deadline {
            let connected = tokio::time::timeout_at(deadline, self.connected()).await;
            let Ok(Some(session)) = connected else { break };
            match request(session).await {
                Ok(answer) => return Ok(answer),
                Err(error) if verdict(&error) == Verdict::Unknown => tokio::time::sleep(RETRY_PAUSE).await,
                Err(error) => return Err(not_sent(&error)),
            }
        }
        Err(self.late())
    }

    /// Returns the session once it has a connection. None when the tree is closed.
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
            // There is no session, or the keeper is about to create the next one.
            tokio::select! {
                () = self.stop.cancelled() => return None,
                changed = sessions.changed() => changed.ok()?,
            }
        }
    }

    /// Looks at the servers until each of them has had faults that last [`FAULT_LOOKS`] times in a row, and returns the last
    /// ones. So a proxy whose servers are starting ends no start at once.
    pub(super) async fn lasting_faults(&self) -> String {
        let mut looks = 0;
        loop {
            tokio::time::sleep(FAULT_PAUSE).await;
            match self.diagnose().await {
                Some(faults) if faults.lasts => {
                    looks += 1;
                    if looks == FAULT_LOOKS {
                        return faults.text;
                    }
                }
                _ => looks = 0,
            }
        }
    }

    /// Returns the fault of each server, if none of them can be used.
    pub(super) async fn diagnose(&self) -> Option<ServerFaults> {
        let access = self.access.read(&self.address).ok();
        let tls = access.as_ref().and_then(|access| access.tls());
        reachability::diagnose(self.address.servers(), tls).await
    }

    pub(super) fn late(&self) -> TreeError {
        match &*self.session.borrow() {
            Some(_) => TreeError::NotSent("ZooKeeper did not answer in time".into()),
            None => TreeError::NotSent(format!("no session with ZooKeeper: {}", self.last_error.lock())),
        }
    }
}
