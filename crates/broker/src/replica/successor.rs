//! The end of a process whose identity another process has.

use std::fmt;

use angarium_core::time::Timestamp;

use crate::replica::LocalReplica;

/// A later process with the identity of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuccessorProcess {
    /// Name of its host.
    pub host: String,
    /// Its id on the host.
    pub pid: u32,
    /// The time of its start.
    pub started: Timestamp,
    /// Its address for other replicas.
    pub address: String,
}

impl fmt::Display for SuccessorProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, pid, started, address } = self;
        write!(f, "process {pid} of host {host}, at {address}, started {}", started.calendar())
    }
}

impl LocalReplica {
    /// Ends the background tasks, and with them every attempt to take slots. The first successor is kept.
    pub(crate) fn end_for(&self, successor: SuccessorProcess) {
        if self.successor.set(successor).is_ok() {
            self.stop.cancel();
            self.succeeded.cancel();
        }
    }

    /// Whether another process with the identity of this one has started later.
    pub(crate) fn has_successor(&self) -> bool {
        self.successor.get().is_some()
    }

    /// Waits until another process with the identity of this one has started, and returns it.
    pub(crate) async fn await_successor(&self) -> SuccessorProcess {
        loop {
            self.succeeded.cancelled().await;
            if let Some(successor) = self.successor.get() {
                return successor.clone();
            }
        }
    }
}
