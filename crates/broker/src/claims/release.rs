//! The end of claims: released, expired, or never delivered.
//!
//! First the headers of the messages become durable, then the records of the claims are deleted, then the messages are
//! ready (P7). In between the messages stay hidden. So a process that is killed at any point leaves either the claim or
//! its messages, never both and never neither.

use std::sync::Arc;

use angarium_catalogue::Schema;
use angarium_core::delay::Delay;
use angarium_core::error::Error;
use angarium_core::ids::ClaimId;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;
use angarium_core::outcome::EventKind;
use angarium_core::time::Timestamp;
use angarium_engine::{EndedHeaders, Release, ReleaseEvent};

use crate::claims::Claims;
use crate::claims::change_wait::ChangeWait;
use crate::slot::claims::retry_at;
use crate::slot::release::{BegunRelease, ClaimKey, ReleaseCause};
use crate::slot::state::Slot;
use crate::writer::pending::settled;

impl Claims {
    /// Releases a claim. Its messages are ready again when this returns. It is no error when the claim has ended.
    pub async fn claim_release(&self, at: &QueueRef, id: ClaimId) -> Result<(), Error> {
        self.release_later(at, id, None).await
    }

    /// As `claim_release`, but the messages become ready only after a delay, if one is given.
    pub async fn release_later(&self, at: &QueueRef, id: ClaimId, delay: Option<Delay>) -> Result<(), Error> {
        let queue = self.0.slots.queue(at).await?;
        let Some(queue) = self.0.open_queues.open(&queue).await? else {
            return self.0.slots.check_ours(queue.slot());
        };
        let claims = self.clone();
        let now = self.0.replica.clock.now();
        let ready = delay.map(|delay| delay.ready(now)).filter(|ready| *ready > now);
        let ending = Release { ready, ..Release::COUNTED };
        let release = async move {
            let (slot, at) = (queue.slot(), queue.at());
            let wait = ChangeWait::begin();
            loop {
                let released = vec![ClaimKey { queue: at.clone(), claim: id }];
                if claims.release_claims(slot, released, ending, ReleaseCause::Released).await? > 0 {
                    return Ok(());
                }
                // Another caller may be ending or renewing the claim: the end is reported only after it has happened.
                let changed = slot.claim_changed();
                let has_ended = queue.has_ended(id);
                // The claim may have ended here before the slot or the queue was closed.
                claims.0.slots.check_ours(slot).map_err(Error::into_unknown)?;
                if has_ended.ok_or_else(|| queue.closed().into_unknown())? {
                    return Ok(());
                }
                wait.next(changed).await.map_err(Error::into_unknown)?;
            }
        };
        self.0.replica.carry_out(release).await
    }

    /// Ends claims. Claims that have ended, or that another caller is ending, are skipped. Returns how many this call
    /// has ended: they ended while this replica owned the slot.
    pub(crate) async fn release_claims(
        &self,
        slot: &Arc<Slot>,
        claims: Vec<ClaimKey>,
        ending: Release,
        cause: ReleaseCause,
    ) -> Result<usize, Error> {
        let _guard = slot.lost_on_panic();
        let ending = Release { event: self.event(cause), ..ending };
        let begun = slot.begin_releases(claims, ending, cause, self.again());
        let outcome = self.finish_releases(slot, begun, cause).await;
        slot.changed.notify_waiters();
        outcome
    }

    /// Waits for the headers, deletes the records of the claims, and makes the messages ready.
    async fn finish_releases(
        &self,
        slot: &Arc<Slot>,
        begun: Vec<BegunRelease>,
        cause: ReleaseCause,
    ) -> Result<usize, Error> {
        let mut durable = Vec::with_capacity(begun.len());
        let (mut failure, mut is_written, mut uses) = (None, false, Vec::new());
        for BegunRelease { claim, headers, in_use } in begun {
            uses.push(in_use);
            let has_headers = headers.is_some();
            let outcome = match headers {
                Some(outcome) if !is_on(Mutation::DeleteClaimBeforeHeaders) => settled(outcome).await,
                Some(_) | None => Ok(()),
            };
            match outcome {
                Ok(()) => {
                    is_written |= has_headers;
                    durable.push(claim);
                }
                Err(error) => {
                    slot.release_failed(&[claim], EndedHeaders::Unwritten, self.again());
                    failure = Some(error);
                }
            }
        }
        let ids: Vec<ClaimId> = durable.iter().map(|key: &ClaimKey| key.claim).collect();
        if !ids.is_empty()
            && let Err(error) = self.0.replica.catalogue.claims_delete(&slot.owned, &ids).await
        {
            slot.release_failed(&durable, EndedHeaders::Written, self.again());
            return Err(if is_written { error.into_unknown() } else { error });
        }
        slot.finish_releases(durable, cause);
        failure.map_or(Ok(ids.len()), Err)
    }

    /// Returns the event for the history of messages whose claim ends: none before every replica knows histories, and none
    /// for a claim that never reached its holder.
    fn event(&self, cause: ReleaseCause) -> Option<ReleaseEvent> {
        let what = match cause {
            ReleaseCause::Released => EventKind::Released,
            ReleaseCause::Lapsed => EventKind::Expired,
            ReleaseCause::NeverHeld => return None,
        };
        let at = self.0.replica.clock.now();
        self.0.replica.catalogue.is_in_force(Schema::OUTCOMES).then_some(ReleaseEvent { what, at })
    }

    /// Returns when claims that could not be ended are tried again.
    fn again(&self) -> Timestamp {
        retry_at(self.0.replica.clock.now())
    }
}
