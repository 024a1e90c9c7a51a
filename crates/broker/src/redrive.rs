//! The messages that a task sends on: chosen among those that are ready, marked in transfer for where they go, and
//! watched until they have left.

use std::collections::HashMap;
use std::sync::Arc;

use super::Broker;
use super::changes::Change;
use super::message_transfer::{Side, closed};
use super::messages::settled;
use super::slot::Slot;
use angarium_core::envelope::Envelope;
use angarium_core::error::Error;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits;
use angarium_core::message::{Header, Peer, State};
use angarium_core::move_task::{MoveFailure, MoveTask};
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_engine::ClaimSelection;
use angarium_storage::{Direction, Order, Position};

/// Messages that were marked in transfer.
pub(super) struct RedriveBatch {
    /// Which ones.
    pub(super) ids: Vec<MessageId>,
    /// Why others were not.
    pub(super) failure: Option<MoveFailure>,
}

/// Where each of some messages is to go.
type RedriveRoutes = Vec<(Header, Result<QueueRef, MoveFailure>)>;

impl Broker {
    /// Sets at most `most` messages aside, durably. None when none is ready.
    pub(super) async fn start_redrive(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        id: QueueId,
        (task, most): (&MoveTask, usize),
    ) -> Result<Option<RedriveBatch>, Error> {
        let Some(side) = self.side(slot, at, id)? else { return Err(closed(at)) };
        let (headers, token, is_pending) = {
            let now = self.0.clock.now();
            let mut state = slot.state.lock();
            let queue = state.queue_mut(at, id).ok_or_else(|| closed(at))?;
            let ClaimSelection { dead, expired, .. } = queue.engine.take_to_leave(most, now);
            let token = queue.uses.token();
            self.start_refill(slot, at, queue);
            let is_more = queue.engine.has_more() || queue.engine.waits_for_copies();
            let is_pending = is_more || !expired.is_empty();
            if let Some(failure) = std::mem::take(&mut queue.pool_failed).filter(|_| dead.is_empty()) {
                return Err(failure.error());
            }
            if !expired.is_empty() {
                // No caller waits for this: an expired message is hidden until it is gone.
                drop(self.submit(slot, &mut state, at, Change::Remove(expired)));
            }
            (dead, token, is_pending)
        };
        if headers.is_empty() {
            return Ok(is_pending.then(|| RedriveBatch { ids: Vec::new(), failure: None }));
        }
        let ids: Vec<MessageId> = headers.iter().map(|header| header.id).collect();
        let set_off = match self.ways(&side, task, headers).await {
            Ok(ways) => self.mark_all_in_transfer(&side, ways).await,
            Err(error) => {
                self.keep(&side, &ids);
                Err(error)
            }
        };
        drop(token);
        set_off.map(Some)
    }

    /// Messages that were to leave stay, ready as before.
    fn keep(&self, side: &Side<'_>, ids: &[MessageId]) {
        let mut state = side.slot.state.lock();
        if let Some(queue) = state.queue_mut(side.at, side.id) {
            queue.engine.put_back(ids);
        }
        self.serve(side.slot, &mut state, side.at);
    }

    /// Where messages are to go: a queue that exists.
    async fn ways(
        &self,
        side: &Side<'_>,
        task: &MoveTask,
        headers: Vec<Header>,
    ) -> Result<RedriveRoutes, Error> {
        let mut origins = HashMap::new();
        if task.target.is_none() {
            let ids: Vec<MessageId> = headers.iter().map(|header| header.id).collect();
            let found = side.store.get(side.id, &ids).await?;
            origins = found.into_iter().map(|message| (message.header.id, message.body)).collect();
        }
        let (mut known, mut ways) = (HashMap::new(), Vec::with_capacity(headers.len()));
        for header in headers {
            let mut origin = |id: &MessageId| {
                let name = Envelope::split(origins.remove(id)?).0.source?;
                Some(QueueRef { project: side.at.project.clone(), name })
            };
            let target = match &task.target {
                Some(target) => Some(target.at.clone()),
                None => origin(&header.id),
            };
            let Some(target) = target else {
                ways.push((header, Err(MoveFailure::NoOrigin)));
                continue;
            };
            if !known.contains_key(&target) {
                let is_there = self.queue_metadata_anywhere(&target).await?.is_some();
                known.insert(target.clone(), is_there);
            }
            let way = if known[&target] { Ok(target) } else { Err(MoveFailure::NoTarget) };
            ways.push((header, way));
        }
        Ok(ways)
    }

