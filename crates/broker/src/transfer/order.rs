//! The order of groups in a queue in which messages arrive.
//!
//! A message whose publication failed has left its source and is prepared in its target, whose mover publishes it. Its
//! source does not know of it any more, and sends the next message of its group. In a target with order that one stays
//! at the source until the earlier one is published or dropped, for at most [`limits::ORDER_WAIT_SECONDS`]: an entry
//! without room for its copies must not block its group for ever. Other groups do not wait.

use std::collections::BTreeSet;

use angarium_core::error::Error;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::maps::HashMap;
use angarium_core::message::{Header, Message, Peer, State};
use angarium_core::time::Timestamp;
use angarium_storage::{Direction, Order, Position};

use crate::limits;
use crate::slot::transfers::Side;
use crate::stores::queue_store::PageBound;
use crate::transfer::MessageTransfers;

impl MessageTransfers {
    /// Leaves messages of one source out of the `prepared` and the `arriving` ones if an earlier entry of their group
    /// is not published. Returns why they must wait; none if it left out none. The caller holds the transfers into the
    /// queue.
    pub(crate) async fn leave_out_later(
        &self,
        target: &Side,
        source: &Peer,
        prepared: &mut Vec<Header>,
        arriving: &mut Vec<Message>,
    ) -> Result<Option<Error>, Error> {
        let arriving_ids = arriving.iter().map(|message| message.header.id);
        let ids: BTreeSet<MessageId> = prepared.iter().map(|header| header.id).chain(arriving_ids).collect();
        let unpublished = self.unpublished_before(target, source, &ids).await?;
        let may_pass = |header: &Header| {
            let earlier = header.group.as_ref().and_then(|group| unpublished.get(group));
            earlier.is_none_or(|earlier| *earlier > header.id)
        };
        prepared.retain(may_pass);
        arriving.retain(|message| may_pass(&message.header));
        let has_all = prepared.len() + arriving.len() == ids.len();
        let why = "an earlier message of the group has not arrived yet";
        Ok((!has_all).then_some(Error::Busy(why)))
    }

    /// Returns, by group, the first entry that this source has prepared in a target with order, before the last of
    /// these messages. Leaves out these messages, and entries that no message waits for any more. Finds an entry only
    /// within [`limits::ORDER_PAGES`] before that message.
    async fn unpublished_before(
        &self,
        target: &Side,
        source: &Peer,
        ids: &BTreeSet<MessageId>,
    ) -> Result<HashMap<GroupName, MessageId>, Error> {
        let mut first = HashMap::default();
        let Some(last) = ids.last().copied().filter(|_| target.queue.is_ordered()) else { return Ok(first) };
        // Memory usually knows that no other entry is in transfer.
        let known = target.queue.known_in_transfer().and_then(|known| known.ids);
        if known.is_some_and(|known| known.iter().all(|id| *id > last || ids.contains(id))) {
            return Ok(first);
        }
        let now = self.0.replica.clock.now();
        let is_earlier = |header: &Header| {
            is_prepared_by(header, source) && !ids.contains(&header.id) && is_awaited(header, now)
        };
        let (queue, mut after) = (target.queue.id(), Position::id(last));
        let bound = PageBound { messages: limits::MOVE_MESSAGES, bytes: limits::MOVE_BYTES };
        for _ in 0..limits::ORDER_PAGES {
            let page = target.store.scan(queue, Order::Aside, Direction::Down, Some(after), bound).await;
            let page = match page {
                // A damaged entry will never be published, and the entries before it cannot be read.
                Err(error) if error.is_damaged() => break,
                page => page?,
            };
            // From the last one to the first.
            for header in page.messages.iter().map(|message| &message.header) {
                if let Some(group) = header.group.as_ref().filter(|_| is_earlier(header)) {
                    first.insert(group.clone(), header.id);
                }
            }
            match page.messages.last() {
                Some(message) if !page.is_last => after = Position::id(message.header.id),
                Some(_) | None => break,
            }
        }
        Ok(first)
    }
}

/// Whether later messages of its group wait for a prepared entry that is not published.
pub(crate) fn is_awaited(entry: &Header, now: Timestamp) -> bool {
    now < entry.ready.plus_seconds(limits::ORDER_WAIT_SECONDS)
}

/// Whether an entry was prepared for a message of this source. No other entry may be published, nor may it stand for a
/// message that leaves its source: it could be under a claim, or be another message.
pub(crate) fn is_prepared_by(header: &Header, source: &Peer) -> bool {
    match &header.state {
        State::Prepared(peer) => peer.at == source.at && (peer.queue.is_none() || peer.queue == source.queue),
        _ => false,
    }
}
