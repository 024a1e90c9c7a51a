//! Pops: requests that take the oldest messages out of a queue. The answer has them, and they are deleted.

use std::time::Duration;

use super::records::{Delete, Removal};
use super::{Certainty, HeldClaim, HeldMessage, History, LATEST, RemovalOfMany, Span};

impl History {
    /// Notes that a pop begins: it may remove each message that is there, or is posted before its end. Returns its
    /// number.
    pub fn begin_pop(&mut self, queue: usize, began: Duration) -> u64 {
        self.pops += 1;
        let why = Removal::Pop(self.pops);
        self.removals.push(RemovalOfMany { queue, span: Span::open(began), why });
        for message in self.messages.values_mut().filter(|message| message.may_be_in(queue)) {
            message.deletes.push(Delete::begun(queue, began, why));
        }
        self.pops
    }

    /// Notes the outcome of a pop, with the messages in its answer.
    pub fn end_pop(&mut self, pop: u64, popped: Vec<HeldMessage>, request: Span, certainty: Certainty) {
        let why = Removal::Pop(pop);
        let Some(removal) = self.removals.iter_mut().find(|removal| removal.why == why) else { return };
        let queue = removal.queue;
        if certainty == Certainty::Unknown {
            removal.span.ended = request.began + LATEST;
            return;
        }
        removal.span.ended = request.ended;
        let is_popped = |number: u64| popped.iter().any(|message| message.number == number);
        let of_pop = |delete: &&mut Delete| delete.why == why;
        for (number, message) in &mut self.messages {
            if let Some(delete) = message.deletes.iter_mut().find(of_pop).filter(|_| !is_popped(*number)) {
                (delete.certainty, delete.span.ended) = (Certainty::NotDone, request.ended);
            }
        }
        let numbers: Vec<u64> = popped.iter().map(|message| message.number).collect();
        let claim = HeldClaim { id: format!("pop {pop}"), messages: popped };
        self.deliver(queue, &claim, request, Duration::ZERO, 0);
        for number in numbers {
            let Some(message) = self.messages.get_mut(&number) else { continue };
            // One that has arrived from another queue meanwhile.
            if !message.deletes.iter().any(|delete| delete.why == why) {
                message.deletes.push(Delete::begun(queue, request.began, why));
            }
            for delete in message.deletes.iter_mut().filter(of_pop) {
                (delete.certainty, delete.span.ended) = (Certainty::Done, request.ended);
            }
        }
    }
}
