//! Moves of messages to another queue: dead letters, and those that a task moves on (P5). The steps stand in the engine's `moves`.
//!
//! Each queue with entries in transfer has one task that carries them on: those that move away to their target, those that
//! were prepared here by asking their source. It begins when messages are marked in transfer and when a queue that has such
//! entries is opened, which [`super::unfinished_transfers`] sees to, and ends when there are none. A target that cannot be reached is tried again, with longer and
//! longer pauses; its messages stay hidden meanwhile.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;
use tracing::debug;

use super::Broker;
use super::changes::Change;
use super::messages::settled;
use super::queue_store::QueueStore;
use super::remote_transfer::answer_of;
use super::retention::{metadata_of_made, retention_of};
use super::slot::{OpenQueue, Slot, SlotState};
use super::transfer_peers::by_peer;
use super::transfers::{Pass, Transfers};
use angarium_core::envelope::Envelope;
use angarium_core::error::{Error, Part};
use angarium_core::group::GroupName;
use angarium_core::ids::{MessageId, QueueId};
use angarium_core::limits;
use angarium_core::message::{Header, Life, Message, MessageTtl, Peer, State};
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_engine::{TransferFate, prepared};
use angarium_storage::{Direction, Order, Position};

/// A queue with entries in transfer, at its owner.
pub(super) struct Side<'a> {
    pub(super) slot: &'a Arc<Slot>,
    pub(super) at: &'a QueueRef,
    pub(super) id: QueueId,
    pub(super) store: QueueStore,
}

impl OpenQueue {
    /// Where its messages go that were claimed as often as they may be, and how often that is.
    pub(super) fn dead_letters(&self, at: &QueueRef) -> Option<(QueueRef, u32)> {
        let (name, most) = self.attributes.dead_letters().filter(|(name, _)| **name != at.name)?;
        Some((QueueRef { project: at.project.clone(), name: name.clone() }, most))
    }
}

impl Broker {
    /// Sets messages aside that were claimed as often as they may be; once that is durable they are moved.
    pub(super) fn mark_in_transfer(
        &self,
        slot: &Arc<Slot>,
        state: &mut SlotState,
        at: &QueueRef,
        dead: Vec<Header>,
        target: QueueRef,
    ) {
        let peer = Arc::new(Peer { at: target, queue: None });
        let moving = |header: Header| Header { state: State::Moving(Arc::clone(&peer)), ..header };
        // The slot writer tells the engine how it went.
        drop(self.submit(slot, state, at, Change::Transfer(dead.into_iter().map(moving).collect())));
    }

    /// Begins to carry on what is aside in a queue, if something is and no caller does already.
    pub(super) fn start_mover(&self, slot: &Arc<Slot>, at: &QueueRef, queue: &mut OpenQueue) {
        if !queue.engine.has_in_transfer() {
            return;
        }
        // One that waits for a target that cannot be reached looks at what has another one.
        queue.set_aside.notify_one();
        if std::mem::replace(&mut queue.is_moving, true) {
            return;
        }
        let (broker, slot, at, id) = (self.clone(), Arc::clone(slot), at.clone(), queue.id);
        self.spawn_in(&Arc::clone(&slot), async move { broker.run_mover(&slot, &at, id).await });
    }

