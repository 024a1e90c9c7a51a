//! The state that a handle shares with its keeper, its committer and the server that it is connected to.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use angarium_coordination::zookeeper::limits;
use angarium_coordination::{Event, Link, Mailbox, Session, TreeError, Watch};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ensemble::Ensemble;
use super::nodes::SessionId;
use super::pieces::{self, Piece};

/// A connection of a session to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    pub(super) session: SessionId,
    pub(super) server: usize,
    /// Number of the connection of its handle.
    number: u64,
}

/// The state of one handle.
pub(super) struct Shared {
    pub(super) ensemble: Ensemble,
    pub(super) name: String,
    state: Mutex<State>,
    /// Notifies the tasks and calls of the handle of each change of `state`.
    changed: Notify,
    /// The published view of the session.
    pub(super) view: watch::Sender<Session>,
    pub(super) stop: CancellationToken,
}

#[derive(Default)]
struct State {
    /// The session; none while there is none.
    session: Option<SessionId>,
    /// The connection; none while the session is suspended.
    connection: Option<Connection>,
    /// Number of connections so far.
    connections: u64,
    /// The last transaction that this handle has seen the effect of.
    seen: u64,
    lease_end: Option<Instant>,
    cut_end: Option<Instant>,
    mailboxes: Vec<(String, Arc<Mailbox>)>,
    queue: VecDeque<Piece>,
    /// Number of commit requests so far.
    requests: u64,
    has_committer_ended: bool,
    is_closed: bool,
}

impl Shared {
    pub(super) fn new(ensemble: Ensemble, name: String) -> Self {
        Self {
            ensemble,
            name,
            state: Mutex::default(),
            changed: Notify::new(),
            view: watch::Sender::new(Session { generation: 0, link: Link::Lost }),
            stop: CancellationToken::new(),
        }
    }

