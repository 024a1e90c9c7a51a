//! Requeues, and redrives of dead letters.

use serde_json::Value;

use super::{Client, certainty, queue_name};
use crate::history::{DEAD_LETTERS, HeldMessage};
use crate::requests::{ApiRequest, Outcome};

impl Client {
    /// Makes a message available again after `delay` seconds: a kept one, or one that is delayed or ready.
    pub async fn requeue(&self, queue: usize, message: &HeldMessage, delay: u64) {
        let began = self.world().elapsed();
        let requeue = self.history.lock().begin_requeue(queue, message.number, began, delay);
        let request = ApiRequest::requeue(&self.address(queue), &message.id, delay);
        let requeued = certainty(&self.send(&request).await);
        self.history.lock().end_requeue(message.number, requeue, self.world().elapsed(), requeued);
    }

    /// Begins a task that moves the dead letters of a queue back to it.
    pub async fn redrive(&self, queue: usize) {
        let redrive = self.history.lock().begin_redrive(queue, self.world().elapsed());
        let request = ApiRequest::redrive(&queue_name(DEAD_LETTERS + queue));
        let begun = certainty(&self.send(&request).await);
        self.history.lock().end_redrive(redrive, self.world().elapsed(), begun);
    }

    /// Whether no task of a queue is active. None without an answer.
    pub async fn has_no_task(&self, queue: usize) -> Option<bool> {
        match self.send(&ApiRequest::tasks(&queue_name(queue))).await {
            Outcome::Done(body) => {
                let is_active =
                    |task: &Value| matches!(task["state"].as_str(), Some("running" | "cancelling"));
                Some(!body["tasks"].as_array()?.iter().any(is_active))
            }
            Outcome::Missing => Some(true),
            Outcome::Refused(_) | Outcome::Unknown => None,
        }
    }
}
