//! The bound of the memory of all ready caches together: each queue has a bound of its own, but there may be very many
//! queues.
//!
//! A ready cache only saves reads of the pool, so caches from which no caller claims are evicted first.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::slot::state::{OpenQueue, Slot, SlotState};

/// Which ready caches are spared in a round of evictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spared {
    /// The caches of queues from which a caller has claimed since the last check.
    InUse,
    None,
}

/// Evicts ready caches until the others have at most `most` bytes.
pub(crate) fn bound_ready_caches(slots: &[Arc<Slot>], most: usize) {
    let states: Vec<&Mutex<SlotState>> = slots.iter().map(|slot| &slot.state).collect();
    bound(&states, most);
}

fn bound(slots: &[&Mutex<SlotState>], most: usize) {
    let held: usize = slots.iter().map(|slot| slot.lock().ready_bytes()).sum();
    let mut excess = held.saturating_sub(most);
    for spared in [Spared::InUse, Spared::None] {
        for slot in slots {
            if excess == 0 {
                return;
            }
            excess = excess.saturating_sub(slot.lock().evict_ready(excess, spared));
        }
    }
}

impl SlotState {
    fn ready_bytes(&self) -> usize {
        self.queues.values().map(|queue| queue.engine.ready_bytes()).sum()
    }

    /// Evicts ready caches until `excess` bytes are free. Returns the number of bytes that were freed.
    fn evict_ready(&mut self, excess: usize, spared: Spared) -> usize {
        let mut freed = 0;
        for queue in self.queues.values_mut() {
            if freed >= excess {
                break;
            }
            freed += queue.evict_ready(spared);
        }
        freed
    }
}

impl OpenQueue {
    /// Evicts the ready cache, unless it is spared in this round. Returns the number of bytes that were freed.
    fn evict_ready(&mut self, spared: Spared) -> usize {
        if std::mem::take(&mut self.is_claimed_from) && spared == Spared::InUse {
            return 0;
        }
        let freed = self.engine.ready_bytes();
        self.engine.evict_ready();
        freed
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::replica::alarm::Alarms;
    use angarium_core::ids::MessageId;
    use angarium_core::message::{Header, Life, Message, State};
    use angarium_core::names::{ProjectId, QueueName, QueueRef};
    use angarium_core::time::Timestamp;
    use angarium_engine::{QueueEngine, StoredTotals};

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
            extras: None,
        };
        Message { header, body: Bytes::from(vec![b'1'; 1_000]) }
    }

    /// A slot with queues of ten messages each; `queues` has whether they are claimed from.
    fn slot(queues: &[bool]) -> Mutex<SlotState> {
        let mut slot = SlotState::empty(&Alarms::default());
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
            slot.queues.insert(at, Box::new(queue));
        }
        Mutex::new(slot)
    }

    #[test]
    fn unclaimed_ready_caches_are_evicted_first() {
        let slots = [slot(&[true, false]), slot(&[false, true])];
        let slots: Vec<&Mutex<SlotState>> = slots.iter().collect();
        let bytes = || -> Vec<usize> { slots.iter().map(|slot| slot.lock().ready_bytes()).collect() };
        let each = bytes()[0] / 2;
        bound(&slots, 4 * each);
        assert_eq!(bytes(), [2 * each; 2], "within the bound nothing goes");
        bound(&slots, 2 * each);
        for slot in &slots {
            let left: Vec<(usize, bool)> = {
                let state = slot.lock();
                let engines = state.queues.values().map(|queue| &queue.engine);
                engines.map(|engine| (engine.ready_bytes(), engine.has_more())).collect()
            };
            assert!(left.contains(&(each, false)) && left.contains(&(0, true)), "{left:?}");
        }
        bound(&slots, 0);
        assert_eq!(bytes(), [0; 2], "a bound is a bound");
    }
}
