//! Whether a queue holds anything in its pool.
//!
//! A queue that is opened believes its totals where they say that something is there. Where they say that nothing is, the
//! head of the order is read: totals may be wrong since a crash, and a message that is taken for absent is never handed out
//! again. Whether a queue may leave a pool is told by the heads alone: with it would be dropped what is taken for absent, and
//! it would wait for ever for what is taken for present.

use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::State;
use angarium_engine::StoredTotals;
use angarium_storage::{Direction, Order, Page, Totals};

use crate::stores::queue_store::{PageBound, QueueStore};
use crate::stores::table::NamedStore;

/// Where the record of a queue that is opened is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordOrigin {
    /// It was there.
    Stored,
    /// It was just made, with an id that no pool knows.
    Created,
}

impl QueueStore {
    /// What a queue holds when it is opened: at most three reads beside its totals, and none where they say that each order
    /// has something. Entries that are prepared, moving or failed behind a scheduled one are not seen beyond the totals.
    pub(crate) async fn presence(
        &self,
        origin: RecordOrigin,
        queue: QueueId,
        totals: &Totals,
        tail: MessageId,
    ) -> Result<StoredTotals, Error> {
        if origin == RecordOrigin::Created {
            return Ok(StoredTotals { tail, has_ready: false, is_scheduled: false, has_aside: false });
        }
        let has_ready = totals.ready() > 0 || self.head(queue, Order::Ready).await?.is_some();
        let (mut is_scheduled, mut has_aside) = (totals.scheduled > 0, totals.in_transfer > 0);
        if !is_scheduled || !has_aside {
            match self.head(queue, Order::Aside).await? {
                None => {}
                Some(State::Scheduled) => is_scheduled = true,
                Some(_) => {
                    has_aside = true;
                    // Scheduled ones may be behind it.
                    is_scheduled |= self.head(queue, Order::Schedule).await?.is_some();
                }
            }
        }
        Ok(StoredTotals { tail, has_ready, is_scheduled, has_aside })
    }

    /// The state of the first entry of an order, if there is one.
    pub(crate) async fn head(&self, queue: QueueId, order: Order) -> Result<Option<State>, Error> {
        Ok(first(self.scan(queue, order, Direction::Up, None, PageBound::FIRST).await?))
    }
}

impl NamedStore {
    /// Whether a queue has an entry in this pool, in any state.
    pub(crate) async fn holds_any(&self, queue: QueueId) -> Result<bool, Error> {
        Ok(self.head(queue, Order::Ready).await?.is_some() || self.head(queue, Order::Aside).await?.is_some())
    }

    /// Whether a queue has an entry in this pool that is prepared, moving or failed. Of one that has scheduled entries
    /// the totals are believed: the head does not say what is behind those.
    pub(crate) async fn holds_in_transfer(&self, queue: QueueId) -> Result<bool, Error> {
        let totals = self.totals(queue).await.map_err(|error| self.failed(error))?;
        let is_in_transfer = |state: State| state != State::Scheduled;
        Ok(totals.in_transfer > 0 || self.head(queue, Order::Aside).await?.is_some_and(is_in_transfer))
    }

    pub(crate) async fn head(&self, queue: QueueId, order: Order) -> Result<Option<State>, Error> {
        let PageBound { messages, bytes } = PageBound::FIRST;
        let page = self.scan(queue, order, Direction::Up, None, messages, bytes).await;
        page.map(first).map_err(|error| self.failed(error))
    }
}

pub(crate) fn first(page: Page) -> Option<State> {
    page.messages.into_iter().next().map(|message| message.header.state)
}
