//! Buckets of time: they tell where to find due entries, without a key for each message and without a walk over entries
//! that are not due.
//!
//! A bucket has the entries of one queue whose time is in one span, and for expiry also of one ttl: entries of one ttl
//! expire in order of their ids, so the smallest and the greatest id tell where they are. Kept entries of one ttl
//! expire in the order in which they were settled, so they have buckets with places in that order. Each batch that
//! appends an entry or changes a header updates its bucket; a removal updates none. When a look-up finds a due bucket
//! empty, the bucket is removed, if it was not updated since.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::failed;
use super::stored::{self, damaged, take_id};
use crate::{Position, StoreError, retained};
use angarium_core::ids::{QueueId, Slot};
use angarium_core::message::{Header, Life, State};
use angarium_core::time::Timestamp;
use angarium_journal::{Space, Txn};

/// Milliseconds of the spans of the schedule, and of the shortest span of expiry.
const MIN_SPAN: u64 = 8_000;

/// The kinds of buckets, with their stored numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BucketKind {
    /// Entries that become ready.
    Schedule = 0,
    /// Entries that expire, except kept ones.
    Expiry = 1,
    /// Kept entries that expire.
    KeptExpiry = 2,
}

/// The key of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bucket {
    pub(super) slot: Slot,
    pub(super) kind: BucketKind,
    /// The first millisecond after the bucket.
    pub(super) end: u64,
    pub(super) queue: QueueId,
    /// Zero for the schedule.
    pub(super) ttl: u32,
}

/// The value of a bucket: the range of the places of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) min: Position,
    pub(super) max: Position,
    /// Number of updates. It tells whether a bucket has changed since a look-up.
    touches: u32,
}

impl BucketKind {
    /// The kinds of buckets with entries that expire.
    pub(super) const EXPIRING: [Self; 2] = [Self::Expiry, Self::KeptExpiry];

    /// The place of an entry in a bucket of this kind.
    pub(super) fn place(self, header: &Header) -> Position {
        match self {
            Self::Schedule | Self::Expiry => Position::id(header.id),
            Self::KeptExpiry => Position::of(header),
        }
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
        let kind = if header.state.is_kept() { BucketKind::KeptExpiry } else { BucketKind::Expiry };
        Self { slot: queue.slot(), kind, end, queue, ttl }
    }

    /// Returns the bucket in which a scheduled entry is found when it is due.
    pub(super) fn of_schedule(queue: QueueId, ready: Timestamp) -> Self {
        let end = end(ready, MIN_SPAN);
        Self { slot: queue.slot(), kind: BucketKind::Schedule, end, queue, ttl: 0 }
    }

    /// The first instant of a bucket of the schedule.
    pub(super) fn begin(&self) -> Timestamp {
        Timestamp::from_millis(self.end.saturating_sub(MIN_SPAN))
    }

    /// The prefix of all keys of buckets of a slot and kind.
    pub(super) fn prefix(slot: Slot, kind: BucketKind) -> [u8; 2] {
        [slot.0, kind as u8]
    }

    pub(super) fn key(&self) -> Bytes {
        let mut key = BytesMut::with_capacity(30);
        key.put_u8(self.slot.0);
        key.put_u8(self.kind as u8);
        key.put_u64(self.end);
        key.put_slice(self.queue.as_bytes());
        key.put_u32(self.ttl);
        key.freeze()
    }

    pub(super) fn decode(mut key: &[u8]) -> Result<Self, StoreError> {
        let no_bucket = || damaged("the key of a bucket");
        if key.len() != 30 {
            return Err(no_bucket());
        }
        let slot = Slot(key.get_u8());
        let kind = match key.get_u8() {
            0 => BucketKind::Schedule,
            1 => BucketKind::Expiry,
            2 => BucketKind::KeptExpiry,
            _ => return Err(no_bucket()),
        };
        let end = key.get_u64();
        let queue = QueueId::from_bytes(key.get_u128().to_be_bytes());
        Ok(Self { slot, kind, end, queue, ttl: key.get_u32() })
    }
}

