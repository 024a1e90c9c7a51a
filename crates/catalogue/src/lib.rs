//! Typed records in the tree: queues, pools, flavors, slots, claims and replicas.
//!
//! This crate converts records to nodes, and errors of the tree to errors of the core. It makes no decisions: its
//! callers pass the fences that decide about writes.

mod balance;
mod claims;
mod components;
mod dropped;
mod export;
mod flavors;
mod group_holds;
mod holds;
mod imported_holds;
mod layout;
mod listing;
mod metadata;
mod move_tasks;
mod pauses;
mod peer_secret;
mod placement;
mod pools;
mod queues;
mod receipts;
mod schema;
mod sealed_tree;
mod sealing;
mod shared_holds;
mod slots;
mod subscriptions;
mod sync;
mod system;
mod time;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use balance::{AutomaticMove, BalanceRecord};
pub use claims::{AttemptRecord, ClaimRecord, ClaimedMessage, SlotClaims, SplitPart};
pub use components::{Component, ComponentState, ReachReport, Registry, ReplicaProcess, UnreachedParts};
pub use dropped::{DroppedQueue, HeldRecords};
pub use export::{ExportError, TreeExport};
pub use flavors::{FlavorEntry, PoolUpdate};
pub use imported_holds::ImportedTransfers;
pub use listing::QueueNames;
pub use metadata::QueueEntry;
pub use move_tasks::MoveTasks;
pub use pauses::{Act, ActRecord};
pub use pools::{PoolEntry, PoolQueues, PoolUsers};
pub use queues::{EndedMigration, MigrationRecord, Placement, QueueRecord};
pub use receipts::ReceiptKeyRotation;
pub use schema::Schema;
pub use sealing::{DataKeyChange, SealedSecrets};
pub use shared_holds::SharedHold;
pub use slots::{OwnedSlot, Owner, SlotOwner};
pub use subscriptions::SubscriptionRecord;
pub use system::{NewGeneration, System};
pub use time::LastTime;
pub use watch::{MetaChange, MetaWatch};

pub use angarium_coordination::{Link, Session};

use angarium_coordination::{Coordination, Node, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::mutation::{Mutation, is_on};
use angarium_sealing::KeyRing;
use schema::SchemaInForce;
use sealed_tree::SealedTree;
use sync::Syncs;
use tokio::sync::watch::Receiver;

/// The records of one installation.
#[derive(Clone)]
pub struct Catalogue {
    tree: Arc<SealedTree>,
    syncs: Arc<Syncs>,
    in_force: Arc<SchemaInForce>,
}

impl Catalogue {
    /// Creates the catalogue of the records in `tree`, without a key for secrets.
    pub fn new(tree: Arc<dyn Coordination>) -> Self {
        Self::with_keys(tree, None)
    }

    /// Creates the catalogue of the records in `tree`, whose secrets are sealed under the keys of a file.
    pub fn with_keys(tree: Arc<dyn Coordination>, keys: Option<KeyRing>) -> Self {
        let tree = Arc::new(SealedTree::new(tree, keys));
        Self { tree, syncs: Arc::default(), in_force: Arc::default() }
    }

    /// Checks that a change made now can succeed.
    pub fn check_open(&self) -> Result<(), Error> {
        self.tree.check_open().map_err(failed)
    }

    /// Returns the session with the tree, which owns the ephemeral records.
    pub fn session(&self) -> Receiver<Session> {
        self.tree.session()
    }

    /// See [`Coordination::session_timeout`].
    pub fn session_timeout(&self) -> Option<Duration> {
        self.tree.session_timeout()
    }

    /// Checks that the lease lasts: data of the tree in memory still holds.
    pub fn check_lease(&self) -> Result<(), Error> {
        if is_on(Mutation::IgnoreLease) {
            return Ok(());
        }
        self.tree.check_lease().map_err(failed)
    }

    /// Returns the number of calls that met damage, and a text for the operator.
    pub fn damage(&self) -> Option<(u64, String)> {
        self.tree.damage()
    }

    /// Returns a warning about the access of others to the tree.
    pub fn tree_warning(&self) -> Option<String> {
        self.tree.warning()
    }

    /// Checks that the tree can recover without a restart.
    pub fn check_alive(&self) -> Result<(), Error> {
        self.tree.check_alive().map_err(failed)
    }

    async fn node(&self, path: &str) -> Result<Option<Node>, Error> {
        self.tree.get(path).await.map_err(failed)
    }
}

fn empty_tree() -> Error {
    Error::unavailable(Part::Coordination, "the tree is empty")
}

/// Converts an error of the tree.
fn failed(error: TreeError) -> Error {
    match error {
        error @ TreeError::Damaged(_) => Error::damaged(Part::Coordination, error),
        error if error.nothing_written() || is_on(Mutation::FailCommitInDoubt) => {
            Error::unavailable(Part::Coordination, error)
        }
        error => Error::unknown(Part::Coordination, error),
    }
}

fn to_json(record: &impl Serialize) -> Bytes {
    serde_json::to_vec(record).expect("records have text keys and no failing parts").into()
}

fn from_json<T: DeserializeOwned>(node: &Node) -> Result<T, Error> {
    serde_json::from_slice(&node.data).map_err(|error| Error::unavailable(Part::Coordination, error))
}
