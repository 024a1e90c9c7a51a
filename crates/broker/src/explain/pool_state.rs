//! The state of the pool of a queue, as the request for an explanation has met it.

use angarium_core::durability::Durability;
use angarium_core::error::{Error, Part};
use angarium_core::names::PoolName;

use crate::explain::Explanations;
use crate::limits;

/// A pool of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolState {
    /// Its name.
    pub name: PoolName,
    /// Whether it answered.
    pub is_up: bool,
    /// Whether it takes new messages.
    pub is_writable: bool,
    /// The most durable class that it reaches. None when its storage cannot be used.
    pub class: Option<Durability>,
    /// Why it did not answer or takes no new messages.
    pub why: Option<String>,
}

/// Why the contents of a queue could not be read.
#[derive(Clone, Debug)]
pub(super) struct PoolFault {
    /// The pool, if the error names one.
    pool: Option<PoolName>,
    why: String,
}

impl PoolFault {
    /// Returns the fault of a pool that an error is about, or the error if it is about something else.
    pub(super) fn of(error: Error) -> Result<Self, Error> {
        let why = match &error {
            Error::Unavailable { part: Part::Pool(_) | Part::Storage, .. }
            | Error::Unknown { part: Part::Pool(_) | Part::Storage, .. } => "it does not answer".to_owned(),
            Error::Damaged { part: Part::Pool(_) | Part::Storage, .. } => {
                "its stored data for the queue is damaged: the operator finds the damage with angarium doctor --data"
                    .to_owned()
            }
            _ => return Err(error),
        };
        let pool = match error {
            Error::Unavailable { part: Part::Pool(pool), .. }
            | Error::Unknown { part: Part::Pool(pool), .. }
            | Error::Damaged { part: Part::Pool(pool), .. } => Some(pool),
            _ => None,
        };
        Ok(Self { pool, why })
    }

    /// The fault of a pool without an answer in time.
    pub(super) fn late() -> Self {
        Self { pool: None, why: format!("it gives no answer within {} s", limits::HEALTH_DEADLINE.as_secs()) }
    }
}

impl Explanations {
    /// Returns the state of a pool of a queue; `fault` if the contents of the queue could not be read. A fault that names
    /// no pool is that of the pool, unless its last health check had an answer and the queue has `another` pool.
    pub(super) fn pool_state(
        &self,
        name: &PoolName,
        another: Option<&PoolName>,
        fault: Option<&PoolFault>,
    ) -> PoolState {
        let Some(pool) = self.0.stores.get(name) else {
            let why = Some("it is not open at this replica".to_owned());
            return PoolState { name: name.clone(), is_up: false, is_writable: false, class: None, why };
        };
        let own = fault.filter(|fault| match &fault.pool {
            Some(pool) => pool == name,
            None => another.is_none() || !pool.is_up(),
        });
        let closed = pool.closed_text();
        // A storage that cannot be used has a reason of its own.
        let refusal = own.filter(|_| pool.store().is_ok()).map(|fault| fault.why.clone());
        PoolState {
            name: name.clone(),
            is_up: pool.store().is_ok() && own.is_none(),
            is_writable: pool.is_writable(),
            class: pool.store().ok().map(|store| store.reach()),
            why: refusal.or(closed),
        }
    }
}
