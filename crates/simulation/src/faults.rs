//! The kinds of faults, how often each happens in a run, and how often each has happened.

use std::collections::BTreeMap;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A request to the tree is refused before it is sent.
    TreeRefused,
    /// A request to the tree is lost on its way.
    TreeLost,
    /// The answer of the tree is lost, or the request arrives after its sender was told of a loss.
    TreeUnanswered,
    /// A request to the tree takes seconds.
    TreeSlow,
    /// A request to the tree takes minutes.
    TreeHung,
    /// A process loses its connection to the tree for a while.
    TreeCut,
    /// A session of the tree ends while its process lives.
    TreeSessionEnded,
    /// Another server of the tree leads, and its clock differs.
    TreeLeaderChanged,
    /// Another server of the tree leads, and its clock differs by minutes.
    TreeClockStepped,
    /// A server of the tree stays behind the leader for seconds.
    TreeServerBehind,
    /// Many reads of the tree take seconds for a while.
    TreeReadsSlow,
    /// A request to a pool is refused before it is sent.
    PoolRefused,
    /// A request to a pool is lost on its way.
    PoolLost,
    /// The answer of a pool is lost, or the request arrives after its sender was told of a loss.
    PoolUnanswered,
    /// A request to a pool takes seconds.
    PoolSlow,
    /// A request to a pool takes minutes.
    PoolHung,
    /// A pool has no room for new messages for a while.
    PoolFull,
    /// No server of a pool answers for a while.
    PoolDown,
    /// A pool fails over and loses its writes since the last synced one.
    PoolRolledBack,
    /// A process finds another storage under the name of a pool.
    PoolForeign,
    /// A write that adds, frees or removes messages takes seconds more, or an answer of a pool.
    PoolLate,
    /// A request to another replica is refused before it is sent.
    PeerRefused,
    /// A request to another replica is lost on its way.
    PeerLost,
    /// The answer of another replica is lost, or the request arrives after its sender was told of a loss.
    PeerUnanswered,
    /// A request to another replica takes seconds.
    PeerSlow,
    /// A request to another replica takes minutes.
    PeerHung,
    /// Nothing that one replica sends reaches another one for a while: neither requests nor answers.
    PeerCut,
    /// A request of a client arrives twice.
    ClientDuplicated,
    /// A request of a client is refused before it is sent.
    ClientRefused,
    /// A request of a client is lost on its way.
    ClientLost,
    /// The answer to a client is lost, or the request arrives after the client was told of a loss.
    ClientUnanswered,
    /// A request of a client takes seconds.
    ClientSlow,
    /// A request of a client takes minutes.
    ClientHung,
    /// A process ends at once.
    ProcessCrash,
    /// A process ends in order.
    ProcessStop,
    /// A process makes no step for a while.
    ProcessPause,
    /// A client leaves before it has its answer.
    ClientLeft,
    /// A sync of a disk takes up to a minute.
    DiskStalled,
    /// A write to a disk fails. It may be there nevertheless.
    DiskWriteFailed,
    /// A sync of a disk fails. The writes before it may be lost.
    DiskSyncFailed,
    /// A read of a disk fails. The next one may succeed.
    DiskReadFailed,
    /// A disk has no room for new messages for a while.
    DiskFull,
    /// A disk has no room at all for a while: each write fails.
    DiskExhausted,
    /// A process ends at an operation on its disk.
    DiskCrash,
    /// A machine without a process loses a part of the unsynced writes.
    PowerCut,
}

impl Fault {
    /// Whether it is one of the connections of clients.
    pub fn is_of_client(self) -> bool {
        matches!(
            self,
            Self::ClientRefused
                | Self::ClientLost
                | Self::ClientUnanswered
                | Self::ClientSlow
                | Self::ClientHung
                | Self::ClientLeft
                | Self::ClientDuplicated
        )
    }

    /// Whether it is one of the ensemble, or of the connection to it.
    pub fn is_of_tree(self) -> bool {
        matches!(
            self,
            Self::TreeRefused
                | Self::TreeLost
                | Self::TreeUnanswered
                | Self::TreeSlow
                | Self::TreeHung
                | Self::TreeCut
                | Self::TreeSessionEnded
                | Self::TreeLeaderChanged
                | Self::TreeClockStepped
                | Self::TreeServerBehind
                | Self::TreeReadsSlow
        )
    }
}

/// How often each fault happens, of [`FaultRates::OUT_OF`] times that it can.
#[derive(Clone, Debug, Default)]
pub struct FaultRates(BTreeMap<Fault, u32>);

impl FaultRates {
    /// The number of occasions that a rate is of.
    pub const OUT_OF: u64 = 100_000;

    /// Sets the rate of a fault.
    pub fn set(&mut self, fault: Fault, rate: u32) {
        self.0.insert(fault, rate);
    }

    /// Returns the faults that can happen, in order.
    pub fn possible(&self) -> impl Iterator<Item = Fault> + '_ {
        self.0.iter().filter(|(_, rate)| **rate > 0).map(|(fault, _)| *fault)
    }

    /// Returns the rate of a fault.
    pub fn of(&self, fault: Fault) -> u32 {
        self.0.get(&fault).copied().unwrap_or(0)
    }
}

/// How often each fault has happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts(pub BTreeMap<Fault, u64>);

impl FaultCounts {
    /// Counts a fault.
    pub fn add(&mut self, fault: Fault) {
        *self.0.entry(fault).or_default() += 1;
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        for (fault, count) in &other.0 {
            *self.0.entry(*fault).or_default() += count;
        }
    }

    /// Returns how often a fault has happened.
    pub fn of(&self, fault: Fault) -> u64 {
        self.0.get(&fault).copied().unwrap_or(0)
    }

    /// Returns the number of all faults.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}
