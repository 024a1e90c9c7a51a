//! The ensemble: the leader, and three servers that apply its log, each in its own time.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use angarium_coordination::{Node, Op};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::SERVERS;
use super::leader::{Changes, EXPIRY_TICK, Leader, LeaderAnswer, Outcomes};
use super::link::{Connection, Shared};
use super::nodes::{Nodes, SessionId};
use crate::faults::Fault;
use crate::world::World;

/// The least time between two times for which commits wait.
const DELAY_PAUSE: Duration = Duration::from_secs(20);

/// The nodes of the replicas.
const REGISTRATIONS: &str = "/meta/components/replica/";

/// Three simulated servers of the tree. Clones share them.
#[derive(Clone)]
pub struct Ensemble(Arc<Inner>);

struct Inner {
    world: World,
    /// Held for one request or one step of a server. The lock of a handle may be taken inside it, never around it.
    state: Mutex<State>,
    /// Until this time many reads take seconds.
    slow_until: Mutex<Duration>,
    /// Until this time all commits are refused.
    refused_until: Mutex<Duration>,
    /// Until this time commits wait before they are sent.
    delayed_until: Mutex<Duration>,
    /// The address of a replica whose next change of its registration is refused.
    refused_registration: Mutex<Option<String>>,
    /// Notifies the servers of a new transaction.
    grown: Notify,
    /// Notifies the handles of a transaction that a server has applied.
    advanced: [Notify; SERVERS],
}

struct State {
    leader: Leader,
    servers: [Server; SERVERS],
}

struct Server {
    nodes: Nodes,
    /// The last transaction that it has applied.
    applied: u64,
    /// The connected handles, in the order of their connection.
    connections: Vec<(Weak<Shared>, Connection)>,
}

impl Ensemble {
    /// Starts the servers. The leader's clock shows `start_millis` at the start of the world. Must be called in the
    /// world's runtime.
    pub fn new(world: World, start_millis: u64) -> Self {
        let server = || Server { nodes: Nodes::new(), applied: 0, connections: Vec::new() };
        let servers = std::array::from_fn(|_| server());
        let state = State { leader: Leader::new(world.clone(), start_millis), servers };
        let (grown, advanced) = (Notify::new(), std::array::from_fn(|_| Notify::new()));
        let ensemble = Self(Arc::new(Inner {
            world,
            state: Mutex::new(state),
            slow_until: Mutex::default(),
            refused_until: Mutex::default(),
            delayed_until: Mutex::default(),
            refused_registration: Mutex::default(),
            grown,
            advanced,
        }));
        for server in 0..SERVERS {
            let follower = ensemble.clone();
            ensemble.0.world.spawn(async move { follower.follow(server).await });
        }
        let leader = ensemble.clone();
        ensemble.0.world.spawn(async move {
            loop {
                tokio::time::sleep(EXPIRY_TICK).await;
                if leader.0.state.lock().leader.expire() {
                    leader.0.grown.notify_waiters();
                }
            }
        });
        ensemble
    }

    /// Applies the log at one server, normally a hop after each commit, and seconds late when it is behind.
    async fn follow(&self, server: usize) {
        loop {
            let grown = self.0.grown.notified();
            let (applied, last, is_leader) = {
                let state = self.0.state.lock();
                (state.servers[server].applied, state.leader.last, state.leader.server == server)
            };
            if applied >= last {
                grown.await;
                continue;
            }
            if !is_leader && self.0.world.happens(Fault::TreeServerBehind) {
                tokio::time::sleep(Duration::from_millis(200 + self.0.world.below(19_800))).await;
            } else {
                self.0.world.hop().await;
            }
            self.0.state.lock().apply(server, last);
            self.0.advanced[server].notify_waiters();
        }
    }

    /// Lets many reads take seconds for a while.
    pub fn slow_reads(&self, time: Duration) {
        *self.0.slow_until.lock() = self.0.world.elapsed() + time;
    }

    /// Whether many reads take seconds now.
    pub(super) fn has_slow_reads(&self) -> bool {
        !self.0.world.is_healed() && self.0.world.elapsed() < *self.0.slow_until.lock()
    }

    /// Lets all commits be refused before they are sent, for a while.
    pub fn refuse_commits(&self, time: Duration) {
        *self.0.refused_until.lock() = self.0.world.elapsed() + time;
    }

    /// Whether commits are refused now.
    pub(super) fn refuses_commits(&self) -> bool {
        !self.0.world.is_healed() && self.0.world.elapsed() < *self.0.refused_until.lock()
    }

    /// Lets all commits wait until `time` has passed. Returns false when others have waited shortly before: no request
    /// may wait again and again.
    pub fn delay_commits(&self, time: Duration) -> bool {
        let (now, mut until) = (self.0.world.elapsed(), self.0.delayed_until.lock());
        let begins = now >= *until + DELAY_PAUSE;
        if begins {
            *until = now + time;
        }
        begins
    }

    /// Returns how long a commit waits now before it is sent, if it does.
    pub(super) fn commit_delay(&self) -> Option<Duration> {
        let left = self.0.delayed_until.lock().checked_sub(self.0.world.elapsed())?;
        (!left.is_zero() && !self.0.world.is_healed()).then_some(left)
    }

    /// Lets the next change of the registration of a replica be refused before it is sent.
    pub fn refuse_registration(&self, address: &str) {
        *self.0.refused_registration.lock() = Some(address.to_owned());
    }