    /// Sets those aside that have somewhere to go; the others stay.
    async fn mark_all_in_transfer(
        &self,
        side: &Side<'_>,
        ways: RedriveRoutes,
    ) -> Result<RedriveBatch, Error> {
        let now = self.0.clock.now();
        let (mut ids, mut kept, mut failure) = (Vec::new(), Vec::new(), None);
        let mut leaving: HashMap<QueueRef, (Arc<Peer>, Vec<Header>)> = HashMap::new();
        for (header, way) in ways {
            match way {
                Ok(at) => {
                    ids.push(header.id);
                    let peer = || Arc::new(Peer { at: at.clone(), queue: None });
                    let (peer, headers) = leaving.entry(at.clone()).or_insert_with(|| (peer(), Vec::new()));
                    headers.push(redriven_header(header, peer, now));
                }
                Err(why) => {
                    kept.push(header.id);
                    failure = Some(why);
                }
            }
        }
        if !kept.is_empty() {
            self.keep(side, &kept);
        }
        let headers: Vec<Header> = leaving.into_values().flat_map(|(_, headers)| headers).collect();
        if !headers.is_empty() {
            let outcome = {
                let mut state = side.slot.state.lock();
                self.submit(side.slot, &mut state, side.at, Change::Transfer(headers))
            };
            match outcome {
                // The slot writer tells the engine how it went.
                Ok(outcome) => settled(outcome).await?,
                Err(error) => {
                    self.keep(side, &ids);
                    return Err(error);
                }
            }
        }
        Ok(RedriveBatch { ids, failure })
    }

    /// Waits until messages that were marked in transfer have left, and the pass of the mover that took them away has
    /// ended: they are ready where they went, unless that queue has trouble of its own.
    pub(super) async fn wait_for_departure(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        id: QueueId,
        ids: &[MessageId],
    ) -> Result<(), Error> {
        let mut pass = None;
        while !ids.is_empty() {
            let Some(side) = self.side(slot, at, id)? else { return Err(closed(at)) };
            let (known, passes, is_moving) = {
                let mut state = slot.state.lock();
                let queue = state.queue_mut(at, id).ok_or_else(|| closed(at))?;
                (queue.engine.are_leaving(ids), queue.move_passes, queue.is_moving)
            };
            let is_leaving = match known {
                Some(known) => known,
                None => {
                    let found = side.store.get(id, ids).await?;
                    found.iter().any(|message| matches!(message.header.state, State::Moving(_)))
                }
            };
            if !is_leaving && (!is_moving || passes > *pass.get_or_insert(passes)) {
                return Ok(());
            }
            if !self.sleep_tick(limits::MOVE_TASK_STEP).await || slot.closed.is_cancelled() {
                return Err(closed(at));
            }
        }
        Ok(())
    }

    /// Whether something in a queue is on its way to another one.
    pub(super) async fn is_anything_leaving(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        id: QueueId,
    ) -> Result<bool, Error> {
        let Some(side) = self.side(slot, at, id)? else { return Err(closed(at)) };
        let has_aside =
            slot.state.lock().queue_mut(at, id).is_some_and(|queue| queue.engine.has_in_transfer());
        if !has_aside {
            return Ok(false);
        }
        let mut after = None;
        loop {
            let (messages, bytes) = (limits::MOVE_MESSAGES, limits::MOVE_BYTES);
            let page = side.store.scan(id, Order::Aside, Direction::Up, after, (messages, bytes)).await?;
            if page.messages.iter().any(|message| matches!(message.header.state, State::Moving(_))) {
                return Ok(true);
            }
            after = page.messages.last().map(|message| Position::id(message.header.id));
            if page.is_last {
                return Ok(false);
            }
        }
    }
}

/// The header of a message that is sent again to another queue: its life begins, and no caller has claimed it.
fn redriven_header(header: Header, target: &Arc<Peer>, now: Timestamp) -> Header {
    let (life, state) = (header.life.begun_again(now), State::Moving(Arc::clone(target)));
    Header { created: now, ready: now, life, attempts: 0, first_claimed: None, state, ..header }
}
