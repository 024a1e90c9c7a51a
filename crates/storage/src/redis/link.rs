//! A link to the servers: it connects when needed, checks that the servers are suitable for a pool and that the storage
//! is the right one, and does both again after every failure. It knows no batches and no queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use redis::{Cmd, RedisResult, Value};

use super::address::{Address, WriteConcern};
use super::connection::Connection;
use super::errors;
use super::limits;
use super::scripts::Script;
use super::server::{self, Server};
use super::stored::{self, Keys};
use crate::StoreError;
use crate::stamp::{FirstStamp, Stamp};
use angarium_core::durability::Durability;

/// The state of the servers, shared by all links of a pool.
#[derive(Default)]
pub(super) struct ServerState {
    /// Increases when a connection is found broken: older connections are not used any more, because they may lead to a
    /// server that is no master now.
    breaks: AtomicU64,
    stamp: FirstStamp,
    /// Held to read or write it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    class: Option<Durability>,
    masters: Vec<Server>,
}

impl ServerState {
    /// The most durable class at the last check.
    pub(super) fn class(&self) -> Durability {
        self.state.lock().class.unwrap_or(Durability::Relaxed)
    }

    /// Bytes in use and max bytes of all masters together; none if one of them has no bound.
    pub(super) fn memory(&self) -> Option<(u64, u64)> {
        let state = self.state.lock();
        let is_bounded =
            !state.masters.is_empty() && state.masters.iter().all(|master| master.max_memory > 0);
        let sum = |of: fn(&Server) -> u64| state.masters.iter().map(of).fold(0, u64::saturating_add);
        is_bounded.then(|| (sum(|master| master.used), sum(|master| master.max_memory)))
    }

