//! The end of claims: released, expired, or never handed over.
//!
//! First the headers of the messages become durable, then the records of the claims go, then the messages are
//! ready (P7). In between the messages stay hidden, so that killing the process anywhere leaves either the claim
//! or its messages, never both and never neither.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Broker;
use super::changes::Change;
use super::deadlines::Deadline;
use super::messages::settled;
use super::slot::{Slot, SlotState};
use angarium_core::delay::Delay;
use angarium_core::error::{Error, Part};
use angarium_core::ids::ClaimId;
use angarium_core::limits;
use angarium_core::names::QueueRef;
use angarium_engine::{Release, ReleaseUpdates};

/// Why a claim ends, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReleaseCause {
    /// Its holder gave it up.
    Released,
    /// Its time had ended.
    Lapsed,
    /// It never came to its holder.
    NeverHeld,
}

/// A claim of a queue.
pub(super) type ClaimKey = (QueueRef, ClaimId);

type WriteReceiver = oneshot::Receiver<Result<(), Error>>;

impl Broker {
    /// Releases a claim: its messages are ready again when this returns. One that has ended is no error.
    pub async fn claim_release(&self, at: &QueueRef, id: ClaimId) -> Result<(), Error> {
        self.release_later(at, id, None).await
    }

    /// As [`Broker::claim_release`], but that the messages are ready only after a delay, if there is one.
    pub async fn release_later(&self, at: &QueueRef, id: ClaimId, delay: Option<Delay>) -> Result<(), Error> {
        let slot = self.slot(at).await?;
        if !self.open(&slot, at).await? {
            return self.check_ours(&slot);
        }
        let (broker, at) = (self.clone(), at.clone());
        let now = self.0.clock.now();
        let ready = delay.map(|delay| delay.ready(now)).filter(|ready| *ready > now);
        let ending = Release { ready, ..Release::COUNTED };
        let release = async move {
            loop {
                broker.release_claims(&slot, vec![(at.clone(), id)], ending, ReleaseCause::Released).await?;
                // Another caller may be ending or renewing it: no caller learns that it has ended before it is.
                let changed = Arc::clone(&slot.changed).notified_owned();
                let is_over =
                    slot.state.lock().queues.get(&at).is_none_or(|queue| !queue.engine.has_claim(id));
                // It may have been ended here before the slot was closed.
                broker.check_ours(&slot).map_err(Error::into_unknown)?;
                if is_over {
                    return Ok(());
                }
                if tokio::time::timeout(limits::CLAIM_DEADLINE, changed).await.is_err() {
                    return Err(Error::unknown(Part::Storage, "a change of the claim has no outcome yet"));
                }
            }
        };
        self.carry_out(release).await
    }

    /// Ends claims. Those that have ended, or being ended by another caller, are passed over.
    pub(super) async fn release_claims(
        &self,
        slot: &Arc<Slot>,
        claims: Vec<ClaimKey>,
        ending: Release,
        cause: ReleaseCause,
    ) -> Result<(), Error> {
        let _guard = slot.lost_on_panic();
        let begun = self.begin_releases(slot, claims, ending);
        let outcome = self.finish_releases(slot, begun, cause).await;
        slot.changed.notify_waiters();
        outcome
    }

    /// Hides the messages of claims for good and sends their headers on their way.
    fn begin_releases(
        &self,
        slot: &Arc<Slot>,
        claims: Vec<ClaimKey>,
        ending: Release,
    ) -> Vec<(ClaimKey, Option<WriteReceiver>)> {
        let mut begun = Vec::with_capacity(claims.len());
        let mut state = slot.state.lock();
        for (at, id) in claims {
            let Some(queue) = state.queues.get_mut(&at) else { continue };
            let Some(ReleaseUpdates { headers }) = queue.engine.begin_release(id, ending) else { continue };
            if headers.is_empty() {
                begun.push(((at, id), None));
                continue;
            }
            match self.submit(slot, &mut state, &at, Change::Update(headers)) {
                Ok(outcome) => begun.push(((at, id), Some(outcome))),
                Err(_) => self.try_later(&mut state, &[(at, id)]),
            }
        }
        begun
    }

    /// Waits for the headers, removes the records, shows the messages.
    async fn finish_releases(
        &self,
        slot: &Arc<Slot>,
        begun: Vec<(ClaimKey, Option<WriteReceiver>)>,
        cause: ReleaseCause,
    ) -> Result<(), Error> {
        let mut durable = Vec::with_capacity(begun.len());
        let (mut failure, mut is_written) = (None, false);
        for (claim, returned) in begun {
            let has_headers = returned.is_some();
            let outcome = match returned {
                Some(outcome) => settled(outcome).await,
                None => Ok(()),
            };
            match outcome {
                Ok(()) => {
                    is_written |= has_headers;
                    durable.push(claim);
                }
                Err(error) => {
                    self.try_later(&mut slot.state.lock(), &[claim]);
                    failure = Some(error);
                }
            }
        }
        let ids: Vec<ClaimId> = durable.iter().map(|(_, id)| *id).collect();
        if !ids.is_empty()
            && let Err(error) = self.0.catalogue.claims_delete(&slot.owned, &ids).await
        {
            self.try_later(&mut slot.state.lock(), &durable);
            return Err(if is_written { error.into_unknown() } else { error });
        }
        let mut state = slot.state.lock();
        state.live_claims = state.live_claims.saturating_sub(ids.len());
        for (at, id) in durable {
            if let Some(queue) = state.queues.get_mut(&at) {
                let given_back = queue.engine.finish_release(id);
                queue.count_released(cause, given_back);
                state.note_wake(&at);
                self.serve(slot, &mut state, &at);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// These claims did not end, or it is unknown. They are claims still, for their records may be there; one
    /// whose time has ended is ended again in a second, which does no harm to what was done.
    fn try_later(&self, state: &mut SlotState, claims: &[ClaimKey]) {
        let at = self.0.clock.now().plus_seconds(limits::RETRY_SECONDS);
        for (queue, claim) in claims {
            if let Some(open) = state.queues.get_mut(queue) {
                open.engine.release_failed(*claim);
            }
            state.note_deadline(Deadline { at, claim: *claim, queue: queue.clone() });
        }
    }
}
