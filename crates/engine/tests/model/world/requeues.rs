//! Messages that are made available again by their ids, and messages that are recalled from their claims.

use angarium_engine::forget_claims;

use super::*;
use crate::truth::RequeueVerdict;

/// The change of a message that is hidden by its id.
#[derive(Clone, Copy)]
pub(super) enum RequeueChange {
    /// It is available again, after this delay in seconds.
    Again(u32),
    /// It is ready if a hold has put it aside.
    Release,
}

/// A requeue that has not read its message yet.
pub(super) struct PendingRequeue {
    id: MessageId,
    change: RequeueChange,
}

impl World {
    pub(super) fn requeue(&mut self, target: Target, delay: u32) {
        if let Some(id) = self.target(target) {
            self.hide(id, RequeueChange::Again(delay));
        }
    }

    /// Hides a message to change it.
    pub(super) fn hide(&mut self, id: MessageId, change: RequeueChange) {
        let verdict = self.truth.judge_requeue(id);
        let answer = self.engine.begin_requeue(id);
        let is_right = match (&answer, verdict) {
            (Ok(()), RequeueVerdict::Begun) => true,
            // Only the pool knows that it is in transfer, or left.
            (Ok(()), RequeueVerdict::InTransfer) => self.engine.are_leaving(&[id]).is_none(),
            (Err(Error::Claimed(of)), RequeueVerdict::Claimed) => *of == id,
            (Err(Error::Busy(_)), RequeueVerdict::InTransfer | RequeueVerdict::Changing) => true,
            (Ok(()) | Err(_), _) => false,
        };
        assert!(is_right, "{answer:?} for a requeue of {id}, and not {verdict:?}");
        if answer.is_ok() {
            if verdict == RequeueVerdict::Begun {
                self.truth.begin_requeue(id);
            }
            self.requeues.push(PendingRequeue { id, change });
        }
    }

    /// Whether a requeue hides a message, which may be in transfer.
    pub(super) fn is_requeuing(&self, id: MessageId) -> bool {
        self.requeues.iter().any(|requeue| requeue.id == id)
    }

    /// Reads the message, and submits its new header if it may be made available.
    pub(super) fn read_requeued(&mut self, at: usize) {
        let PendingRequeue { id, change } = self.requeues.swap_remove(at);
        match self.pool.entries.get(&id).map(|entry| entry.header.clone()) {
            None => {
                self.engine.requeue_absent(id);
                self.truth.requeued_unknown.remove(&id);
            }
            Some(stored) if stored.state.is_in_transfer() => self.engine.cancel_requeue(id),
            Some(stored) => self.change_requeued(stored, change),
        }
    }

    fn change_requeued(&mut self, stored: Header, change: RequeueChange) {
        let id = stored.id;
        let changed = match change {
            RequeueChange::Again(delay) => self.requeued(stored.clone(), delay),
            RequeueChange::Release if stored.held().is_some() => stored.clone().released(self.now),
            RequeueChange::Release => {
                self.engine.leave_selected_as_is(&stored);
                return self.truth.cancel_requeue(id);
            }
        };
        self.engine.requeue_read(&stored);
        self.truth.requeue_read(id);
        self.waiting.push_back(Change::Requeue(changed));
    }

    /// The header of a message that is available again.
    fn requeued(&self, mut header: Header, delay: u32) -> Header {
        forget_claims(&mut header);
        header.forget_hold();
        header.ready = self.now.plus_seconds(delay);
        header.state = if delay > 0 { State::Scheduled } else { State::Ready };
        header.life = match header.life {
            Life::Own { .. } => Life::lasting(3_600, header.ready),
            retained @ Life::Retained { .. } => retained.begun_again(self.now),
        };
        header
    }

    /// Reports the outcome of the batch.
    pub(super) fn finish_requeue(&mut self, header: Header, is_durable: bool) {
        if is_durable {
            self.met.withheld += u32::from(header.held().is_some());
            self.met.released += u32::from(self.truth.header(header.id).held().is_some());
            self.met.replayed += u32::from(self.truth.header(header.id).state.is_kept());
            self.engine.requeued(header.clone());
            self.truth.requeued(header);
        } else {
            self.engine.cancel_requeue(header.id);
            self.truth.cancel_requeue(header.id);
        }
    }

    pub(super) fn read_kept(&mut self) {
        let page = self.engine.begin_kept_page();
        let kept = self.pool.entries.values().filter(|entry| entry.header.state.is_kept());
        self.kept_page = Some((page, kept.map(|entry| entry.header.id).collect()));
    }

    pub(super) fn purge_kept(&mut self) {
        let Some((page, ids)) = self.kept_page.take() else { return };
        let Some(begun) = self.engine.begin_purge_kept(&ids, page) else { return };
        for id in &ids {
            let Some(known) = self.truth.messages.get(id) else { continue };
            let is_free = known.removals > 0 || known.state == MessageState::Kept;
            assert_eq!(begun.contains(id), is_free, "whether {id} is purged, which is {:?}", known.state);
            assert!(known.header.state.is_kept(), "{id} is purged, and not kept");
        }
        self.begin_removals(begun);
    }

    pub(super) fn recall(&mut self, target: Target) {
        let Some(id) = self.target(target) else { return };
        let holder = self.truth.recallable(id);
        assert_eq!(self.engine.begin_recall(id), holder.is_some(), "whether {id} is recalled");
        if let Some(claim) = holder {
            self.truth.recalled.insert((id, claim));
            self.begin_removal(id);
        }
    }

    /// Checks that the engine knows the claims from which messages were recalled, once that is durable.
    pub(super) fn check_recalls(&self) {
        for (id, claim) in &self.truth.recalled {
            let is_durable = !self.truth.messages.contains_key(id);
            assert_eq!(self.engine.is_recalled(*id, *claim), is_durable, "whether {id} was recalled");
        }
    }
}