    /// Takes over the reported properties of the servers. A decrease of the class is an error once, so that no write is
    /// acknowledged with the old class.
    fn learn(&self, masters: Vec<Server>, waits: WriteConcern) -> Result<(), String> {
        masters.iter().try_for_each(|master| master.check(waits))?;
        let class =
            masters.iter().map(|master| master.class(waits)).min().ok_or("the cluster has no master")?;
        let mut state = self.state.lock();
        let before = state.class.replace(class);
        state.masters = masters;
        match before {
            Some(before) if class < before => {
                Err(format!("the servers only reach {class} now, and no more {before}"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// A link with at most one connection.
pub(super) struct Link {
    address: Arc<Address>,
    known: Arc<ServerState>,
    /// Held to copy or replace the connection.
    open: Mutex<Option<OpenConnection>>,
    /// Held by the task that connects or checks the servers; other tasks wait for its result.
    gate: tokio::sync::Mutex<()>,
    /// Number of begun connections.
    attempts: AtomicUsize,
    /// Time and reason of the last failure, if the last attempt failed. Held to read or write it.
    failed: Mutex<Option<(Instant, String)>>,
}

/// A connection whose servers were checked.
#[derive(Clone)]
pub(super) struct OpenConnection {
    pub(super) connection: Connection,
    /// The stamp of the storage.
    pub(super) stamp: Option<Stamp>,
    checked: Instant,
    breaks: u64,
}

/// A connection to the right storage, and the names of its keys.
pub(super) struct LinkSession {
    open: OpenConnection,
    pub(super) keys: Keys,
}

impl Link {
    pub(super) fn new(address: Arc<Address>, known: Arc<ServerState>) -> Self {
        let (open, gate, failed) = (Mutex::default(), tokio::sync::Mutex::default(), Mutex::default());
        Self { address, known, open, gate, attempts: AtomicUsize::new(0), failed }
    }

    /// Checks that the last attempt to connect did not fail just before.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match &*self.failed.lock() {
            Some((at, why)) if at.elapsed() < limits::PAUSE => Err(StoreError::NotSent(why.clone())),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns a connection to the storage with the first stamp.
    pub(super) async fn session(&self) -> Result<LinkSession, StoreError> {
        let open = self.open().await?;
        match self.known.stamp.recognise(open.stamp) {
            Ok(stamp) => Ok(LinkSession { open, keys: Keys::new(&self.address.prefix, stamp) }),
            Err(error) => {
                // The right storage may return, or be registered later.
                self.forget(&open);
                Err(error)
            }
        }
    }

    /// Returns a connection to a storage with any stamp.
    pub(super) async fn open(&self) -> Result<OpenConnection, StoreError> {
        if let Some(open) = self.fresh() {
            return Ok(open);
        }
        let _gate = self.gate.lock().await;
        if let Some(open) = self.fresh() {
            return Ok(open);
        }
        self.check()?;
        let checked = self.check_servers().await;
        let (open, failed) = match &checked {
            Ok(open) => (Some(open.clone()), None),
            Err(why) => (None, Some((Instant::now(), why.clone()))),
        };
        *self.open.lock() = open;
        *self.failed.lock() = failed;
        checked.map_err(StoreError::NotSent)
    }

    fn fresh(&self) -> Option<OpenConnection> {
        let breaks = self.known.breaks.load(Ordering::SeqCst);
        let open = self.open.lock();
        open.as_ref().filter(|open| open.breaks == breaks && open.checked.elapsed() < limits::LOOK).cloned()
    }

    /// Reads the properties of the servers, over the existing connection or a new one.
    async fn check_servers(&self) -> Result<OpenConnection, String> {
        let breaks = self.known.breaks.load(Ordering::SeqCst);
        let existing = self.open.lock().take().filter(|open| open.breaks == breaks);
        let mut connection = match existing {
            Some(open) => open.connection,
            None => Connection::open(&self.address, self.attempts.fetch_add(1, Ordering::Relaxed)).await?,
        };
        let (masters, stamp) = self
            .query_servers(&mut connection)
            .await
            .map_err(|error| format!("the servers do not say what they are: {error}"))?;
        self.known.learn(masters, self.address.waits)?;
        let stamp =
            stamp.map(|text| stored::decode_stamp(&text)).transpose().map_err(|error| error.to_string())?;
        Ok(OpenConnection { connection, stamp, checked: Instant::now(), breaks })
    }

    /// Reads the properties of the masters, and the stamp.
    async fn query_servers(&self, connection: &mut Connection) -> RedisResult<(Vec<Server>, Option<String>)> {
        let info = connection.query_masters(&redis::cmd("INFO")).await?;
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg("*append*");
        // Where the user may not read settings, no write counts as synced.
        let settings = connection.query_masters(&command).await.unwrap_or_default();
        let mut settings = settings.iter().map(server::pairs);
        let mut masters = Vec::with_capacity(info.len());
        for info in info {
            let info: String = redis::from_redis_value(info)?;
            masters.push(Server::read(&info, &settings.next().unwrap_or_default()));
        }
        let stamp = connection.send(redis::cmd("GET").arg(stored::stamp_key(&self.address.prefix))).await?;
        Ok((masters, redis::from_redis_value(stamp)?))
    }

    /// Invalidates all older connections, of this link and of the others.
    pub(super) fn forget(&self, open: &OpenConnection) {
        let next = open.breaks + 1;
        // Another task may have done that already.
        let _ = self.known.breaks.compare_exchange(open.breaks, next, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Runs a script that writes, and waits for the required replicas.
    pub(super) async fn write(
        &self,
        mut session: LinkSession,
        script: &Script,
        call: Cmd,
        waits: WriteConcern,
    ) -> Result<Value, StoreError> {
        let connection = &mut session.open.connection;
        let sent = connection.sent();
        let mut answer = send_and_wait(connection, &call, waits).await;
        if answer.as_ref().is_err_and(errors::is_unknown_script) {
            answer = send_and_wait(connection, &script.with_body(&call), waits).await;
        }
        let (value, waited) = answer.map_err(|error| {
            if errors::breaks(&error) {
                self.forget(&session.open);
            }
            if errors::is_full(&error) { StoreError::Full } else { errors::write_failed(&error, sent) }
        })?;
        waited.map_err(StoreError::Unknown)?;
        Ok(value)
    }

    /// Runs a script that only reads.
    pub(super) async fn read(
        &self,
        mut session: LinkSession,
        script: &Script,
        call: &Cmd,
    ) -> Result<Value, StoreError> {
        let connection = &mut session.open.connection;
        let mut answer = connection.send(call).await;
        if answer.as_ref().is_err_and(errors::is_unknown_script) {
            answer = connection.send(&script.with_body(call)).await;
        }
        self.check_reply(&session.open, answer)
    }

    /// Sends a command that only reads.
    pub(super) async fn query(&self, mut session: LinkSession, command: &Cmd) -> Result<Value, StoreError> {
        let answer = session.open.connection.send(command).await;
        self.check_reply(&session.open, answer)
    }

    /// Sends commands that only read, each to the server of its key.
    pub(super) async fn query_each(
        &self,
        mut session: LinkSession,
        commands: &[Cmd],
    ) -> Result<Vec<Value>, StoreError> {
        let answers = session.open.connection.send_each(commands).await;
        self.check_reply(&session.open, answers)
    }

    fn check_reply<T>(&self, open: &OpenConnection, answer: RedisResult<T>) -> Result<T, StoreError> {
        answer.map_err(|error| {
            if errors::breaks(&error) {
                self.forget(open);
            }
            errors::read_failed(&error)
        })
    }
}

/// Creates keys, which may be on any server, with the required copies.
pub(super) async fn make_all(
    connection: &mut Connection,
    commands: &[Cmd],
    waits: WriteConcern,
) -> RedisResult<()> {
    if !waits.any() {
        return connection.send_each(commands).await.map(|_| ());
    }
    for command in commands {
        let (_, waited) = send_and_wait(connection, command, waits).await?;
        waited.map_err(std::io::Error::other)?;
    }
    Ok(())
}

/// Sends a write. The inner result is that of the wait for copies: the write itself was carried out.
async fn send_and_wait(
    connection: &mut Connection,
    call: &Cmd,
    waits: WriteConcern,
) -> RedisResult<(Value, Result<(), String>)> {
    if !waits.any() {
        return Ok((connection.send(call).await?, Ok(())));
    }
    let mut others = Vec::new();
    let bound = limits::WAIT.as_millis().to_string();
    if waits.replicas > 0 {
        let mut wait = redis::cmd("WAIT");
        wait.arg(waits.replicas).arg(&bound);
        others.push(wait);
    }
    if let Some(replicas) = waits.synced {
        let mut wait = redis::cmd("WAITAOF");
        wait.arg(1).arg(replicas).arg(&bound);
        others.push(wait);
    }
    let mut answers = connection.send_all(call, &others).await?.into_iter();
    let value = answers.next().unwrap_or_default().extract_error()?;
    Ok((value, waited(waits, answers)))
}

/// Checks that enough servers have the write.
fn waited(waits: WriteConcern, mut answers: impl Iterator<Item = Value>) -> Result<(), String> {
    let mut next = || answers.next().unwrap_or_default().extract_error().map_err(|error| error.to_string());
    if waits.replicas > 0 {
        let have: u32 = redis::from_redis_value(next()?).map_err(|error| error.to_string())?;
        if have < waits.replicas {
            return Err(format!("{have} replicas have the batch, and {} must", waits.replicas));
        }
    }
    if let Some(replicas) = waits.synced {
        let have: (u32, u32) = redis::from_redis_value(next()?).map_err(|error| error.to_string())?;
        if have.0 < 1 || have.1 < replicas {
            return Err(format!(
                "{} masters and {} replicas have synced the batch, and 1 and {replicas} must",
                have.0, have.1
            ));
        }
    }
    Ok(())
}
