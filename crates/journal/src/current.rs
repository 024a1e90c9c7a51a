//! The open store of a journal, or the reason why there is none. All handles share it, so all of them use a store that
//! was opened again.

use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use super::JournalError;
use super::damage::DamageWatch;
use super::store::Store;

pub(super) struct Current {
    /// Readers hold the lock for the time of a clone, the committer's thread and its watch for the time of a change.
    state: RwLock<State>,
    /// Damage met by reads of any store of this journal.
    damage: Arc<DamageWatch>,
}

enum State {
    Open(Arc<Store>),
    /// A write has exceeded its deadline. The store serves again when that write ends.
    Stalled(Arc<Store>, Arc<str>),
    /// A write failed and the committer is opening the store again. There is no time limit.
    Reopening(Arc<str>),
    /// The committer's thread has ended, so the journal never writes again.
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

    /// Closes the store after a failure. The returned reference becomes invalid when the last reader drops the store.
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

    /// Refuses new reads and writes until the late write ends, if the store is open.
    pub(super) fn stall(&self, cause: &Arc<str>) {
        let mut state = self.state.write();
        if let State::Open(store) = &*state {
            *state = State::Stalled(Arc::clone(store), Arc::clone(cause));
        }
    }

    /// Serves again after a stall. Returns whether the store was stalled.
    pub(super) fn resume(&self) -> bool {
        let mut state = self.state.write();
        let State::Stalled(store, _) = &*state else { return false };
        *state = State::Open(Arc::clone(store));
        true
    }

    /// Closes the store for good.
    pub(super) fn end(&self, cause: &Arc<str>) {
        // The lock is released before the old store is dropped, because the drop takes time.
        let old = std::mem::replace(&mut *self.state.write(), State::Ended(Arc::clone(cause)));
        drop(old);
    }
}
