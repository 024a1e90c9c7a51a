//! Write load of each queue, for a plan of moves. Queues count the changes that their pools made for them. Each slot
//! notes these numbers once per round of the sweeps, so a rate covers the last one or two rounds, and a request costs
//! one addition.

use std::cmp::Reverse;

use futures_util::future::join_all;
use tracing::debug;

use angarium_cluster::peer_client::{LOADS, LoadsRequest, LoadsResponse, QueueLoad};
use angarium_core::error::Error;
use angarium_core::ids::QueueId;
use angarium_core::limits;
use angarium_core::maps::HashMap;

use crate::balance::Balance;

/// Write load of the queues of all replicas.
#[derive(Default)]
pub(crate) struct QueueLoads {
    /// Changes per minute of each queue.
    pub(crate) per_minute: HashMap<QueueId, u64>,
    /// Addresses of replicas that did not answer.
    pub(crate) silent: Vec<String>,
}

impl Balance {
    /// Returns the write load of queues that are served here: the busiest [`limits::LOADS`].
    pub fn local_loads(&self) -> LoadsResponse {
        let now = self.0.replica.clock.now();
        let mut queues: Vec<QueueLoad> = Vec::new();
        for slot in self.0.slots.owned() {
            queues.extend(slot.loads(now));
        }
        queues.sort_unstable_by_key(|load| Reverse(load.per_minute));
        queues.truncate(limits::LOADS);
        LoadsResponse { queues }
    }

    /// Asks all replicas for the loads of their queues.
    pub(crate) async fn fetch_loads(&self) -> Result<QueueLoads, Error> {
        let registry = self.0.replica.catalogue.registry().await?;
        let answers = join_all(registry.all().map(async |component| {
            if component.instance == self.0.replica.owner.instance {
                return Ok(self.local_loads());
            }
            let answer = match self.0.slots.peer_client() {
                Ok(peer_client) => peer_client.ask(&component.address, LOADS, &LoadsRequest {}).await,
                Err(error) => Err(error),
            };
            answer.map_err(|error: Error| {
                debug!(replica = %component.address, %error, "replica does not report queue load");
                component.address.clone()
            })
        }))
        .await;
        let mut loads = QueueLoads::default();
        for answer in answers {
            match answer {
                Ok(LoadsResponse { queues }) => {
                    loads.per_minute.extend(queues.into_iter().map(|load| (load.queue, load.per_minute)));
                }
                Err(address) => loads.silent.push(address),
            }
        }
        loads.silent.sort();
        Ok(loads)
    }
}
