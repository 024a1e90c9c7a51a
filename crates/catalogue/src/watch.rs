//! Notification of changed records that every replica keeps in memory: pools, components, holds of pools and projects,
//! the key of receipts, and owners of slots. Flavors are read on demand, and only the owner of a queue keeps its
//! record.

use super::{Catalogue, failed, layout};
use angarium_coordination::{Event, Watch};
use angarium_core::error::Error;
use angarium_core::ids::Slot;

/// Records that may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaChange {
    /// The record of a pool.
    Pools,
    /// The registered replicas, or one of their records.
    Components,
    /// The hold of a pool or of a project.
    Holds,
    /// The key of the receipts.
    Receipts,
    /// The owner of a slot.
    Slot(Slot),
    /// Any of these. The first change of every watch.
    Resync,
}

/// A watch of the records that every replica keeps in memory. Dropping it ends the watch.
pub struct MetaWatch(Watch);

impl Catalogue {
    /// Watches the changes of pools, components, holds of pools and projects, the key of receipts, and slot owners by
    /// any replica.
    pub fn watch_meta(&self) -> Result<MetaWatch, Error> {
        self.tree.watch_tree(layout::META).map(MetaWatch).map_err(failed)
    }
}

impl MetaWatch {
    /// Waits for the next change. Returns none when the tree is closed. Cancel safe.
    pub async fn next(&mut self) -> Option<MetaChange> {
        loop {
            match self.0.next().await? {
                Event::Changed { path } => {
                    if let Some(change) = change_of(&path) {
                        return Some(change);
                    }
                }
                Event::Resync => return Some(MetaChange::Resync),
                // A resync follows when there is another session.
                Event::Lost => {}
            }
        }
    }
}

/// Returns the kind of record of a node; none for records that are not kept in memory.
fn change_of(path: &str) -> Option<MetaChange> {
    let below = |directory: &str| path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/'));
    // The records of pools are read sealed from now on.
    if below(layout::POOLS).is_some() || path == layout::SEAL {
        return Some(MetaChange::Pools);
    }
    if below(layout::REPLICAS).is_some() {
        return Some(MetaChange::Components);
    }
    // Every change of a hold sets this node too.
    if path == layout::HOLDS {
        return Some(MetaChange::Holds);
    }
    if path == layout::RECEIPTS {
        return Some(MetaChange::Receipts);
    }
    let (slot, node) = below(layout::SLOTS)?.split_once('/')?;
    let slot = u8::from_str_radix(slot, 16).ok()?;
    (node == layout::OWNER).then_some(MetaChange::Slot(Slot(slot)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_change_maps_to_its_directory() {
        for (path, change) in [
            ("/meta/pools/a", Some(MetaChange::Pools)),
            ("/meta/components/replica/h-0000000001", Some(MetaChange::Components)),
            ("/meta/seal", Some(MetaChange::Pools)),
            ("/meta/holds", Some(MetaChange::Holds)),
            ("/meta/holds/pools/a", None),
            ("/meta/receipts", Some(MetaChange::Receipts)),
            ("/meta/slots/0f/owner", Some(MetaChange::Slot(Slot(15)))),
            ("/meta/slots/0f", None),
            ("/meta/system", None),
            ("/meta/flavors/f", None),
            ("/meta/pools", None),
        ] {
            assert_eq!(change_of(path), change, "{path}");
        }
    }
}
