//! The tenants of the pools outside of this machine. An embedded tree is used by one process at a time, and so are the pools
//! of its installation. A second process, on a copy of the data directory or on a restored backup, writes its record
//! into each pool at its start; the first one finds it there, and leaves the pool to it.

use parking_lot::Mutex;
use tracing::debug;
use uuid::Uuid;

use angarium_catalogue::PoolEntry;
use angarium_core::maps::HashMap;
use angarium_storage::{PoolStore, StoreError, Tenant};

use crate::replica::successor::SuccessorProcess;
use crate::stores::open_pool::StorageFault;
use crate::stores::table::CHANGE_TRIES;

/// The pools that this process uses alone.
#[derive(Default)]
pub(crate) struct PoolTenants {
    /// This process; none with a tree that several replicas share: they share the pools too.
    me: Option<Tenant>,
    /// The record in each pool that this process has taken, by the id of the pool. The lock is held for single accesses.
    taken: Mutex<HashMap<Uuid, Tenant>>,
}

impl PoolTenants {
    pub(crate) fn new(me: Option<Tenant>) -> Self {
        Self { me, taken: Mutex::default() }
    }

    /// Takes a pool that this process does not have yet, or looks whether it still has it. Fails once a later process
    /// has the pool. A pool that cannot be asked counts as its own: it is asked again at the next look.
    pub(crate) async fn occupy(&self, entry: &PoolEntry, store: &dyn PoolStore) -> Result<(), StorageFault> {
        let Some(me) = self.me.as_ref().filter(|_| !entry.pool.uri.is_embedded()) else { return Ok(()) };
        match self.look(me, entry.pool.id, store).await {
            Ok(None) => Ok(()),
            Ok(Some(later)) => Err(fault(later)),
            Err(why) => {
                debug!(pool = %entry.name, error = %why, "tenant of pool not looked up");
                Ok(())
            }
        }
    }

    /// Returns the later tenant of a pool; none when this process has the pool.
    async fn look(
        &self,
        me: &Tenant,
        pool: Uuid,
        store: &dyn PoolStore,
    ) -> Result<Option<Tenant>, StoreError> {
        for _ in 0..CHANGE_TRIES {
            let record = store.tenant().await?;
            let found = record.as_deref().and_then(Tenant::decode);
            let taken = self.taken.lock().get(&pool).cloned();
            let mine = match (found, taken) {
                (Some(found), Some(_)) if found.nonce == me.nonce => return Ok(None),
                (Some(found), Some(mine)) if found.is_after(&mine) => return Ok(Some(found)),
                (Some(found), None) if found.generation > me.generation => return Ok(Some(found)),
                // Its clock may be behind that of the process before it.
                (Some(found), None) => {
                    let started = me.started.max(found.started.plus_seconds(1));
                    Tenant { started, ..me.clone() }
                }
                (None, None) => me.clone(),
                // The pool went back to an earlier state, and its servers have lost the record.
                (_, Some(mine)) => mine,
            };
            if store.replace_tenant(record.as_deref(), &mine.to_string()).await? {
                self.taken.lock().insert(pool, mine);
                return Ok(None);
            }
        }
        Err(StoreError::NotSent("the tenant of the pool changes all the time".to_owned()))
    }
}

fn fault(later: Tenant) -> StorageFault {
    let Tenant { host, pid, started, address, .. } = later;
    let later = SuccessorProcess { host, pid, started, address };
    let why = format!(
        "a copy of this data directory, or a backup restored from it, uses the pool: {later}. Stop one of the two; if this \
         one shall go on, start it again"
    );
    StorageFault { is_absent: false, why }
}
