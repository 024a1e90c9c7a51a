//! Look-ups of due entries of a slot, through the due buckets. Empty buckets are removed.

use bytes::Bytes;

use super::buckets::{Bucket, BucketKind, Extent};
use super::entries::StoredEntry;
use super::failed;
use super::scan;
use super::stored;
use crate::limits;
use crate::{Position, StoreError};
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, State};
use angarium_core::time::Timestamp;
use angarium_journal::{ReadPair, Space, Txn, View};

/// Where a look-up of expired entries ended, because it found the max number: the next one continues there.
#[derive(Clone, Debug)]
pub(super) struct DueCursor {
    bucket: Bytes,
    after: Position,
}

/// A bucket as it was at a look-up, and its new value; none if it is to be removed.
pub(super) struct BucketUpdate {
    key: Bytes,
    value: Bytes,
    becomes: Option<Bytes>,
}

/// Result of a look-up.
#[derive(Default)]
pub(super) struct DueResult {
    pub(super) found: Vec<(QueueId, Header)>,
    pub(super) updates: Vec<BucketUpdate>,
    /// For expiry: where the next look-up continues.
    pub(super) cursor: Option<DueCursor>,
}

/// Removes or narrows buckets that were not updated since the look-up.
pub(super) fn clear(txn: &mut Txn<'_>, updates: Vec<BucketUpdate>) -> Result<(), StoreError> {
    for BucketUpdate { key, value, becomes } in updates {
        if txn.get(Space::Buckets, &key).map_err(failed)? != Some(value) {
            continue;
        }
        match becomes {
            Some(value) => txn.put(Space::Buckets, key, value),
            None => txn.remove(Space::Buckets, key),
        }
    }
    Ok(())
}

pub(super) fn bucket(pair: ReadPair) -> Result<(Bucket, Bytes, Bytes), StoreError> {
    let (key, value) = pair.map_err(failed)?;
    Ok((Bucket::decode(&key)?, key, value))
}

/// Reads the entries scheduled for `before` or earlier, the earliest first.
pub(super) fn schedule(
    view: &View,
    slot: Slot,
    before: Timestamp,
    limit: usize,
) -> Result<DueResult, StoreError> {
    let prefix = Bucket::prefix(slot, BucketKind::Schedule);
    let mut result = DueResult::default();
    let mut places = Vec::new();
    let mut end = 0;
    for pair in view.scan(Space::Buckets, &prefix, &prefix) {
        let (bucket, key, value) = bucket(pair)?;
        // Buckets of one span are in order of queues, so all of them are read before the earliest entries are known.
        if bucket.begin() > before || (bucket.end > end && places.len() >= limit) {
            break;
        }
        end = bucket.end;
        let known = places.len();
        let last = Timestamp::from_millis(before.as_millis().min(bucket.end.saturating_sub(1)));
        let first = Position { ready: bucket.begin(), id: MessageId::ZERO };
        let last = Position { ready: last, id: MessageId::MAX };
        let [first, last] = [first, last].map(|place| stored::place_key(bucket.queue, place));
        for pair in view.range(Space::Schedule, &first, &last).take(limit) {
            let (key, _) = pair.map_err(failed)?;
            let Position { ready, id } = stored::place(&key)?;
            places.push((ready, bucket.queue, id, key));
        }
        let is_past = bucket.end <= before.as_millis();
        if is_past && places.len() == known && result.updates.len() < limits::DUE_BUCKETS {
            result.updates.push(BucketUpdate { key, value, becomes: None });
        }
    }
    places.sort_unstable();
    places.truncate(limit);
    for (_, queue, _, key) in places {
        let stored = scan::scheduled(view, queue, Ok((key, Bytes::new())))?;
        result.found.push((queue, stored.header));
    }
    Ok(result)
}

/// Reads the entries that expire at `before` or earlier, from the end of the last look-up to the end of the order, then
/// from its begin.
pub(super) fn expiry(
    view: &View,
    slot: Slot,
    before: Timestamp,
    limit: usize,
    cursor: Option<&DueCursor>,
) -> Result<DueResult, StoreError> {
    let mut scan = DueScan::new(view, before, limit);
    scan.read_kinds(slot, cursor, None)?;
    if cursor.is_some() {
        scan.read_kinds(slot, None, cursor)?;
    }
    Ok(scan.result)
}

pub(super) struct DueScan<'a> {
    view: &'a View,
    before: Timestamp,
    limit: usize,
    pub(super) result: DueResult,
}

impl<'a> DueScan<'a> {
    pub(super) fn new(view: &'a View, before: Timestamp, limit: usize) -> Self {
        Self { view, before, limit, result: DueResult::default() }
    }

    /// Whether it has reached the max number of buckets to remove.
    pub(super) fn is_exhausted(&self) -> bool {
        self.result.updates.len() >= limits::DUE_BUCKETS
    }

    /// Reads the due buckets of both kinds after one cursor and up to another, until enough entries are found.
    fn read_kinds(
        &mut self,
        slot: Slot,
        after: Option<&DueCursor>,
        until: Option<&DueCursor>,
    ) -> Result<(), StoreError> {
        for kind in BucketKind::EXPIRING {
            if self.result.cursor.is_none() {
                self.read_buckets(&Bucket::prefix(slot, kind), after, until)?;
            }
        }
        Ok(())
    }

