//! Pops.

use super::{Client, certainty, held};
use crate::history::Span;
use crate::requests::{ApiRequest, Outcome};

impl Client {
    /// Takes at most `count` messages out of a queue.
    pub async fn pop(&self, queue: usize, count: u64) {
        self.pop_at(self.pick_replica(), queue, count).await;
    }

    /// As `pop`, at a replica.
    pub async fn pop_at(&self, replica: usize, queue: usize, count: u64) {
        let began = self.world().elapsed();
        let pop = self.history.lock().begin_pop(queue, began);
        let outcome = self.send_to(replica, &ApiRequest::pop(&self.address(queue), count)).await;
        let popped = match &outcome {
            Outcome::Done(body) => body["messages"].as_array().map(|messages| held(queue, messages)),
            Outcome::Missing | Outcome::Refused(_) | Outcome::Unknown => None,
        };
        let popped = popped.unwrap_or_default();
        let numbers: Vec<u64> = popped.iter().map(|message| message.number).collect();
        self.world().note(|| format!("{} popped {numbers:?}", self.name));
        let request = Span { began, ended: self.world().elapsed() };
        self.history.lock().end_pop(pop, popped, request, certainty(&outcome));
    }
}