    /// Whether one of these commits is refused for that, which happens once.
    pub(super) fn refuses_registration<'c>(&self, mut commits: impl Iterator<Item = &'c Changes>) -> bool {
        let mut refused = self.0.refused_registration.lock();
        let Some(address) = refused.as_ref().filter(|_| !self.0.world.is_healed()) else { return false };
        let quoted = format!("\"{address}\"");
        let is_refused = |op: &Op| match op {
            Op::Set { path, data, .. } => {
                path.starts_with(REGISTRATIONS) && String::from_utf8_lossy(data).contains(&quoted)
            }
            Op::Create { .. } | Op::Delete { .. } => false,
        };
        let refuses = commits.any(|(_, ops)| ops.iter().any(is_refused));
        if refuses {
            *refused = None;
        }
        refuses
    }

    /// Makes another server the leader, whose clock differs by `step_ms` from the clock of the last one. Every handle
    /// loses its connection.
    pub fn change_leader(&self, step_ms: i64) {
        let next = {
            let mut state = self.0.state.lock();
            let next = (state.leader.server + 1) % SERVERS;
            // Only a server with the whole log is elected.
            let last = state.leader.last;
            state.apply(next, last);
            state.leader.change(next, step_ms);
            for server in &mut state.servers {
                for (handle, connection) in server.connections.drain(..) {
                    if let Some(handle) = handle.upgrade() {
                        handle.disconnect(connection);
                    }
                }
            }
            next
        };
        self.0.advanced[next].notify_waiters();
    }

    /// Lets no more requests of the session of a process reach the leader, as if its server were cut off from the
    /// others. So the session ends when its timeout has passed, which is after the end of its lease. Returns whether
    /// there was a session.
    pub fn end_session_of(&self, name: &str) -> bool {
        self.0.state.lock().leader.mute(name)
    }

    /// Returns the names of the processes with a session at the leader, one for each session.
    pub fn session_names(&self) -> Vec<String> {
        self.0.state.lock().leader.session_names()
    }

    /// Returns the data of all nodes as the leader has them, for judges.
    pub fn dump(&self) -> BTreeMap<String, Bytes> {
        self.0.state.lock().leader.nodes.data()
    }

    /// Returns a node as the leader has it, for judges.
    pub fn get_now(&self, path: &str) -> Option<Node> {
        self.0.state.lock().leader.nodes.get(path)
    }

    pub(super) fn world(&self) -> &World {
        &self.0.world
    }

    pub(super) fn open_session(&self, name: &str) -> SessionId {
        self.0.state.lock().leader.open_session(name)
    }

    /// Ends a session in order.
    pub(super) fn close_session(&self, session: SessionId) {
        self.0.state.lock().leader.end_session(session, "closed");
        self.0.grown.notify_waiters();
    }

    /// Serves a heartbeat or a sync: returns the last transaction.
    pub(super) fn sync(&self, session: SessionId) -> LeaderAnswer<u64> {
        let mut state = self.0.state.lock();
        match state.leader.hear(session) {
            LeaderAnswer::Served(()) => LeaderAnswer::Served(state.leader.last),
            LeaderAnswer::Ended => LeaderAnswer::Ended,
            LeaderAnswer::Silent => LeaderAnswer::Silent,
        }
    }

    pub(super) fn commit(
        &self,
        session: SessionId,
        request: u64,
        commits: &[Changes],
    ) -> LeaderAnswer<Outcomes> {
        let outcomes = self.0.state.lock().leader.commit(session, request, commits);
        self.0.grown.notify_waiters();
        outcomes
    }

    pub(super) fn last(&self) -> u64 {
        self.0.state.lock().leader.last
    }

    /// Reads the nodes of a server. Returns its last transaction, too.
    pub(super) fn read<T>(&self, server: usize, read: impl FnOnce(&Nodes) -> T) -> (T, u64) {
        let state = self.0.state.lock();
        let server = &state.servers[server];
        (read(&server.nodes), server.applied)
    }

    /// Waits until a server has applied a transaction. Cancel safe.
    pub(super) async fn applied(&self, server: usize, zxid: u64) {
        loop {
            let advanced = self.0.advanced[server].notified();
            if self.0.state.lock().servers[server].applied >= zxid {
                return;
            }
            advanced.await;
        }
    }

    /// Reports the changes at a server to a handle from now on.
    pub(super) fn connect(&self, handle: Weak<Shared>, connection: Connection) {
        self.0.state.lock().servers[connection.server].connections.push((handle, connection));
    }
}

impl State {
    /// Applies the log at a server up to a transaction, and notifies its connected handles.
    fn apply(&mut self, server: usize, zxid: u64) {
        let server = &mut self.servers[server];
        let applied = server.applied;
        let log = &self.leader.log;
        let begin = log.partition_point(|transaction| transaction.zxid <= applied);
        for transaction in log.range(begin..).take_while(|transaction| transaction.zxid <= zxid) {
            server.nodes.apply(transaction);
            server.applied = transaction.zxid;
            server.connections.retain(|(handle, connection)| {
                let Some(handle) = handle.upgrade() else { return false };
                let is_connected = handle.notify(*connection, &transaction.paths);
                if is_connected && transaction.ended == Some(connection.session) {
                    handle.disconnect(*connection);
                    return false;
                }
                is_connected
            });
        }
        let by_all = self.servers.iter().map(|server| server.applied).min().unwrap_or(0);
        self.leader.drop_applied(by_all);
    }
}
