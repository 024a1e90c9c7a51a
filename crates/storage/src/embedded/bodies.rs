//! Shared bodies in the journal, beside the number of entries that have them.
//!
//! The committer counts the readers in the same piece of work that writes or removes the entries, so nothing is counted
//! twice. The entry that is removed last takes the body away.

use std::collections::BTreeMap;

use bytes::Bytes;
use tracing::error;

use super::{failed, stored};
use crate::StoreError;
use crate::shared::{BodyId, SharedBodies, SharedBody};
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
        // A body is shorter than any number of this type.
        Self { id: shared.id, bytes: u32::try_from(shared.body.len()).unwrap_or(u32::MAX) }
    }
}

/// The shared bodies of a batch, ready to be written.
pub(super) struct NewBodies(Vec<(BodyId, u32, Bytes)>);

impl NewBodies {
    pub(super) fn of(shared: &SharedBodies<'_>) -> Self {
        Self(shared.iter().map(|body| (body.id, body.lasting, body.body.clone())).collect())
    }

    pub(super) fn write(self, txn: &mut Txn<'_>) {
        for (id, readers, body) in self.0 {
            txn.put(Space::Readers, stored::body_key(id), stored::encode_count(readers.into()));
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

    /// Reads how many readers the bodies keep.
    pub(super) fn look_up(self, txn: &Txn<'_>) -> Result<LeftReaders, StoreError> {
        let mut left = Vec::with_capacity(self.0.len());
        for (id, gone) in self.0 {
            // A body without a count stays: it takes room, and no entry loses it.
            if let Some(count) = txn.get(Space::Readers, &stored::body_key(id)).map_err(failed)? {
                left.push((id, stored::decode_count(&count)?.saturating_sub(gone)));
            }
        }
        Ok(LeftReaders(left))
    }
}

/// The readers that bodies keep after a removal.
pub(super) struct LeftReaders(Vec<(BodyId, u64)>);

impl LeftReaders {
    /// Writes the counts, and removes the bodies without readers.
    pub(super) fn write(self, txn: &mut Txn<'_>) {
        for (id, readers) in self.0 {
            let key = stored::body_key(id);
            if readers > 0 && !is_on(Mutation::RemoveSharedBody) {
                txn.put(Space::Readers, key, stored::encode_count(readers));
            } else {
                txn.remove(Space::Readers, key.clone());
                txn.remove(Space::Bodies, key);
            }
        }
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
