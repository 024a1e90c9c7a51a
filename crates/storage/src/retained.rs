//! Where drivers file entries that live by the retention of their queue (`by queue`): in the order of expiry, behind
//! all instants that there will be, so that no look for what has expired meets them; there by queue, and of each queue
//! by base time.
//!
//! A place there is, from the highest bit on: 01, the 14 bits behind the slot in the id of the queue, 48 bits of the
//! base time in milliseconds. Queues of a slot that share those 14 bits lie among each other: a look passes over the
//! others. These numbers are in databases and never change. How many others a look passes over is bounded: it then
//! states where the next one continues.

use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::Header;
use angarium_core::time::Timestamp;

/// Above every instant, and within what a signed number holds.
const MARK: u64 = 1 << 62;
const TIME_BITS: u32 = 48;
const LAST: u64 = (1 << TIME_BITS) - 1;
/// Milliseconds that the entries of a bucket of many have been kept apart by at most.
const SPAN: u64 = 8_000;
/// Set in the second number of a bucket that represents one entry.
const ALONE: u32 = 1 << 31;

/// What a pool states of the entries of a queue that live by its retention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetainedEntries {
    /// Those of them that were asked for.
    pub found: Vec<Header>,
    /// No such entry has an earlier base time, those found included; none when there is no entry. It states nothing of
    /// entries that are prepared or moving.
    pub oldest: Option<Timestamp>,
    /// Nothing was found before this place, and what other queues hold has ended the look there: the next one begins at it.
    pub resume: Option<RetainedPlace>,
}

/// A place among the entries that live by the retention of their queues, in the order that a pool files them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetainedPlace(pub(super) u64);

impl RetainedPlace {
    /// Entries of a queue that have this base time or a later one may lie behind it.
    pub fn since(self) -> Timestamp {
        since(self.0)
    }
}

/// Where a look begins.
pub(super) fn begin_at(queue: QueueId, from: Option<RetainedPlace>) -> u64 {
    from.map_or_else(|| place(queue, Timestamp::default()), |RetainedPlace(place)| place)
}

/// No entry of a queue in a bucket with this end or a later one has an earlier base time.
pub(super) fn earliest(queue: QueueId, end: u64) -> Timestamp {
    since(end.saturating_sub(SPAN).max(place(queue, Timestamp::default())))
}

/// The place of a base time among the entries of a queue.
pub(super) fn place(queue: QueueId, since: Timestamp) -> u64 {
    let [_, high, low, ..] = *queue.as_bytes();
    let class = u64::from(u16::from_be_bytes([high, low]) >> 2);
    MARK | class << TIME_BITS | since.as_millis().min(LAST)
}

pub(super) fn last(queue: QueueId) -> u64 {
    place(queue, Timestamp::from_millis(LAST))
}

/// The base time of a place.
pub(super) fn since(place: u64) -> Timestamp {
    Timestamp::from_millis(place & LAST)
}

/// Whether a number of the order of expiry is such a place.
pub(super) fn is_place(number: u64) -> bool {
    number >= MARK
}

/// The bucket of an entry: its end, the first place that is not in it, and its second number. Entries whose ids are of the time
/// that they are kept from share a bucket, in which they lie in order. Each other one (a dead letter in order of groups, a
/// message that was sent again) has one of its own: the ids of several may have the whole queue between them.
pub(super) fn bucket(queue: QueueId, id: MessageId, since: Timestamp) -> (u64, u32) {
    let millis = since.as_millis();
    let end = |millis| place(queue, Timestamp::from_millis(millis));
    if id.millis() / SPAN == millis / SPAN {
        return (end((millis / SPAN).saturating_add(1).saturating_mul(SPAN)), 0);
    }
    let [.., a, b, c, d] = *id.as_bytes();
    (end(millis.saturating_add(1)), ALONE | u32::from_be_bytes([a, b, c, d]))
}

/// The first base time of a bucket with this end and second number.
pub(super) fn begin(end: u64, second: u32) -> Timestamp {
    since(end.saturating_sub(span(second)))
}

/// Milliseconds of a bucket.
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
