//! Transfers between queues that two replicas serve (P5). The owner of the target runs them, as it does when it owns
//! both queues: it holds the transfers into the queue from the first write to the last, and deletes a queue only while
//! it holds them.
//!
//! ```text
//! source's owner                    target's owner
//!   marked in transfer ── arrive ──────────▶ reads them in the pool, which all reach; prepares them
//!   removes them ◀──────── depart ──
//!             └───────────────────▶ publishes them
//! ```
//!
//! The next owner that opens the target finds an aborted transfer, and requests the states from the source's owner. A
//! replaced owner of the target may still have a request in progress that removes messages. So each request has the
//! epoch of its sender, and the source's owner refuses requests of an earlier epoch than the latest it has received.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::timeout;

use angarium_catalogue::SlotOwner;
use angarium_cluster::peer_client::{
    ARRIVE, ArrivalRequest, DEPART, DepartureRequest, OwnerEpoch, STATES, StatesRequest, StatesResponse,
};
use angarium_core::error::{Error, Part};
use angarium_core::ids::{MessageId, Slot as SlotNumber};
use angarium_core::maps::HashMap;
use angarium_core::message::{Header, Message, MessageTtl, Peer, State};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::{PoolName, QueueRef};
use angarium_engine::TransferFate;
use angarium_storage::Epoch;

use crate::limits;
use crate::slot::commit::count;
use crate::slot::state::Slot;
use crate::slot::transfers::{Side, TransferTerms};
use crate::transfer::MessageTransfers;
use crate::transfer::arriving::dead_letters;
use crate::transfer::lost_targets::check_target;
use crate::transfer::made_targets::{MadeTarget, is_ordered_by_source, needs_quota, retention_of};
use crate::transfer::mover::{PreparedEntries, refuse_foreign};
use crate::writer::change::Change;

/// The latest epoch of each slot whose owner has requested transfers. The lock is held for single look-ups.
#[derive(Default)]
pub(crate) struct TargetEpochs(Mutex<HashMap<SlotNumber, Epoch>>);

impl TargetEpochs {
    /// Records the epoch of a requesting owner. Returns false when a later owner has sent a request.
    pub(crate) fn note(&self, slot: SlotNumber, epoch: Epoch) -> bool {
        let mut epochs = self.0.lock();
        let latest = epochs.entry(slot).or_insert(epoch);
        *latest = epoch.max(*latest);
        *latest == epoch
    }

    /// Whether an owner of the slot has sent a request in this epoch or a later one.
    pub(crate) fn knows(&self, slot: SlotNumber, epoch: Epoch) -> bool {
        self.0.lock().get(&slot).is_some_and(|latest| *latest >= epoch)
    }
}

fn owner_epoch(slot: &Slot) -> OwnerEpoch {
    let Epoch { generation, transaction } = slot.epoch;
    OwnerEpoch { slot: slot.owned.slot.0, generation, transaction }
}

fn epoch_of(owner: OwnerEpoch) -> Epoch {
    Epoch { generation: owner.generation, transaction: owner.transaction }
}

