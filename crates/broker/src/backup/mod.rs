//! Backups of a service that is alone on its machine: which pools they are of, and the seam to the stores that make
//! them.

use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc::Receiver;

use angarium_core::error::Error;
use angarium_core::names::PoolName;
use angarium_core::pool::PoolUri;

use crate::pools::Pools;

/// The bytes of a backup as they are made. They end early when the backup cannot be completed: its form shows that.
pub type BackupStream = Receiver<Bytes>;

/// A pool of the installation, as a backup needs it.
#[derive(Clone, Debug)]
pub struct BackupPool {
    /// Name of the pool.
    pub name: PoolName,
    /// The URI of its storage.
    pub uri: PoolUri,
}

/// Makes backups of the embedded tree and of all embedded pools.
#[async_trait]
pub trait BackupSource: fmt::Debug + Send + Sync + 'static {
    /// Begins a backup of one moment during this call. `pools` are all pools of the installation, and no pool is added
    /// or removed until this returns.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] while another backup is being made.
    async fn begin(&self, pools: Vec<BackupPool>) -> Result<BackupStream, Error>;
}

/// Begins backups.
#[derive(Clone)]
pub(crate) struct Backups(Arc<BackupsParts>);

struct BackupsParts {
    pools: Pools,
    /// None when the tree is in ZooKeeper.
    source: OnceLock<Arc<dyn BackupSource>>,
}

impl Backups {
    pub(crate) fn new(pools: &Pools) -> Self {
        Self(Arc::new(BackupsParts { pools: pools.clone(), source: OnceLock::new() }))
    }

    /// Makes backups by `source` from now on. Only the first call has an effect.
    pub(crate) fn make_by(&self, source: Arc<dyn BackupSource>) {
        // A service sets it once, when it starts.
        let _ = self.0.source.set(source);
    }

    pub(crate) async fn begin(&self) -> Result<BackupStream, Error> {
        let Some(source) = self.0.source.get() else {
            let why = "the tree is in ZooKeeper, and a backup is of an embedded tree with its pools: hold the \
                       transfers of the pools, export the tree (angarium tree export), and copy the pools with their own \
                       tools";
            return Err(Error::Conflict(why.to_owned()));
        };
        let _turn = self.0.pools.pool_lock().await?;
        self.0.pools.read_pools().await?;
        let pools = self.0.pools.all();
        let pools = pools.iter().map(|pool| {
            let entry = &pool.entry;
            BackupPool { name: entry.name.clone(), uri: entry.pool.uri.clone() }
        });
        source.begin(pools.collect()).await
    }
}
