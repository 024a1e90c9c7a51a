//! One session with the ensemble: made ready, watched, and closed. It does not outlive its expiry.

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

/// How long a session that is closed may take to say so.
const CLOSE: Duration = Duration::from_secs(2);

/// A session has ended; another one must be made.
#[derive(Debug, ThisError)]
#[error("{0}")]
pub(super) struct SessionLoss(pub(super) String);

/// A session, and what is known of the tree in its life.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) directories: Directories,
    states: States,
    /// Cancelled when it has ended, so that no process holds on to it.
    pub(super) over: CancellationToken,
}

/// The states of a session, until its last.
type States = watch::Receiver<SessionState>;

/// What a session states of its connection, as one after the other reads it.
pub(super) struct Connection(States);

impl Session {
    /// Connects, makes what the tree is on, and catches up with what was acknowledged in sessions before.
    ///
    /// Everything here may be done twice, so an error or a lost future leaves nothing behind that matters.
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
        let (directories, over) = (Directories::default(), CancellationToken::new());
        Ok((Self { client, directories, states, over }, writer))
    }

    /// Whether it has a connection now.
    pub(super) fn is_connected(&self) -> bool {
        *self.states.borrow() == SessionState::SyncConnected
    }

    pub(super) fn connection(&self) -> Connection {
        Connection(self.states.clone())
    }

    /// Gives it up, and waits until it is closed at the servers, once the last user of the client has gone.
    pub(super) async fn close(session: Arc<Self>) {
        let mut states = session.states.clone();
        drop(session);
        let closed = states.wait_for(|state| state.is_terminated());
        if tokio::time::timeout(CLOSE, closed).await.is_err() {
            info!("zookeeper session left to expire");
        }
    }
}

/// Tells the states of a session until its last.
///
/// A wait for the next state that is given up while that arrives writes into memory that is no longer its own
/// (asyncs-sync 0.4.0: `Notify::remove` unlinks what `notify_all` has taken out of the list), and from then on every
/// wait panics. So one task waits, which nothing gives up, and every other process is told by it.
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
    /// Waits until the session has a connection. May be dropped at any time.
    pub(super) async fn up(&mut self) -> Result<(), SessionLoss> {
        let settled = self.0.wait_for(|state| *state == SessionState::SyncConnected || state.is_terminated());
        lost_if_terminated(*settled.await.map_err(|_| ended())?)
    }

    /// Waits until the session loses or regains its connection, or ends. May be dropped at any time.
    pub(super) async fn changed(&mut self) -> Result<(), SessionLoss> {
        self.0.changed().await.map_err(|_| ended())?;
        lost_if_terminated(*self.0.borrow_and_update())
    }
}

fn lost_if_terminated(state: SessionState) -> Result<(), SessionLoss> {
    if state.is_terminated() { Err(SessionLoss(format!("the session is {state}"))) } else { Ok(()) }
}

/// No process follows the session any more, so its last state was read.
fn ended() -> SessionLoss {
    SessionLoss("the session has expired".into())
}
