//! Whether a queue has entries in its pool.
//!
//! The opening of a queue relies on totals that are not zero. Where they are zero it reads the head of the order:
//! totals may be wrong after a crash, and a message that is taken as absent is never delivered again. Whether a queue
//! may leave a pool is decided by one read of its entries: totals that are too low would drop messages, and totals that
//! are too high would keep the queue waiting forever. Heads of several orders would miss a message that changes its
//! state between the reads.

use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::message::State;
use angarium_core::mutation::{Mutation, is_on};
use angarium_engine::StoredTotals;
use angarium_storage::{Direction, Order, Page, Totals};

use crate::stores::queue_store::{PageBound, QueueStore};
use crate::stores::table::NamedStore;

/// Origin of the record of a queue that is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordOrigin {
    /// The record was stored before.
    Stored,
    /// The record was just created, with an id that no pool has.
    Created,
}

impl QueueStore {
    /// Returns which orders of a queue have entries when it is opened: at most three reads beside its totals, and none
    /// if these show entries in each order. Prepared and moving entries, and those without a target, are seen only in
    /// the totals if they are behind a scheduled one. Kept entries are in none of these orders, and cost nothing.
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
                    // Scheduled entries may be behind it.
                    is_scheduled |= self.head(queue, Order::Schedule).await?.is_some();
                }
            }
        }
        Ok(StoredTotals { tail, has_ready, is_scheduled, has_aside })
    }

    /// Returns the state of the first entry of an order, if there is one.
    pub(crate) async fn head(&self, queue: QueueId, order: Order) -> Result<Option<State>, Error> {
        Ok(first(self.scan(queue, order, Direction::Up, None, PageBound::FIRST).await?))
    }
}

impl NamedStore {
    /// Whether a queue has an entry in this pool, in any state.
    pub(crate) async fn holds_any(&self, queue: QueueId) -> Result<bool, Error> {
        if is_on(Mutation::LeavePoolByHeads) {
            for order in [Order::Ready, Order::Aside, Order::Kept] {
                if self.head(queue, order).await?.is_some() {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        self.store.holds_any(queue).await.map_err(|error| self.failed(error))
    }

    /// Whether a queue has a prepared or moving entry in this pool, or one without a target. If its first entry is a
    /// scheduled one, only the totals tell: the head does not show the entries behind it.
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
