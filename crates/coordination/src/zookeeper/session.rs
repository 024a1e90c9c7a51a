//! One session with the ensemble: its start, its connection states and its close. It does not outlive its expiry.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error as ThisError;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, SessionState, StateWatcher};

use super::address::Address;
use super::directories::Directories;
use super::writer::{WRITERS, Writer};

/// Max time for the servers to confirm the close of a session.
const CLOSE: Duration = Duration::from_secs(2);

/// The session has ended; the keeper must create another one.
#[derive(Debug, ThisError)]
#[error("{0}")]
pub(super) struct SessionLoss(pub(super) String);

/// A session, and the directory sizes known in it.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) directories: Directories,
    states: States,
    /// Cancelled when the session has ended, so that its users drop it.
    pub(super) ended: CancellationToken,
}

/// The states of a session, up to its last.
type States = watch::Receiver<SessionState>;

/// The connection states of a session, as one receiver reads them.
pub(super) struct Connection(States);

impl Session {
    /// Connects, creates the root and the writer's node, and catches up with commits acknowledged in earlier sessions.
    ///
    /// Every step may be repeated, so an error or a dropped future leaves nothing harmful behind.
    pub(super) async fn start(address: &Address, timeout: Duration) -> Result<(Self, Writer), ZkError> {
        let connector = Client::connector().with_session_timeout(timeout);
        let client = connector.connect(&address.hosts()).await?;
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.mkdir(address.root(), &options).await?;
        let states = follow(client.state_watcher());
        let no_root = |_| ZkError::BadArguments(&"the root of the tree is no path");
        let client = client.chroot(address.root().to_owned()).map_err(no_root)?;
        client.mkdir(WRITERS, &options).await?;
        let writer = Writer::create(&client).await?;
        client.sync("/").await?;
        let (directories, ended) = (Directories::default(), CancellationToken::new());
        Ok((Self { client, directories, states, ended }, writer))
    }

    /// Returns whether the session has a connection now.
    pub(super) fn is_connected(&self) -> bool {
        *self.states.borrow() == SessionState::SyncConnected
    }

    pub(super) fn connection(&self) -> Connection {
        Connection(self.states.clone())
    }

    /// Drops the session, and waits until the servers have closed it, which needs all other users of the client to drop
    /// it.
    pub(super) async fn close(session: Arc<Self>) {
        let mut states = session.states.clone();
        drop(session);
        let closed = states.wait_for(|state| state.is_terminated());
        if tokio::time::timeout(CLOSE, closed).await.is_err() {
            info!("zookeeper session left to expire");
        }
    }
}

/// Forwards the states of a session until its last.
///
/// The client must not be polled for its next state by a future that may be dropped: a wait that is dropped at the
/// moment a state arrives writes to freed memory (asyncs-sync 0.4.0: `Notify::remove` unlinks a node that `notify_all`
/// has already taken out of the list), and every later wait panics. So one task waits, is never cancelled, and forwards
/// each state to all receivers.
#[expect(
    clippy::disallowed_methods,
    reason = "it lasts as long as the session, whose end a shutdown does not always wait for"
)]
fn follow(mut states: StateWatcher) -> States {
    let (sender, receiver) = watch::channel(states.state());
    tokio::spawn(async move {
        while !sender.borrow().is_terminated() {
            sender.send_replace(states.changed().await);
        }
    });
    receiver
}

impl Connection {
    /// Waits until the session has a connection. Cancel safe.
    pub(super) async fn up(&mut self) -> Result<(), SessionLoss> {
        let settled = self.0.wait_for(|state| *state == SessionState::SyncConnected || state.is_terminated());
        lost_if_terminated(*settled.await.map_err(|_| ended())?)
    }

    /// Waits until the session loses or regains its connection, or ends. Cancel safe.
    pub(super) async fn changed(&mut self) -> Result<(), SessionLoss> {
        self.0.changed().await.map_err(|_| ended())?;
        lost_if_terminated(*self.0.borrow_and_update())
    }
}

fn lost_if_terminated(state: SessionState) -> Result<(), SessionLoss> {
    if state.is_terminated() { Err(SessionLoss(format!("the session is {state}"))) } else { Ok(()) }
}

/// Returns the error for a session whose last state was already read.
fn ended() -> SessionLoss {
    SessionLoss("the session has expired".into())
}
