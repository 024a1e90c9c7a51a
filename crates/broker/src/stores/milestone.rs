//! The oldest or newest message of a queue, as figures and pages show it.

use angarium_clock::Clock;
use angarium_core::error::Error;
use angarium_core::ids::QueueId;
use angarium_core::message::Header;
use angarium_core::queue::Milestone;
use angarium_storage::{Direction, Order};

use crate::stores::queue_store::{PageBound, QueueStore};

impl QueueStore {
    /// Returns the oldest or newest ready message of a queue: `known`, which memory has, or else the one in the pool.
    /// Its age is taken at the end of the read.
    pub(crate) async fn milestone(
        &self,
        queue: QueueId,
        known: Option<Header>,
        direction: Direction,
        clock: &Clock,
    ) -> Result<Option<Milestone>, Error> {
        let header = match known {
            Some(header) => Some(header),
            None => {
                let page = self.scan(queue, Order::Ready, direction, None, PageBound::FIRST).await?;
                page.messages.into_iter().next().map(|message| message.header)
            }
        };
        let now = clock.now();
        let milestone = |header: Header| {
            let age = now.seconds_since(header.created);
            Milestone { id: header.id, created: header.created, age }
        };
        Ok(header.map(milestone))
    }
}
