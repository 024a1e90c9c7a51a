//! Look-up of entries that live by queue, from the earliest base time on, through their buckets. Empty buckets are
//! removed.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::buckets::{Bucket, BucketKind, Extent};
use super::due::{self, BucketUpdate, DueScan};
use crate::limits;
use crate::{RetainedEntries, RetainedPlace, StoreError, retained};
use angarium_core::ids::QueueId;
use angarium_core::time::Timestamp;
use angarium_journal::{Space, View};

/// A look-up through the buckets of a queue.
struct Walk<'a> {
    view: &'a View,
    queue: QueueId,
    before: Timestamp,
    /// The first place after the requested range.
    past: u64,
    scan: DueScan<'a>,
    oldest: Option<Timestamp>,
}

/// Reads the entries of a queue, from a place on. Returns the result, and the buckets to remove or narrow.
pub(super) fn find(
    view: &View,
    queue: QueueId,
    from: Option<RetainedPlace>,
    before: Timestamp,
    limit: usize,
) -> Result<(RetainedEntries, Vec<BucketUpdate>), StoreError> {
    let prefix = Bucket::prefix(queue.slot(), BucketKind::Expiry);
    let first = [&prefix[..], &retained::begin_at(queue, from).to_be_bytes()[..]].concat();
    // The end of a bucket is not in it.
    let past = retained::place(queue, before).saturating_add(1);
    let mut walk = Walk { view, queue, before, past, scan: DueScan::new(view, before, limit), oldest: None };
    let (mut others, mut cut) = (0, None);
    for pair in view.scan(Space::Buckets, &prefix, &first) {
        let (bucket, key, value) = due::bucket(pair)?;
        if bucket.end > retained::last(queue) {
            break;
        }
        if bucket.queue == queue {
            if walk.read_bucket(&bucket, key, value)?.is_break() {
                break;
            }
            continue;
        }
        others += 1;
        if others >= limits::RETAINED_WALK {
            cut = Some(bucket.end);
            break;
        }
    }
    let resume = cut.map(|end| walk.end_at(end)).transpose()?.flatten();
    let found = walk.scan.result.found.into_iter().map(|(_, header)| header).collect();
    Ok((RetainedEntries { found, oldest: walk.oldest, resume }, walk.scan.result.updates))
}

impl Walk<'_> {
    /// Reads a bucket of the queue. Breaks when no later bucket matters.
    fn read_bucket(
        &mut self,
        bucket: &Bucket,
        key: Bytes,
        value: Bytes,
    ) -> Result<ControlFlow<()>, StoreError> {
        let begin = retained::begin(bucket.end, bucket.ttl);
        if self.scan.is_exhausted() {
            self.oldest.get_or_insert(begin);
            return Ok(ControlFlow::Break(()));
        }
        let (extent, is_past) = (Extent::decode(bucket.kind, &value)?, bucket.end <= self.past);
        // For a bucket that is not due it is enough to know that it is not empty.
        let mut first = DueScan::new(self.view, self.before, 1);
        let target = if is_past { &mut self.scan } else { &mut first };
        let left = target.read_bucket(bucket, &key, extent.min, extent.max)?;
        if let Some(left) = left {
            self.scan.narrow(bucket, value, extent, left);
        }
        if left != Some(None) {
            self.oldest.get_or_insert(begin);
        }
        let ends = left.is_none() || (left.flatten().is_some() && !is_past);
        Ok(if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Ends at buckets of other queues with this end, after reading the queue's own buckets with the same end. Returns
    /// where the next look-up begins.
    fn end_at(&mut self, end: u64) -> Result<Option<RetainedPlace>, StoreError> {
        let prefix = Bucket::prefix(self.queue.slot(), BucketKind::Expiry);
        let own = [&prefix[..], &end.to_be_bytes()[..], &self.queue.as_bytes()[..]].concat();
        for pair in self.view.scan(Space::Buckets, &own, &own) {
            let (bucket, key, value) = due::bucket(pair)?;
            if self.read_bucket(&bucket, key, value)?.is_break() {
                return Ok(None);
            }
        }
        let next = end.saturating_add(1);
        self.oldest.get_or_insert(retained::earliest(self.queue, next));
        let is_before = self.scan.result.found.is_empty() && end <= self.past;
        Ok(is_before.then_some(RetainedPlace(next)))
    }
}