impl MessageTransfers {
    /// Has the owner of the target take over messages that were marked in transfer.
    pub(crate) async fn send_remote_transfer(
        &self,
        source: &Side,
        target: &QueueRef,
        owner: &SlotOwner,
        messages: Vec<Message>,
    ) -> Result<(), Error> {
        let headers: Vec<Header> = messages.iter().map(|message| message.header.clone()).collect();
        let TransferTerms { placement, dead_letter_ttl: ttl, is_ordered, retention } =
            source.queue.transfer_terms().ok_or_else(|| source.queue.closed())?;
        let (retention, needs_quota) = (retention_of(&headers, retention), needs_quota(&headers));
        let is_ordered = is_ordered_by_source(&headers, is_ordered);
        let mut left: Vec<MessageId> = messages.iter().map(|message| message.header.id).collect();
        for pool in placement.pools() {
            let ids = if *pool == placement.pool {
                std::mem::take(&mut left)
            } else {
                let store = self.0.stores.pool(pool)?.store()?;
                let found = store.get(source.queue.id(), &left).await.map_err(|error| store.failed(error))?;
                let (there, others) =
                    left.into_iter().partition(|id| found.iter().any(|message| message.header.id == *id));
                left = others;
                there
            };
            if ids.is_empty() {
                continue;
            }
            let arrival = ArrivalRequest {
                target: target.into(),
                source: source.queue.at().into(),
                source_id: source.queue.id(),
                pool: pool.to_string(),
                ids,
                ttl: ttl.map(MessageTtl::seconds),
                is_ordered,
                retention,
                needs_quota,
            };
            self.0.slots.peer_client()?.ask::<()>(&owner.address, ARRIVE, &arrival).await?;
        }
        Ok(())
    }

    /// Takes over messages that another replica has marked in transfer for a queue of this one.
    pub async fn accept_transfers(&self, arrival: ArrivalRequest) -> Result<(), Error> {
        let transfers = self.clone();
        self.0.replica.carry_out(async move { transfers.take_over(arrival).await }).await
    }

    async fn take_over(&self, arrival: ArrivalRequest) -> Result<(), Error> {
        let target = arrival.target.queue()?;
        let peer = Arc::new(Peer { at: arrival.source.queue()?, queue: Some(arrival.source_id) });
        let _moves = self.0.slots.hold_transfers(&target).await?;
        let queue = self.0.slots.queue(&target).await?;
        let made = MadeTarget {
            is_ordered: arrival.is_ordered,
            retention: arrival.retention,
            needs_quota: arrival.needs_quota,
        };
        // Its pool is fenced before the messages are read: no earlier owner can publish any of them after that.
        let open = self.0.open_queues.open(&queue).await?;
        let store = self.0.pools.pool_of_record(&PoolName::new(&arrival.pool)?).await?.store()?;
        let found = async {
            let found = store.get(arrival.source_id, &arrival.ids).await;
            found.map_err(|error| store.failed(error))
        };
        let found = answer_of(&peer.at, found).await?;
        // Messages that are not marked in transfer any more were transferred by an earlier attempt, or never will be.
        let is_ours =
            |message: &Message| matches!(&message.header.state, State::Moving(to) if to.at == target);
        let messages: Vec<Message> = found.into_iter().filter(is_ours).collect();
        if messages.is_empty() {
            if let Some(open) = open {
                open.start_mover();
            }
            return Ok(());
        }
        check_target(open.as_ref(), &messages)?;
        // Messages that are there no more make no deleted target again.
        let queue = match open {
            Some(open) => open,
            None => self.0.open_queues.open_or_make_target(&queue, made.metadata()?, made.check()).await?,
        };
        let side = queue.side()?;
        let moved = self.carry_over_remote(&side, &peer, messages, arrival).await;
        queue.start_mover();
        moved
    }

    async fn carry_over_remote(
        &self,
        target: &Side,
        peer: &Arc<Peer>,
        messages: Vec<Message>,
        arrival: ArrivalRequest,
    ) -> Result<(), Error> {
        let ttl = arrival.ttl.map(MessageTtl::stored);
        let grants: HashMap<MessageId, u32> =
            messages.iter().map(|message| (message.header.id, message.header.grant())).collect();
        let PreparedEntries { headers: prepared, foreign, refusal, .. } =
            self.prepare(target, peer, ttl, messages).await?;
        let departing = prepared.iter().filter_map(|header| grants.get_key_value(&header.id));
        let (ids, grants) = departing.map(|(id, grant)| (*id, *grant)).unzip();
        let departure = DepartureRequest {
            source: arrival.source,
            source_id: arrival.source_id,
            ids,
            grants,
            owner: owner_epoch(target.queue.slot()),
        };
        // An owner that was replaced without its notice must not remove messages any more.
        self.0.slots.check_ours(target.queue.slot())?;
        let removed = async {
            match self.0.slots.elsewhere(&peer.at) {
                Some(owner) => {
                    self.0.slots.peer_client()?.ask::<()>(&owner.address, DEPART, &departure).await
                }
                // The slot of the source has moved to this replica since.
                None => self.remove_departed(departure).await,
            }
        };
        answer_of(&peer.at, removed).await.map_err(Error::into_unknown)?;
        self.publish(target, prepared).await?;
        refusal.map_or_else(|| refuse_foreign(target.queue.at(), foreign), Err)
    }

