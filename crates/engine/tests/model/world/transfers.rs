//! The queue as the source and as the target of transfers. The other queue is not modelled.

use std::sync::Arc;

use super::*;

impl World {
    pub(super) fn mark_in_transfer(&mut self, dead: &[Header]) {
        let peer = Arc::new(peer());
        let moving = |header: &Header| Header { state: State::Moving(Arc::clone(&peer)), ..header.clone() };
        self.waiting.push_back(Change::MarkInTransfer(dead.iter().map(moving).collect()));
    }

    pub(super) fn settle_transfers(&mut self, headers: &[Header], is_durable: bool) {
        let ids: Vec<MessageId> = headers.iter().map(|header| header.id).collect();
        if is_durable {
            self.engine.mark_in_transfer(&ids);
            self.truth.mark_in_transfer(headers);
        } else {
            self.engine.put_back(&ids);
            self.truth.stay(&ids);
        }
    }

    pub(super) fn arrive(&mut self, number: u8, delay: u32) {
        self.arrived += 1;
        let rank = 1 + u64::from(number) % (self.count + 1);
        let id = MessageId::from_bytes(((u128::from(rank) << 64) + u128::from(self.arrived)).to_be_bytes());
        // Later posts have greater ids.
        self.count = self.count.max(rank);
        let created = Timestamp::default();
        let moving = Header {
            id,
            created,
            ready: created,
            life: Life::Own { ttl: 3_600, expires: self.now.plus_seconds(3_600) },
            attempts: 7,
            client: None,
            size: u32::try_from(self.body(0).len()).expect("it is small"),
            state: State::Moving(Arc::new(peer())),
            group: self.group_of(self.arrived),
            first_claimed: None,
            extras: None,
        };
        let ready = self.now.plus_seconds(delay);
        let header = Header { ready, ..prepared(&moving, &Arc::new(peer()), None, self.now) };
        self.engine.expect_in_transfer(&[id]);
        let body = self.body(0);
        self.waiting.push_back(Change::Prepare(vec![Message { header, body }]));
    }

    pub(super) fn settle_arrival(&mut self, messages: Vec<Message>, is_durable: bool) {
        let ids: Vec<MessageId> = messages.iter().map(|message| message.header.id).collect();
        if is_durable {
            self.engine.expect_in_transfer(&ids);
            messages.into_iter().for_each(|message| self.truth.posted(message.header));
        } else {
            self.engine.clear_in_transfer(&ids);
        }
    }

    fn resting(&self) -> Vec<Header> {
        let is_resting = |header: &&Header| !self.departing.contains(&header.id);
        let in_transfer =
            self.truth.messages.values().filter(|known| known.state == MessageState::InTransfer);
        in_transfer.map(|known| &known.header).filter(is_resting).cloned().collect()
    }

    pub(super) fn publish(&mut self, number: u8) {
        let mut prepared = self.resting();
        prepared.retain(|header| matches!(header.state, State::Prepared(_)));
        let Some(at) = nth(&prepared, number) else { return };
        self.wake(vec![prepared[at].clone()]);
    }

    pub(super) fn depart(&mut self, number: u8) {
        let resting = self.resting();
        let is_removed = |header: &Header| self.truth.messages[&header.id].removals > 0;
        let Some(at) = nth(&resting, number).filter(|at| !is_removed(&resting[*at])) else { return };
        self.depart_one(resting[at].id);
    }

    pub(super) fn depart_one(&mut self, id: MessageId) {
        self.departing.insert(id);
        self.waiting.push_back(Change::Depart(id));
    }

    pub(super) fn settle_departure(&mut self, id: MessageId, is_durable: bool) {
        self.departing.remove(&id);
        if is_durable {
            assert_eq!(self.truth.removed(id), None);
            assert!(self.engine.removed(&[id]).is_empty());
            self.gone.push(id);
        } else {
            self.engine.remove_failed(&[id]);
        }
    }
}

pub(super) fn peer() -> Peer {
    use angarium_core::names::{ProjectId, QueueName, QueueRef};
    let project = ProjectId::new("p").expect("a lawful project");
    Peer { at: QueueRef { project, name: QueueName::new("other").expect("a lawful name") }, queue: None }
}
