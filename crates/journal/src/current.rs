//! The open store of a journal, or why there is none. All handles look here, so that a store that is opened again is
//! used by all of them.

use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use super::JournalError;
use super::damage::DamageWatch;
use super::store::Store;

pub(super) struct Current {
    /// Readers hold it for the time of a clone, the committer's thread for that of a change.
    state: RwLock<State>,
    /// What reads of any of its stores have met.
    damage: Arc<DamageWatch>,
}

enum State {
    Open(Arc<Store>),
    /// A write has not ended in time. It serves again when that one has.
    Stalled(Arc<Store>, Arc<str>),
    /// It is opened again, for as long as it takes.
    Reopening(Arc<str>),
    /// The committer's thread ended, so that nothing is ever written again.
    Ended(Arc<str>),
}

impl Current {
    pub(super) fn new(store: Store) -> Self {
        let damage = Arc::clone(&store.damage);
        Self { state: RwLock::new(State::Open(Arc::new(store))), damage }
    }

    pub(super) fn damage(&self) -> &DamageWatch {
        &self.damage
    }

    pub(super) fn store(&self) -> Result<Arc<Store>, JournalError> {
        match &*self.state.read() {
            State::Open(store) => Ok(Arc::clone(store)),
            State::Stalled(_, cause) | State::Reopening(cause) | State::Ended(cause) => {
                Err(JournalError::Closed(Arc::clone(cause)))
            }
        }
    }

    pub(super) fn check_open(&self) -> Result<(), JournalError> {
        match &*self.state.read() {
            State::Open(_) => Ok(()),
            State::Stalled(_, cause) | State::Reopening(cause) | State::Ended(cause) => {
                Err(JournalError::Closed(Arc::clone(cause)))
            }
        }
    }

    pub(super) fn check_alive(&self) -> Result<(), JournalError> {
        match &*self.state.read() {
            State::Open(_) | State::Stalled(..) | State::Reopening(_) => Ok(()),
            State::Ended(cause) => Err(JournalError::Closed(Arc::clone(cause))),
        }
    }

    /// Closes the store for a failure. It is gone once its readers have ended.
    pub(super) fn close(&self, cause: &Arc<str>) -> Weak<Store> {
        let old = std::mem::replace(&mut *self.state.write(), State::Reopening(Arc::clone(cause)));
        match old {
            State::Open(store) | State::Stalled(store, _) => Arc::downgrade(&store),
            State::Reopening(_) | State::Ended(_) => Weak::new(),
        }
    }

    pub(super) fn reopened(&self, mut store: Store) {
        store.damage = Arc::clone(&self.damage);
        *self.state.write() = State::Open(Arc::new(store));
    }

    /// Refuses all that is new until a write has ended, if the store is open.
    pub(super) fn stall(&self, cause: &Arc<str>) {
        let mut state = self.state.write();
        if let State::Open(store) = &*state {
            *state = State::Stalled(Arc::clone(store), Arc::clone(cause));
        }
    }

    /// Serves again after a stall. Whether there was one.
    pub(super) fn resume(&self) -> bool {
        let mut state = self.state.write();
        let State::Stalled(store, _) = &*state else { return false };
        *state = State::Open(Arc::clone(store));
        true
    }

    /// Closes the store for good.
    pub(super) fn end(&self, cause: &Arc<str>) {
        // The old store is dropped after the lock is free: that takes time.
        let old = std::mem::replace(&mut *self.state.write(), State::Ended(Arc::clone(cause)));
        drop(old);
    }
}
