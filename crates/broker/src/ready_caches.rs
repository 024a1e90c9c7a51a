//! The memory of all ready caches together: a queue has a bound of its own, but there may be very many of them.
//!
//! A ready cache only saves reads of the pool, so one that no caller claims from is left to the pool first.

use std::sync::Arc;

use super::Broker;
use super::slot::{OpenQueue, Slot};
use angarium_core::limits;

/// Which ready caches may be left to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EvictionClass {
    /// Those of queues that were claimed from since the last look.
    InUse,
    Nobody,
}

impl Broker {
    /// Holds the ready caches of all queues to their common bound until the service stops.
    pub(super) async fn bound_ready_caches(&self) {
        while self.sleep_tick(limits::READY_CACHES_TICK).await {
            let slots: Vec<Arc<Slot>> = self.0.slot_table.owned().collect();
            bound(&slots, limits::READY_CACHES_BYTES);
            self.0.duplicates.recount(&slots);
        }
    }
}

/// Leaves ready caches to the pools until the others have at most `most` bytes.
fn bound(slots: &[Arc<Slot>], most: usize) {
    let mut excess = slots.iter().map(|slot| bytes(slot)).sum::<usize>().saturating_sub(most);
    for spared in [EvictionClass::InUse, EvictionClass::Nobody] {
        for slot in slots {
            if excess == 0 {
                return;
            }
            for queue in slot.state.lock().queues.values_mut() {
                excess = excess.saturating_sub(leave(queue, spared));
                if excess == 0 {
                    return;
                }
            }
        }
    }
}

fn bytes(slot: &Slot) -> usize {
    slot.state.lock().queues.values().map(|queue| queue.engine.ready_bytes()).sum()
}

/// Leaves the ready cache of a queue to its pool, unless it is spared this time. Returns how many bytes that freed.
fn leave(queue: &mut OpenQueue, spared: EvictionClass) -> usize {
    if std::mem::take(&mut queue.is_claimed_from) && spared == EvictionClass::InUse {
        return 0;
    }
    let freed = queue.engine.ready_bytes();
    queue.engine.evict_ready();
    freed
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::alarm::Alarms;
    use crate::recovery::RecoveryPace;
    use angarium_catalogue::{OwnedSlot, SlotClaims};
    use angarium_core::ids::{MessageId, Slot as SlotNumber};
    use angarium_core::message::{Header, Life, Message, State};
    use angarium_core::names::{ProjectId, QueueName, QueueRef};
    use angarium_core::time::Timestamp;
    use angarium_engine::{QueueEngine, StoredTotals};
    use angarium_storage::Epoch;

    fn message(rank: u8) -> Message {
        let (created, expires) = (Timestamp::from_millis(1), Timestamp::from_millis(3_600_001));
        let (ttl, attempts, client, size, state) = (3_600, 0, None, 1_000, State::Ready);
        let id = MessageId::from_bytes([rank; 16]);
        let header = Header {
            id,
            created,
            ready: created,
            life: Life::Own { ttl, expires },
            attempts,
            client,
            size,
            state,
            group: None,
            first_claimed: None,
        };
        Message { header, body: Bytes::from(vec![b'1'; 1_000]) }
    }

    /// A slot with queues of ten messages each; whether they are claimed from.
    fn slot(queues: &[bool]) -> Arc<Slot> {
        let (owned, epoch) = (OwnedSlot::new(SlotNumber(0), 1, 1), Epoch { generation: 1, transaction: 1 });
        let slot = Slot::new(
            owned,
            epoch,
            SlotClaims::default(),
            (RecoveryPace::first(), Timestamp::default()),
            Alarms::default(),
        );
        for (number, is_claimed_from) in queues.iter().enumerate() {
            let found = StoredTotals {
                tail: MessageId::ZERO,
                has_ready: false,
                is_scheduled: false,
                has_aside: false,
            };
            let mut engine = QueueEngine::open(found);
            engine.posted((1..=10).map(message).collect());
            let name = QueueName::new(&format!("q{number}")).unwrap();
            let at = QueueRef { project: ProjectId::new("").unwrap(), name };
            let queue = OpenQueue { is_claimed_from: *is_claimed_from, ..OpenQueue::of(engine) };
            slot.state.lock().queues.insert(at, Box::new(queue));
        }
        Arc::new(slot)
    }

    #[test]
    fn unclaimed_ready_caches_are_evicted_first() {
        let slots = [slot(&[true, false]), slot(&[false, true])];
        let each = bytes(&slots[0]) / 2;
        bound(&slots, 4 * each);
        assert_eq!([bytes(&slots[0]), bytes(&slots[1])], [2 * each; 2], "within the bound nothing goes");
        bound(&slots, 2 * each);
        for slot in &slots {
            let left: Vec<(usize, bool)> = {
                let state = slot.state.lock();
                state
                    .queues
                    .values()
                    .map(|queue| (queue.engine.ready_bytes(), queue.engine.has_more()))
                    .collect()
            };
            assert!(left.contains(&(each, false)) && left.contains(&(0, true)), "{left:?}");
        }
        bound(&slots, 0);
        assert_eq!([bytes(&slots[0]), bytes(&slots[1])], [0; 2], "a bound is a bound");
    }
}