    /// Waits until `select` returns a value for the state, which it is shown after each change. Cancel safe.
    async fn until<T>(&self, mut select: impl FnMut(&State) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            let selected = select(&self.state.lock());
            if let Some(selected) = selected {
                return selected;
            }
            changed.await;
        }
    }

    /// Returns the connection once there is one.
    pub(super) async fn connected(&self) -> Connection {
        self.until(|state| state.connection).await
    }

    /// Returns the connection once there is one and a commit waits.
    pub(super) async fn commit_waits(&self) -> Connection {
        self.until(|state| state.connection.filter(|_| !state.queue.is_empty())).await
    }

    pub(super) fn is_current(&self, connection: Connection) -> bool {
        self.state.lock().connection == Some(connection)
    }

    /// Waits until the connection is lost.
    pub(super) async fn lost(&self, connection: Connection) {
        self.until(|state| (state.connection != Some(connection)).then_some(())).await;
    }

    /// Waits until the process is not cut off from the servers.
    pub(super) async fn reachable(&self) {
        loop {
            let cut_end = self.state.lock().cut_end;
            match cut_end.filter(|end| *end > Instant::now()) {
                Some(end) => tokio::time::sleep_until(end).await,
                None => return,
            }
        }
    }

    pub(super) fn is_cut(&self) -> bool {
        self.state.lock().cut_end.is_some_and(|end| end > Instant::now())
    }

    /// Cuts the process off from the servers. A running cut is not shortened.
    pub(super) fn cut(&self, duration: Duration) {
        let end = Instant::now() + duration;
        let connection = {
            let mut state = self.state.lock();
            state.cut_end = state.cut_end.max(Some(end));
            state.connection
        };
        if let Some(connection) = connection {
            self.disconnect(connection);
        }
    }

    /// Publishes a session with its first connection.
    pub(super) fn begin_session(self: &Arc<Self>, session: SessionId, server: usize) -> Connection {
        self.state.lock().session = Some(session);
        let generation = self.view.borrow().generation + 1;
        self.connect(session, server, generation)
    }

    /// Publishes another connection of the session.
    pub(super) fn reconnect(self: &Arc<Self>, session: SessionId, server: usize) -> Connection {
        let generation = self.view.borrow().generation;
        self.connect(session, server, generation)
    }

    fn connect(self: &Arc<Self>, session: SessionId, server: usize, generation: u64) -> Connection {
        let connection = {
            let mut state = self.state.lock();
            state.connections += 1;
            Connection { session, server, number: state.connections }
        };
        self.ensemble.connect(Arc::downgrade(self), connection);
        self.view.send_replace(Session { generation, link: Link::Connected });
        let mut state = self.state.lock();
        state.connection = Some(connection);
        state.post(&Event::Resync);
        drop(state);
        self.changed.notify_waiters();
        let name = &self.name;
        self.ensemble.world().note(|| format!("tree: {name} connected to {server} in session {session}"));
        connection
    }

    /// Ends a connection, unless it has ended.
    pub(super) fn disconnect(&self, connection: Connection) {
        let mut state = self.state.lock();
        if state.connection != Some(connection) {
            return;
        }
        state.connection = None;
        drop(state);
        self.view.send_modify(|view| view.link = Link::Suspended);
        self.changed.notify_waiters();
        self.ensemble.world().note(|| format!("tree: {} suspended", self.name));
    }

    /// Ends the session, for this process.
    pub(super) fn lose_session(&self) {
        let mut state = self.state.lock();
        (state.session, state.connection, state.lease_end) = (None, None, None);
        // Requests of the next session are numbered from its start.
        state.requests = 0;
        state.post(&Event::Lost);
        drop(state);
        self.view.send_modify(|view| view.link = Link::Lost);
        self.changed.notify_waiters();
        self.ensemble.world().note(|| format!("tree: {} lost its session", self.name));
    }

    /// Reports changed nodes to the watchers. Returns false when the connection has ended.
    pub(super) fn notify(&self, connection: Connection, paths: &[String]) -> bool {
        let mut state = self.state.lock();
        if state.connection != Some(connection) {
            return false;
        }
        state.drop_abandoned();
        for path in paths {
            for (_, mailbox) in state.mailboxes.iter().filter(|(watched, _)| covers(watched, path)) {
                mailbox.post(Event::Changed { path: path.clone() });
            }
        }
        true
    }

    /// Starts a watch.
    pub(super) fn watch(&self, path: &str) -> Watch {
        let (mailbox, watch) = Mailbox::open(path);
        let mut state = self.state.lock();
        if state.is_closed {
            mailbox.end();
            return watch;
        }
        if state.connection.is_some() {
            mailbox.post(Event::Resync);
        }
        state.drop_abandoned();
        state.mailboxes.push((path.to_owned(), mailbox));
        watch
    }

    pub(super) fn push(&self, piece: Piece) -> Result<(), TreeError> {
        let mut state = self.state.lock();
        if state.is_closed || self.stop.is_cancelled() {
            return Err(TreeError::NotSent("the tree is closed".into()));
        }
        if state.queue.len() >= limits::TREE_QUEUE {
            return Err(TreeError::NotSent("too many commits wait for the tree".into()));
        }
        state.queue.push_back(piece);
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Takes the pieces of the next request, and returns the number of the request.
    pub(super) fn take_pieces(&self) -> (u64, Vec<Piece>) {
        let mut state = self.state.lock();
        state.requests += 1;
        (state.requests, pieces::take(&mut state.queue))
    }

    pub(super) fn seen(&self) -> u64 {
        self.state.lock().seen
    }

    /// Records that the handle has seen the effect of a transaction.
    pub(super) fn see(&self, zxid: u64) {
        let mut state = self.state.lock();
        state.seen = state.seen.max(zxid);
    }

    pub(super) fn renew_lease(&self, connection: Connection, end: Instant) {
        let mut state = self.state.lock();
        if state.session == Some(connection.session) {
            state.lease_end = state.lease_end.max(Some(end));
        }
    }

    pub(super) fn check_lease(&self) -> Result<(), TreeError> {
        if self.state.lock().lease_end.is_some_and(|end| Instant::now() < end) {
            return Ok(());
        }
        Err(TreeError::NotSent("the tree has not answered for too long".into()))
    }

    pub(super) fn check_open(&self) -> Result<(), TreeError> {
        let state = self.state.lock();
        match (state.session, state.connection) {
            (_, Some(_)) => Ok(()),
            (Some(_), None) => Err(TreeError::NotSent("no connection to the tree".into())),
            (None, None) => Err(TreeError::NotSent("no session with the tree".into())),
        }
    }

    pub(super) fn end_committer(&self) {
        self.state.lock().has_committer_ended = true;
        self.changed.notify_waiters();
    }

    pub(super) async fn committer_ended(&self) {
        self.until(|state| state.has_committer_ended.then_some(())).await;
    }

    /// Gives up the session, because the tree is closed, and returns it.
    pub(super) fn take_session(&self) -> Option<SessionId> {
        let mut state = self.state.lock();
        (state.connection, state.lease_end) = (None, None);
        let session = state.session.take();
        drop(state);
        self.view.send_modify(|view| view.link = Link::Lost);
        self.changed.notify_waiters();
        session
    }

    /// Ends the watches and the waiting commits.
    pub(super) fn finish(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let queue = std::mem::take(&mut state.queue);
        state.mailboxes.drain(..).for_each(|(_, mailbox)| mailbox.end());
        drop(state);
        drop(queue);
        self.changed.notify_waiters();
    }

    pub(super) async fn closed(&self) {
        self.until(|state| state.is_closed.then_some(())).await;
    }
}

impl State {
    fn post(&mut self, event: &Event) {
        self.drop_abandoned();
        self.mailboxes.iter().for_each(|(_, mailbox)| mailbox.post(event.clone()));
    }

    /// Drops the mailboxes without a reader, of which only the reference here is left.
    fn drop_abandoned(&mut self) {
        self.mailboxes.retain(|(_, mailbox)| Arc::strong_count(mailbox) > 1);
    }
}

/// Returns whether a watch of `watched` reports changes of `path`.
fn covers(watched: &str, path: &str) -> bool {
    let is_below = |rest: &str| rest.is_empty() || rest.starts_with('/');
    watched == "/" || path.strip_prefix(watched).is_some_and(is_below)
}
