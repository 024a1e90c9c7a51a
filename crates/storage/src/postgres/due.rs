//! Look-ups of entries by time: the schedule and the index of expiry are in order of time; calls for expired entries
//! continue after each other.

use async_trait::async_trait;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::PostgresPool;
use super::reads::header;
use super::stored::{self, bound, id_key, millis, queue_key};
use crate::{Due, PoolDeadlines, RetainedEntries, RetainedPlace, StoreError};
use angarium_core::ids::{QueueId, Slot};
use angarium_core::message::Header;
use angarium_core::time::Timestamp;

const SCHEDULED: &str = concat!(
    "SELECT queue, ",
    header!(),
    " FROM entries
    WHERE slot = $1::int2 AND state = 1 AND ready <= $2::int8
    ORDER BY slot, ready, queue, id LIMIT $3::int8"
);
const EXPIRED: &str = concat!(
    "SELECT queue, ",
    header!(),
    " FROM entries
    WHERE slot = $1::int2 AND state NOT IN (2, 3) AND expires <= $2::int8
        AND (expires, queue, id) > ($4::int8, $5::uuid, $6::uuid)
        AND (expires, queue, id) <= ($7::int8, $8::uuid, $9::uuid)
    ORDER BY slot, expires, queue, id LIMIT $3::int8"
);

/// Where a look-up of expired entries ended, because it found the max number: the next one continues there.
pub(super) type DueCursor = (i64, Uuid, Uuid);

const BEGIN: DueCursor = (-1, Uuid::nil(), Uuid::nil());
const END: DueCursor = (i64::MAX, Uuid::max(), Uuid::max());

#[async_trait]
impl PoolDeadlines for PostgresPool {
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
        self.read_retained(queue, from, before, limit).await
    }
}

impl PostgresPool {
    async fn scheduled(
        &self,
        slot: Slot,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueId, Header)>, StoreError> {
        let parameters: [&(dyn ToSql + Sync); 3] = [&i16::from(slot.0), &millis(before), &bound(limit)];
        let rows = self.read(SCHEDULED, &parameters).await?;
        rows.iter().map(|row| Ok((stored::queue_id(row)?, stored::header(row)?))).collect()
    }

    /// Reads the expired entries, from the end of the last look-up to the end of the order, then from its begin.
    async fn expired(
        &self,
        slot: Slot,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueId, Header)>, StoreError> {
        let cursor = self.cursors.lock().get(&slot).copied();
        let mut found = self.expired_within(slot, before, limit, cursor.unwrap_or(BEGIN), END).await?;
        if let Some(cursor) = cursor
            && found.len() < limit
        {
            let left = limit - found.len();
            found.extend(self.expired_within(slot, before, left, BEGIN, cursor).await?);
        }
        let mut cursors = self.cursors.lock();
        match found.last() {
            Some((queue, last)) if found.len() == limit => {
                let (_, expires) = stored::life_columns(*queue, last.life);
                cursors.insert(slot, (expires, queue_key(*queue), id_key(last.id)));
            }
            Some(_) | None => {
                cursors.remove(&slot);
            }
        }
        Ok(found)
    }

    async fn expired_within(
        &self,
        slot: Slot,
        before: Timestamp,
        limit: usize,
        after: DueCursor,
        last: DueCursor,
    ) -> Result<Vec<(QueueId, Header)>, StoreError> {
        let (slot, before, limit) = (i16::from(slot.0), millis(before), bound(limit));
        let parameters: [&(dyn ToSql + Sync); 9] =
            [&slot, &before, &limit, &after.0, &after.1, &after.2, &last.0, &last.1, &last.2];
        let rows = self.read(EXPIRED, &parameters).await?;
        rows.iter().map(|row| Ok((stored::queue_id(row)?, stored::header(row)?))).collect()
    }
}
