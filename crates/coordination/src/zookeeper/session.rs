//! One session with the ensemble: its start, its connection states and its close. It does not outlive its expiry.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error as ThisError;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use zookeeper_client::{Client, Error as ZkError, SessionState, StateWatcher};

use super::access::{Access, AccessError};
use super::address::Address;
use super::directories::Directories;
use super::protection::{self, Identity, Protection};
use super::writer::{WRITERS, Writer};

/// Max time for the servers to confirm the close of a session.
const CLOSE: Duration = Duration::from_secs(2);

/// The session has ended; the keeper must create another one.
#[derive(Debug, ThisError)]
#[error("{0}")]
pub(super) struct SessionLoss(pub(super) String);

/// The reason why a session was not made.
#[derive(Debug, ThisError)]
pub(super) enum SessionFailure {
    /// The files of the identity or of the certificates cannot be used.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The nodes are closed to this session.
    #[error(
        "the nodes of this tree are closed to {}: they belong to another one",
        if *.0 { "the identity of this session" } else { "a session without an identity" }
    )]
    NoRight(bool),
    /// The servers did not authenticate the session.
    #[error(
        "the servers gave the session no identity: their SASL provider, or their check of client certificates, is off"
    )]
    NoIdentity,
    /// The servers refused the credentials.
    #[error("the servers refuse the credentials of the session")]
    AuthFailed,
    /// Another error, which may pass.
    #[error(transparent)]
    Other(ZkError),
}

impl SessionFailure {
    fn of(error: ZkError, has_identity: bool) -> Self {
        match error {
            ZkError::NoAuth => Self::NoRight(has_identity),
            ZkError::InvalidAcl => Self::NoIdentity,
            ZkError::AuthFailed => Self::AuthFailed,
            other => Self::Other(other),
        }
    }

    /// Returns whether only a change of the settings, or at the servers, helps.
    pub(super) fn lasts(&self) -> bool {
        !matches!(self, Self::Other(_))
    }
}

/// A session, and the directory sizes known in it.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) directories: Directories,
    /// The ids of the session; none when it is not authenticated.
    pub(super) identity: Option<Identity>,
    /// The last known protection of the tree. It only grows: an open tree may be closed, and a closed one stays closed.
    protection: watch::Sender<Protection>,
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
    pub(super) async fn start(
        address: &Address,
        access: &Access,
        timeout: Duration,
    ) -> Result<(Self, Writer), SessionFailure> {
        let has_identity = access.has_identity();
        let started = Self::open(address, access, timeout).await;
        started.map_err(|error| SessionFailure::of(error, has_identity))
    }

    async fn open(address: &Address, access: &Access, timeout: Duration) -> Result<(Self, Writer), ZkError> {
        let client = access.connect(address, timeout).await?;
        let has_identity = access.has_identity();
        let root = if has_identity { Protection::Closed } else { Protection::Open };
        protection::create_root(&client, address.root(), root).await?;
        let states = follow(client.state_watcher());
        let no_root = |_| ZkError::BadArguments(&"the root of the tree is no path");
        let client = client.chroot(address.root().to_owned()).map_err(no_root)?;
        if client.check_stat(WRITERS).await?.is_none() {
            let new = if has_identity { Protection::of_new_tree(&client).await? } else { Protection::Open };
            new.create(&client).await?;
        }
        let SessionWriter { writer, identity, protection } = create_writer(&client, has_identity).await?;
        let (directories, ended) = (Directories::default(), CancellationToken::new());
        let protection = watch::Sender::new(protection);
        Ok((Self { client, directories, identity, protection, states, ended }, writer))
    }

    pub(super) fn protection(&self) -> Protection {
        *self.protection.borrow()
    }

    /// Waits until the protection of the tree is not the one that the writer was created for.
    pub(super) async fn outdates(&self, writer: &Writer) {
        let mut protection = self.protection.subscribe();
        if protection.wait_for(|protection| *protection != writer.protection()).await.is_err() {
            std::future::pending().await
        }
    }

    /// Follows the protection of a tree that is not closed, if the session can create closed nodes. Cancel safe.
    pub(super) async fn follow_protection(&self) -> Infallible {
        let pause = self.client.session_timeout() / 6;
        let Some(identity) = &self.identity else { return std::future::pending().await };
        while self.protection() != Protection::Closed {
            tokio::time::sleep(pause).await;
            match Protection::read(&self.client, Some(identity)).await {
                Ok(protection) if protection > self.protection() => {
                    if protection == Protection::Closed {
                        info!("zookeeper tree closed to other clients");
                    }
                    self.protection.send_replace(protection);
                }
                Ok(_) => {}
                Err(error) => debug!(%error, "protection of the tree not read"),
            }
        }
        std::future::pending().await
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

/// The writer's node of a new session, and what it shows about the session.
struct SessionWriter {
    writer: Writer,
    /// None for a session that is not authenticated.
    identity: Option<Identity>,
    protection: Protection,
}

/// Creates the writer's node for the protection of the tree.
///
/// The protection is read after the node exists, because the node shows the ids of the session. The session that closes
/// the tree looks at the nodes after its declaration. So either it finds this node, or this session finds the
/// declaration.
async fn create_writer(client: &Client, has_identity: bool) -> Result<SessionWriter, ZkError> {
    let mut expected = Protection::read(client, None).await?;
    loop {
        if !has_identity && expected == Protection::Closed {
            return Err(ZkError::NoAuth);
        }
        let writer = Writer::create(client, has_identity, expected).await?;
        client.sync("/").await?;
        let identity = if has_identity { Some(Identity::read(client, writer.path()).await?) } else { None };
        if identity.is_some() && expected != Protection::Open {
            protection::close_top(client).await?;
        }
        let protection = Protection::read(client, identity.as_ref()).await?;
        if protection == expected {
            return Ok(SessionWriter { writer, identity, protection });
        }
        client.delete(writer.path(), None).await?;
        expected = protection;
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
