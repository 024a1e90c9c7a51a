//! Transfers of messages to another queue: dead letters, and messages that a task redrives (P5). The steps are in the
//! engine's `transfers`.
//!
//! Each queue with entries in transfer has one task, the mover: it sends leaving messages to their targets, and settles
//! messages that were prepared here by the answer of their source. It begins when messages are marked in transfer, and
//! when a queue with such entries is opened, which [`crate::redrive::unfinished`] ensures; it ends when there are none.
//! A target that cannot be reached is tried again with growing pauses; its messages stay hidden meanwhile.

use std::sync::Arc;

use tracing::debug;

use angarium_catalogue::Schema;
use angarium_core::error::Error;
use angarium_core::ids::MessageId;
use angarium_core::maps::HashMap;
use angarium_core::message::{Header, Message, MessageTtl, Peer, State};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;
use angarium_engine::TransferFate;
use angarium_storage::{Direction, Order, Position};

use crate::limits;
use crate::slot::commit::count;
use crate::slot::post::MessageDefaults;
use crate::slot::queue_handle::QueueHandle;
use crate::slot::transfers::{KnownTransfers, Side, TransferTerms};
use crate::transfer::MessageTransfers;
use crate::transfer::arriving::{TargetLives, dead_letters};
use crate::transfer::by_target::{FailedTransfer, Pass, Transfers, worse};
use crate::transfer::lost_targets::check_target;
use crate::transfer::made_targets::{MadeTarget, is_ordered_by_source, needs_quota, retention_of};
use crate::transfer::order::is_prepared_by;
use crate::transfer::paced::{paced, paced_begin, paced_page};
use crate::transfer::peers::{OutgoingMessages, PeerTransfers, PreparedMessages, by_peer};
use crate::transfer::publication::AdmittedArrivals;
use crate::transfer::remote::answer_of;
use crate::writer::change::Change;

impl MessageTransfers {
    /// Runs the transfers of a queue until it has none.
    pub(crate) async fn run_mover(&self, queue: &QueueHandle) {
        let slot = queue.slot();
        let (mut pause, longest) = limits::MOVE_PAUSES;
        let mut transfers = Transfers::default();
        while self.wait_for_pace(queue).await {
            let pass = match self.run_transfer_pass(queue, &mut transfers).await {
                Ok(pass) => pass,
                Err(error) => {
                    self.0.replica.task_failed(
                        "move messages",
                        format_args!("queue {}", queue.at().name),
                        &error,
                    );
                    Pass::Waits
                }
            };
            queue.note_transfer_pass();
            queue.note_transfer_targets(transfers.targets(pass));
            if let Some(FailedTransfer { target, error }) = transfers.take_failed() {
                self.0.replica.task_failed("move messages", format_args!("queue {}", target.name), &error);
            }
            if transfers.take_moved() {
                pause = limits::MOVE_PAUSES.0;
            }
            match pass {
                Pass::Idle if queue.may_stop_mover() => return,
                Pass::Idle => {}
                Pass::Moved => pause = limits::MOVE_PAUSES.0,
                Pass::Waits => {
                    let Some(marked) = queue.marked_in_transfer() else { return };
                    // Not at each message, since this also retries the target that could not be reached.
                    if !self.0.replica.sleep_tick(limits::MOVE_PAUSES.0).await {
                        return;
                    }
                    tokio::select! {
                        biased;
                        goes_on = self.0.replica.sleep_tick(pause.saturating_sub(limits::MOVE_PAUSES.0)) => if !goes_on { return },
                        () = slot.closed.cancelled() => return,
                        () = marked.notified() => {}
                        // The target can receive more at once, however long that transfer took.
                        () = transfers.moved() => {}
                    }
                    pause = if queue.transfers_are_held() { pause } else { (pause * 2).min(longest) };
                }
            }
            if self.0.replica.stop.is_cancelled() || slot.closed.is_cancelled() {
                return;
            }
        }
    }

