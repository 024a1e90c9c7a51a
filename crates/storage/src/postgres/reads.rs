//! Reads: pages, entries by id, notes, totals.

use async_trait::async_trait;
use bytes::Bytes;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::PostgresPool;
use super::errors::Failure;
use super::stored::{self, bound, column, id_key, millis, queue_key, unsigned};
use crate::header::damaged;
use crate::{Direction, GroupHead, Note, Order, Page, PoolReads, Position, StoreError, Totals, Usage};
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::Message;

/// The columns of a header.
macro_rules! header {
    () => {
        "id, state, created, ready, expires, ttl, attempts, client, size, peer, grouped, first_claimed, extras"
    };
}
pub(super) use header;

/// The body of a row: its own, or the one that it shares; null if that one is missing. It is looked up for the rows of
/// the result that share one, and not by a join, so the reads of the rows and their bounds do not depend on it.
macro_rules! body {
    ($row:literal) => {
        concat!(
            "COALESCE(",
            $row,
            ".body, (SELECT b.body FROM bodies b WHERE b.id = ",
            $row,
            ".shared)) AS body"
        )
    };
}

/// A page: rows whose predecessors do not exceed the bytes with their bodies, and the number of rows without that
/// bound. The size of an entry with a shared body is that of the body.
macro_rules! page {
    ($which:literal, $order:literal) => {
        concat!(
            "SELECT ",
            header!(),
            ", ",
            body!("pages"),
            ", found FROM (
                SELECT e.*, count(*) OVER () AS found, COALESCE(sum(
                    COALESCE(octet_length(e.body), e.size) + COALESCE(octet_length(e.extras), 0)) OVER (
                    ORDER BY ",
            $order,
            " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
                FROM (SELECT * FROM entries WHERE queue = $1::uuid AND ",
            $which,
            " ORDER BY ",
            $order,
            " LIMIT $2::int8) AS e
            ) AS pages WHERE before <= $3::int8 ORDER BY ",
            $order
        )
    };
}

// The head of a queue is the lower bound of its ready entries: a page begins there, so it does not read over removed
// rows.
const READY_UP: &str =
    page!("NOT aside AND id >= GREATEST($4::uuid, (SELECT low FROM queues WHERE queue = $1::uuid))", "id");
const READY_DOWN: &str = page!(
    "NOT aside AND id <= $4::uuid AND id >= COALESCE((SELECT low FROM queues WHERE queue = $1::uuid), \
     '00000000-0000-0000-0000-000000000000'::uuid)",
    "id DESC"
);
// Kept entries have `aside` too, so these do not name it: without it no order but that of their own index fits.
const ASIDE_UP: &str = page!("state BETWEEN 1 AND 4 AND id >= $4::uuid", "id");
const ASIDE_DOWN: &str = page!("state BETWEEN 1 AND 4 AND id <= $4::uuid", "id DESC");
const SCHEDULE_UP: &str = page!("state = 1 AND (ready, id) > ($5::int8, $4::uuid)", "ready, id");
const SCHEDULE_DOWN: &str = page!("state = 1 AND (ready, id) < ($5::int8, $4::uuid)", "ready DESC, id DESC");
const KEPT_UP: &str = page!("state IN (5, 6) AND (ready, id) > ($5::int8, $4::uuid)", "ready, id");
const KEPT_DOWN: &str =
    page!("state IN (5, 6) AND (ready, id) < ($5::int8, $4::uuid)", "ready DESC, id DESC");

const GROUP: &str = page!("grouped = $5::text AND state < 5 AND id >= $4::uuid", "id");
/// Walks from group to group: each step is one look-up in the index.
const HEADS: &str = concat!(
    "WITH RECURSIVE heads AS (
        (SELECT grouped FROM entries
        WHERE queue = $1::uuid AND state < 5 AND grouped > $2::text ORDER BY grouped LIMIT 1)
        UNION ALL
        SELECT (SELECT e.grouped FROM entries e
            WHERE e.queue = $1::uuid AND e.state < 5 AND e.grouped > h.grouped ORDER BY e.grouped LIMIT 1)
        FROM heads h WHERE h.grouped IS NOT NULL
    ), named AS (
        SELECT grouped AS name FROM heads WHERE grouped IS NOT NULL LIMIT $3::int8
    )
    SELECT ",
    header!(),
    ", ",
    body!("first"),
    ", NOT EXISTS (
        SELECT FROM entries o
        WHERE o.queue = $1::uuid AND o.state < 5 AND o.grouped = first.grouped AND o.id > first.id) AS is_only
    FROM named, LATERAL (
        SELECT * FROM entries e
        WHERE e.queue = $1::uuid AND e.state < 5 AND e.grouped = name ORDER BY e.id LIMIT 1) AS first
    ORDER BY grouped"
);
/// Looks each entry up by its whole key: for a join instead the planner may scan the queue.
const GET: &str = concat!(
    "SELECT ",
    header!(),
    ", ",
    body!("entries"),
    " FROM (
        SELECT asked.place, found.*
        FROM unnest($2::uuid[]) WITH ORDINALITY AS asked (id, place), unnest('{f,t}'::boolean[]) AS part (aside),
            LATERAL (
                SELECT * FROM entries e WHERE e.queue = $1::uuid AND e.aside = part.aside AND e.id = asked.id
                OFFSET 0) AS found
    ) AS entries
    ORDER BY place"
);
const NOTES: &str = "
    SELECT key, value, expires FROM notes
    WHERE queue = $1::uuid AND kind = $2::int2 AND key >= $3::bytea ORDER BY key LIMIT $4::int8";
