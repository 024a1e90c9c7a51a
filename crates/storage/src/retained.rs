//! Places of entries that live by queue, in the expiry order of a pool: after all real instants, so that look-ups of
//! expired entries never meet them; sorted by queue, then by base time.
//!
//! A place consists of, from the highest bit on: 01, the 14 bits after the slot in the id of the queue, 48 bits of the
//! base time in milliseconds. Queues of a slot that share those 14 bits are mixed in this order: a look-up skips the
//! entries of the others. The number of skipped entries is bounded; at the bound the look-up returns the place where
//! the next one continues. Databases have these numbers, so they never change.

use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::Header;
use angarium_core::time::Timestamp;

/// Above every instant, and within a signed 64-bit number.
const MARK: u64 = 1 << 62;
const TIME_BITS: u32 = 48;
const LAST: u64 = (1 << TIME_BITS) - 1;
/// Milliseconds of a bucket of many entries: its entries have base times within one such span.
const SPAN: u64 = 8_000;
/// Flag in the second number of a bucket with one entry.
const ALONE: u32 = 1 << 31;

/// Result of a look-up of entries that live by queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetainedEntries {
    /// The requested entries.
    pub found: Vec<Header>,
    /// Lower bound of the base times of all such entries of the queue, the found ones included; none when there is no
    /// entry. Prepared and moving entries do not count.
    pub oldest: Option<Timestamp>,
    /// Where the next look-up begins, if entries of other queues ended this one before it found any.
    pub resume: Option<RetainedPlace>,
}

/// A place in the order of entries that live by queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetainedPlace(pub(super) u64);

impl RetainedPlace {
    /// Lower bound of the base times of the queue's entries after this place.
    pub fn since(self) -> Timestamp {
        since(self.0)
    }
}

/// The place at which a look-up begins.
pub(super) fn begin_at(queue: QueueId, from: Option<RetainedPlace>) -> u64 {
    from.map_or_else(|| place(queue, Timestamp::default()), |RetainedPlace(place)| place)
}

/// Lower bound of the base times of all entries in buckets that end at `end` or later.
pub(super) fn earliest(queue: QueueId, end: u64) -> Timestamp {
    since(end.saturating_sub(SPAN).max(place(queue, Timestamp::default())))
}

/// Returns the place of a base time among the entries of a queue.
pub(super) fn place(queue: QueueId, since: Timestamp) -> u64 {
    let [_, high, low, ..] = *queue.as_bytes();
    let class = u64::from(u16::from_be_bytes([high, low]) >> 2);
    MARK | class << TIME_BITS | since.as_millis().min(LAST)
}

pub(super) fn last(queue: QueueId) -> u64 {
    place(queue, Timestamp::from_millis(LAST))
}

/// Returns the base time of a place.
pub(super) fn since(place: u64) -> Timestamp {
    Timestamp::from_millis(place & LAST)
}

/// Whether a number in the expiry order is such a place.
pub(super) fn is_place(number: u64) -> bool {
    number >= MARK
}

/// Returns the bucket of an entry: its end, which is the first place after it, and its second number. Entries whose id
/// has the same time as their base time share a bucket, in which ids are in the order of base times. Every other entry
/// (a dead letter of a FIFO queue, a message that was sent again) has a bucket of its own, because the range of ids of
/// several could contain the whole queue.
pub(super) fn bucket(queue: QueueId, id: MessageId, since: Timestamp) -> (u64, u32) {
    let millis = since.as_millis();
    let end = |millis| place(queue, Timestamp::from_millis(millis));
    if id.millis() / SPAN == millis / SPAN {
        return (end((millis / SPAN).saturating_add(1).saturating_mul(SPAN)), 0);
    }
    let [.., a, b, c, d] = *id.as_bytes();
    (end(millis.saturating_add(1)), ALONE | u32::from_be_bytes([a, b, c, d]))
}

/// Returns the first base time of a bucket with this end and second number.
pub(super) fn begin(end: u64, second: u32) -> Timestamp {
    since(end.saturating_sub(span(second)))
}

/// Returns the milliseconds of a bucket.
pub(super) const fn span(second: u32) -> u64 {
    if second == 0 { SPAN } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(millis: u64, low: u8) -> MessageId {
        MessageId::from_bytes((u128::from(millis) << 80 | u128::from(low)).to_be_bytes())
    }

    #[test]
    fn retained_places_sort_by_queue_and_base_time() {
        let (one, other) = (QueueId::from_bytes([1; 16]), QueueId::from_bytes([9; 16]));
        let at = Timestamp::from_millis;
        let places = [place(one, at(0)), place(one, at(7)), last(one), place(other, at(0)), last(other)];
        assert!(places.is_sorted() && places.iter().all(|place| is_place(*place)));
        assert!(!is_place(at(253_402_300_799_000).as_millis()));
        assert_eq!(since(place(other, at(1_700_000_000_123))), at(1_700_000_000_123));
        assert!(i64::try_from(last(QueueId::from_bytes([255; 16]))).is_ok());
    }

    #[test]
    fn only_ordered_entry_is_in_its_bucket() {
        let (queue, now) = (QueueId::from_bytes([1; 16]), 1_700_000_000_000);
        let of = |id, since| bucket(queue, id, Timestamp::from_millis(since));
        assert_eq!(of(id(now, 1), now), of(id(now + 1, 2), now + 1));
        for (id, since) in [(id(now, 1), now), (id(now, 1), now + 60_000), (id(now, 2), now + 60_000)] {
            let (end, second) = of(id, since);
            assert!((begin(end, second).as_millis()..self::since(end).as_millis()).contains(&since));
        }
        assert_ne!(of(id(now, 1), now + 60_000), of(id(now, 2), now + 60_000));
    }
}
