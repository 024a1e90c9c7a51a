//! Buckets of time: they tell where to find due entries, without a key for each message and without a walk over entries
//! that are not due.
//!
//! A bucket has the entries of one queue whose time is in one span, and for expiry also of one ttl: entries of one ttl
//! expire in order of their ids, so the smallest and the greatest id tell where they are. Each batch that appends an
//! entry or changes a header updates its bucket; a removal updates none. When a look-up finds a due bucket empty, the
//! bucket is removed, if it was not updated since.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::failed;
use super::stored::{damaged, take_id};
use crate::{Due, StoreError, retained};
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Life, State};
use angarium_core::time::Timestamp;
use angarium_journal::{Space, Txn};

/// Milliseconds of the spans of the schedule, and of the shortest span of expiry.
const MIN_SPAN: u64 = 8_000;

/// The key of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bucket {
    pub(super) slot: Slot,
    pub(super) kind: u8,
    /// The first millisecond after the bucket.
    pub(super) end: u64,
    pub(super) queue: QueueId,
    /// Zero for the schedule.
    pub(super) ttl: u32,
}

/// The value of a bucket: the range of its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) min: MessageId,
    pub(super) max: MessageId,
    /// Number of updates. It tells whether a bucket has changed since a look-up.
    touches: u32,
}

pub(super) const fn kind(due: Due) -> u8 {
    match due {
        Due::Schedule => 0,
        Due::Expiry => 1,
    }
}

/// Returns the milliseconds of a span of expiry: the min span times a power of two, and at most a thirty-second part of
/// the ttl if that is more than the min span.
fn span(ttl: u32) -> u64 {
    let parts = u64::from(ttl) * 1_000 / 32 / MIN_SPAN;
    MIN_SPAN << parts.max(1).ilog2()
}

fn end(time: Timestamp, span: u64) -> u64 {
    (time.as_millis() / span).saturating_add(1).saturating_mul(span)
}

impl Bucket {
    /// Returns the bucket in which an entry is found when it has expired.
    pub(super) fn of_expiry(queue: QueueId, header: &Header) -> Self {
        let (end, ttl) = match header.life {
            Life::Own { ttl, expires } => (end(expires, span(ttl)), ttl),
            Life::Retained { since } => retained::bucket(queue, header.id, since),
        };
        Self { slot: queue.slot(), kind: kind(Due::Expiry), end, queue, ttl }
    }

    /// Returns the bucket in which a scheduled entry is found when it is due.
    pub(super) fn of_schedule(queue: QueueId, ready: Timestamp) -> Self {
        let end = end(ready, MIN_SPAN);
        Self { slot: queue.slot(), kind: kind(Due::Schedule), end, queue, ttl: 0 }
    }

    /// The first instant of a bucket of the schedule.
    pub(super) fn begin(&self) -> Timestamp {
        Timestamp::from_millis(self.end.saturating_sub(MIN_SPAN))
    }

    /// The prefix of all keys of buckets of a slot and kind.
    pub(super) fn prefix(slot: Slot, due: Due) -> [u8; 2] {
        [slot.0, kind(due)]
    }

    pub(super) fn key(&self) -> Bytes {
        let mut key = BytesMut::with_capacity(30);
        key.put_u8(self.slot.0);
        key.put_u8(self.kind);
        key.put_u64(self.end);
        key.put_slice(self.queue.as_bytes());
        key.put_u32(self.ttl);
        key.freeze()
    }

    pub(super) fn decode(mut key: &[u8]) -> Result<Self, StoreError> {
        if key.len() != 30 {
            return Err(damaged("the key of a bucket"));
        }
        let (slot, kind, end) = (Slot(key.get_u8()), key.get_u8(), key.get_u64());
        let queue = QueueId::from_bytes(key.get_u128().to_be_bytes());
        Ok(Self { slot, kind, end, queue, ttl: key.get_u32() })
    }
}

impl Ids {
    /// Returns the bucket's value with another range; this counts as an update.
    pub(super) fn spanning(self, min: MessageId, max: MessageId) -> Self {
        Self { min, max, touches: self.touches.wrapping_add(1) }
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut value = BytesMut::with_capacity(36);
        value.put_slice(self.min.as_bytes());
        value.put_slice(self.max.as_bytes());
        value.put_u32(self.touches);
        value.freeze()
    }

    pub(super) fn decode(mut value: &[u8]) -> Result<Self, StoreError> {
        if value.len() != 36 {
            return Err(damaged("a bucket"));
        }
        let (min, max) = (take_id(&mut value), take_id(&mut value));
        Ok(Self { min, max, touches: value.get_u32() })
    }
}

/// The buckets of the entries that a batch writes in one queue, each with the smallest and the greatest of their ids.
#[derive(Default)]
pub(super) struct TouchedBuckets(BTreeMap<Bucket, (MessageId, MessageId)>);

impl TouchedBuckets {
    /// Adds an entry with its header after the batch.
    pub(super) fn add(&mut self, queue: QueueId, header: &Header) {
        self.extend(Bucket::of_expiry(queue, header), header.id);
        if header.state == State::Scheduled {
            self.extend(Bucket::of_schedule(queue, header.ready), header.id);
        }
    }

    fn extend(&mut self, bucket: Bucket, id: MessageId) {
        let (min, max) = self.0.entry(bucket).or_insert((id, id));
        *min = (*min).min(id);
        *max = (*max).max(id);
    }

    /// Returns the buckets to write: the stored ranges extended by these ids.
    pub(super) fn merged(&self, txn: &Txn<'_>) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let mut merged = Vec::with_capacity(self.0.len());
        for (bucket, (min, max)) in &self.0 {
            let key = bucket.key();
            let ids = match txn.get(Space::Buckets, &key).map_err(failed)? {
                Some(value) => {
                    let stored = Ids::decode(&value)?;
                    stored.spanning(stored.min.min(*min), stored.max.max(*max))
                }
                None => Ids { min: *min, max: *max, touches: 0 },
            };
            merged.push((key, ids.encode()));
        }
        Ok(merged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short_for_short_lives_and_never_long_for_the_life() {
        for (ttl, seconds) in [(0, 8), (60, 8), (300, 8), (512, 16), (3_600, 64), (1_209_600, 32_768)] {
            assert_eq!(span(ttl), seconds * 1_000, "{ttl}");
        }
        assert!(span(u32::MAX) <= u64::from(u32::MAX) * 1_000 / 32);
    }

    #[test]
    fn instant_precedes_its_bucket_end() {
        for millis in [0, 7_999, 8_000, 8_001, u64::MAX] {
            let end = end(Timestamp::from_millis(millis), MIN_SPAN);
            assert!(end > millis || millis == u64::MAX);
            assert!(end - MIN_SPAN <= millis);
        }
    }
}
