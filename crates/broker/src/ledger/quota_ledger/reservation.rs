//! Room in a quota that is reserved for messages.

use std::sync::Arc;

use angarium_core::ids::QueueId;
use angarium_core::names::ProjectId;
use angarium_core::quota::Amount;
use angarium_storage::Epoch;

use crate::ledger::quota_ledger::{Ledger, LedgerState};

/// Room for messages, reserved until they are sent. It is given back if this is dropped before.
pub(crate) struct Reservation {
    /// The account with the reserved room; none when nothing is counted.
    pub(in crate::ledger::quota_ledger) account: Option<ReservedAccount>,
    pub(in crate::ledger::quota_ledger) amount: Amount,
}

/// An account in which room is kept.
pub(in crate::ledger::quota_ledger) struct ReservedAccount {
    pub(in crate::ledger::quota_ledger) ledger: Arc<Ledger>,
    pub(in crate::ledger::quota_ledger) project: ProjectId,
}

impl Reservation {
    /// Returns a reservation for messages that are not counted.
    pub(crate) fn none() -> Self {
        Self { account: None, amount: Amount::default() }
    }

    /// Joins a reservation of the same project to this one.
    pub(crate) fn with(mut self, mut more: Self) -> Self {
        if self.account.is_none() {
            return more;
        }
        if more.account.take().is_some() {
            self.amount = self.amount.plus(more.amount);
        }
        self
    }

    /// Enters the messages as being sent to a queue. Returns the amount to end when their batch is settled.
    pub(crate) fn bind(mut self, queue: QueueId, epoch: Epoch) -> Amount {
        let Some(account) = self.account.take() else { return Amount::default() };
        let ReservedAccount { ledger, project } = account;
        let state = &mut *ledger.state.lock();
        state.change(&project, queue, |holding| {
            holding.enter_epoch(epoch);
            holding.reserved = holding.reserved.plus(self.amount);
        });
        state.give_back(&project, self.amount);
        self.amount
    }
}

impl LedgerState {
    /// Takes an amount that was not sent to any queue out of the sum of a project.
    fn give_back(&mut self, project: &ProjectId, amount: Amount) {
        if let Some(account) = self.projects.get_mut(project) {
            account.used.amount = account.used.amount.minus(amount);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(ReservedAccount { ledger, project }) = self.account.take() {
            ledger.state.lock().give_back(&project, self.amount);
        }
    }
}
