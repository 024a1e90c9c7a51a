//! Requests that move queues between pools, and requests that take pools away.

use super::{Client, certainty, pool_name, queue_name};
use crate::history::{Certainty, HeldResource, SINKS, SUBSCRIPTIONS, Span, TOPIC_COUNT, TOPICS};
use crate::requests::ApiRequest;

impl Client {
    /// Begins to move a queue to a pool.
    pub async fn migrate(&self, queue: usize, pool: usize) {
        self.history.lock().unpin(queue);
        self.send(&ApiRequest::migrate(&queue_name(queue), &pool_name(pool))).await;
    }

    /// Begins to move all queues of a pool to others.
    pub async fn drain_pool(&self, pool: usize) {
        self.history.lock().unpin_all();
        self.send(&ApiRequest::drain_pool(&pool_name(pool))).await;
    }

    /// Deletes a queue with its messages. The next post creates it in any pool.
    pub async fn delete_queue(&self, queue: usize) {
        let (began, subscriptions) = (self.world().elapsed(), self.history.lock().subscriptions_of(queue));
        self.history.lock().unpin(queue);
        let begin = |subscription: &usize| self.history.lock().begin_unsubscription(*subscription, began);
        subscriptions.iter().for_each(begin);
        let deleted = self.remove_all(queue, &ApiRequest::delete_queue(&queue_name(queue))).await;
        let request = Span { began, ended: self.world().elapsed() };
        for subscription in subscriptions {
            self.history.lock().end_unsubscription(subscription, request, deleted);
        }
    }

    /// Deletes a pool that has no queues. Its hold ends with it.
    pub async fn delete_pool(&self, pool: usize) {
        self.end_pool(pool, &ApiRequest::delete_pool(&pool_name(pool))).await;
    }

    /// Removes a pool with the messages in it. Each message of the first `queues` queues and of each subscription may be
    /// there. Its hold ends with it.
    pub async fn remove_pool(&self, pool: usize, queues: usize) {
        let began = self.world().elapsed();
        self.history.lock().unpin_all();
        let subscriptions = 0..self.history.lock().subscription_count();
        let ends = subscriptions.clone().map(|number| SUBSCRIPTIONS + number);
        let filled = subscriptions.clone().map(|number| SINKS + number);
        let topics = (0..TOPIC_COUNT).map(|number| TOPICS + number);
        let queues: Vec<usize> = (0..queues).chain(ends).chain(filled).chain(topics).collect();
        queues.iter().for_each(|queue| self.history.lock().begin_removal_of_all(*queue, began));
        subscriptions.for_each(|number| self.history.lock().begin_unsubscription(number, began));
        let removed = match self.end_pool(pool, &ApiRequest::remove_pool(&pool_name(pool))).await {
            // Which messages were there is not known.
            Certainty::Done => Certainty::Unknown,
            other => other,
        };
        let ended = self.world().elapsed();
        for queue in queues {
            self.history.lock().end_removal_of_all(queue, began, ended, removed);
        }
    }

    async fn end_pool(&self, pool: usize, request: &ApiRequest) -> Certainty {
        let (resource, began) = (HeldResource::Pool(pool), self.world().elapsed());
        self.history.lock().begin_hold_release(&resource, began);
        let outcome = certainty(&self.send(request).await);
        let span = Span { began, ended: self.world().elapsed() };
        self.history.lock().end_hold_release(&resource, span, outcome);
        outcome
    }
}
