//! Which form of records may be written: none that a replica which is up cannot read, and none that an older program
//! which arrives later would misread.
//!
//! `/meta/system` names the form in force. It begins with the first one, so that an upgrade can be taken back, and is
//! raised when the first record of a newer form is to be written, if every replica that is registered knows it. A
//! program that does not know the form in force does not start.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{Catalogue, System, failed};
use angarium_coordination::{Refusal, TreeError};
use angarium_core::error::{Error, Part};

/// How often to look again when the registry changes at the same time.
const TRIES: usize = 8;

/// A form of the records in the tree and of what belongs to them in the pools. Each knows those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Schema(pub u32);

impl Schema {
    /// Queues without order of groups.
    pub const FIRST: Self = Self(1);
    /// Queues in order of groups, with ids of deduplication: programs before it serve them in no order.
    pub const GROUPS: Self = Self(2);
    /// Queues that lie in two pools, while they move from one to the other: programs before it look into one of them.
    pub const MIGRATIONS: Self = Self(3);
    /// Messages that live by the retention of their queue: earlier programs take their stored form for damaged.
    pub const RETENTION: Self = Self(4);
    /// The newest that this program knows.
    pub const KNOWN: Self = Self::RETENTION;

    /// Whether this program can read records of this form.
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

/// The form that was last seen in force: it never returns.
#[derive(Debug, Default)]
pub(super) struct SchemaInForce(AtomicU32);

impl Catalogue {
    /// Whether records of form `needed` may be written, as far as this process has seen.
    pub fn is_in_force(&self, needed: Schema) -> bool {
        self.in_force.0.load(Ordering::Acquire) >= needed.0
    }

    /// Sees to it that records of form `needed` may be written. Refused as unavailable, with nothing written, while a replica
    /// that does not know the form is registered.
    pub async fn schema_reach(&self, needed: Schema) -> Result<(), Error> {
        for _ in 0..TRIES {
            if self.is_in_force(needed) {
                return Ok(());
            }
            let seen = self.registry().await?;
            let old = seen.all().find(|component| component.schema < needed.0);
            match (seen.schema() >= needed, old) {
                (true, _) => {}
                (false, None) => {
                    let raised = System { schema: needed.0, ..seen.system().clone() };
                    match self.tree.commit(&[], &[seen.replace(&raised)]).await {
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
            self.in_force.0.fetch_max(needed.0, Ordering::Release);
        }
        Err(Error::unavailable(Part::Coordination, "the registry of replicas changes all the time"))
    }
}
