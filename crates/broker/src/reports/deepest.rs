//! The queues with figures of their own for their depth: the deepest of the queues that have none for another reason.
//! So metrics name a backlog whether any caller uses the queue or not.

use crate::reports::Reports;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::limits;
use crate::slot::state::Slot;
use angarium_core::ids::{QueueId, Slot as SlotNumber};
use angarium_core::maps::HashMap;
use angarium_core::names::QueueRef;

/// The deepest of all queues offered to it.
struct Deepest {
    most: usize,
    /// The shallowest first.
    found: BinaryHeap<Reverse<(u64, QueueRef, QueueId)>>,
}

impl Deepest {
    /// Takes in a queue. Returns false when there is no room for it and no shallower queue to replace.
    fn offer(&mut self, depth: u64, id: QueueId, at: &QueueRef) -> bool {
        if self.found.len() >= self.most {
            if self.found.peek().is_none_or(|Reverse((shallowest, ..))| depth <= *shallowest) {
                return false;
            }
            self.found.pop();
        }
        self.found.push(Reverse((depth, at.clone(), id)));
        true
    }

    /// Returns the queues, the deepest first.
    fn into_queues(self) -> impl Iterator<Item = (u64, QueueRef, QueueId)> {
        self.found.into_sorted_vec().into_iter().map(|Reverse(queue)| queue)
    }
}

/// Whether a queue is so much deeper than another one that it replaces that one.
fn is_far_deeper(depth: u64, than: u64) -> bool {
    depth > than + than / limits::DEEPER_PARTS
}

impl Reports {
    /// Names the deepest queues in metrics as far as there is room, then in place of much shallower ones. It reads the
    /// queues that are named for their depth, and the deepest queues of each slot.
    pub(crate) fn name_deepest(&self, slots: &[Arc<Slot>]) {
        let meter = &self.0.replica.meter;
        let (held, free) = meter.deep_queues();
        let mut deepest = Deepest { most: held.len() + free, found: BinaryHeap::new() };
        if deepest.most == 0 {
            return;
        }
        for slot in slots {
            slot.offer_deepest(|depth, id, at| deepest.offer(depth, id, at));
        }
        if deepest.found.is_empty() {
            return;
        }
        let slots: HashMap<SlotNumber, &Arc<Slot>> =
            slots.iter().map(|slot| (slot.owned.slot, slot)).collect();
        let depth = |at: &QueueRef| slots.get(&at.slot()).map_or(0, |slot| slot.named_depth(at));
        let mut held: Vec<(u64, QueueRef)> = held.into_iter().map(|at| (depth(&at), at)).collect();
        held.sort_unstable_by_key(|(depth, _)| Reverse(*depth));
        for (depth, at, id) in deepest.into_queues() {
            if !meter.name_deep_queue(&at) {
                let Some((_, other)) = held.pop_if(|(than, _)| is_far_deeper(depth, *than)) else { return };
                meter.unname_queue(&other);
                if let Some(slot) = slots.get(&other.slot()) {
                    slot.rename(&other, None);
                }
                meter.name_deep_queue(&at);
            }
            if let Some(slot) = slots.get(&at.slot()) {
                slot.rename(&at, Some(id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_core::names::{ProjectId, QueueName};

    #[test]
    fn deepest_queues_are_kept_in_order() {
        let mut deepest = Deepest { most: 2, found: BinaryHeap::new() };
        let queue = |name: &str| QueueRef {
            project: ProjectId::new("").unwrap(),
            name: QueueName::new(name).unwrap(),
        };
        let id = QueueId::from_bytes([1; 16]);
        for (depth, is_taken) in [(5, true), (3, true), (2, false), (9, true), (5, false)] {
            assert_eq!(deepest.offer(depth, id, &queue(&format!("q{depth}"))), is_taken, "{depth}");
        }
        let queues: Vec<_> = deepest.into_queues().map(|(depth, ..)| depth).collect();
        assert_eq!(queues, [9, 5]);
    }

    #[test]
    fn queues_of_about_the_same_depth_do_not_take_turns() {
        assert!(is_far_deeper(1, 0) && is_far_deeper(126, 100));
        assert!(!is_far_deeper(125, 100) && !is_far_deeper(3, 3));
    }
}
