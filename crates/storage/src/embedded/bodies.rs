//! Shared bodies in the journal, beside the number of entries that have them, and the bytes that their lenders count.
//!
//! The committer counts the readers in the same piece of work that writes or removes the entries, so nothing is counted
//! twice. The entry that is removed last takes the body away.

use std::collections::BTreeMap;

use bytes::Bytes;
use tracing::error;

use super::failed;
use super::stored::{self, BodyReaders, QueueTotals};
use crate::StoreError;
use crate::shared::{BodyId, SharedBodies, SharedBody};
use angarium_core::ids::QueueId;
use angarium_core::mutation::{Mutation, is_on};
use angarium_journal::{Space, Txn, View};

/// The place of a body that is stored beside its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodyPlace {
    pub(super) id: BodyId,
    /// Bytes of the body.
    pub(super) bytes: u32,
}

impl BodyPlace {
    pub(super) fn of(shared: &SharedBody<'_>) -> Self {
        Self { id: shared.id, bytes: bytes_of(shared.body) }
    }
}

/// A shared body has at most as many bytes as a header can state.
fn bytes_of(body: &Bytes) -> u32 {
    u32::try_from(body.len()).unwrap_or(u32::MAX)
}

/// The shared bodies of a batch, ready to be written.
pub(super) struct NewBodies(Vec<(BodyId, BodyReaders, Bytes)>);

impl NewBodies {
    pub(super) fn of(shared: &SharedBodies<'_>) -> Self {
        let new = |shared: &SharedBody<'_>| {
            let readers = BodyReaders {
                count: shared.lasting.into(),
                lender: shared.lender,
                bytes: bytes_of(shared.body),
            };
            (shared.id, readers, shared.body.clone())
        };
        Self(shared.iter().map(new).collect())
    }

    pub(super) fn write(self, txn: &mut Txn<'_>) {
        for (id, readers, body) in self.0 {
            txn.put(Space::Readers, stored::body_key(id), readers.encode());
            txn.put(Space::Bodies, stored::body_key(id), body);
        }
    }
}

/// Readers of shared bodies that are removed: how many of each.
#[derive(Clone, Debug, Default)]
pub(super) struct GoneReaders(BTreeMap<BodyId, u64>);

impl GoneReaders {
    pub(super) fn add(&mut self, place: BodyPlace) {
        *self.0.entry(place.id).or_default() += 1;
    }

    /// Reads which readers the bodies keep.
    pub(super) fn look_up(self, txn: &Txn<'_>) -> Result<LeftReaders, StoreError> {
        let mut left = Vec::with_capacity(self.0.len());
        for (id, gone) in self.0 {
            // A body without a count stays: it takes room, and no entry loses it.
            if let Some(readers) = txn.get(Space::Readers, &stored::body_key(id)).map_err(failed)? {
                let readers = BodyReaders::decode(&readers)?;
                left.push((id, BodyReaders { count: readers.count.saturating_sub(gone), ..readers }));
            }
        }
        Ok(LeftReaders(left))
    }
}

/// The readers that bodies keep after a removal.
pub(super) struct LeftReaders(Vec<(BodyId, BodyReaders)>);

impl LeftReaders {
    /// Writes the counts, and removes the bodies without readers.
    pub(super) fn write(self, txn: &mut Txn<'_>) {
        for (id, readers) in self.0 {
            let key = stored::body_key(id);
            if readers.count > 0 && !is_on(Mutation::RemoveSharedBody) {
                txn.put(Space::Readers, key, readers.encode());
            } else {
                txn.remove(Space::Readers, key.clone());
                txn.remove(Space::Bodies, key);
            }
        }
    }
}

/// Bytes of the bodies that lenders get and lose by a change.
#[derive(Default)]
pub(super) struct LentChanges(BTreeMap<QueueId, LentChange>);

#[derive(Clone, Copy, Default)]
struct LentChange {
    new: u64,
    gone: u64,
}

impl LentChanges {
    pub(super) fn of(new: Option<&NewBodies>, left: &LeftReaders) -> Self {
        let mut changes = Self::default();
        for (_, readers, _) in new.into_iter().flat_map(|new| &new.0) {
            changes.0.entry(readers.lender).or_default().new += u64::from(readers.bytes);
        }
        for (_, readers) in left.0.iter().filter(|(_, readers)| readers.count == 0) {
            changes.0.entry(readers.lender).or_default().gone += u64::from(readers.bytes);
        }
        changes
    }

    /// Takes out the change of a queue, and makes it in totals.
    pub(super) fn apply(&mut self, queue: QueueId, totals: &mut QueueTotals) {
        let LentChange { new, gone } = self.0.remove(&queue).unwrap_or_default();
        totals.totals.lent = totals.totals.lent.saturating_add(new).saturating_sub(gone);
    }

    /// Reads the totals of the other lenders, and makes their changes in them. A lender without totals is gone, unless
    /// it gets a body.
    pub(super) fn look_up(mut self, txn: &Txn<'_>) -> Result<Vec<(QueueId, QueueTotals)>, StoreError> {
        let mut changed = Vec::with_capacity(self.0.len());
        let lenders: Vec<(QueueId, LentChange)> =
            self.0.iter().map(|(lender, change)| (*lender, *change)).collect();
        for (lender, change) in lenders {
            let value = txn.get(Space::Totals, lender.as_bytes()).map_err(failed)?;
            if value.is_some() || change.new > 0 {
                let mut totals = QueueTotals::decode(value.as_ref())?;
                self.apply(lender, &mut totals);
                changed.push((lender, totals));
            }
        }
        Ok(changed)
    }
}

/// Writes the totals of lenders.
pub(super) fn write_lenders(txn: &mut Txn<'_>, lenders: Vec<(QueueId, QueueTotals)>) {
    for (lender, totals) in lenders {
        txn.put(Space::Totals, Bytes::copy_from_slice(lender.as_bytes()), totals.encode());
    }
}

/// Reads a shared body for one of its entries. None if it is lost: only damage that an operator has accepted takes it.
pub(super) fn read(view: &View, place: BodyPlace) -> Result<Option<Bytes>, StoreError> {
    let body = view.get(Space::Bodies, &stored::body_key(place.id)).map_err(failed)?;
    let body = body.filter(|body| body.len() == place.bytes as usize);
    if body.is_none() {
        error!(bytes = place.bytes, "body of messages lost");
    }
    Ok(body)
}
