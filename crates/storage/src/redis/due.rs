//! Look-ups of due entries of a slot: the schedule is in order of time; expired entries are searched in the due
//! buckets, and empty buckets are removed.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use redis::Value;

use super::RedisPool;
use super::limits;
use super::reads::{bytes, list};
use super::retained::Walk;
use super::scripts::EXPIRED;
use super::stored::{self, Bucket, decode_header, decode_id};
use crate::{Due, PoolDeadlines, Position, RetainedEntries, RetainedPlace, StoreError};
use angarium_core::ids::{MessageId, QueueId, Slot};
use angarium_core::message::{Header, State};
use angarium_core::time::Timestamp;

/// Where a look-up of expired entries ended, because it found the max number: the next one continues there.
#[derive(Clone, Debug)]
pub(super) struct DueCursor {
    bucket: Bytes,
    after: Position,
}

/// A look-up through the buckets of a slot.
pub(super) struct DueScan {
    slot: Slot,
    before: Timestamp,
    limit: usize,
    pub(super) found: Vec<(QueueId, Header)>,
    cursor: Option<DueCursor>,
}

impl DueScan {
    pub(super) fn new(slot: Slot, before: Timestamp, limit: usize) -> Self {
        Self { slot, before, limit, found: Vec::new(), cursor: None }
    }

    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= self.limit
    }
}

#[async_trait]
impl PoolDeadlines for RedisPool {
    async fn due(
        &self,
        slot: Slot,
        due: Due,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueId, Header)>, StoreError> {
        match due {
            _ if limit == 0 => Ok(Vec::new()),
            Due::Schedule => self.scheduled(slot, before, limit).await,
            Due::Expiry => self.expired(slot, before, limit).await,
        }
    }

    async fn retained(
        &self,
        queue: QueueId,
        from: Option<RetainedPlace>,
        before: Timestamp,
        limit: usize,
    ) -> Result<RetainedEntries, StoreError> {
        Walk::new(queue, before, limit).run(self, from).await
    }
}

impl RedisPool {
    /// Reads the entries scheduled for `before` or earlier, the earliest first.
    async fn scheduled(
        &self,
        slot: Slot,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueId, Header)>, StoreError> {
        let mut found = Vec::new();
        let mut first = b"-".to_vec();
        let last = match before.as_millis().checked_add(1) {
            Some(next) => [b"(", &next.to_be_bytes()[..]].concat(),
            None => b"+".to_vec(),
        };
        while found.len() < limit {
            let many = (limit - found.len()).min(limits::PAGE);
            let session = self.reads.session().await?;
            let mut command = redis::cmd("ZRANGEBYLEX");
            command
                .arg(session.keys.of_slot(slot, "schedule"))
                .arg(&first)
                .arg(&last)
                .arg("LIMIT")
                .arg(0)
                .arg(many);
            let members = list(self.reads.query(session, &command).await?)?;
            let members = members.into_iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
            self.add_scheduled(&members, &mut found).await?;
            match members.last() {
                Some(last) if members.len() == many => first = [b"(", &last[..]].concat(),
                Some(_) | None => break,
            }
        }
        Ok(found)
    }

    /// Adds the headers of members of a slot's schedule, except those of entries that have left it since.
    async fn add_scheduled(
        &self,
        members: &[Bytes],
        found: &mut Vec<(QueueId, Header)>,
    ) -> Result<(), StoreError> {
        let mut of_queues: BTreeMap<QueueId, Vec<MessageId>> = BTreeMap::new();
        for member in members {
            let (_, queue, id) = stored::decode_scheduled(member)?;
            of_queues.entry(queue).or_default().push(id);
        }
        let mut headers = BTreeMap::new();
        for (queue, ids) in of_queues {
            let session = self.reads.session().await?;
            let mut command = redis::cmd("HMGET");
            command.arg(session.keys.of_queue(queue, "headers"));
            ids.iter().for_each(|id| {
                command.arg(&id.as_bytes()[..]);
            });
            for (id, value) in ids.into_iter().zip(list(self.reads.query(session, &command).await?)?) {
                if value != Value::Nil {
                    headers.insert((queue, id), decode_header(id, &bytes(value)?)?);
                }
            }
        }
        for member in members {
            let (ready, queue, id) = stored::decode_scheduled(member)?;
            let header = headers.remove(&(queue, id));
            let is_still = |header: &Header| header.state == State::Scheduled && header.ready == ready;
            found.extend(header.filter(is_still).map(|header| (queue, header)));
        }
        Ok(())
    }

