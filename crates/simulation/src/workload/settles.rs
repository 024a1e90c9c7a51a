//! The settles of a client: each message of a part of a claim has a verdict, and perhaps forwards.

use super::worker::Worker;
use crate::client::{PlannedEntry, queue_name};
use crate::history::{DEAD_LETTERS, Effect, HeldMessage, SINKS, SQS_FIFO, filled_by};
use crate::requests::{Posting, SettleEntry, Verdict};
use crate::scenario::{Verb, Verbs};

/// Seconds for which the outcomes of some messages are kept.
pub(super) const KEEP: u64 = 600;

/// Whether the outcome of a message is kept. Clients know it by its number.
pub(super) fn is_kept(verbs: &Verbs, number: u64) -> bool {
    verbs.has(Verb::Settles) && number.is_multiple_of(4)
}

impl Worker {
    /// Settles one message of a claim or more.
    pub(super) async fn settle(&mut self) {
        if self.claims.is_empty() {
            return;
        }
        let index = self.pick(self.claims.len());
        let (queue, claim) = &self.claims[index];
        let (queue, id) = (*queue, claim.id.clone());
        let count = 1 + self.pick(self.claims[index].1.messages.len());
        let messages: Vec<HeldMessage> = self.claims[index].1.messages.drain(..count).collect();
        if self.claims[index].1.messages.is_empty() {
            self.claims.remove(index);
        }
        let planned = messages.into_iter().map(|message| self.plan(queue, message)).collect();
        self.client.settle(queue, &id, planned).await;
    }

    fn plan(&self, queue: usize, message: HeldMessage) -> PlannedEntry {
        let (verdict, effect) = self.verdict(queue);
        let mut plan = PlannedEntry {
            entry: SettleEntry {
                is_kept: is_kept(&self.scenario.verbs, message.number) && queue < SINKS,
                id: message.id,
                number: message.number,
                verdict,
                forwards: Vec::new(),
            },
            effect,
            targets: Vec::new(),
        };
        let may_forward = !matches!(plan.entry.verdict, Verdict::Defer(_));
        if may_forward && self.world.below(2) == 0 {
            for _ in 0..=self.world.below(3) {
                let Some(target) = self.other_queue(queue) else { break };
                plan.targets.push(target);
                plan.entry.forwards.push((queue_name(target), self.forward(target)));
            }
        }
        plan
    }

    fn forward(&self, target: usize) -> Posting {
        let number = self.next_number();
        let keep = self.keep_of(number);
        let (group, delay) = (self.group_of(target), self.some_delay());
        Posting { number, group, has_dedup_id: false, delay, ttl: None, keep }
    }

    fn verdict(&self, queue: usize) -> (Verdict, Effect) {
        // A copy stays where it is known as a copy.
        let is_copy = filled_by(queue).is_some();
        let seconds = self.world.below(2) * (1 + self.world.below(30));
        match self.world.below(10) {
            0..=3 => (Verdict::Done, Effect::Removed),
            4 | 5 => (Verdict::Retry(seconds), Effect::Returned(seconds)),
            6 => {
                let has_dead_letters =
                    self.scenario.verbs.has(Verb::DeadLetters) && !is_copy && queue != SQS_FIFO;
                let effect =
                    if has_dead_letters { Effect::Moved(DEAD_LETTERS + queue) } else { Effect::Removed };
                (Verdict::Fail, effect)
            }
            7 => (Verdict::Defer(seconds), Effect::Returned(seconds)),
            _ => match self.other_queue(queue).filter(|_| !is_copy) {
                Some(target) => (Verdict::Move(queue_name(target)), Effect::Moved(target)),
                None => (Verdict::Done, Effect::Removed),
            },
        }
    }

    /// Returns another queue; none if there is only one.
    fn other_queue(&self, queue: usize) -> Option<usize> {
        let queues = self.scenario.queues;
        (queues > 1).then(|| (queue + 1 + self.pick(queues - 1)) % queues)
    }
}
