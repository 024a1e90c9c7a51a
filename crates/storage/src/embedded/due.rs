//! Look-ups of due entries of a slot, through the due buckets. Empty buckets are removed.

use bytes::Bytes;

use super::buckets::{Bucket, Ids};
use super::failed;
use super::scan;
use super::stored;
use crate::limits;
use crate::{Due, StoreError};
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, Message, State};
use angarium_core::time::Timestamp;
use angarium_journal::{ReadPair, Space, Txn, View};

/// Where a look-up of expired entries ended, because it found the max number: the next one continues there.
#[derive(Clone, Debug)]
pub(super) struct DueCursor {
    bucket: Bytes,
    after: MessageId,
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
    let prefix = Bucket::prefix(slot, Due::Schedule);
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
        let last = before.as_millis().min(bucket.end.saturating_sub(1));
        let first = stored::schedule_key(bucket.queue, bucket.begin(), MessageId::ZERO);
        let last = stored::schedule_key(bucket.queue, Timestamp::from_millis(last), MessageId::MAX);
        for pair in view.range(Space::Schedule, &first, &last).take(limit) {
            let (key, _) = pair.map_err(failed)?;
            let (ready, id) = stored::schedule_place(&key)?;
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
        let message = scan::scheduled(view, queue, Ok((key, Bytes::new())))?;
        result.found.push((queue, message.header));
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
    let prefix = Bucket::prefix(slot, Due::Expiry);
    scan.read_buckets(&prefix, cursor, None)?;
    if cursor.is_some() && scan.result.cursor.is_none() {
        scan.read_buckets(&prefix, None, cursor)?;
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

    /// Reads the due buckets after one cursor and up to another, until enough entries are found.
    fn read_buckets(
        &mut self,
        prefix: &[u8],
        after: Option<&DueCursor>,
        until: Option<&DueCursor>,
    ) -> Result<(), StoreError> {
        let from = after.map_or(prefix, |cursor| &cursor.bucket[..]);
        for pair in self.view.scan(Space::Buckets, prefix, from) {
            let (bucket, key, value) = bucket(pair)?;
            if bucket.end > self.before.as_millis() || until.is_some_and(|cursor| key > cursor.bucket) {
                break;
            }
            let ids = Ids::decode(&value)?;
            let at = |cursor: &&DueCursor| cursor.bucket == key;
            let first = after.filter(at).map_or(ids.min, |cursor| ids.min.max(cursor.after.next()));
            let last = until.filter(at).map_or(ids.max, |cursor| ids.max.min(cursor.after));
            let Some(kept) = self.read_bucket(&bucket, &key, first, last)? else { break };
            if (first, last) == (ids.min, ids.max) {
                self.narrow(key, value, ids, kept);
            }
        }
        Ok(())
    }

    /// Reads the entries of a bucket between two ids. Returns the range of the entries that exist; none when enough are
    /// found.
    pub(super) fn read_bucket(
        &mut self,
        bucket: &Bucket,
        key: &Bytes,
        first: MessageId,
        last: MessageId,
    ) -> Result<Option<BucketRange>, StoreError> {
        let mut kept: BucketRange = None;
        for message in between(self.view, bucket.queue, first, last)? {
            let Message { header, .. } = message?;
            if Bucket::of_expiry(bucket.queue, &header) != *bucket {
                continue;
            }
            let id = header.id;
            kept = Some((kept.map_or(id, |(first, _)| first), id));
            if matches!(header.state, State::Prepared(_) | State::Moving(_)) {
                continue;
            }
            self.result.found.push((bucket.queue, header));
            if self.result.found.len() >= self.limit {
                self.result.cursor = Some(DueCursor { bucket: key.clone(), after: id });
                return Ok(None);
            }
        }
        Ok(Some(kept))
    }

    /// Records the new range of a bucket that was read completely.
    pub(super) fn narrow(&mut self, key: Bytes, value: Bytes, ids: Ids, kept: BucketRange) {
        if kept == Some((ids.min, ids.max)) || self.is_exhausted() {
            return;
        }
        let becomes = kept.map(|(first, last)| ids.spanning(first, last).encode());
        self.result.updates.push(BucketUpdate { key, value, becomes });
    }
}

/// The first and the last id of a bucket; none when it is empty.
pub(super) type BucketRange = Option<(MessageId, MessageId)>;

/// The entries of a queue between two ids, in all states, in order.
fn between(
    view: &View,
    queue: QueueId,
    first: MessageId,
    last: MessageId,
) -> Result<impl Iterator<Item = Result<Message, StoreError>>, StoreError> {
    let low = scan::totals(view, queue)?.low;
    let pairs = |space, first: MessageId| {
        let (from, to) = (stored::entry_key(queue, first), stored::entry_key(queue, last));
        // Keys below the head were removed, so the walk begins at the head.
        (first <= last).then(|| view.range(space, &from, &to)).into_iter().flatten().peekable()
    };
    let (mut ready, mut in_transfer) = (pairs(Space::Entries, first.max(low)), pairs(Space::Aside, first));
    let key = |pair: &ReadPair| pair.as_ref().ok().map(|(key, _)| key.clone());
    Ok(std::iter::from_fn(move || {
        let (one, other) = (ready.peek().map(key), in_transfer.peek().map(key));
        let next = match (one, other) {
            (Some(one), Some(other)) if other < one => in_transfer.next(),
            (Some(_), _) => ready.next(),
            (None, _) => in_transfer.next(),
        };
        next.map(|pair| scan::entry(view, queue, pair))
    }))
}