    /// Removes messages that the owner of their target has prepared.
    pub async fn remove_departed(&self, departure: DepartureRequest) -> Result<(), Error> {
        let transfers = self.clone();
        self.0.replica.carry_out(async move { transfers.take_out(departure).await }).await
    }

    /// Like `remove_departed`, in the task of the caller.
    async fn take_out(&self, departure: DepartureRequest) -> Result<(), Error> {
        let at = departure.source.queue()?;
        // The next owner of the target that requests these messages waits until this removal has its outcome.
        let _outgoing = self.0.slots.hold_outgoing(&at).await;
        self.check_owner(departure.owner).await?;
        let queue = self.0.slots.queue(&at).await?;
        let Some(queue) = self.0.open_queues.open_if_there(&queue).await? else { return Ok(()) };
        if queue.id() != departure.source_id {
            return Ok(());
        }
        let side = queue.side()?;
        let found = side.store.get(queue.id(), &departure.ids).await?;
        let moving = found.iter().map(|message| &message.header);
        // A request that was on its way for long must not remove a message that has come back and left again since.
        let slot = SlotNumber(departure.owner.slot);
        let grants: HashMap<&MessageId, u32> = departure.ids.iter().zip(departure.grants).collect();
        let is_departing = |header: &&Header| match &header.state {
            State::Moving(to) => {
                to.at.slot() == slot && grants.get(&header.id).is_none_or(|grant| *grant == header.grant())
            }
            _ => false,
        };
        let moving: Vec<_> = moving.filter(is_departing).collect();
        let dead = count(&dead_letters(moving.iter().copied()));
        self.remove_sent(&side, moving.iter().map(|header| header.id).collect(), dead).await
    }

    /// Removes messages at their source, like `remove_sent`. The outgoing transfers of the source are held until the
    /// outcome is known, even if the caller stops waiting: the next request for the messages waits for it. A request of
    /// an earlier owner of the target that arrives after this is refused.
    pub(crate) async fn remove_at_source(
        &self,
        source: &Side,
        target: &Side,
        ids: Vec<MessageId>,
        dead: u64,
    ) -> Result<(), Error> {
        let outgoing = self.0.slots.hold_outgoing(source.queue.at()).await;
        let owner = target.queue.slot();
        if !self.0.target_epochs.note(owner.owned.slot, owner.epoch) {
            return Err(replaced_owner());
        }
        let (transfers, queue) = (self.clone(), source.queue.clone());
        let removal = async move {
            let _outgoing = outgoing;
            let source = queue.side()?;
            transfers.remove_sent(&source, ids, dead).await
        };
        self.0.replica.carry_out(removal).await
    }

    /// Refuses a request of an owner of a slot that has a later owner. The caller holds the outgoing transfers of the
    /// queue in the request.
    async fn check_owner(&self, owner: OwnerEpoch) -> Result<(), Error> {
        let (slot, epoch) = (SlotNumber(owner.slot), epoch_of(owner));
        if !self.0.target_epochs.knows(slot, epoch) {
            let transaction = self.0.replica.catalogue.slot_transaction(slot).await?;
            self.0.target_epochs.note(slot, Epoch { generation: self.0.replica.generation, transaction });
        }
        if self.0.target_epochs.note(slot, epoch) || is_on(Mutation::IgnoreTargetEpoch) {
            return Ok(());
        }
        Err(replaced_owner())
    }

