//! The connections of a pool: a bounded number that is kept open, each to the storage with the right stamp. It knows no
//! batches and no queues.

use std::sync::Arc;
use std::time::Instant;

use deadpool::managed::{self, Metrics, Object, PoolError, QueueMode, RecycleError, RecycleResult, Timeouts};
use parking_lot::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::address::Address;
use super::connection::Connection;
use super::errors::Failure;
use super::limits;
use super::migrations;
use crate::StoreError;
use crate::stamp::{FirstStamp, Stamp};
use angarium_core::durability::Durability;

/// The state of the server, shared by all links of a pool.
#[derive(Default)]
pub(super) struct ServerState {
    stamp: FirstStamp,
    /// Held to read or write it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    class: Option<Durability>,
    /// Bytes of messages at the last measurement.
    used: u64,
    /// Time and reason of the last failure, if the last attempt to connect failed.
    failed: Option<(Instant, String)>,
}

impl ServerState {
    /// The most durable class at the last connection.
    pub(super) fn class(&self) -> Durability {
        self.state.lock().class.unwrap_or(Durability::Relaxed)
    }

    pub(super) fn used(&self) -> u64 {
        self.state.lock().used
    }

    pub(super) fn set_used(&self, used: u64) {
        self.state.lock().used = used;
    }

    /// Checks that the last attempt to connect did not fail just before.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match &self.state.lock().failed {
            Some((when, why)) if when.elapsed() < limits::PAUSE => Err(StoreError::NotSent(why.clone())),
            Some(_) | None => Ok(()),
        }
    }

    fn failed(&self, why: &str) {
        self.state.lock().failed = Some((Instant::now(), why.to_owned()));
    }

    /// Takes over the class of a new connection. A decrease is an error once, so that no write is acknowledged with the
    /// old class.
    fn learn(&self, class: Durability) -> Result<(), String> {
        let mut state = self.state.lock();
        match state.class.replace(class) {
            Some(before) if class < before => {
                Err(format!("the server only reaches {class} now, and no more {before}"))
            }
            Some(_) | None => {
                state.failed = None;
                Ok(())
            }
        }
    }
}

/// A connection, and the stamp that was read over it.
pub(super) struct Session {
    pub(super) connection: Connection,
    stamp: Option<Stamp>,
}

/// Creates connections.
pub(super) struct Sessions {
    address: Arc<Address>,
    known: Arc<ServerState>,
}

impl managed::Manager for Sessions {
    type Type = Session;
    type Error = String;

    async fn create(&self) -> Result<Session, String> {
        let connection = Connection::open(&self.address).await?;
        let stamp = migrations::read_stamp(&connection, &self.address.schema)
            .await
            .map_err(|error| error.to_string())?;
        self.known.learn(connection.class)?;
        Ok(Session { connection, stamp })
    }

    async fn recycle(&self, session: &mut Session, _: &Metrics) -> RecycleResult<String> {
        if session.connection.is_usable() {
            Ok(())
        } else {
            Err(RecycleError::message("the connection is broken"))
        }
    }
}

/// Connections for one purpose.
pub(super) struct Link {
    sessions: managed::Pool<Sessions>,
    schema: String,
    known: Arc<ServerState>,
}

/// A session for one statement.
pub(super) type LinkSession = Object<Sessions>;

impl Link {
    /// Returns a link with at most `size` connections; none is open yet.
    pub(super) fn new(address: &Arc<Address>, known: &Arc<ServerState>, size: usize) -> Self {
        let sessions = Sessions { address: Arc::clone(address), known: Arc::clone(known) };
        let timeouts = Timeouts {
            wait: Some(limits::CONNECT),
            // A connection attempt and each statement have their own timeouts.
            create: None,
            recycle: None,
        };
        let builder = managed::Pool::builder(sessions)
            .max_size(size)
            .timeouts(timeouts)
            .queue_mode(QueueMode::Lifo)
            .runtime(deadpool::Runtime::Tokio1);
        let sessions = builder.build().expect("the runtime for the timeouts is named");
        Self { sessions, schema: address.schema.clone(), known: Arc::clone(known) }
    }

    /// Returns a session with a storage of any stamp.
    pub(super) async fn open(&self) -> Result<LinkSession, StoreError> {
        self.known.check()?;
        self.sessions.get().await.map_err(|error| match error {
            PoolError::Backend(why) => {
                self.known.failed(&why);
                StoreError::NotSent(why)
            }
            PoolError::Timeout(_) => StoreError::NotSent("all connections to PostgreSQL are in use".into()),
            PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
                StoreError::NotSent(error.to_string())
            }
        })
    }

    /// Returns a session with the storage of the pool, and the pool's stamp.
    pub(super) async fn session(&self) -> Result<(LinkSession, Stamp), StoreError> {
        let mut session = self.open().await?;
        if session.stamp.is_none() {
            session.stamp = migrations::read_stamp(&session.connection, &self.schema).await?;
        }
        match self.known.stamp.recognise(session.stamp) {
            Ok(stamp) => Ok((session, stamp)),
            Err(error) => {
                // The next session reads the stamp again.
                session.connection.give_up();
                Err(error)
            }
        }
    }

    /// Returns a session whose statements all see the state at the first of them.
    pub(super) async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let (session, _) = self.session().await?;
        let snapshot = Snapshot { session, is_ended: false };
        snapshot.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        Ok(snapshot)
    }
}

/// A session in a reading transaction. If it is dropped before its end, by an error or together with its caller, the
/// session is closed: otherwise its next user would be in the same transaction.
pub(super) struct Snapshot {
    session: LinkSession,
    is_ended: bool,
}

impl Snapshot {
    pub(super) async fn read(
        &self,
        text: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        self.session.connection.query(text, parameters).await.map_err(Failure::of_read)
    }

    /// Ends the transaction and returns the session.
    pub(super) async fn end(mut self) -> Result<(), StoreError> {
        self.run("COMMIT").await?;
        self.is_ended = true;
        Ok(())
    }

    async fn run(&self, text: &str) -> Result<(), StoreError> {
        self.session.connection.run(text).await.map_err(Failure::of_read)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if !self.is_ended {
            self.session.connection.give_up();
        }
    }
}
