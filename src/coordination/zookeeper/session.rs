//! One session with the ensemble: made ready, watched, and closed. It does not outlive its expiry.

use std::time::Duration;

use thiserror::Error as ThisError;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, SessionState, StateWatcher};

use super::address::Address;
use super::directories::Directories;
use super::writer::{WRITERS, Writer};

/// How long a session that is closed may take to say so.
const CLOSE: Duration = Duration::from_secs(2);

/// A session is over; another one must be made.
#[derive(Debug, ThisError)]
#[error("{0}")]
pub(super) struct Lost(pub(super) String);

/// A session, and what is known of the tree in its life.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) directories: Directories,
    /// Cancelled when it is over, so that nobody holds on to it.
    pub(super) over: CancellationToken,
}

/// What a session says of its connection, as one after the other reads it.
pub(super) struct Connection(StateWatcher);

impl Session {
    /// Connects, makes what the tree stands on, and catches up with what was acknowledged in sessions before.
    ///
    /// Everything here may be done twice, so an error or a lost future leaves nothing behind that matters.
    pub(super) async fn start(address: &Address, timeout: Duration) -> Result<(Self, Writer), ZkError> {
        let connector = Client::connector().with_session_timeout(timeout);
        let client = connector.connect(&address.hosts()).await?;
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.mkdir(address.root(), &options).await?;
        let no_root = |_| ZkError::BadArguments(&"the root of the tree is no path");
        let client = client.chroot(address.root().to_owned()).map_err(no_root)?;
        client.mkdir(WRITERS, &options).await?;
        let writer = Writer::create(&client).await?;
        client.sync("/").await?;
        Ok((Self { client, directories: Directories::default(), over: CancellationToken::new() }, writer))
    }

    /// Whether it has a connection now.
    pub(super) fn is_connected(&self) -> bool {
        self.client.state() == SessionState::SyncConnected
    }

    pub(super) fn connection(&self) -> Connection {
        Connection(self.client.state_watcher())
    }

    /// Waits until the session is closed at the servers, after the last user of the client has gone.
    pub(super) async fn close(states: StateWatcher) {
        let mut states = states;
        let closed = async {
            let mut state = states.state();
            while !state.is_terminated() {
                state = states.changed().await;
            }
        };
        if tokio::time::timeout(CLOSE, closed).await.is_err() {
            warn!("a session with ZooKeeper could not be closed; it will expire");
        }
    }
}

impl Connection {
    /// Waits until the session has a connection. May be dropped at any time.
    pub(super) async fn up(&mut self) -> Result<(), Lost> {
        let mut state = self.0.state();
        while state != SessionState::SyncConnected {
            if state.is_terminated() {
                return Err(Lost(format!("the session is {state}")));
            }
            state = self.0.changed().await;
        }
        Ok(())
    }

    /// Waits until the session loses or regains its connection, or ends. May be dropped at any time.
    pub(super) async fn changed(&mut self) -> Result<(), Lost> {
        let state = self.0.changed().await;
        if state.is_terminated() {
            return Err(Lost(format!("the session is {state}")));
        }
        Ok(())
    }
}