    async fn run_mover(&self, slot: &Arc<Slot>, at: &QueueRef, id: QueueId) {
        let (mut pause, longest) = limits::MOVE_PAUSES;
        let mut transfers = Transfers::default();
        loop {
            let pass = match self.run_transfer_pass(slot, at, id, &mut transfers).await {
                Ok(pass) => pass,
                Err(error) => {
                    self.task_failed("move messages", format_args!("queue {}", at.name), &error);
                    Pass::Waits
                }
            };
            if let Some(queue) = slot.state.lock().queue_mut(at, id) {
                queue.move_passes += 1;
            }
            if let Some((target, error)) = transfers.take_failed() {
                self.task_failed("move messages", format_args!("queue {}", target.name), &error);
            }
            if transfers.take_moved() {
                pause = limits::MOVE_PAUSES.0;
            }
            match pass {
                Pass::Idle if slot.state.lock().may_stop_mover(at, id) => return,
                Pass::Idle => {}
                Pass::Moved => pause = limits::MOVE_PAUSES.0,
                Pass::Waits => {
                    let set_aside = match slot.state.lock().queue_mut(at, id) {
                        Some(queue) => Arc::clone(&queue.set_aside),
                        None => return,
                    };
                    // Not at each message: the target that could not be reached is tried again too.
                    if !self.sleep_tick(limits::MOVE_PAUSES.0).await {
                        return;
                    }
                    tokio::select! {
                        goes_on = self.sleep_tick(pause.saturating_sub(limits::MOVE_PAUSES.0)) => if !goes_on { return },
                        () = slot.closed.cancelled() => return,
                        () = set_aside.notified() => {}
                        // Its target takes more at once, however long that took.
                        () = transfers.moved() => {}
                    }
                    pause = (pause * 2).min(longest);
                }
            }
            if self.0.stop.is_cancelled() || slot.closed.is_cancelled() {
                return;
            }
        }
    }

    /// Leaves once over what is aside in a queue: what is known to be, or all that its pool has.
    async fn run_transfer_pass(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        id: QueueId,
        transfers: &mut Transfers,
    ) -> Result<Pass, Error> {
        let Some(side) = self.side(slot, at, id)? else { return Ok(Pass::Idle) };
        transfers.collect();
        let (known, asides) = {
            let mut state = slot.state.lock();
            let queue = state.queue_mut(at, id).ok_or_else(|| closed(at))?;
            (queue.engine.in_transfer(limits::IN_TRANSFER_KNOWN), queue.engine.transfer_count())
        };
        if let Some(known) = known {
            let mut pass = Ok(Pass::Idle);
            for ids in transfers.due(known).chunks(limits::MOVE_MESSAGES) {
                pass = worse(pass, self.send_known(&side, ids, transfers).await);
            }
            return worse(pass, Ok(transfers.finish(&[]).await));
        }
        let (mut after, mut pass) = (None, Ok(Pass::Idle));
        loop {
            let most = (limits::MOVE_MESSAGES, limits::MOVE_BYTES);
            let page = side.store.scan(id, Order::Aside, Direction::Up, after, most).await?;
            after = page.messages.last().map(|message| Position::id(message.header.id));
            pass = worse(pass, self.move_page(&side, page.messages, transfers).await);
            if page.is_last {
                break;
            }
        }
        if let (Ok(Pass::Idle), Some(queue)) = (&pass, slot.state.lock().queue_mut(at, id)) {
            queue.engine.clear_all_in_transfer(asides);
        }
        pass
    }

    async fn send_known(
        &self,
        side: &Side<'_>,
        ids: &[MessageId],
        transfers: &mut Transfers,
    ) -> Result<Pass, Error> {
        let found = side.store.get(side.id, ids).await?;
        let is_aside = |id: &MessageId| {
            let on_its_way = |state: &State| matches!(state, State::Moving(_) | State::Prepared(_));
            found.iter().any(|message| message.header.id == *id && on_its_way(&message.header.state))
        };
        let gone: Vec<MessageId> = ids.iter().copied().filter(|id| !is_aside(id)).collect();
        if let Some(queue) = side.slot.state.lock().queue_mut(side.at, side.id) {
            queue.engine.clear_in_transfer(&gone);
        }
        // What blocked its group may be gone.
        self.serve(side.slot, &mut side.slot.state.lock(), side.at);
        let headers: Vec<Header> = found.iter().map(|message| message.header.clone()).collect();
        let pass = self.move_page(side, found, transfers).await;
        transfers.note_behind(&headers);
        pass.map(|pass| pass.max(Pass::Moved))
    }