/// One statement, so all parts see one state. Each has the bounds of its order, because dead rows before them are slow.
const HOLDS_ANY: &str = "
    SELECT EXISTS (
        SELECT FROM entries WHERE queue = $1::uuid AND NOT aside AND id >= COALESCE(
            (SELECT low FROM queues WHERE queue = $1::uuid), '00000000-0000-0000-0000-000000000000'::uuid))
    OR EXISTS (SELECT FROM entries WHERE queue = $1::uuid AND state BETWEEN 1 AND 4)
    OR EXISTS (SELECT FROM entries WHERE queue = $1::uuid AND state IN (5, 6)) AS holds_any";
const TOTALS: &str = "
    SELECT messages, bytes, scheduled, aside, kept, shared, lent FROM queues WHERE queue = $1::uuid";
/// A queue without entries may have a row: one that was emptied, and the lender of shared bodies.
const USAGE: &str = "
    SELECT count(*)::int8 AS queues, COALESCE(sum(messages), 0)::int8 AS messages, COALESCE(sum(bytes), 0)::int8 AS bytes
    FROM queues WHERE messages > 0";

/// Makes a page of at most `messages` messages from the rows.
fn page_of(rows: &[Row], messages: usize) -> Result<Page, StoreError> {
    let found = rows.first().map(|row| column::<i64>(row, "found")).transpose()?.unwrap_or(0);
    let shown = rows.len().min(messages);
    let messages = rows[..shown].iter().map(stored::message).collect::<Result<_, _>>()?;
    Ok(Page { messages, is_last: bound(shown) == found })
}

impl PostgresPool {
    pub(super) async fn read(
        &self,
        text: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        let (session, _) = self.reads.session().await?;
        session.connection.query(text, parameters).await.map_err(Failure::of_read)
    }
}

#[async_trait]
impl PoolReads for PostgresPool {
    async fn scan(
        &self,
        queue: QueueId,
        order: Order,
        direction: Direction,
        after: Option<Position>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        let is_end = after.is_some_and(|after| match (order, direction) {
            (Order::Schedule | Order::Kept, _) => false,
            (_, Direction::Up) => after.id == MessageId::MAX,
            (_, Direction::Down) => after.id == MessageId::ZERO,
        });
        if is_end {
            return Ok(Page { messages: Vec::new(), is_last: true });
        }
        let from = after.map(|after| after.id);
        let (up, down) = (
            id_key(from.map_or(MessageId::ZERO, MessageId::next)),
            id_key(from.map_or(MessageId::MAX, MessageId::before)),
        );
        let min = (after.map_or(-1, |after| millis(after.ready)), id_key(from.unwrap_or(MessageId::ZERO)));
        let max =
            (after.map_or(i64::MAX, |after| millis(after.ready)), id_key(from.unwrap_or(MessageId::MAX)));
        let (queue, limit) = (queue_key(queue), bound(messages.saturating_add(1)));
        let bytes = bound(bytes);
        let rows = match (order, direction) {
            (Order::Ready, Direction::Up) => self.read(READY_UP, &[&queue, &limit, &bytes, &up]).await,
            (Order::Ready, Direction::Down) => self.read(READY_DOWN, &[&queue, &limit, &bytes, &down]).await,
            (Order::Aside, Direction::Up) => self.read(ASIDE_UP, &[&queue, &limit, &bytes, &up]).await,
            (Order::Aside, Direction::Down) => self.read(ASIDE_DOWN, &[&queue, &limit, &bytes, &down]).await,
            (Order::Schedule, Direction::Up) => {
                self.read(SCHEDULE_UP, &[&queue, &limit, &bytes, &min.1, &min.0]).await
            }
            (Order::Schedule, Direction::Down) => {
                self.read(SCHEDULE_DOWN, &[&queue, &limit, &bytes, &max.1, &max.0]).await
            }
            (Order::Kept, Direction::Up) => {
                self.read(KEPT_UP, &[&queue, &limit, &bytes, &min.1, &min.0]).await
            }
            (Order::Kept, Direction::Down) => {
                self.read(KEPT_DOWN, &[&queue, &limit, &bytes, &max.1, &max.0]).await
            }
        }?;
        page_of(&rows, messages)
    }

