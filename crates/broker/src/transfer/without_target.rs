//! Messages whose dead letter queue is their own queue: they have failed, and are kept.
//!
//! Older programs cannot read kept messages. Until every replica can, such a message is stored without a target; the
//! mover that meets it later makes it a failed one.

use angarium_catalogue::Schema;
use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::message::{Header, Life, Retention, State};
use angarium_core::time::Timestamp;
use angarium_engine::QueueEngine;

use crate::slot::queue_handle::QueueHandle;
use crate::slot::transfers::Side;
use crate::transfer::MessageTransfers;
use crate::transfer::by_target::Pass;
use crate::writer::change::Change;

impl MessageTransfers {
    /// Returns the headers of messages that are in transfer to their own queue, as they are stored from now on.
    pub(crate) fn headers_without_target(
        &self,
        queue: &QueueHandle,
        headers: Vec<Header>,
    ) -> Result<Vec<Header>, Error> {
        let terms = queue.transfer_terms().ok_or_else(|| queue.closed())?;
        let now = self.0.replica.clock.now();
        let is_kept = self.0.replica.catalogue.is_in_force(Schema::OUTCOMES);
        let stored = |header| match is_kept {
            true => failed(header, terms.retention, now),
            false => Header { state: State::NoTarget, ..header },
        };
        if is_kept {
            queue.decide(QueueEngine::expect_kept);
        }
        Ok(headers.into_iter().map(stored).collect())
    }

    /// Makes messages without a target failed ones, as soon as every replica can read those.
    pub(crate) async fn keep_as_failed(&self, side: &Side, ids: &[MessageId]) -> Result<Pass, Error> {
        if ids.is_empty() || !self.0.replica.catalogue.is_in_force(Schema::OUTCOMES) {
            return Ok(Pass::Idle);
        }
        let queue = &side.queue;
        let mut pass = Pass::Moved;
        let mut hidden = Vec::with_capacity(ids.len());
        for id in ids {
            // Another caller may be changing it: the next pass meets it again, if it still has this state then.
            match queue.begin_requeue(*id) {
                Ok(()) => hidden.push(*id),
                Err(_) => pass = Pass::Waits,
            }
        }
        let written = self.write_as_failed(side, &hidden).await;
        let kept = written.as_deref().unwrap_or_default();
        queue.decide(|engine| {
            for id in &hidden {
                if kept.contains(id) {
                    engine.requeue_absent(*id);
                } else {
                    engine.cancel_requeue(*id);
                }
            }
        });
        queue.clear_in_transfer(kept);
        written.map(|_| pass)
    }

    /// Writes the headers of hidden messages that are still without a target. Returns their ids.
    async fn write_as_failed(&self, side: &Side, hidden: &[MessageId]) -> Result<Vec<MessageId>, Error> {
        let terms = side.queue.transfer_terms().ok_or_else(|| side.queue.closed())?;
        let found = side.store.get(side.queue.id(), hidden).await?;
        let now = self.0.replica.clock.now();
        let still = found.into_iter().filter(|message| message.header.state == State::NoTarget);
        let headers: Vec<Header> =
            still.map(|message| failed(message.header, terms.retention, now)).collect();
        let ids = headers.iter().map(|header| header.id).collect();
        side.queue.decide(QueueEngine::expect_kept);
        side.queue.transfer_change(Change::update(headers)).await?;
        Ok(ids)
    }
}

/// Returns the header of a message that has failed for good: it is kept for the rest of its life, at least a second.
fn failed(mut header: Header, retention: Retention, now: Timestamp) -> Header {
    let rest = u32::try_from(header.expires(retention).seconds_since(now)).unwrap_or(u32::MAX);
    let life = std::mem::replace(&mut header.life, Life::lasting(rest.max(1), now));
    header.extras_mut().life = Some(life);
    Header { ready: now, state: State::Failed, ..header }
}
