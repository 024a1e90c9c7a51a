//! Holds of pools and projects: make, read, release.

use tracing::info;

use angarium_catalogue::{PoolEntry, Schema};
use angarium_core::error::{Error, InvalidPart, Resource};
use angarium_core::hold::{AppliedHold, Hold, HoldTarget};
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::PoolName;
use angarium_core::time::Timestamp;

use crate::holds::Holds;
use crate::holds::terms::HoldTerms;
use crate::slot::shared_holds::readable;
use crate::stores::table::CHANGE_TRIES;

impl Holds {
    /// Holds all queues in a pool or of a project, in place of an earlier hold. When this returns, no claim that begins
    /// later gets a message of them, or no post that begins later is stored. Claims that exist continue.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when there is no such pool; [`Error::Invalid`] when it would have ended already. After an
    /// unknown outcome it may be in force at some replicas or at all.
    pub async fn hold_make(&self, target: &HoldTarget, terms: HoldTerms) -> Result<Hold, Error> {
        let (holds, target) = (self.clone(), target.clone());
        let make = async move {
            let hold = terms.begin(holds.0.replica.clock.now())?;
            holds.write(&target, &hold).await?;
            let (reason, until) = (&hold.reason, hold.until.map(Timestamp::calendar));
            let by = hold.by.as_deref().unwrap_or_default();
            match &target {
                HoldTarget::Pool(pool) => info!(%pool, %reason, by, until, "pool held"),
                HoldTarget::Project(project) => info!(%project, %reason, by, until, "project held"),
            }
            if is_on(Mutation::AnswerUnconfirmedHold) {
                return Ok(hold);
            }
            // The record is written, whatever follows.
            holds.confirm(&target).await.map_err(|error| match error {
                error @ Error::Unconfirmed { .. } => error,
                error => unconfirmed("it is not known which replicas have confirmed it", error),
            })?;
            Ok(hold)
        };
        self.0.replica.carry_out(make).await
    }

    async fn write(&self, target: &HoldTarget, hold: &Hold) -> Result<(), Error> {
        let catalogue = &self.0.replica.catalogue;
        for _ in 0..CHANGE_TRIES {
            let held = match target {
                HoldTarget::Pool(name) => Some(self.pool(name).await?),
                HoldTarget::Project(_) => None,
            };
            let needs_newer = hold.effects.bars_transfers();
            if needs_newer && held.is_none() {
                let why = "a project has messages in many pools: hold the transfers of each pool";
                return Err(Error::invalid(InvalidPart::Limit, "transfer", why));
            }
            let form = if needs_newer { Schema::TRANSFER_HOLDS } else { Schema::SHARED_HOLDS };
            catalogue.schema_reach(form).await?;
            if catalogue.shared_hold_write(target, hold, held.as_ref()).await? {
                return Ok(());
            }
        }
        Err(Error::Busy("the pool was changed each time"))
    }

    /// Returns the record of a pool that stays.
    async fn pool(&self, name: &PoolName) -> Result<PoolEntry, Error> {
        self.0.replica.catalogue.catch_up().await?;
        match self.0.replica.catalogue.pool(name).await? {
            Some(entry) if entry.pool.closing => Err(Error::Busy("the pool is being deleted")),
            Some(entry) => Ok(entry),
            None => Err(Error::NotFound { resource: Resource::Pool, name: name.to_string() }),
        }
    }

    /// Returns the hold of a pool or of a project, with the changes of every replica.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when it is not held.
    pub async fn hold_get(&self, target: &HoldTarget) -> Result<Hold, Error> {
        self.0.replica.catalogue.catch_up().await?;
        let found = self.0.replica.catalogue.shared_hold(target).await?.map(readable);
        let now = self.0.replica.clock.now();
        found.filter(|hold| hold.is_in_force(now)).ok_or_else(|| not_held(target))
    }

    /// Returns at most `most` holds of pools and projects behind `after`, pools first, as this replica knows them.
    pub fn holds_list(&self, after: Option<&HoldTarget>, most: usize) -> Vec<AppliedHold> {
        self.0.slots.shared_holds().list(after, most, self.0.replica.clock.now())
    }

    /// Ends the hold of a pool or of a project, for the caller with this name. Messages of its queues can be claimed
    /// again when this returns, unless another hold is in force for them, or a replica does not answer: that one learns
    /// it later. It is no error when there is no hold.
    pub async fn hold_release(&self, target: &HoldTarget, by: Option<String>) -> Result<(), Error> {
        let (holds, target) = (self.clone(), target.clone());
        let release = async move {
            if let HoldTarget::Pool(name) = &target {
                holds.pool(name).await?;
            }
            if !holds.0.replica.catalogue.shared_hold_delete(&target).await? {
                return Ok(());
            }
            let by = by.as_deref().unwrap_or_default();
            match &target {
                HoldTarget::Pool(pool) => info!(%pool, by, "pool released"),
                HoldTarget::Project(project) => info!(%project, by, "project released"),
            }
            holds.announce_release(&target).await;
            Ok(())
        };
        self.0.replica.carry_out(release).await
    }
}

/// Returns the error for a hold of which the record is written.
pub(crate) fn unconfirmed(why: &str, error: Error) -> Error {
    Error::Unconfirmed { why: why.to_owned(), cause: Some(error.into()) }
}

fn not_held(target: &HoldTarget) -> Error {
    let resource = match target {
        HoldTarget::Pool(_) => Resource::PoolHold,
        HoldTarget::Project(_) => Resource::ProjectHold,
    };
    Error::NotFound { resource, name: target.name().to_owned() }
}