    /// Reads the due buckets with a prefix.
    fn read_buckets(
        &mut self,
        prefix: &[u8],
        after: Option<&DueCursor>,
        until: Option<&DueCursor>,
    ) -> Result<(), StoreError> {
        let from = after.map_or(prefix, |cursor| prefix.max(&cursor.bucket[..]));
        for pair in self.view.scan(Space::Buckets, prefix, from) {
            let (bucket, key, value) = bucket(pair)?;
            if bucket.end > self.before.as_millis() || until.is_some_and(|cursor| key > cursor.bucket) {
                break;
            }
            let extent = Extent::decode(bucket.kind, &value)?;
            let at = |cursor: &&DueCursor| cursor.bucket == key;
            let first = after.filter(at).map_or(extent.min, |cursor| extent.min.max(behind(cursor.after)));
            let last = until.filter(at).map_or(extent.max, |cursor| extent.max.min(cursor.after));
            let Some(left) = self.read_bucket(&bucket, &key, first, last)? else { break };
            if (first, last) == (extent.min, extent.max) {
                self.narrow(&bucket, value, extent, left);
            }
        }
        Ok(())
    }

    /// Reads the entries of a bucket between two places. Returns the range of the entries that exist; none when enough
    /// are found.
    pub(super) fn read_bucket(
        &mut self,
        bucket: &Bucket,
        key: &Bytes,
        first: Position,
        last: Position,
    ) -> Result<Option<BucketRange>, StoreError> {
        let mut left: BucketRange = None;
        for stored in within(self.view, bucket, first, last)? {
            let StoredEntry { header, .. } = stored?;
            if Bucket::of_expiry(bucket.queue, &header) != *bucket {
                continue;
            }
            let place = bucket.kind.place(&header);
            left = Some((left.map_or(place, |(first, _)| first), place));
            if matches!(header.state, State::Prepared(_) | State::Moving(_)) {
                continue;
            }
            self.result.found.push((bucket.queue, header));
            if self.result.found.len() >= self.limit {
                self.result.cursor = Some(DueCursor { bucket: key.clone(), after: place });
                return Ok(None);
            }
        }
        Ok(Some(left))
    }

    /// Records the new range of a bucket that was read completely.
    pub(super) fn narrow(&mut self, bucket: &Bucket, value: Bytes, extent: Extent, left: BucketRange) {
        if left == Some((extent.min, extent.max)) || self.is_exhausted() {
            return;
        }
        let becomes = left.map(|(first, last)| extent.spanning(first, last).encode(bucket.kind));
        self.result.updates.push(BucketUpdate { key: bucket.key(), value, becomes });
    }
}

/// The first and the last place of a bucket; none when it is empty.
pub(super) type BucketRange = Option<(Position, Position)>;

/// The first position behind another one.
fn behind(place: Position) -> Position {
    Position { id: place.id.next(), ..place }
}

/// Entries of a queue, in some order.
type Entries<'a> = Box<dyn Iterator<Item = Result<StoredEntry, StoreError>> + 'a>;

/// The entries between two places of a bucket, in their order: a bucket of kept entries has no others.
fn within<'a>(
    view: &'a View,
    bucket: &Bucket,
    first: Position,
    last: Position,
) -> Result<Entries<'a>, StoreError> {
    match bucket.kind {
        BucketKind::Schedule | BucketKind::Expiry => between(view, bucket.queue, first.id, last.id),
        BucketKind::KeptExpiry => Ok(settled_between(view, bucket.queue, first, last)),
    }
}

/// The kept entries of a queue between two positions, in order.
fn settled_between(view: &View, queue: QueueId, first: Position, last: Position) -> Entries<'_> {
    let [from, to] = [first, last].map(|place| stored::place_key(queue, place));
    let pairs = (first <= last).then(|| view.range(Space::Settled, &from, &to)).into_iter().flatten();
    Box::new(pairs.map(move |pair| scan::settled(view, queue, pair)))
}

/// The entries of a queue between two ids, in order, in all states but the kept ones.
fn between(
    view: &View,
    queue: QueueId,
    first: MessageId,
    last: MessageId,
) -> Result<Entries<'_>, StoreError> {
    let low = scan::totals(view, queue)?.low;
    let pairs = |space, first: MessageId| {
        let (from, to) = (stored::entry_key(queue, first), stored::entry_key(queue, last));
        // Keys below the head were removed, so the walk begins at the head.
        (first <= last).then(|| view.range(space, &from, &to)).into_iter().flatten().peekable()
    };
    let (mut ready, mut in_transfer) = (pairs(Space::Entries, first.max(low)), pairs(Space::Aside, first));
    let key = |pair: &ReadPair| pair.as_ref().ok().map(|(key, _)| key.clone());
    Ok(Box::new(std::iter::from_fn(move || {
        let (one, other) = (ready.peek().map(key), in_transfer.peek().map(key));
        let next = match (one, other) {
            (Some(one), Some(other)) if other < one => in_transfer.next(),
            (Some(_), _) => ready.next(),
            (None, _) => in_transfer.next(),
        };
        next.map(|pair| scan::entry(view, queue, pair))
    })))
}