    /// Passes once over the entries in transfer of a queue: the entries in memory, or all entries of its pool.
    async fn run_transfer_pass(&self, queue: &QueueHandle, transfers: &mut Transfers) -> Result<Pass, Error> {
        transfers.collect();
        // A closed queue needs no mover.
        let Some(KnownTransfers { ids: known, count }) = queue.known_in_transfer() else {
            return Ok(Pass::Idle);
        };
        if queue.transfers_are_held() {
            return Ok(Pass::Waits);
        }
        let side = queue.side()?;
        if let Some(known) = known {
            let mut pass = Ok(Pass::Idle);
            for ids in paced(queue, transfers, known).chunks(limits::move_messages()) {
                pass = worse(pass, self.send_known(&side, ids, transfers).await);
            }
            return worse(pass, Ok(transfers.finish(&[]).await));
        }
        let (begin, mut pass) = (paced_begin(queue, transfers), Ok(Pass::Idle));
        let mut after = begin;
        loop {
            let Some(most) = paced_page(queue, transfers) else {
                return worse(pass, Ok(transfers.finish(&[]).await.max(Pass::Moved)));
            };
            let from = after.map(Position::id);
            let page = side.store.scan(queue.id(), Order::Aside, Direction::Up, from, most).await?;
            queue.deliveries_began(page.messages.len());
            after = page.messages.last().map(|message| message.header.id);
            transfers.note_examined(after);
            pass = worse(pass, self.move_page(&side, page.messages, transfers).await);
            if page.is_last {
                break;
            }
        }
        transfers.note_examined(None);
        match pass {
            Ok(Pass::Idle) if begin.is_some() => return Ok(Pass::Moved),
            Ok(Pass::Idle) => queue.clear_all_in_transfer(count),
            _ => {}
        }
        pass
    }

    async fn send_known(
        &self,
        side: &Side,
        ids: &[MessageId],
        transfers: &mut Transfers,
    ) -> Result<Pass, Error> {
        let found = side.store.get(side.queue.id(), ids).await?;
        let is_in_transfer = |id: &MessageId| {
            let on_its_way = |state: &State| matches!(state, State::Moving(_) | State::Prepared(_));
            found.iter().any(|message| message.header.id == *id && on_its_way(&message.header.state))
        };
        let gone: Vec<MessageId> = ids.iter().copied().filter(|id| !is_in_transfer(id)).collect();
        side.queue.clear_in_transfer(&gone);
        let headers: Vec<Header> = found.iter().map(|message| message.header.clone()).collect();
        let pass = self.move_page(side, found, transfers).await;
        transfers.note_behind(&headers);
        pass.map(|pass| pass.max(Pass::Moved))
    }

    /// Continues the transfers of a page's messages. Each target has a task of its own: one that hangs delays no other.
    async fn move_page(
        &self,
        side: &Side,
        messages: Vec<Message>,
        transfers: &mut Transfers,
    ) -> Result<Pass, Error> {
        let without_target = messages.iter().filter(|message| message.header.state == State::NoTarget);
        let without_target: Vec<MessageId> = without_target.map(|message| message.header.id).collect();
        let PeerTransfers { outgoing, prepared } = by_peer(messages);
        let (is_ordered, mut begun) = (side.queue.is_ordered(), Vec::new());
        for OutgoingMessages { peer, messages } in outgoing {
            if transfers.has(&peer.at) {
                transfers.bar(&peer.at);
                continue;
            }
            if is_ordered && transfers.is_barred(&peer.at) {
                continue;
            }
            let (all, source, target) = (self.clone(), side.queue.clone(), peer.at.clone());
            let transfer = self.0.replica.tasks.spawn(async move {
                let side = source.side()?;
                all.send_transfers(&side, &target, messages).await
            });
            transfers.begin(peer.at.clone(), transfer);
            begun.push(peer.at.clone());
        }
        let mut pass = Ok(transfers.finish(&begun).await);
        for PreparedMessages { peer, headers } in prepared {
            pass = worse(pass, self.settle_prepared(side, &peer, headers).await);
        }
        worse(pass, self.keep_as_failed(side, &without_target).await)
    }

