//! Bodies that several appends of a batch have: those of a message and of its copies for subscriptions. Each driver
//! stores such a body once, beside the number of entries that have it: its readers.

use std::collections::HashMap;

use bytes::Bytes;

use crate::{Batch, QueueChanges, limits};
use angarium_core::ids::QueueId;
use angarium_core::message::Message;
use angarium_core::small_bounds;

/// The id of a shared body in its pool: the first half of a message id, which is in order of time, then a random half. No
/// other body ever has it, whatever a pool may have lost.
pub(crate) type BodyId = [u8; 16];

/// The shared bodies of a batch, by address and length in memory: copies have the body of their message, and not one like
/// it.
#[derive(Default)]
pub(crate) struct SharedBodies<'a>(HashMap<(usize, usize), SharedBody<'a>>);

/// A body that several appends have.
pub(crate) struct SharedBody<'a> {
    /// It is another one when the batch is repeated, which is applied once.
    pub(crate) id: BodyId,
    /// The queue in whose totals it counts.
    pub(crate) lender: QueueId,
    pub(crate) body: &'a Bytes,
    /// The appends that have it.
    pub(crate) appends: u32,
    /// The appends among them that the batch does not remove.
    pub(crate) lasting: u32,
    /// Whether one of the appends is a copy with a lender.
    is_lent: bool,
}

impl<'a> SharedBodies<'a> {
    /// Finds the bodies that several entries have after the batch, if it may store them once.
    pub(crate) fn of(batch: &'a Batch) -> Self {
        let mut found = Self::default();
        if !batch.shares_bodies() {
            return found;
        }
        for QueueChanges { queue, changes, .. } in &batch.queues {
            let removed = changes.sorted_removes();
            for append in changes.appends.iter().filter(|append| may_share(append)) {
                let body =
                    found.0.entry(address(&append.body)).or_insert_with(|| SharedBody::of(*queue, append));
                if let Some(lender) = changes.lender {
                    (body.lender, body.is_lent) = (lender, true);
                }
                body.appends += 1;
                body.lasting += u32::from(removed.binary_search(&append.header.id).is_err());
            }
        }
        found.0.retain(|_, body| body.is_lent && body.lasting > 1);
        found
    }

    /// Returns the shared body of an append; none if it has a body of its own.
    pub(crate) fn of_append(&self, append: &Message) -> Option<&SharedBody<'a>> {
        self.0.get(&address(&append.body)).filter(|_| may_share(append))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the bodies, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &SharedBody<'a>> {
        self.0.values()
    }
}

impl<'a> SharedBody<'a> {
    fn of(queue: QueueId, append: &'a Message) -> Self {
        let mut id = *append.header.id.as_bytes();
        id[8..].copy_from_slice(&rand::random::<[u8; 8]>());
        Self { id, lender: queue, body: &append.body, appends: 0, lasting: 0, is_lent: false }
    }
}

/// Whether a body of so many bytes is long enough to be shared.
pub fn is_shareable(bytes: u64) -> bool {
    bytes >= small_bounds::within(limits::SHARED_BODY_BYTES) as u64
}

/// Whether the body of an append is long enough. Pools count it by the size in its header.
fn may_share(append: &Message) -> bool {
    let bytes = append.body.len();
    is_shareable(bytes as u64) && u32::try_from(bytes) == Ok(append.header.size)
}

fn address(body: &Bytes) -> (usize, usize) {
    (body.as_ptr().addr(), body.len())
}
