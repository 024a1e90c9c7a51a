//! Reading a queue in its pool, or in its two pools during a migration (P6).

use bytes::Bytes;
use tokio_util::task::task_tracker::TaskTrackerToken;

use angarium_catalogue::Placement;
use angarium_core::error::Error;
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::Message;
use angarium_core::small_bounds::within;
use angarium_storage::{Direction, GroupHead, Note, Order, Page, Position, Totals, merged};

use crate::stores::table::{NamedStore, PoolTable};

/// Maximum size of a page. The first message is always included, whatever its size.
#[derive(Clone, Copy)]
pub(crate) struct PageBound {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

impl PageBound {
    /// A page of one message.
    pub(crate) const FIRST: Self = Self { messages: 1, bytes: 0 };
}

/// The storage of one queue, for reads. Its verbs are those of [`angarium_storage::PoolStore`].
#[derive(Clone)]
pub(crate) struct QueueStore {
    /// The pool that takes new messages.
    newer: NamedStore,
    /// The pool that the queue leaves, during a migration.
    older: Option<NamedStore>,
    /// While this exists, no messages are copied in a way that this reader could miss.
    _read: TaskTrackerToken,
}

impl QueueStore {
    pub(crate) async fn scan(
        &self,
        queue: QueueId,
        order: Order,
        direction: Direction,
        after: Option<Position>,
        most: PageBound,
    ) -> Result<Page, Error> {
        let scan = async |store: &NamedStore| {
            let page = store.scan(queue, order, direction, after, within(most.messages), most.bytes).await;
            page.map_err(|error| store.failed(error))
        };
        let Some(older) = &self.older else { return scan(&self.newer).await };
        let before = scan(older).await?;
        Ok(merged::pages(order, direction, before, scan(&self.newer).await?))
    }

    pub(crate) async fn group(
        &self,
        queue: QueueId,
        group: &GroupName,
        after: Option<MessageId>,
        most: PageBound,
    ) -> Result<Page, Error> {
        let read = async |store: &NamedStore| {
            let page = store.group(queue, group, after, within(most.messages), most.bytes).await;
            page.map_err(|error| store.failed(error))
        };
        let Some(older) = &self.older else { return read(&self.newer).await };
        let before = read(older).await?;
        Ok(merged::pages(Order::Ready, Direction::Up, before, read(&self.newer).await?))
    }

    pub(crate) async fn groups(
        &self,
        queue: QueueId,
        after: Option<GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupHead>, Error> {
        let read = async |store: &NamedStore| {
            let heads = store.groups(queue, after.clone(), limit).await;
            heads.map_err(|error| store.failed(error))
        };
        let Some(older) = &self.older else { return read(&self.newer).await };
        let before = read(older).await?;
        Ok(merged::heads(limit, before, read(&self.newer).await?))
    }

    pub(crate) async fn get(&self, queue: QueueId, ids: &[MessageId]) -> Result<Vec<Message>, Error> {
        let get = async |store: &NamedStore| {
            let found = store.get(queue, ids).await;
            found.map_err(|error| store.failed(error))
        };
        let Some(older) = &self.older else { return get(&self.newer).await };
        let before = get(older).await?;
        Ok(merged::found(ids, before, get(&self.newer).await?))
    }

    /// Returns the totals of the queue. During a migration, messages that are being copied count twice.
    pub(crate) async fn totals(&self, queue: QueueId) -> Result<Totals, Error> {
        let totals = async |store: &NamedStore| {
            let totals = store.totals(queue).await;
            totals.map_err(|error| store.failed(error))
        };
        let Some(older) = &self.older else { return totals(&self.newer).await };
        let before = totals(older).await?;
        Ok(merged::totals(before, totals(&self.newer).await?))
    }

    pub(crate) async fn notes(
        &self,
        queue: QueueId,
        kind: u8,
        after: Option<Bytes>,
        limit: usize,
    ) -> Result<Vec<Note>, Error> {
        let read = async |store: &NamedStore| {
            let notes = store.notes(queue, kind, after.clone(), limit).await;
            notes.map_err(|error| store.failed(error))
        };
        let Some(older) = &self.older else { return read(&self.newer).await };
        let before = read(older).await?;
        Ok(merged::notes(limit, before, read(&self.newer).await?))
    }

    /// Returns the note of a kind that a queue has one of at most, from each pool that has it: during a migration two notes
    /// of one name may differ.
    pub(crate) async fn notes_of_each(&self, queue: QueueId, kind: u8) -> Result<Vec<Note>, Error> {
        let mut found = Vec::new();
        for store in self.older.iter().chain([&self.newer]) {
            let notes = store.notes(queue, kind, None, 1).await;
            found.extend(notes.map_err(|error| store.failed(error))?);
        }
        Ok(found)
    }
}

impl PoolTable {
    /// Returns the storage of a queue with this placement. No copy begins while `read` is tracked.
    pub(crate) fn store_at(
        &self,
        placement: &Placement,
        read: TaskTrackerToken,
    ) -> Result<QueueStore, Error> {
        let store = |name| self.pool(name).and_then(|pool| pool.store());
        let older = placement.older.as_ref().map(store).transpose()?;
        Ok(QueueStore { newer: store(&placement.pool)?, older, _read: read })
    }
}