    /// Runs steps 2 to 4 for messages of one target.
    async fn send_transfers(
        &self,
        source: &Side,
        target: &QueueRef,
        messages: Vec<Message>,
    ) -> Result<(), Error> {
        let headers: Vec<Header> = messages.iter().map(|message| message.header.clone()).collect();
        if target == source.queue.at() {
            debug!(queue = %target.name, "dead-letter queue is the queue itself");
            let stored = self.headers_without_target(&source.queue, headers)?;
            return source.queue.transfer_change(Change::update(stored)).await;
        }
        if self.returns_messages(source, target, &messages).await? {
            return Ok(());
        }
        if let Some(owner) = self.0.slots.elsewhere(target) {
            return self.send_remote_transfer(source, target, &owner, messages).await;
        }
        // No other task prepares, publishes or drops messages here until the end, and the queue is not deleted.
        let _moves = self.0.slots.hold_transfers(target).await?;
        let named = self.0.slots.queue(target).await?;
        let TransferTerms { is_ordered, retention, .. } =
            source.queue.transfer_terms().ok_or_else(|| source.queue.closed())?;
        let made = MadeTarget {
            is_ordered: is_ordered_by_source(&headers, is_ordered),
            retention: retention_of(&headers, retention),
            needs_quota: needs_quota(&headers),
        };
        // Its pool is fenced before the messages are read: no earlier owner can publish any of them after that.
        let open = self.0.open_queues.open(&named).await?;
        let ids: Vec<MessageId> = headers.iter().map(|header| header.id).collect();
        let moving = self.read_moving(source, target, messages);
        let messages = match answer_of(source.queue.at(), moving).await {
            Ok(messages) if !messages.is_empty() => messages,
            nothing => {
                if let Some(open) = open {
                    open.start_mover();
                }
                return nothing.map(|_| source.queue.transfers_arrived(&ids));
            }
        };
        check_target(open.as_ref(), &messages)?;
        // Messages that are there no more make no deleted target again.
        let queue = match open {
            Some(open) => open,
            None => self.0.open_queues.open_or_make_target(&named, made.metadata()?, made.check()).await?,
        };
        let side = queue.side()?;
        let moved = self.carry_over(source, &side, messages).await;
        if moved.is_ok() {
            source.queue.transfers_arrived(&ids);
        }
        // The mover of the target settles the remaining entries, if any.
        queue.start_mover();
        moved
    }

    /// Reads messages at their source that are still marked for the target. While this transfer waited for the gate,
    /// another one may have moved them there, and a client may have claimed or deleted them since.
    async fn read_moving(
        &self,
        source: &Side,
        target: &QueueRef,
        messages: Vec<Message>,
    ) -> Result<Vec<Message>, Error> {
        if is_on(Mutation::TransferTwice) {
            return Ok(messages);
        }
        let ids: Vec<MessageId> = messages.iter().map(|message| message.header.id).collect();
        drop(messages);
        let mut found = source.store.get(source.queue.id(), &ids).await?;
        found.retain(|message| matches!(&message.header.state, State::Moving(to) if to.at == *target));
        Ok(found)
    }

    /// Runs the steps; each begins when the one before is durable.
    async fn carry_over(&self, source: &Side, target: &Side, messages: Vec<Message>) -> Result<(), Error> {
        let ttl = source.queue.transfer_terms().and_then(|terms| terms.dead_letter_ttl);
        let peer = Arc::new(Peer { at: source.queue.at().clone(), queue: Some(source.queue.id()) });
        if is_on(Mutation::RemoveBeforePrepare) {
            let ids = messages.iter().map(|message| message.header.id).collect();
            self.remove_at_source(source, target, ids, 0).await?;
        }
        let PreparedEntries { headers: prepared, dead, foreign, refusal } =
            self.prepare(target, &peer, ttl, messages).await?;
        let ids: Vec<MessageId> = prepared.iter().map(|header| header.id).collect();
        if is_on(Mutation::PublishBeforeRemoval) {
            self.publish(target, prepared.clone()).await?;
        }
        answer_of(source.queue.at(), self.remove_at_source(source, target, ids.clone(), dead))
            .await
            .map_err(Error::into_unknown)?;
        self.publish(target, prepared).await?;
        source.queue.transfers_arrived(&ids);
        refusal.map_or_else(|| refuse_foreign(target.queue.at(), foreign), Err)
    }