    /// Brings the messages of a page on. Each target has a task of its own: one that hangs holds up no other.
    async fn move_page(
        &self,
        side: &Side<'_>,
        messages: Vec<Message>,
        transfers: &mut Transfers,
    ) -> Result<Pass, Error> {
        let (away, here) = by_peer(messages);
        let mut begun = Vec::new();
        for (peer, messages) in away {
            if transfers.has(&peer.at) {
                continue;
            }
            let (broker, slot, at, id) = (self.clone(), Arc::clone(side.slot), side.at.clone(), side.id);
            let target = peer.at.clone();
            let transfer = self.0.tasks.spawn(async move {
                let Some(side) = broker.side(&slot, &at, id)? else { return Ok(()) };
                broker.send_transfers(&side, &target, messages).await
            });
            transfers.begin(peer.at.clone(), transfer);
            begun.push(peer.at.clone());
        }
        let mut pass = Ok(transfers.finish(&begun).await);
        for (peer, headers) in here {
            pass = worse(pass, self.settle_prepared(side, &peer, headers).await);
        }
        pass
    }

    /// A queue and its storage; none when it is not open any more.
    pub(super) fn side<'a>(
        &self,
        slot: &'a Arc<Slot>,
        at: &'a QueueRef,
        id: QueueId,
    ) -> Result<Option<Side<'a>>, Error> {
        let mut state = slot.state.lock();
        let Some(queue) = state.queue_mut(at, id) else { return Ok(None) };
        Ok(Some(Side { slot, at, id, store: self.store_of(queue)? }))
    }

    /// Holds the moves into a queue, from the first write there to the last.
    pub(super) async fn hold_transfers(&self, target: &QueueRef) -> Result<OwnedMutexGuard<()>, Error> {
        let held = timeout(limits::CLOSE_DEADLINE, self.0.slot_table.moves.hold(target)).await;
        held.map_err(|_| Error::unavailable(Part::Storage, "messages are on their way into the queue"))
    }

    /// Steps 2 to 4 for messages of one target.
    async fn send_transfers(
        &self,
        source: &Side<'_>,
        target: &QueueRef,
        messages: Vec<Message>,
    ) -> Result<(), Error> {
        let headers: Vec<Header> = messages.iter().map(|message| message.header.clone()).collect();
        if target == source.at {
            debug!(queue = %target.name, "dead-letter queue is the queue itself");
            let failed = headers.into_iter().map(|header| Header { state: State::Failed, ..header });
            return self.change(source, Change::Update(failed.collect())).await;
        }
        if let Some(owner) = self.elsewhere(target) {
            return self.send_remote_transfer(source, (target, &owner), messages).await;
        }
        // No other caller prepares, publishes or drops here until the end, and the queue stays.
        let _moves = self.hold_transfers(target).await?;
        let slot = self.slot(target).await?;
        let (is_ordered, retention) = {
            let mut state = source.slot.state.lock();
            let queue = state.queue_mut(source.at, source.id).ok_or_else(|| closed(source.at))?;
            (queue.engine.is_ordered(), retention_of(&headers, queue.engine.retention()))
        };
        self.open_or_make_target(&slot, target, metadata_of_made(is_ordered, retention)?).await?;
        let id = slot.state.lock().queues.get(target).map(|queue| queue.id);
        let side = id.map(|id| self.side(&slot, target, id)).transpose()?.flatten();
        let side = side.ok_or_else(|| closed(target))?;
        let ids: Vec<MessageId> = messages.iter().map(|message| message.header.id).collect();
        let moved = self.carry_over(source, &side, messages).await;
        if moved.is_ok()
            && let Some(queue) = source.slot.state.lock().queue_mut(source.at, source.id)
        {
            queue.transfers.arrived(&ids);
        }
        // It settles what is left, or finds that nothing is.
        if let Some(queue) = slot.state.lock().queue_mut(target, side.id) {
            self.start_mover(&slot, target, queue);
        }
        moved
    }

    /// Each step begins when the one before is durable.
    async fn carry_over(
        &self,
        source: &Side<'_>,
        target: &Side<'_>,
        messages: Vec<Message>,
    ) -> Result<(), Error> {
        let ttl = {
            let mut state = source.slot.state.lock();
            state.queue_mut(source.at, source.id).and_then(|queue| queue.attributes.dead_letter_ttl)
        };
        let peer = Arc::new(Peer { at: source.at.clone(), queue: Some(source.id) });
        let dead = dead_letters(messages.iter().map(|message| &message.header));
        let prepared = self.prepare(target, (&peer, ttl), messages).await?;
        let ids = prepared.iter().map(|header| header.id).collect();
        answer_of(source.at, self.remove_at_source(source, ids, dead)).await.map_err(Error::into_unknown)?;
        self.wake(target.slot, target.at, target.id, prepared).await
    }

    /// Makes sure that the target has the messages of a source, prepared; dead letters with this ttl if there is one. Returns
    /// their headers there.
    pub(super) async fn prepare(
        &self,
        target: &Side<'_>,
        (peer, ttl): (&Arc<Peer>, Option<MessageTtl>),
        messages: Vec<Message>,
    ) -> Result<Vec<Header>, Error> {
        let ids: Vec<MessageId> = messages.iter().map(|message| message.header.id).collect();
        let found = target.store.get(target.id, &ids).await?;
        // A try before this one was cut short.
        let mut headers: Vec<Header> = found.into_iter().map(|message| message.header).collect();
        let now = self.0.clock.now();
        let is_ordered = {
            let mut state = target.slot.state.lock();
            state.queue_mut(target.at, target.id).is_some_and(|queue| queue.engine.is_ordered())
        };
        let mut absent = Vec::new();
        for Message { mut header, body } in messages {
            if is_ordered {
                header.group.get_or_insert_with(GroupName::default);
            }
            if headers.iter().all(|found| found.id != header.id) {
                let body = enveloped(&header, peer, body);
                let life = life_at_target(&header, ttl, is_ordered, now);
                let size = u32::try_from(body.len()).expect("bodies are within the bound of a request");
                absent.push(Message { header: Header { size, ..prepared(&header, peer, life, now) }, body });
            }
        }
        if !absent.is_empty() {
            headers.extend(absent.iter().map(|message| message.header.clone()));
            self.change(target, Change::Prepare(absent)).await?;
        }
        Ok(headers)
    }

    /// Asks the source of prepared messages what is to become of them.
    async fn settle_prepared(
        &self,
        target: &Side<'_>,
        peer: &Peer,
        headers: Vec<Header>,
    ) -> Result<Pass, Error> {
        let _moves = self.hold_transfers(target.at).await?;
        let ids: Vec<MessageId> = headers.iter().map(|header| header.id).collect();
        // Another caller may have brought them to their end while the lock was taken.
        let still: Vec<Header> = target
            .store
            .get(target.id, &ids)
            .await?
            .into_iter()
            .map(|message| message.header)
            .filter(|header| matches!(header.state, State::Prepared(_)))
            .collect();
        let fates = self.fates(target.slot, peer, &ids).await?;
        let (mut publish, mut drop, mut waits) = (Vec::new(), Vec::new(), Pass::Moved);
        for header in still {
            match fates.get(&header.id) {
                Some(TransferFate::Publish) => publish.push(header),
                Some(TransferFate::Drop) => drop.push(header.id),
                Some(TransferFate::Wait) | None => waits = Pass::Waits,
            }
        }
        if !drop.is_empty() {
            self.change(target, Change::Depart(drop)).await?;
        }
        self.wake(target.slot, target.at, target.id, publish).await?;
        Ok(waits)
    }

    /// The states of messages at the queue that they come from; those that are absent are gone there.
    pub(super) async fn states_at_source(
        &self,
        peer: &Peer,
        ids: &[MessageId],
    ) -> Result<HashMap<MessageId, State>, Error> {
        let slot = self.open_source(peer).await?;
        let (id, store) = {
            let state = slot.state.lock();
            let queue = state.queues.get(&peer.at).filter(|queue| peer.queue.is_none_or(|id| id == queue.id));
            let Some(queue) = queue else { return Ok(HashMap::new()) };
            (queue.id, self.store_of(queue)?)
        };
        let found = store.get(id, ids).await?;
        Ok(found.into_iter().map(|message| (message.header.id, message.header.state)).collect())
    }

    /// Opens the queue that messages come from, if there is one. That fences its pool: no owner before can take
    /// anything out any more, or back.
    async fn open_source(&self, peer: &Peer) -> Result<Arc<Slot>, Error> {
        let slot = self.slot(&peer.at).await?;
        self.open(&slot, &peer.at).await?;
        Ok(slot)
    }

    /// A change of one side of a move, durable when this returns.
    pub(super) async fn change(&self, side: &Side<'_>, change: Change) -> Result<(), Error> {
        let arriving: Vec<MessageId> = match &change {
            Change::Prepare(messages) => messages.iter().map(|message| message.header.id).collect(),
            _ => Vec::new(),
        };
        let outcome = {
            let mut state = side.slot.state.lock();
            let queue = state.queue_mut(side.at, side.id).ok_or_else(|| closed(side.at))?;
            if let Some(newest) = arriving.iter().max() {
                queue.engine.expect_in_transfer(&arriving);
                // What is posted from now on follows them.
                state.ids.skip_to(*newest);
            }
            self.submit(side.slot, &mut state, side.at, change)?
        };
        let outcome = settled(outcome).await;
        if let Some(queue) =
            side.slot.state.lock().queue_mut(side.at, side.id).filter(|_| !arriving.is_empty())
        {
            queue.engine.expect_in_transfer(&arriving);
        }
        outcome
    }
}