    /// Reads the entries that expire at `before` or earlier, from the end of the last look-up to the end of the order,
    /// then from its begin.
    async fn expired(
        &self,
        slot: Slot,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueId, Header)>, StoreError> {
        let cursor = self.cursors.lock().get(&slot).cloned();
        let mut scan = DueScan::new(slot, before, limit);
        self.read_buckets(&mut scan, cursor.as_ref(), None).await?;
        if cursor.is_some() && !scan.is_full() {
            self.read_buckets(&mut scan, None, cursor.as_ref()).await?;
        }
        let mut cursors = self.cursors.lock();
        match scan.cursor {
            Some(cursor) => cursors.insert(slot, cursor),
            None => cursors.remove(&slot),
        };
        Ok(scan.found)
    }

    /// Reads the due buckets after one cursor and up to another, until enough entries are found.
    async fn read_buckets(
        &self,
        scan: &mut DueScan,
        after: Option<&DueCursor>,
        until: Option<&DueCursor>,
    ) -> Result<(), StoreError> {
        let mut first = after.map_or_else(|| b"-".to_vec(), |cursor| [b"[", &cursor.bucket[..]].concat());
        let last = match scan.before.as_millis().checked_add(1) {
            Some(next) => [b"(", &next.to_be_bytes()[..]].concat(),
            None => b"+".to_vec(),
        };
        loop {
            let session = self.reads.session().await?;
            let mut command = redis::cmd("ZRANGEBYLEX");
            command.arg(session.keys.of_slot(scan.slot, "buckets")).arg(&first).arg(&last);
            command.arg("LIMIT").arg(0).arg(limits::PAGE);
            let members = list(self.reads.query(session, &command).await?)?;
            let many = members.len();
            for member in members {
                let member = bytes(member)?;
                if until.is_some_and(|cursor| member > cursor.bucket) {
                    return Ok(());
                }
                first = [b"(", &member[..]].concat();
                let from = after.filter(|cursor| cursor.bucket == member).map(|cursor| cursor.after);
                let to = until.filter(|cursor| cursor.bucket == member).map(|cursor| cursor.after);
                self.read_bucket(scan, &member, from, to).await?;
                if scan.is_full() {
                    return Ok(());
                }
            }
            if many < limits::PAGE {
                return Ok(());
            }
        }
    }

    /// Reads a bucket, after one position and up to another.
    pub(super) async fn read_bucket(
        &self,
        scan: &mut DueScan,
        member: &Bytes,
        from: Option<Position>,
        to: Option<Position>,
    ) -> Result<(), StoreError> {
        let (queue, bucket) = Bucket::decode(member)?;
        let mut after = from.map(|position| bucket.member(position)).unwrap_or_default();
        let sets: &[&str] = if bucket.is_kept { &["kept"] } else { &["ready", "aside"] };
        loop {
            let session = self.write_link(scan.slot).session().await?;
            let of_queue = ["entries", "headers", "ranges"].iter().chain(sets);
            let mut names = vec![session.keys.of_slot(scan.slot, "buckets")];
            names.extend(of_queue.map(|what| session.keys.of_queue(queue, what)));
            let many = (scan.limit - scan.found.len()).min(limits::PAGE);
            let mut call = EXPIRED.call(&names);
            call.arg(&queue.as_bytes()[..]).arg(bucket.encode()).arg(bucket.span());
            call.arg(&after).arg(many).arg(limits::PAGE).arg(limits::PAGE_BYTES);
            let answer = self.write_link(scan.slot).write(session, &EXPIRED, call, Default::default()).await;
            let mut answer =
                list(answer.map_err(|error| StoreError::NotSent(error.to_string()))?)?.into_iter();
            after = answer.next().map(bytes).transpose()?.unwrap_or_default().to_vec();
            while let (Some(id), Some(header)) = (answer.next(), answer.next()) {
                let header = decode_header(decode_id(&bytes(id)?)?, &bytes(header)?)?;
                let position = bucket.position(&header);
                if to.is_some_and(|to| position > to) {
                    return Ok(());
                }
                scan.found.push((queue, header));
                if scan.is_full() {
                    scan.cursor = Some(DueCursor { bucket: member.clone(), after: position });
                    return Ok(());
                }
            }
            if after.is_empty() {
                return Ok(());
            }
        }
    }
}