    /// Makes sure that the target has the messages of a source, prepared; dead letters with this TTL if there is one.
    /// An entry of the target that this source has not prepared stays as it is, whatever its id.
    pub(crate) async fn prepare(
        &self,
        target: &Side,
        peer: &Arc<Peer>,
        ttl: Option<MessageTtl>,
        messages: Vec<Message>,
    ) -> Result<PreparedEntries, Error> {
        let ids: Vec<MessageId> = messages.iter().map(|message| message.header.id).collect();
        let found = target.store.get(target.queue.id(), &ids).await?;
        let found = found.into_iter().map(|message| message.header);
        // Entries of an earlier attempt that was aborted, and others of the same ids.
        let (mut headers, foreign): (Vec<Header>, Vec<Header>) =
            found.partition(|header| is_prepared_by(header, peer));
        let now = self.0.replica.clock.now();
        let attributes = target.queue.attributes().ok_or_else(|| target.queue.closed())?;
        let defaults = MessageDefaults::of(&attributes, self.0.replica.limits());
        let fans_out = self.0.replica.catalogue.is_in_force(Schema::SUBSCRIPTIONS);
        let lives = TargetLives { ttl, is_ordered: target.queue.is_ordered(), now, defaults, fans_out };
        let mut dead = dead_letters(messages.iter().map(|message| &message.header));
        let mut absent = Vec::new();
        for message in messages {
            if headers.iter().chain(&foreign).all(|found| found.id != message.header.id) {
                absent.push(lives.arriving(message, peer));
            }
        }
        let later = self.leave_out_later(target, peer, &mut headers, &mut absent).await?;
        let AdmittedArrivals { messages: absent, refusal } =
            self.admit_arrivals(&target.queue, peer, absent).await;
        if !absent.is_empty() {
            headers.extend(absent.iter().map(|message| message.header.clone()));
            target.queue.transfer_change(Change::prepare(absent)).await?;
        }
        dead.retain(|id| headers.iter().any(|header| header.id == *id));
        Ok(PreparedEntries {
            headers,
            dead: count(&dead),
            foreign: foreign.len(),
            refusal: refusal.or(later),
        })
    }

    /// Settles prepared messages by their states at their source.
    async fn settle_prepared(&self, target: &Side, peer: &Peer, headers: Vec<Header>) -> Result<Pass, Error> {
        let _moves = self.0.slots.hold_transfers(target.queue.at()).await?;
        let ids: Vec<MessageId> = headers.iter().map(|header| header.id).collect();
        // Another task may have settled them while this one waited for the gate.
        let still: Vec<Header> = target
            .store
            .get(target.queue.id(), &ids)
            .await?
            .into_iter()
            .map(|message| message.header)
            .filter(|header| matches!(header.state, State::Prepared(_)))
            .collect();
        let fates = self.fates(target.queue.slot(), peer, &ids).await?;
        let (mut publish, mut drop, mut waits) = (Vec::new(), Vec::new(), Pass::Moved);
        for header in still {
            match fates.get(&header.id) {
                Some(TransferFate::Publish) => publish.push(header),
                Some(TransferFate::Drop) => drop.push(header.id),
                Some(TransferFate::Wait) | None if is_on(Mutation::PublishWithoutAsking) => {
                    publish.push(header)
                }
                Some(TransferFate::Wait) | None => waits = Pass::Waits,
            }
        }
        if !drop.is_empty() {
            target.queue.transfer_change(Change::remove_transferred(drop)).await?;
        }
        let later = self.leave_out_later(target, peer, &mut publish, &mut Vec::new()).await?;
        self.publish(target, publish).await?;
        Ok(later.map_or(waits, |_| Pass::Waits))
    }

    /// Returns the states of messages at their source queue; absent ones are gone there.
    pub(crate) async fn states_at_source(
        &self,
        peer: &Peer,
        ids: &[MessageId],
    ) -> Result<HashMap<MessageId, State>, Error> {
        let Some(queue) = self.open_source(peer).await? else { return Ok(HashMap::default()) };
        if peer.queue.is_some_and(|id| id != queue.id()) {
            return Ok(HashMap::default());
        }
        let found = queue.store()?.get(queue.id(), ids).await?;
        Ok(found.into_iter().map(|message| (message.header.id, message.header.state)).collect())
    }

    /// Opens the source queue of messages, if it exists. That fences its pool: no earlier owner can remove messages
    /// there any more, or put them back.
    async fn open_source(&self, peer: &Peer) -> Result<Option<QueueHandle>, Error> {
        let queue = self.0.slots.queue(&peer.at).await?;
        self.0.open_queues.open_if_there(&queue).await
    }
}

/// The entries of a target for the messages of a transfer.
pub(crate) struct PreparedEntries {
    /// The entries that the source has prepared, in this attempt or in an earlier one.
    pub(crate) headers: Vec<Header>,
    /// Number of dead letters among them.
    dead: u64,
    /// Number of the messages whose ids other entries of the target have: these messages stay at their source.
    pub(crate) foreign: usize,
    /// Why some of the messages must stay at their source for now.
    pub(crate) refusal: Option<Error>,
}

/// Fails a transfer of which messages stayed at their source, since the target has other entries of their ids.
pub(crate) fn refuse_foreign(target: &QueueRef, foreign: usize) -> Result<(), Error> {
    if foreign == 0 {
        return Ok(());
    }
    let name = &target.name;
    Err(Error::Conflict(format!("queue {name} has other entries with the ids of {foreign} of the messages")))
}
