//! Look-up of entries that live by queue, from the earliest base time on. The index mixes them with entries of other
//! queues: each statement reads a bounded number of those.
//!
//! All statements of a look-up see one state of the tables. If each saw its own state, entries before those of the
//! queue could be removed in between, and the second statement would read past entries of the queue that the first one
//! had not reached.

use std::ops::RangeInclusive;

use tokio_postgres::types::ToSql;

use super::PostgresPool;
use super::link::Snapshot;
use super::reads::header;
use super::stored::{self, bound, column, queue_key};
use crate::limits;
use crate::{RetainedEntries, RetainedPlace, StoreError, retained};
use angarium_core::ids::QueueId;
use angarium_core::message::{Header, Life};
use angarium_core::time::Timestamp;

/// Entries of all queues between two places, at most `$max`.
macro_rules! walked {
    ($columns:literal, $max:literal) => {
        concat!(
            "(SELECT ",
            $columns,
            " FROM entries
            WHERE slot = $1::int2 AND state NOT IN (2, 3) AND expires >= $2::int8 AND expires <= $3::int8
            ORDER BY slot, expires, queue, id LIMIT ",
            $max,
            ") AS walked"
        )
    };
}

const BETWEEN: &str = concat!(
    "SELECT ",
    header!(),
    " FROM ",
    walked!("*", "$6::int8"),
    " WHERE queue = $4::uuid ORDER BY expires, id LIMIT $5::int8"
);
const LAST_WALKED: &str =
    concat!("SELECT count(*)::int8 AS many, max(expires) AS last FROM ", walked!("expires", "$4::int8"));
const AT: &str = concat!(
    "SELECT ",
    header!(),
    " FROM entries
    WHERE slot = $1::int2 AND state NOT IN (2, 3) AND expires = $2::int8 AND queue = $3::uuid
    ORDER BY slot, expires, queue, id LIMIT $4::int8"
);

impl PostgresPool {
    /// Reads the entries of a queue, from a place on.
    pub(super) async fn read_retained(
        &self,
        queue: QueueId,
        from: Option<RetainedPlace>,
        before: Timestamp,
        limit: usize,
    ) -> Result<RetainedEntries, StoreError> {
        let scan = RetainedScan { snapshot: self.reads.snapshot().await?, queue, limit };
        let entries = scan.entries(from, before).await?;
        scan.snapshot.end().await?;
        Ok(entries)
    }
}

/// A look-up of entries of a queue, at most `limit` of them.
struct RetainedScan {
    snapshot: Snapshot,
    queue: QueueId,
    limit: usize,
}

impl RetainedScan {
    async fn entries(
        &self,
        from: Option<RetainedPlace>,
        before: Timestamp,
    ) -> Result<RetainedEntries, StoreError> {
        let queue = self.queue;
        let (first, last) = (retained::begin_at(queue, from), retained::place(queue, before));
        let found = self.between(first..=last, self.limit).await?;
        if let Some(first) = found.first() {
            let oldest = first.life.retained_since();
            return Ok(RetainedEntries { found, oldest, resume: None });
        }
        if let Some(end) = self.last_walked(first..=last, self.limit).await? {
            // Other queues may have more entries at one instant than a statement reads.
            let found = self.at(end).await?;
            let next = RetainedPlace(end.saturating_add(1));
            let resume = found.is_empty().then_some(next);
            return Ok(RetainedEntries { found, oldest: Some(retained::since(end)), resume });
        }
        let later = last.saturating_add(1).max(first)..=retained::last(queue);
        let oldest = match self.between(later.clone(), 1).await?.first() {
            Some(Header { life, .. }) => Life::retained_since(*life),
            None => self.last_walked(later, 1).await?.map(retained::since),
        };
        Ok(RetainedEntries { found, oldest, resume: None })
    }

    /// Reads the entries of the queue between two places, among the queues that one statement reads.
    async fn between(&self, places: RangeInclusive<u64>, limit: usize) -> Result<Vec<Header>, StoreError> {
        let (slot, max) = (i16::from(self.queue.slot().0), walk(limit));
        let (first, last) = (places.start().cast_signed(), places.end().cast_signed());
        let (queue, limit) = (queue_key(self.queue), bound(limit));
        let parameters: [&(dyn ToSql + Sync); 6] = [&slot, &first, &last, &queue, &limit, &max];
        self.snapshot.read(BETWEEN, &parameters).await?.iter().map(stored::header).collect()
    }

    /// The place at which the same statement stopped, if it did not reach the last place.
    async fn last_walked(
        &self,
        places: RangeInclusive<u64>,
        limit: usize,
    ) -> Result<Option<u64>, StoreError> {
        let (slot, max) = (i16::from(self.queue.slot().0), walk(limit));
        let parameters: [&(dyn ToSql + Sync); 4] =
            [&slot, &places.start().cast_signed(), &places.end().cast_signed(), &max];
        let rows = self.snapshot.read(LAST_WALKED, &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (many, last): (i64, Option<i64>) = (column(row, "many")?, column(row, "last")?);
        Ok(last.filter(|_| many >= max).map(i64::cast_unsigned))
    }

    /// Reads the entries of the queue at one place.
    async fn at(&self, place: u64) -> Result<Vec<Header>, StoreError> {
        let (slot, place) = (i16::from(self.queue.slot().0), place.cast_signed());
        let parameters: [&(dyn ToSql + Sync); 4] =
            [&slot, &place, &queue_key(self.queue), &bound(self.limit)];
        self.snapshot.read(AT, &parameters).await?.iter().map(stored::header).collect()
    }
}

/// Max entries that one statement reads.
fn walk(limit: usize) -> i64 {
    bound(limit.saturating_add(limits::RETAINED_WALK))
}
