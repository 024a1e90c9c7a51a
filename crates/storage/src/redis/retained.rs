//! Look-up of entries that live by queue, from the earliest base time on, through their buckets. Empty buckets are
//! removed.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::RedisPool;
use super::due::DueScan;
use super::limits;
use super::reads::{bytes, list};
use super::stored::Bucket;
use crate::{RetainedEntries, RetainedPlace, StoreError, retained};
use angarium_core::ids::QueueId;
use angarium_core::time::Timestamp;

/// A look-up through the buckets of a queue.
pub(super) struct Walk {
    queue: QueueId,
    before: Timestamp,
    /// The first place after the requested range.
    past: u64,
    scan: DueScan,
    buckets_read: usize,
    oldest: Option<Timestamp>,
}

impl RedisPool {
    /// Reads members of the buckets of a queue's slot, at most a page.
    async fn buckets_between(
        &self,
        queue: QueueId,
        first: &[u8],
        last: &[u8],
    ) -> Result<Vec<Bytes>, StoreError> {
        let session = self.reads.session().await?;
        let mut command = redis::cmd("ZRANGEBYLEX");
        command.arg(session.keys.of_slot(queue.slot(), "buckets")).arg(first).arg(last);
        command.arg("LIMIT").arg(0).arg(limits::PAGE);
        list(self.reads.query(session, &command).await?)?.into_iter().map(bytes).collect()
    }

    /// Reads a bucket of the queue. Breaks when no later bucket matters.
    async fn walk_bucket(
        &self,
        walk: &mut Walk,
        member: &Bytes,
        bucket: Bucket,
    ) -> Result<ControlFlow<()>, StoreError> {
        let begin = retained::begin(bucket.end, bucket.ttl);
        walk.buckets_read += 1;
        // For a bucket that is not due it is enough to know that it is not empty.
        let (is_past, found) = (bucket.end <= walk.past, walk.scan.found.len());
        let mut head = DueScan::new(walk.queue.slot(), walk.before, 1);
        self.read_bucket(if is_past { &mut walk.scan } else { &mut head }, member, None, None).await?;
        if walk.scan.found.len() > found || !head.found.is_empty() {
            walk.oldest.get_or_insert(begin);
        }
        if walk.scan.is_full() || !head.found.is_empty() || walk.buckets_read >= crate::limits::DUE_BUCKETS {
            walk.oldest.get_or_insert(begin);
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Ends at buckets of other queues with this end, after reading the queue's own buckets with the same end.
    async fn end_at(&self, mut walk: Walk, end: u64) -> Result<RetainedEntries, StoreError> {
        let own = |second: u32| {
            [b"[", &end.to_be_bytes()[..], &walk.queue.as_bytes()[..], &second.to_be_bytes()[..]].concat()
        };
        for member in self.buckets_between(walk.queue, &own(0), &own(u32::MAX)).await? {
            let (_, bucket) = Bucket::decode(&member)?;
            if self.walk_bucket(&mut walk, &member, bucket).await?.is_break() {
                return Ok(walk.ended(None));
            }
        }
        let next = end.saturating_add(1);
        walk.oldest.get_or_insert(retained::earliest(walk.queue, next));
        let is_before = walk.scan.found.is_empty() && end <= walk.past;
        Ok(walk.ended(is_before.then_some(RetainedPlace(next))))
    }
}

impl Walk {
    pub(super) fn new(queue: QueueId, before: Timestamp, limit: usize) -> Self {
        // The end of a bucket is not in it.
        let past = retained::place(queue, before).saturating_add(1);
        let scan = DueScan::new(queue.slot(), before, limit);
        Self { queue, before, past, scan, buckets_read: 0, oldest: None }
    }

    /// Reads the entries of the queue, from a place on.
    pub(super) async fn run(
        mut self,
        pool: &RedisPool,
        from: Option<RetainedPlace>,
    ) -> Result<RetainedEntries, StoreError> {
        let queue = self.queue;
        let bound = |sign: &[u8], end: u64| [sign, &end.to_be_bytes()[..]].concat();
        let mut first = bound(b"[", retained::begin_at(queue, from));
        let last = bound(b"(", retained::last(queue).saturating_add(1));
        let mut others = 0;
        loop {
            let members = pool.buckets_between(queue, &first, &last).await?;
            for member in &members {
                let (of, bucket) = Bucket::decode(member)?;
                if of == queue {
                    if pool.walk_bucket(&mut self, member, bucket).await?.is_break() {
                        return Ok(self.ended(None));
                    }
                    continue;
                }
                others += 1;
                if others >= crate::limits::RETAINED_WALK {
                    return pool.end_at(self, bucket.end).await;
                }
            }
            match members.last() {
                Some(member) if members.len() >= limits::PAGE => first = [b"(", &member[..]].concat(),
                Some(_) | None => return Ok(self.ended(None)),
            }
        }
    }

    fn ended(self, resume: Option<RetainedPlace>) -> RetainedEntries {
        let found = self.scan.found.into_iter().map(|(_, header)| header).collect();
        RetainedEntries { found, oldest: self.oldest, resume }
    }
}
