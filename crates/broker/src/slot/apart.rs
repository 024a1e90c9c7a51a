//! Batches that a pool refused as a whole, sent again in parts.

use std::collections::VecDeque;
use std::sync::Arc;

use angarium_core::names::PoolName;
use angarium_storage::PoolStore;

use crate::slot::state::Slot;
use crate::writer::pending::Write;
use crate::writer::send::{Outcome, send};

impl Slot {
    /// Fails the posts and settles of a batch for which the pool has no room, and sends the other writes: they may free
    /// room.
    pub(crate) async fn send_without_posts(
        self: &Arc<Self>,
        pool: &PoolName,
        writes: Vec<Write>,
        store: &dyn PoolStore,
    ) {
        let (posts, rest): (Vec<Write>, Vec<Write>) = writes.into_iter().partition(Write::needs_room);
        self.settle(pool, posts, Outcome::Full).await;
        let batch = self.lock().batch(self, pool, &rest);
        let Some(batch) = batch.filter(|_| !rest.is_empty()) else { return };
        let outcome = send(store, &batch, pool, &self.around.replica.failures).await;
        self.settle(pool, rest, outcome).await;
    }

    /// Sends the writes of a batch in smaller batches, because one write needs damaged data: first one batch for each
    /// queue, then for the damaged queue one batch for each write. The order of the writes of a queue stays.
    pub(crate) async fn send_apart(
        self: &Arc<Self>,
        pool: &PoolName,
        writes: Vec<Write>,
        store: &dyn PoolStore,
    ) {
        let mut parts = VecDeque::from(apart(writes));
        while let Some(part) = parts.pop_front() {
            let (batch, is_closed) = {
                let state = self.lock();
                let is_closed = state.writers.get(pool).is_none_or(|writer| writer.is_closed);
                (state.batch(self, pool, &part), is_closed)
            };
            let outcome = match batch.filter(|_| !is_closed) {
                Some(batch) => send(store, &batch, pool, &self.around.replica.failures).await,
                None => Outcome::NotDone,
            };
            match outcome {
                Outcome::Damaged if part.len() > 1 => {
                    apart(part).into_iter().rev().for_each(|part| parts.push_front(part));
                }
                Outcome::Full => self.send_without_posts(pool, part, store).await,
                outcome => self.settle(pool, part, outcome).await,
            }
        }
    }
}

/// Splits writes by queue, or into single writes if all belong to one queue.
pub(crate) fn apart(writes: Vec<Write>) -> Vec<Vec<Write>> {
    let is_one_queue = writes.windows(2).all(|pair| pair[0].queue == pair[1].queue);
    if is_one_queue {
        return writes.into_iter().map(|write| vec![write]).collect();
    }
    let mut parts: Vec<Vec<Write>> = Vec::new();
    for write in writes {
        match parts.iter_mut().find(|part| part[0].queue == write.queue) {
            Some(part) => part.push(write),
            None => parts.push(vec![write]),
        }
    }
    parts
}
