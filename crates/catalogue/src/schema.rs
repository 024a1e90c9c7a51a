//! The format of records: no replica may write records that a registered replica cannot read, or that an older program
//! which joins later would misread.
//!
//! `/meta/system` names the format in force. An installation starts with the first one, so that an upgrade can be
//! undone. The format is raised before the first record of a newer one is written, if every registered replica knows
//! it. A program that does not know the format in force does not start.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{Catalogue, System, empty_tree, failed, from_json, layout};
use angarium_coordination::{Refusal, TreeError};
use angarium_core::error::{Error, Part};

/// Max attempts when the registry changes at the same time.
const TRIES: usize = 8;

/// A format of the records in the tree, and of related data in the pools. Each format includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Schema(pub u32);

impl Schema {
    /// Queues without message groups.
    pub const FIRST: Self = Self(1);
    /// Queues ordered by message groups, with deduplication ids. Older programs would deliver their messages unordered.
    pub const GROUPS: Self = Self(2);
    /// Queues in two pools, during a migration. Older programs would read only one of the pools.
    pub const MIGRATIONS: Self = Self(3);
    /// Messages with the retention of their queue. Older programs take their stored form for damage.
    pub const RETENTION: Self = Self(4);
    /// Messages with outcomes: kept ones, tags, forwards. Older programs take their stored form for damage.
    pub const OUTCOMES: Self = Self(5);
    /// Holds of queues. Older programs would deliver the messages of held queues.
    pub const HOLDS: Self = Self(6);
    /// Tasks with filters. Older programs would move all messages of the queue.
    pub const TASKS: Self = Self(7);
    /// Holds of groups. Older programs would deliver the messages of held groups, and never those that a hold has put
    /// aside.
    pub const GROUP_HOLDS: Self = Self(8);
    /// Holds of pools and projects. Older programs would deliver the messages of their queues.
    pub const SHARED_HOLDS: Self = Self(9);
    /// Subscriptions and topics. Older programs would store posts without their copies, and make queues with the names of
    /// topics.
    pub const SUBSCRIPTIONS: Self = Self(10);
    /// Sealed secrets. Older programs would take them for damage, and write others in the clear.
    pub const SEALED: Self = Self(11);
    /// Keys of receipts that follow each other at a moment. Older programs would use the next one at once, and refuse
    /// the receipts of other replicas.
    pub const RECEIPT_KEYS: Self = Self(12);
    /// A record of the data key of a tree in which every secret is sealed. Older programs cannot open it.
    pub const SEALED_WHOLE: Self = Self(13);
    /// Holds of the transfers of pools. Older programs would move messages while the pools are copied.
    pub const TRANSFER_HOLDS: Self = Self(14);
    /// Migrations of queues with subscriptions. Older programs would look for the copies in the pool that the record of each
    /// subscription names.
    pub const SUBSCRIBED_MIGRATIONS: Self = Self(15);
    /// Webhooks that need a confirmation. Older programs would send messages to unconfirmed ones.
    pub const CONFIRMATIONS: Self = Self(16);
    /// Bodies that several messages of a pool share. Older programs take their messages for damage.
    pub const SHARED_BODIES: Self = Self(17);
    /// The newest format that this program knows.
    pub const KNOWN: Self = Self::SHARED_BODIES;

    /// Checks that this program can read records of this format.
    pub fn check_known(self) -> Result<(), Error> {
        if self <= Self::KNOWN {
            return Ok(());
        }
        let why = format!(
            "its records have form {}, and {} of this program knows those up to {}: start a newer one",
            self.0,
            env!("CARGO_PKG_VERSION"),
            Self::KNOWN.0
        );
        Err(Error::unavailable(Part::Coordination, why))
    }
}

/// The last format seen in force. It is never lowered.
#[derive(Debug, Default)]
pub(super) struct SchemaInForce(AtomicU32);

impl Catalogue {
    /// Returns whether this process has seen that records of format `needed` may be written.
    pub fn is_in_force(&self, needed: Schema) -> bool {
        self.in_force.0.load(Ordering::Acquire) >= needed.0
    }

    /// Reads the format in force, unless this process has seen the newest one that it knows. Called once a slot is acquired:
    /// an earlier owner may have written records of a format that this process has not seen in force.
    pub async fn read_schema(&self) -> Result<(), Error> {
        if !self.is_in_force(Schema::KNOWN) {
            let node = self.node(layout::SYSTEM).await?.ok_or_else(empty_tree)?;
            let system: System = from_json(&node)?;
            self.note_in_force(Schema(system.schema));
        }
        Ok(())
    }

    /// Records a format that was seen in force.
    pub(super) fn note_in_force(&self, seen: Schema) {
        self.in_force.0.fetch_max(seen.0, Ordering::Release);
    }

    /// Raises the format in force to `needed`, if it is older. Fails as unavailable, with nothing written, while a
    /// registered replica does not know the format.
    pub async fn schema_reach(&self, needed: Schema) -> Result<(), Error> {
        for _ in 0..TRIES {
            if self.is_in_force(needed) {
                return Ok(());
            }
            let registry = self.registry().await?;
            let old = registry.all().find(|component| component.schema < needed.0);
            match (registry.schema() >= needed, old) {
                (true, _) => {}
                (false, None) => {
                    let raised = System { schema: needed.0, ..registry.system().clone() };
                    match self.tree.commit(&[], &[registry.replace(&raised)]).await {
                        Ok(_) => {}
                        Err(TreeError::Refused { why: Refusal::BadVersion, .. }) => continue,
                        Err(error) => return Err(failed(error)),
                    }
                }
                (false, Some(old)) => {
                    let why = format!(
                        "replica {} at {} runs version {}, which does not know records of form {}: upgrade it",
                        old.instance, old.address, old.version, needed.0
                    );
                    return Err(Error::unavailable(Part::Coordination, why));
                }
            }
            self.note_in_force(needed);
        }
        Err(Error::unavailable(Part::Coordination, "the registry of replicas changes all the time"))
    }
}
