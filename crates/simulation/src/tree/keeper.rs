//! The keeper of a handle: holds one session after the other, sends heartbeats, renews the lease, and connects again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::leader::LeaderAnswer;
use super::link::{Connection, Shared};
use super::nodes::SessionId;
use super::{DEADLINE, FAULTS, SERVERS, SESSION_TIMEOUT};

const TIMEOUT_MILLIS: u64 = SESSION_TIMEOUT.as_millis() as u64;

/// Time between heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(TIMEOUT_MILLIS / 6);

/// The lease: this long after a heartbeat with an answer was sent, the session cannot have ended (P8).
const LEASE: Duration = Duration::from_millis(TIMEOUT_MILLIS / 10 * 6);

/// A connection without an answer for this time is given up, as by the client of ZooKeeper.
const SILENCE: Duration = Duration::from_millis(TIMEOUT_MILLIS / 5 * 2);

/// A session without an answer for this time is given up, even if the servers may still have it, as by the client of
/// ZooKeeper.
const GIVE_UP: Duration = Duration::from_millis(TIMEOUT_MILLIS / 5 * 7);

/// After a pause of the process, the servers are asked for at least this time whether they still have the session.
const LAST_TRY: Duration = Duration::from_secs(3);

/// A server that has not caught up after this time is given up.
const CATCH_UP: Duration = Duration::from_secs(2);

impl Shared {
    /// Holds one session after the other until the tree is closed.
    pub(super) async fn keep(self: Arc<Self>) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                () = self.hold_session() => {}
            }
        }
        let _ = tokio::time::timeout(DEADLINE, self.committer_ended()).await;
        if let Some(session) = self.take_session()
            && !self.is_cut()
        {
            self.ensemble.world().hop().await;
            self.ensemble.close_session(session);
        }
        self.finish();
    }

    /// Opens a session and keeps it until it is lost.
    async fn hold_session(self: &Arc<Self>) {
        let world = self.ensemble.world();
        let (session, mut server) = self.open_session().await;
        let mut connection = self.begin_session(session, server);
        loop {
            let mut answered = Instant::now();
            tokio::select! {
                biased;
                () = self.lost(connection) => {}
                () = self.send_heartbeats(connection, &mut answered) => self.disconnect(connection),
            }
            let end = (answered + GIVE_UP).max(Instant::now() + LAST_TRY);
            let next = tokio::time::timeout_at(end, self.find_server(session, server)).await;
            let Ok(Some(next)) = next else { break };
            server = next;
            connection = self.reconnect(session, server);
        }
        self.lose_session();
        tokio::time::sleep(Duration::from_millis(50 + world.below(50))).await;
    }

    async fn open_session(&self) -> (SessionId, usize) {
        let world = self.ensemble.world();
        loop {
            self.reachable().await;
            world.hop().await;
            let session = self.ensemble.open_session(&self.name);
            let server = usize::try_from(world.below(SERVERS as u64)).unwrap_or(0);
            // Reads in the new session show every commit that was acknowledged before (the start of a session syncs).
            let last = self.ensemble.last().max(self.seen());
            world.hop().await;
            let caught_up = tokio::time::timeout(CATCH_UP, self.ensemble.applied(server, last)).await;
            if caught_up.is_ok() && !self.is_cut() {
                return (session, server);
            }
            // That session is left to expire.
        }
    }

    /// Finds a server for the session, which has lost its connection. None when the session has ended.
    async fn find_server(&self, session: SessionId, last_server: usize) -> Option<usize> {
        let world = self.ensemble.world();
        let mut server = last_server;
        loop {
            tokio::time::sleep(Duration::from_millis(20 + world.below(1_000))).await;
            self.reachable().await;
            server = (server + 1 + usize::try_from(world.below(SERVERS as u64 - 1)).unwrap_or(0)) % SERVERS;
            world.hop().await;
            match self.ensemble.sync(session) {
                LeaderAnswer::Ended => return None,
                LeaderAnswer::Silent => continue,
                LeaderAnswer::Served(_) => {}
            }
            world.hop().await;
            let caught_up = tokio::time::timeout(CATCH_UP, self.ensemble.applied(server, self.seen())).await;
            if caught_up.is_ok() && !self.is_cut() {
                return Some(server);
            }
        }
    }

    /// Sends heartbeats and renews the lease until the connection seems dead.
    async fn send_heartbeats(&self, connection: Connection, answered: &mut Instant) {
        let world = self.ensemble.world();
        loop {
            let sent = Instant::now();
            let (ensemble, session) = (self.ensemble.clone(), connection.session);
            let heartbeat = world.request(FAULTS, move || ensemble.sync(session));
            match tokio::time::timeout(SILENCE, heartbeat).await {
                Ok(Ok(LeaderAnswer::Served(last))) => {
                    *answered = Instant::now();
                    // A server that is behind answers a sync late. It answers pings, so the connection remains.
                    let synced = self.ensemble.applied(connection.server, last);
                    if tokio::time::timeout(HEARTBEAT, synced).await.is_ok() {
                        self.renew_lease(connection, sent + LEASE);
                    }
                }
                // The server cannot reach the leader, and still answers pings.
                Ok(Ok(LeaderAnswer::Silent)) => *answered = Instant::now(),
                Ok(Ok(LeaderAnswer::Ended)) | Err(_) => return,
                Ok(Err(_)) if answered.elapsed() >= SILENCE => return,
                Ok(Err(_)) => {}
            }
            tokio::time::sleep(HEARTBEAT).await;
        }
    }
}