impl Extent {
    /// Returns the bucket's value with another range; this counts as an update.
    pub(super) fn spanning(self, min: Position, max: Position) -> Self {
        Self { min, max, touches: self.touches.wrapping_add(1) }
    }

    pub(super) fn encode(&self, kind: BucketKind) -> Bytes {
        let mut value = BytesMut::with_capacity(52);
        for place in [self.min, self.max] {
            match kind {
                BucketKind::Schedule | BucketKind::Expiry => value.put_slice(place.id.as_bytes()),
                BucketKind::KeptExpiry => stored::put_place(&mut value, place),
            }
        }
        value.put_u32(self.touches);
        value.freeze()
    }

    pub(super) fn decode(kind: BucketKind, mut value: &[u8]) -> Result<Self, StoreError> {
        let (bytes, take): (usize, fn(&mut &[u8]) -> Position) = match kind {
            BucketKind::Schedule | BucketKind::Expiry => (36, |value| Position::id(take_id(value))),
            BucketKind::KeptExpiry => (52, stored::take_place),
        };
        if value.len() != bytes {
            return Err(damaged("a bucket"));
        }
        let (min, max) = (take(&mut value), take(&mut value));
        Ok(Self { min, max, touches: value.get_u32() })
    }
}

/// The buckets of the entries that a batch writes in one queue, each with the first and the last of their places.
#[derive(Default)]
pub(super) struct TouchedBuckets(BTreeMap<Bucket, (Position, Position)>);

impl TouchedBuckets {
    /// Adds an entry with its header after the batch.
    pub(super) fn add(&mut self, queue: QueueId, header: &Header) {
        self.extend(Bucket::of_expiry(queue, header), header);
        if header.state == State::Scheduled {
            self.extend(Bucket::of_schedule(queue, header.ready), header);
        }
    }

    fn extend(&mut self, bucket: Bucket, header: &Header) {
        let place = bucket.kind.place(header);
        let (min, max) = self.0.entry(bucket).or_insert((place, place));
        *min = (*min).min(place);
        *max = (*max).max(place);
    }

    /// Returns the buckets to write: the stored ranges extended by these places.
    pub(super) fn merged(&self, txn: &Txn<'_>) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let mut merged = Vec::with_capacity(self.0.len());
        for (bucket, (min, max)) in &self.0 {
            let key = bucket.key();
            let extent = match txn.get(Space::Buckets, &key).map_err(failed)? {
                Some(value) => {
                    let stored = Extent::decode(bucket.kind, &value)?;
                    stored.spanning(stored.min.min(*min), stored.max.max(*max))
                }
                None => Extent { min: *min, max: *max, touches: 0 },
            };
            merged.push((key, extent.encode(bucket.kind)));
        }
        Ok(merged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_core::ids::MessageId;

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

    #[test]
    fn extents_keep_their_stored_forms() {
        let place = |byte| Position {
            ready: Timestamp::from_millis(byte),
            id: MessageId::from_bytes([byte as u8; 16]),
        };
        let extent = Extent { min: place(1), max: place(2), touches: 3 };
        let (ids, touches) = ([[1; 16], [2; 16]], 3_u32.to_be_bytes());
        assert_eq!(extent.encode(BucketKind::Expiry), [&ids.concat()[..], &touches].concat());
        let places = [&1_u64.to_be_bytes()[..], &ids[0], &2_u64.to_be_bytes(), &ids[1], &touches].concat();
        assert_eq!(extent.encode(BucketKind::KeptExpiry), places);
        assert_eq!(Extent::decode(BucketKind::KeptExpiry, &places).unwrap(), extent);
        assert!(Extent::decode(BucketKind::Expiry, &places).is_err());
    }

    #[test]
    fn buckets_are_read_from_their_keys() {
        let queue = QueueId::from_bytes([5; 16]);
        for (number, kind) in (0..).zip([BucketKind::Schedule, BucketKind::Expiry, BucketKind::KeptExpiry]) {
            let bucket = Bucket { slot: queue.slot(), kind, end: 8_000, queue, ttl: 60 };
            let key = bucket.key();
            assert_eq!((Bucket::decode(&key).unwrap(), key[1]), (bucket, number));
        }
    }
}
