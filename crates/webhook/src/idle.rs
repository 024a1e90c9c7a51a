//! Idle connections, for the next delivery to the same origin.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connection::WebhookConnection;
use crate::limits::ClientLimits;
use crate::url::Origin;

/// Idle connections, bounded in number and age. Nothing is read from a connection while it is idle.
pub struct IdleConnections {
    limits: ClientLimits,
    /// Held for single changes. Connections are closed outside of it.
    lists: Mutex<IdleLists>,
}

#[derive(Default)]
struct IdleLists {
    /// The connections of each origin, the longest idle one first. No list is empty.
    by_origin: BTreeMap<Origin, Vec<IdleConnection>>,
    total: usize,
}

struct IdleConnection {
    since: Instant,
    connection: WebhookConnection,
}

impl IdleConnections {
    pub fn new(limits: ClientLimits) -> Self {
        Self { limits, lists: Mutex::new(IdleLists::default()) }
    }

    /// Returns the connection that was used last. It may be closed by now.
    pub fn take(&self, origin: &Origin) -> Option<WebhookConnection> {
        let mut lists = self.lists.lock();
        let connections = lists.by_origin.get_mut(origin)?;
        let last = connections.pop();
        if connections.is_empty() {
            lists.by_origin.remove(origin);
        }
        let last = last?;
        lists.total -= 1;
        drop(lists);
        (last.since.elapsed() < self.limits.idle).then_some(last.connection)
    }

    /// Keeps a connection, unless there are enough.
    pub fn put(&self, origin: &Origin, connection: WebhookConnection) {
        let mut lists = self.lists.lock();
        let of_origin = lists.by_origin.get(origin).map_or(0, Vec::len);
        if lists.total >= self.limits.idle_total || of_origin >= self.limits.idle_per_origin {
            drop(lists);
            drop(connection);
            return;
        }
        lists.total += 1;
        let idle = IdleConnection { since: Instant::now(), connection };
        lists.by_origin.entry(origin.clone()).or_default().push(idle);
    }

    /// Closes connections that were idle for too long.
    pub fn close_expired(&self) {
        let mut expired = Vec::new();
        let mut lists = self.lists.lock();
        lists.by_origin.retain(|_, connections| {
            let fresh = connections.partition_point(|idle| idle.since.elapsed() >= self.limits.idle);
            expired.extend(connections.drain(..fresh));
            !connections.is_empty()
        });
        lists.total -= expired.len();
        drop(lists);
        drop(expired);
    }

    pub fn len(&self) -> usize {
        self.lists.lock().total
    }
}
