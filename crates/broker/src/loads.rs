//! How much is written to each queue, for a plan of moves. Queues count the changes that their pools made for them; each slot
//! notes these numbers once in a round of the sweeps, so a rate is that of the last one or two rounds, and a request costs an
//! addition.

use std::cmp::Reverse;
use std::collections::HashMap;

use futures_util::future::join_all;
use tracing::debug;

use super::Broker;
use super::slot::SlotState;
use angarium_cluster::peer_client::{LOADS, LoadsRequest, LoadsResponse, QueueLoad};
use angarium_core::error::Error;
use angarium_core::ids::QueueId;
use angarium_core::limits;
use angarium_core::time::Timestamp;

/// How much of a queue was changed since it was opened.
#[derive(Clone, Copy, Debug, Default)]
struct ChangeCount {
    /// Changes of its entries in its pools.
    changes: u64,
    /// Messages that came.
    posted: u64,
    /// Messages that went.
    removed: u64,
}

/// How much of a queue was changed, now and at two moments before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChangeRate {
    written: ChangeCount,
    newer: ChangeCount,
    older: ChangeCount,
}

impl ChangeRate {
    /// Counts a change.
    pub(super) fn count(&mut self) {
        self.written.changes += 1;
    }

    /// Counts messages that came.
    pub(super) fn count_posted(&mut self, messages: u64) {
        self.written.posted += messages;
    }

    /// Counts messages that went.
    pub(super) fn count_removed(&mut self, messages: u64) {
        self.written.removed += messages;
    }
}

/// When a slot noted them.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateSample {
    older: Timestamp,
    newer: Timestamp,
}

impl RateSample {
    /// A slot that was taken then.
    pub(super) fn since(taken: Timestamp) -> Self {
        Self { older: taken, newer: taken }
    }
}

impl SlotState {
    /// Notes how many changes there were so far.
    pub(super) fn note_paces(&mut self, now: Timestamp) {
        self.paced = RateSample { older: self.paced.newer, newer: now };
        for queue in self.queues.values_mut() {
            let ChangeRate { written, newer, .. } = queue.pace;
            queue.pace = ChangeRate { written, newer: written, older: newer };
        }
    }

    /// Messages that came to an open queue in a minute, and messages that left it, over the last 30 to 60 seconds.
    pub(super) fn rates(&self, pace: ChangeRate, now: Timestamp) -> (u64, u64) {
        let seconds = now.seconds_since(self.paced.older).max(1);
        let per_minute = |messages: u64| (messages * 60).div_ceil(seconds);
        let ChangeRate { written, older, .. } = pace;
        (per_minute(written.posted - older.posted), per_minute(written.removed - older.removed))
    }

    /// Queues that something was written to, with the rate of it.
    fn loads(&self, now: Timestamp) -> impl Iterator<Item = QueueLoad> {
        let seconds = now.seconds_since(self.paced.older).max(1);
        let changes = |pace: ChangeRate| pace.written.changes - pace.older.changes;
        let written = self.queues.values().map(move |queue| (queue.id, changes(queue.pace)));
        let written = written.filter(|(_, changes)| *changes > 0);
        written.map(move |(queue, changes)| QueueLoad { queue, per_minute: (changes * 60).div_ceil(seconds) })
    }
}

impl Broker {
    /// What is written to the queues that are served here: the busiest [`limits::LOADS`].
    pub fn local_loads(&self) -> LoadsResponse {
        let now = self.0.clock.now();
        let mut queues: Vec<QueueLoad> = Vec::new();
        for slot in self.0.slot_table.owned() {
            queues.extend(slot.state.lock().loads(now));
        }
        queues.sort_unstable_by_key(|load| Reverse(load.per_minute));
        queues.truncate(limits::LOADS);
        LoadsResponse { queues }
    }

    /// Changes a minute of the queues of all replicas, and the addresses of replicas that did not say.
    pub(super) async fn fetch_loads(&self) -> Result<(HashMap<QueueId, u64>, Vec<String>), Error> {
        let registry = self.0.catalogue.registry().await?;
        let answers = join_all(registry.all().map(async |component| {
            if component.instance == self.0.owner.instance {
                return Ok(self.local_loads());
            }
            let answer = match self.peer_client() {
                Ok(peer_client) => peer_client.ask(&component.address, LOADS, &LoadsRequest {}).await,
                Err(error) => Err(error),
            };
            answer.map_err(|error: Error| {
                debug!(replica = %component.address, %error, "replica does not report queue load");
                component.address.clone()
            })
        }))
        .await;
        let (mut loads, mut silent) = (HashMap::new(), Vec::new());
        for answer in answers {
            match answer {
                Ok(LoadsResponse { queues }) => {
                    loads.extend(queues.into_iter().map(|load| (load.queue, load.per_minute)));
                }
                Err(address) => silent.push(address),
            }
        }
        silent.sort();
        Ok((loads, silent))
    }
}
