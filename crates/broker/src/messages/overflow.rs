//! Removal of the oldest copies of a subscription beyond its bounds, once those of a post are stored.
//!
//! ```text
//! post, durable ─▶ oldest copies: hide ─▶ read again ─▶ remove, with the note of their number ─▶ answer to the post
//! ```
//!
//! The copies are appended before the oldest ones are removed, so a kill between the two removes none within the bounds:
//! too many remain until the next post. Copies under claims or in transfer stay; kept ones are removed first.

use std::sync::Arc;

use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Message};
use angarium_core::quota::Amount;
use angarium_storage::{Direction, Order, Position, Totals};

use crate::limits;
use crate::messages::Messages;
use crate::messages::pool_page::{EntriesById, PoolPage};
use crate::slot::backlog::Backlog;
use crate::slot::migration::still;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::selected::HiddenSelection;
use crate::stores::queue_store::PageBound;
use crate::writer::pending::settled;

/// The orders of a queue, and where the next pages begin. None is an order that was read to its end.
struct OldestFirst {
    /// Kept ones are read first: no consumer waits for them.
    kept: Option<Option<Position>>,
    /// The other ones are read by id.
    by_id: Option<MessageId>,
}

const MOST: PageBound = PageBound { messages: limits::OVERFLOW_STEP, bytes: limits::OVERFLOW_STEP_BYTES };

impl Messages {
    /// Removes the copies of these queues beyond their bounds. After a failure the next post removes them.
    pub(crate) async fn drop_beyond(&self, queues: Vec<QueueHandle>) {
        for queue in queues {
            let messages = self.clone();
            let name = queue.at().name.clone();
            let drop = async move { messages.drop_oldest(&queue).await };
            if let Err(error) = self.0.replica.carry_out(drop).await {
                self.0.replica.task_failed("drop copies", format_args!("queue {name}"), &error);
            }
        }
    }

    async fn drop_oldest(&self, queue: &QueueHandle) -> Result<(), Error> {
        let turn = queue.of_backlog(|backlog| Arc::clone(&backlog.turn));
        let Some(turn) = turn else { return Ok(()) };
        let _turn = turn.lock().await;
        let _guard = queue.slot().lost_on_panic();
        let mut oldest = OldestFirst { by_id: Some(MessageId::ZERO), kept: Some(None) };
        let migration = queue.migration();
        for _ in 0..limits::OVERFLOW_STEPS {
            let held = still(migration.as_deref()).await;
            if migration.is_some() {
                // A copy that is being copied to another pool would count twice, and another one would be dropped for it.
                if held.is_none() {
                    return Ok(());
                }
                let Totals { messages, bytes, .. } = queue.store()?.totals(queue.id()).await?;
                queue.learn_backlog(Amount { messages, bytes });
            }
            let excess = queue.of_backlog(Backlog::excess).unwrap_or_default();
            if excess == Amount::default() {
                return Ok(());
            }
            let Some(page) = oldest.next(queue).await? else { return Ok(()) };
            self.drop_of_page(queue, page, excess).await?;
        }
        Ok(())
    }

    /// Removes the first messages of a page that nothing holds, until the excess is removed.
    async fn drop_of_page(
        &self,
        queue: &QueueHandle,
        page: Vec<Header>,
        mut excess: Amount,
    ) -> Result<(), Error> {
        let _use = queue.hold_use();
        let mut chosen = Vec::new();
        for header in page.into_iter().filter(|header| !header.state.is_in_transfer()) {
            if excess == Amount::default() {
                break;
            }
            // Messages that a claim or another request holds come back.
            let HiddenSelection { hidden, .. } = queue.hide_selected(&[header.id])?;
            if !hidden.is_empty() {
                excess = excess.minus(Amount { messages: 1, bytes: header.size.into() });
                chosen.extend(hidden);
            }
        }
        if chosen.is_empty() {
            return Ok(());
        }
        let found = match queue.store() {
            Ok(store) => store.get(queue.id(), &chosen).await,
            Err(error) => Err(error),
        };
        let found = found.inspect_err(|_| queue.cancel_selected(&chosen))?;
        let is_absent = |id: &MessageId| !found.iter().any(|message| message.header.id == *id);
        let absent: Vec<MessageId> = chosen.iter().copied().filter(is_absent).collect();
        let headers = found.into_iter().map(|message| message.header);
        let (others, stored): (Vec<Header>, Vec<Header>) =
            headers.partition(|header| header.state.is_in_transfer());
        queue.show_selected(others.iter(), &absent);
        if stored.is_empty() {
            return Ok(());
        }
        settled(queue.drop_selected(&stored)?).await
    }
}

impl OldestFirst {
    /// Reads the next messages, the oldest first. Returns none at the end.
    async fn next(&mut self, queue: &QueueHandle) -> Result<Option<Vec<Header>>, Error> {
        if let Some(after) = self.kept {
            let page = queue.store()?.scan(queue.id(), Order::Kept, Direction::Up, after, MOST).await?;
            let last = page.messages.last().map(|last| Position::of(&last.header));
            self.kept = last.filter(|_| !page.is_last).map(Some);
            if !page.messages.is_empty() {
                return Ok(Some(headers(page.messages)));
            }
        }
        let Some(after) = self.by_id else { return Ok(None) };
        let page = PoolPage::read(&queue.store()?, queue.id(), EntriesById::NotKept, after, MOST).await?;
        self.by_id = page.end;
        Ok(Some(headers(page.messages)))
    }
}

fn headers(messages: Vec<Message>) -> Vec<Header> {
    messages.into_iter().map(|message| message.header).collect()
}