    /// Removes messages at their source that their target has, and counts the dead letters among them.
    pub(crate) async fn remove_sent(
        &self,
        source: &Side,
        ids: Vec<MessageId>,
        dead: u64,
    ) -> Result<(), Error> {
        if ids.is_empty() || is_on(Mutation::SkipRemovalAtSource) {
            return Ok(());
        }
        let _leaving = source.queue.begin_leaving().await?;
        source.queue.transfer_change(Change::remove_transferred(ids)).await?;
        source.queue.count_dead_letters(dead);
        Ok(())
    }

    /// Returns the fates of messages that are prepared in `slot`, by their states at their source. Waits at most
    /// [`limits::MOVE_SOURCE`] for the source. The caller holds the transfers into the queue.
    pub(crate) async fn fates(
        &self,
        slot: &Slot,
        peer: &Peer,
        ids: &[MessageId],
    ) -> Result<HashMap<MessageId, TransferFate>, Error> {
        answer_of(&peer.at, self.fetch_fates(slot, peer, ids)).await
    }

    async fn fetch_fates(
        &self,
        slot: &Slot,
        peer: &Peer,
        ids: &[MessageId],
    ) -> Result<HashMap<MessageId, TransferFate>, Error> {
        let Some(owner) = self.0.slots.elsewhere(&peer.at) else {
            let _outgoing = self.0.slots.hold_outgoing(&peer.at).await;
            self.0.target_epochs.note(slot.owned.slot, slot.epoch);
            let states = self.states_at_source(peer, ids).await?;
            return Ok(ids.iter().map(|id| (*id, TransferFate::of(states.get(id)))).collect());
        };
        let question = StatesRequest {
            source: (&peer.at).into(),
            source_id: peer.queue,
            ids: ids.to_vec(),
            owner: owner_epoch(slot),
        };
        let answer: StatesResponse =
            self.0.slots.peer_client()?.ask(&owner.address, STATES, &question).await?;
        let fate = |id: &MessageId| match (answer.moving.contains(id), answer.kept.contains(id)) {
            (true, _) => TransferFate::Wait,
            (false, true) => TransferFate::Drop,
            (false, false) => TransferFate::Publish,
        };
        Ok(ids.iter().map(|id| (*id, fate(id))).collect())
    }

    /// Returns which of these messages are here, for the owner of the queue for which they were prepared. After this no
    /// earlier owner of that queue removes any of them.
    pub async fn read_transfer_states(&self, question: StatesRequest) -> Result<StatesResponse, Error> {
        let peer = Peer { at: question.source.queue()?, queue: question.source_id };
        let _outgoing = self.0.slots.hold_outgoing(&peer.at).await;
        self.check_owner(question.owner).await?;
        let states = self.states_at_source(&peer, &question.ids).await?;
        let mut answer = StatesResponse::default();
        for (id, state) in states {
            match TransferFate::of(Some(&state)) {
                TransferFate::Wait => answer.moving.push(id),
                TransferFate::Publish | TransferFate::Drop => answer.kept.push(id),
            }
        }
        // Only the present owner of the source may answer.
        self.0.slots.check_ours(self.0.slots.queue(&peer.at).await?.slot())?;
        Ok(answer)
    }
}

fn replaced_owner() -> Error {
    Error::unavailable(Part::Coordination, "the target has a later owner, which has sent requests")
}

/// Waits for an answer of the source of a transfer, at most [`limits::MOVE_SOURCE`]: the caller holds the transfers
/// into the target meanwhile.
pub(crate) async fn answer_of<T>(
    source: &QueueRef,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let late = |_| {
        let why = format!("queue {}, from which messages are moved, does not answer", source.name);
        Err(Error::unavailable(Part::Storage, why))
    };
    timeout(limits::MOVE_SOURCE, answer).await.unwrap_or_else(late)
}
