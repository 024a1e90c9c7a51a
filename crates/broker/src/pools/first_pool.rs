//! The pools at a start: the pools of the catalogue, and the first one of a new installation.

use angarium_catalogue::Catalogue;
use angarium_cluster::replicas::{self, Replica};
use angarium_core::error::{Error, InvalidPart, Part};
use angarium_core::pool::Pool;
use angarium_storage::open::PoolOpenError;

use crate::stores::table::{CHANGE_TRIES, FirstPool, PoolTable};

impl PoolTable {
    /// Opens every pool of the catalogue. An installation without any gets `first`.
    pub(crate) async fn open_all(
        &self,
        catalogue: &Catalogue,
        first: Option<&FirstPool>,
        replica: &Replica,
    ) -> Result<(), Error> {
        if let Some(first) = first {
            let added = self.add_first(catalogue, first, replica).await;
            added.map_err(|error| unusable_first(first, &error))?;
        }
        for entry in catalogue.pools().await? {
            self.insert_at_start(self.open_entry(entry).await);
        }
        Ok(())
    }

    /// Adds the first pool, unless there is one. Replicas that start together agree on one.
    async fn add_first(
        &self,
        catalogue: &Catalogue,
        first: &FirstPool,
        replica: &Replica,
    ) -> Result<(), Error> {
        for _ in 0..CHANGE_TRIES {
            let registry = catalogue.registry().await?;
            if !catalogue.pool_names().await?.is_empty() {
                return Ok(());
            }
            if first.uri.is_embedded() {
                replicas::check_alone(&registry, replica, &first.name)?;
            }
            let unusable = |error: PoolOpenError| Error::invalid(InvalidPart::Body, "", error.to_string());
            let store = self.open(&first.uri).await.map_err(unusable)?;
            let id = self.register(&first.uri, &*store, &[]).await?;
            let pool = Pool::new(id, first.uri.clone(), first.weight);
            // If this fails, another replica has added a pool meanwhile, or has joined.
            if catalogue.pool_add(&registry, &first.name, &pool).await?.is_some() {
                return Ok(());
            }
        }
        Err(Error::unavailable(Part::Coordination, "the registry of replicas changes all the time"))
    }
}

/// Converts the error of the first pool into an error of the start, with the setting that names the pool.
fn unusable_first(first: &FirstPool, error: &Error) -> Error {
    let uri = first.uri.without_password();
    let why = match error {
        Error::Invalid { why, .. } => why.clone(),
        other => other.detail(),
    };
    Error::invalid(InvalidPart::Body, format!("cannot use {uri} as the first pool (--pool)"), why)
}
