//! The number of messages that a task over a selection would change, with a sample. It changes nothing.

use std::time::Duration;

use tokio::time::Instant;

use angarium_core::error::Error;
use angarium_core::limits;
use angarium_core::names::QueueRef;
use angarium_core::peek_position::PeekPosition;
use angarium_core::selection::MessageSelection;

use crate::messages::Messages;
use crate::messages::peek::{BodyExtent, PeekedMessage};
use crate::messages::peek_read::PeekReader;
use crate::messages::view::ViewedAt;
use crate::slot::queue_handle::{EngineReading, QueueHandle};

/// Max time of a count.
const TIME: Duration = Duration::from_secs(limits::DRY_RUN_SECONDS as u64);

/// The messages that a task over a selection would change.
#[derive(Clone, Debug, Default)]
pub struct SelectionCount {
    /// Number of messages that fulfil each condition, and that no claim and no transfer holds.
    pub matches: u64,
    /// Number of messages that were compared with the conditions.
    pub looked_at: u64,
    /// Whether these are all messages of the queue. A large queue is not read to its end.
    pub is_whole: bool,
    /// The first of the messages, with the heads of their bodies.
    pub sample: Vec<PeekedMessage>,
}

impl Messages {
    /// Counts the messages that a task over a selection would change; none when there is no such queue. Reads at most as
    /// much as [`limits::DRY_RUN_PEEKS`] peeks, and ends after [`limits::DRY_RUN_SECONDS`].
    pub(crate) async fn selection_count(
        &self,
        at: &QueueRef,
        selection: &MessageSelection,
    ) -> Result<Option<SelectionCount>, Error> {
        let _turn = self.0.quotas.admit_peek(&at.project).await?;
        let queue = self.0.slots.queue(at).await?;
        let counted = match self.0.open_queues.open(&queue).await {
            Ok(None) => Ok(None),
            Ok(Some(open)) => self.count_selected(&open, selection).await.map(Some),
            Err(error) => Err(error),
        };
        self.0.slots.confirm(queue.slot(), counted)
    }

    async fn count_selected(
        &self,
        queue: &QueueHandle,
        selection: &MessageSelection,
    ) -> Result<SelectionCount, Error> {
        let (mut count, end) = (SelectionCount::default(), Instant::now() + TIME);
        let mut position = Some(PeekPosition::FIRST);
        for _ in 0..limits::DRY_RUN_PEEKS {
            let EngineReading { store, shown: retention } = queue.read(|engine| engine.retention())?;
            let at = ViewedAt { now: self.0.replica.clock.now(), retention };
            let mut reader = PeekReader::new(queue, store, selection);
            position = position.and_then(|after| reader.begin(after));
            while let Some(after) = position {
                let Some(read) = reader.read(after).await? else { break };
                for found in reader.owned(read.messages)? {
                    count.looked_at += 1;
                    if found.is_free() && found.fulfils(selection, at) {
                        count.matches += 1;
                        if count.sample.len() < limits::DRY_RUN_SAMPLE {
                            count.sample.push(PeekedMessage::of(found, at).cut(BodyExtent::Head));
                        }
                    }
                }
                position = read.next;
                if Instant::now() >= end {
                    count.is_whole = position.is_none();
                    return Ok(count);
                }
            }
            if position.is_none() {
                count.is_whole = true;
                break;
            }
            tokio::task::yield_now().await;
        }
        Ok(count)
    }
}
