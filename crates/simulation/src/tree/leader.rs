//! The leader: its sessions, its clock, and the log of the transactions that the servers apply.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use angarium_coordination::{CommitResult, Fence, Op, TreeError};
use angarium_core::time::Timestamp;
use tokio::time::Instant;

use super::SESSION_TIMEOUT;
use super::nodes::{Nodes, SessionId, StagedCommit, Transaction};
use crate::world::World;

/// Max operations that a line of the trace names.
const NOTED_OPS: usize = 4;

/// Time between two checks for expired sessions.
pub(super) const EXPIRY_TICK: Duration = Duration::from_millis(500);

/// The fences and operations of one caller's commit.
pub(super) type Changes = (Vec<Fence>, Vec<Op>);

/// The leader's answer to a request of a session.
pub(super) enum LeaderAnswer<T> {
    Served(T),
    /// The session has ended. Nothing was done.
    Ended,
    /// The request did not reach the leader, or came after a later one of its session. Nothing was done.
    Silent,
}

/// The outcome of each commit of a request.
pub(super) struct Outcomes {
    /// The last transaction that the outcomes depend on.
    pub(super) zxid: u64,
    pub(super) commits: Vec<Result<CommitResult, TreeError>>,
}

struct SessionState {
    /// Name of the process.
    name: String,
    /// The last time that a request of it arrived.
    heard: Instant,
    /// Whether no more requests of it reach the leader.
    is_muted: bool,
    /// The number of its last commit request. An earlier one that arrives later is void (P15).
    last_request: u64,
}

/// The leader.
pub(super) struct Leader {
    world: World,
    pub(super) nodes: Nodes,
    /// Transactions that some server has not applied.
    pub(super) log: VecDeque<Arc<Transaction>>,
    /// The last transaction.
    pub(super) last: u64,
    /// Number of leaders so far. It is the upper half of the number of a transaction.
    epoch: u64,
    /// The server that leads.
    pub(super) server: usize,
    start_millis: u64,
    offset_millis: i64,
    sessions: BTreeMap<SessionId, SessionState>,
    last_session: SessionId,
}

impl Leader {
    pub(super) fn new(world: World, start_millis: u64) -> Self {
        Self {
            world,
            nodes: Nodes::new(),
            log: VecDeque::new(),
            last: 0,
            epoch: 1,
            server: 0,
            start_millis,
            offset_millis: 0,
            sessions: BTreeMap::new(),
            last_session: 0,
        }
    }

    fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.world.elapsed().as_millis()).unwrap_or(u64::MAX);
        let millis = self.start_millis.saturating_add(elapsed).saturating_add_signed(self.offset_millis);
        Timestamp::from_millis(millis)
    }

    fn next_zxid(&self) -> u64 {
        (self.last + 1).max((self.epoch << 32) + 1)
    }

    fn append(&mut self, transaction: Transaction) {
        self.last = transaction.zxid;
        self.nodes.apply(&transaction);
        self.log.push_back(Arc::new(transaction));
    }

    /// Makes another server the leader. The timeout of every live session starts again.
    pub(super) fn change(&mut self, server: usize, step_millis: i64) {
        self.server = server;
        self.epoch += 1;
        self.offset_millis = self.offset_millis.saturating_add(step_millis);
        let heard = self.sessions.values_mut().filter(|session| !session.is_muted);
        heard.for_each(|session| session.heard = Instant::now());
        self.world.note(|| format!("tree: server {server} leads, clock {step_millis:+} ms"));
    }

    pub(super) fn open_session(&mut self, name: &str) -> SessionId {
        self.last_session += 1;
        let id = self.last_session;
        let session =
            SessionState { name: name.to_owned(), heard: Instant::now(), is_muted: false, last_request: 0 };
        self.sessions.insert(id, session);
        self.world.note(|| format!("tree: session {id} of {name} opened"));
        id
    }

    /// Records a request of a session, and returns whether the leader serves it.
    pub(super) fn hear(&mut self, id: SessionId) -> LeaderAnswer<()> {
        match self.sessions.get_mut(&id) {
            None => LeaderAnswer::Ended,
            Some(session) if session.is_muted => LeaderAnswer::Silent,
            Some(session) => {
                session.heard = Instant::now();
                LeaderAnswer::Served(())
            }
        }
    }

    /// Lets no more requests of the sessions of a process reach the leader, so that they end. Returns whether there is
    /// such a session.
    pub(super) fn mute(&mut self, name: &str) -> bool {
        let mut is_any = false;
        for session in self.sessions.values_mut().filter(|session| session.name == name) {
            session.is_muted = true;
            is_any = true;
        }
        if is_any {
            self.world.note(|| format!("tree: the leader gets nothing from {name}"));
        }
        is_any
    }

    /// Returns the names of the processes that have a session, one for each session.
    pub(super) fn session_names(&self) -> Vec<String> {
        self.sessions.values().map(|session| session.name.clone()).collect()
    }

    /// Ends the sessions that were silent for the timeout. Returns whether there were any.
    pub(super) fn expire(&mut self) -> bool {
        let is_expired = |session: &SessionState| session.heard.elapsed() >= SESSION_TIMEOUT;
        let expired = self.sessions.iter().filter(|(_, session)| is_expired(session)).map(|(id, _)| *id);
        let expired: Vec<SessionId> = expired.collect();
        expired.iter().for_each(|id| self.end_session(*id, "expired"));
        !expired.is_empty()
    }

    /// Ends a session and deletes its ephemeral nodes.
    pub(super) fn end_session(&mut self, id: SessionId, cause: &str) {
        let Some(session) = self.sessions.remove(&id) else { return };
        let owned = self.nodes.owned_by(id);
        let mut staged = StagedCommit::begin(&self.nodes, id, self.next_zxid(), self.now());
        staged.end_session(&owned).expect("an ephemeral node has a parent and no children");
        let transaction = staged.finish();
        let (zxid, name) = (transaction.zxid, session.name);
        self.append(transaction);
        self.world.note(|| format!("tree: {zxid:x} session {id} of {name} {cause}, {} nodes", owned.len()));
    }

    /// Carries out the commits of a request, each of them wholly or not at all.
    pub(super) fn commit(
        &mut self,
        id: SessionId,
        request: u64,
        commits: &[Changes],
    ) -> LeaderAnswer<Outcomes> {
        match self.hear(id) {
            LeaderAnswer::Served(()) => {}
            LeaderAnswer::Ended => return LeaderAnswer::Ended,
            LeaderAnswer::Silent => return LeaderAnswer::Silent,
        }
        let Some(session) = self.sessions.get_mut(&id) else { return LeaderAnswer::Ended };
        if request <= session.last_request {
            return LeaderAnswer::Silent;
        }
        session.last_request = request;
        let name = session.name.clone();
        let commits = commits.iter().map(|changes| self.commit_one(id, &name, changes)).collect();
        LeaderAnswer::Served(Outcomes { zxid: self.last, commits })
    }

    fn commit_one(
        &mut self,
        id: SessionId,
        name: &str,
        changes: &Changes,
    ) -> Result<CommitResult, TreeError> {
        let (fences, ops) = changes;
        let mut staged = StagedCommit::begin(&self.nodes, id, self.next_zxid(), self.now());
        staged.check(fences)?;
        let committed = staged.apply(ops)?;
        let transaction = staged.finish();
        if !ops.is_empty() {
            self.world.note(|| line(name, ops, &transaction));
            self.append(transaction);
        }
        Ok(committed)
    }

    /// Drops the transactions that every server has applied.
    pub(super) fn drop_applied(&mut self, applied_by_all: u64) {
        while self.log.front().is_some_and(|transaction| transaction.zxid <= applied_by_all) {
            self.log.pop_front();
        }
    }
}

/// Returns the line of the trace for a commit.
fn line(name: &str, ops: &[Op], transaction: &Transaction) -> String {
    let verb = |op: &Op| match op {
        Op::Create { .. } => "create",
        Op::Set { .. } => "set",
        Op::Delete { .. } => "delete",
    };
    let noted = ops.iter().zip(&transaction.paths).take(NOTED_OPS);
    let noted: Vec<String> = noted.map(|(op, path)| format!("{} {path}", verb(op))).collect();
    let more = ops.len().saturating_sub(NOTED_OPS);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("tree: {:x} {name}: {}{rest}", transaction.zxid, noted.join(", "))
}