impl SlotState {
    /// Whether the mover of a queue, which found nothing on its way, may end.
    fn may_stop_mover(&mut self, at: &QueueRef, id: QueueId) -> bool {
        let Some(queue) = self.queue_mut(at, id) else { return true };
        queue.is_moving = queue.engine.has_in_transfer();
        !queue.is_moving
    }
}

/// Of two parts of a pass the one that needs more: an error, or the greater.
fn worse(one: Result<Pass, Error>, other: Result<Pass, Error>) -> Result<Pass, Error> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok(one.max(other)),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// Whether a message that moves was claimed as often as it may be. One that a task moves begins again: it was never claimed.
fn is_dead_letter(header: &Header) -> bool {
    header.attempts > 0
}

/// The life that begins for a message where it moves to, if one does: of a dead letter that gets a ttl there, and of one that
/// lives by the retention of a queue in order of groups (SQS). Others keep theirs.
fn life_at_target(
    header: &Header,
    ttl: Option<MessageTtl>,
    is_ordered: bool,
    now: Timestamp,
) -> Option<Life> {
    let ttl = ttl.filter(|_| is_dead_letter(header));
    let is_retained = is_ordered && header.life.retained_since().is_some();
    ttl.map(|ttl| Life::lasting(ttl.seconds(), now)).or(is_retained.then_some(Life::Retained { since: now }))
}

/// How many of these are dead letters.
pub(super) fn dead_letters<'a>(headers: impl Iterator<Item = &'a Header>) -> u64 {
    u64::try_from(headers.filter(|header| is_dead_letter(header)).count()).unwrap_or_default()
}

/// A body with what it remembers at the queue it moves to. A dead letter knows where it is from, and how often it was
/// claimed there; another message forgets both.
fn enveloped(header: &Header, peer: &Peer, body: Bytes) -> Bytes {
    let (envelope, body) = Envelope::split(body);
    let (source, attempts) = if is_dead_letter(header) {
        (Some(peer.at.name.clone()), envelope.attempts.saturating_add(header.attempts))
    } else {
        (None, 0)
    };
    Envelope { source, attempts, ..envelope }.before(body)
}

pub(super) fn closed(at: &QueueRef) -> Error {
    Error::unavailable(Part::Server, format!("queue {} was closed", at.name))
}
