//! Connections of a pool: kept ready, a bounded number, each to the storage with the right stamp. It knows no batch and no
//! queue.

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

/// What all links of a pool know of its server.
#[derive(Default)]
pub(super) struct ServerState {
    stamp: FirstStamp,
    /// Held to read or to write it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    class: Option<Durability>,
    /// Bytes that messages took at the last look.
    used: u64,
    /// When and why the last try to connect failed.
    failed: Option<(Instant, String)>,
}

impl ServerState {
    /// The most durable class that was found with the last connection.
    pub(super) fn class(&self) -> Durability {
        self.state.lock().class.unwrap_or(Durability::Relaxed)
    }

    pub(super) fn used(&self) -> u64 {
        self.state.lock().used
    }

    pub(super) fn set_used(&self, used: u64) {
        self.state.lock().used = used;
    }

    /// Whether a use has a chance: the last try to connect did not fail only a moment ago.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match &self.state.lock().failed {
            Some((when, why)) if when.elapsed() < limits::PAUSE => Err(StoreError::NotSent(why.clone())),
            Some(_) | None => Ok(()),
        }
    }

    fn failed(&self, why: &str) {
        self.state.lock().failed = Some((Instant::now(), why.to_owned()));
    }

    /// Takes in what a new connection found. When the server came down to a lower class that is an error once, so that
    /// nothing is acknowledged by the old one.
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

/// A connection, and the stamp that was found with it.
pub(super) struct Session {
    pub(super) connection: Connection,
    stamp: Option<Stamp>,
}

/// Makes connections.
pub(super) struct Sessions {
    address: Arc<Address>,
    known: Arc<ServerState>,
}

impl managed::Manager for Sessions {
    type Type = Session;
    type Error = String;

    async fn create(&self) -> Result<Session, String> {
        let connection = Connection::open(&self.address).await?;
        let stamp =
            migrations::look(&connection, &self.address.schema).await.map_err(|error| error.to_string())?;
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

/// Connections for one kind of work.
pub(super) struct Link {
    sessions: managed::Pool<Sessions>,
    schema: String,
    known: Arc<ServerState>,
}

/// A session for one statement.
pub(super) type LinkSession = Object<Sessions>;

impl Link {
    /// At most `size` connections; none is made yet.
    pub(super) fn new(address: &Arc<Address>, known: &Arc<ServerState>, size: usize) -> Self {
        let sessions = Sessions { address: Arc::clone(address), known: Arc::clone(known) };
        let timeouts = Timeouts {
            wait: Some(limits::CONNECT),
            // Connecting has its own bounds, and so has each statement.
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

    /// A session with whatever storage is there.
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

    /// A session with the storage of the pool, and the pool's stamp.
    pub(super) async fn way(&self) -> Result<(LinkSession, Stamp), StoreError> {
        let mut way = self.open().await?;
        if way.stamp.is_none() {
            way.stamp = migrations::look(&way.connection, &self.schema).await?;
        }
        match self.known.stamp.recognise(way.stamp) {
            Ok(stamp) => Ok((way, stamp)),
            Err(error) => {
                // The next one looks again.
                way.connection.give_up();
                Err(error)
            }
        }
    }

    /// A session whose statements all see the storage as it is at the first of them.
    pub(super) async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let (way, _) = self.way().await?;
        let snapshot = Snapshot { way, is_ended: false };
        snapshot.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        Ok(snapshot)
    }
}

/// A session in a transaction that reads. One that is dropped before its end, by an error or with its caller, is closed: the
/// next user of the session would be in the same transaction.
pub(super) struct Snapshot {
    way: LinkSession,
    is_ended: bool,
}

impl Snapshot {
    pub(super) async fn read(
        &self,
        text: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        self.way.connection.query(text, parameters).await.map_err(Failure::of_read)
    }

    /// Gives the session back.
    pub(super) async fn end(mut self) -> Result<(), StoreError> {
        self.run("COMMIT").await?;
        self.is_ended = true;
        Ok(())
    }

    async fn run(&self, text: &str) -> Result<(), StoreError> {
        self.way.connection.run(text).await.map_err(Failure::of_read)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if !self.is_ended {
            self.way.connection.give_up();
        }
    }
}
