//! The search for queues in a pool that some replica does not reach.

use tracing::info;

use crate::pools::Pools;

impl Pools {
    /// Begins to look in the tree for queues in a pool that some replica does not reach. Each pool is looked up once
    /// for each time that it becomes unreachable, one pool at a time. The search reads each queue's record until it
    /// finds one in the pool.
    pub(crate) fn begin_pool_search(&self) {
        let Some(look) = self.0.stores.pool_use.begin_look() else { return };
        let pools = self.clone();
        self.0.replica.tasks.spawn(async move {
            let found = tokio::select! {
                biased;
                () = pools.0.replica.stop.cancelled() => return,
                found = pools.is_pool_used(&look.pool) => found,
            };
            match &found {
                Ok(is_used) => info!(pool = %look.pool, is_used, "use of unreached pool looked up"),
                Err(error) => {
                    pools.0.replica.task_failed("look up pool use", format_args!("pool {}", look.pool), error)
                }
            }
            pools.0.stores.pool_use.end_look(look, found.ok());
        });
    }
}