    async fn group(
        &self,
        queue: QueueId,
        group: &GroupName,
        after: Option<MessageId>,
        messages: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        if after == Some(MessageId::MAX) {
            return Ok(Page { messages: Vec::new(), is_last: true });
        }
        let from = id_key(after.map_or(MessageId::ZERO, MessageId::next));
        let (queue, limit, bytes) = (queue_key(queue), bound(messages.saturating_add(1)), bound(bytes));
        page_of(&self.read(GROUP, &[&queue, &limit, &bytes, &from, &group.as_str()]).await?, messages)
    }

    async fn groups(
        &self,
        queue: QueueId,
        after: Option<GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupHead>, StoreError> {
        // No name is empty, so all names are after this one.
        let after = after.as_ref().map_or("", GroupName::as_str);
        let rows = self.read(HEADS, &[&queue_key(queue), &after, &bound(limit)]).await?;
        let head =
            |row: &Row| Ok(GroupHead { message: stored::message(row)?, is_only: column(row, "is_only")? });
        rows.iter().map(head).collect()
    }

    async fn get(&self, queue: QueueId, ids: &[MessageId]) -> Result<Vec<Message>, StoreError> {
        let ids: Vec<Uuid> = ids.iter().copied().map(id_key).collect();
        let rows = self.read(GET, &[&queue_key(queue), &ids]).await?;
        rows.iter().map(stored::message).collect()
    }

    async fn holds_any(&self, queue: QueueId) -> Result<bool, StoreError> {
        let rows = self.read(HOLDS_ANY, &[&queue_key(queue)]).await?;
        rows.first().map_or_else(|| Err(damaged("an answer")), |row| column(row, "holds_any"))
    }

    async fn totals(&self, queue: QueueId) -> Result<Totals, StoreError> {
        let rows = self.read(TOTALS, &[&queue_key(queue)]).await?;
        let Some(row) = rows.first() else { return Ok(Totals::default()) };
        Ok(Totals {
            messages: unsigned(row, "messages")?,
            bytes: unsigned(row, "bytes")?,
            scheduled: unsigned(row, "scheduled")?,
            in_transfer: unsigned(row, "aside")?,
            kept: unsigned(row, "kept")?,
            shared: unsigned(row, "shared")?,
            lent: unsigned(row, "lent")?,
        })
    }

    async fn notes(
        &self,
        queue: QueueId,
        kind: u8,
        after: Option<Bytes>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        // The next possible key in order is this key with a zero byte at its end.
        let from = after.map_or_else(Vec::new, |after| [&after[..], &[0]].concat());
        let parameters: [&(dyn ToSql + Sync); 4] =
            [&queue_key(queue), &i16::from(kind), &from, &bound(limit)];
        let rows = self.read(NOTES, &parameters).await?;
        rows.iter().map(|row| stored::note(row, kind)).collect()
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        let rows = self.read(USAGE, &[]).await?;
        let Some(row) = rows.first() else { return Ok(Usage::default()) };
        Ok(Usage {
            queues: unsigned(row, "queues")?,
            messages: unsigned(row, "messages")?,
            bytes: unsigned(row, "bytes")?,
        })
    }
}
