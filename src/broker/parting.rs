//! Messages that get a time of their own: they part from the others of their claim into a claim of their own, in the commit
//! that writes both (P7).

use std::sync::Arc;

use super::Broker;
use super::receipts::closed;
use super::slot::{Deadline, Slot};
use crate::catalogue::{ClaimRecord, ClaimedMessage};
use crate::domain::claim::ClaimTerms;
use crate::domain::ids::{ClaimId, MessageId, QueueId};
use crate::domain::limits;
use crate::domain::names::QueueRef;
use crate::engine::{Held, Split};
use crate::error::{Error, Part};

impl Broker {
    /// Gives a message of a claim a time of its own: the claim that it is under then. Without any time it can be claimed again
    /// at once.
    pub async fn message_hide(
        &self,
        at: &QueueRef,
        claim: ClaimId,
        message: MessageId,
        terms: ClaimTerms,
    ) -> Result<ClaimId, Error> {
        let slot = self.slot(at).await?;
        let no_claim = || Error::NotFound { what: "message under this claim", name: message.to_string() };
        if !self.open(&slot, at).await? {
            return self.check_ours(&slot).and(Err(no_claim()));
        }
        self.part(&slot, at, claim, vec![message], terms).await?.ok_or_else(no_claim)
    }

    /// Gives messages of one claim a time of their own: the claim that they are under then, or were under if they get none.
    /// None when the claim holds none of them.
    pub(super) async fn part(
        &self,
        slot: &Arc<Slot>,
        at: &QueueRef,
        claim: ClaimId,
        messages: Vec<MessageId>,
        terms: ClaimTerms,
    ) -> Result<Option<ClaimId>, Error> {
        let (broker, slot, at) = (self.clone(), Arc::clone(slot), at.clone());
        let change = async move {
            let _guard = slot.lost_on_panic();
            let parted = broker.begin_part(&slot, &at, claim, &messages).await?;
            let own = match parted {
                Parted::Over => return broker.check_ours(&slot).map(|()| None),
                Parted::Whole => claim,
                Parted::Some(queue, rest, parted) => {
                    let done = broker.commit_part(&slot, &at, claim, (queue, rest, parted), terms).await;
                    slot.changed.notify_waiters();
                    done?
                }
            };
            match (terms.ttl() == 0, own == claim) {
                (true, true) => broker.claim_release(&at, own).await?,
                // If this fails it ends all the same: it has no time.
                (true, false) => drop(broker.claim_release(&at, own).await),
                (false, true) => broker.claim_renew(&at, claim, terms).await?,
                (false, false) => {}
            }
            Ok(Some(own))
        };
        self.carry_out(change).await
    }

    async fn begin_part(
        &self,
        slot: &Slot,
        at: &QueueRef,
        claim: ClaimId,
        messages: &[MessageId],
    ) -> Result<Parted, Error> {
        loop {
            let changed = {
                let mut state = slot.state.lock();
                let queue = state.queues.get_mut(at).ok_or_else(closed)?;
                match queue.engine.begin_split(claim, messages, self.claim_time()) {
                    Split::Whole => return Ok(Parted::Whole),
                    Split::Ended => return Ok(Parted::Over),
                    Split::Begun { rest, parted } => return Ok(Parted::Some(queue.id, rest, parted)),
                    Split::Busy => Arc::clone(&slot.changed).notified_owned(),
                }
            };
            if tokio::time::timeout(limits::CLAIM_DEADLINE, changed).await.is_err() {
                let why = "a change of the claim has no outcome yet";
                return Err(Error::unavailable(Part::Coordination, why));
            }
        }
    }

    /// Writes the claim without the messages, and theirs, in one commit. Returns theirs.
    async fn commit_part(
        &self,
        slot: &Slot,
        at: &QueueRef,
        old: ClaimId,
        (queue, rest, parted): (QueueId, Held, Vec<(MessageId, u32)>),
        terms: ClaimTerms,
    ) -> Result<ClaimId, Error> {
        let (new, now) = (ClaimId::new(&mut rand::rng()), self.0.clock.now());
        // A claim without any time ends as soon as it is there, by who parted it.
        let expires = now.plus_seconds(terms.ttl());
        let record = |messages: Vec<ClaimedMessage>, terms: ClaimTerms, created, expires| {
            let (ttl, grace) = (terms.ttl(), terms.grace());
            let at = at.clone();
            ClaimRecord { at, queue, messages, ttl, grace, created, expires, attempt: None }
        };
        let staying = rest.headers.iter().map(|h| ClaimedMessage { id: h.id, attempt: h.attempts }).collect();
        let created = rest.expires.minus_seconds(rest.terms.ttl());
        let kept = record(staying, rest.terms, created.as_millis(), rest.expires.as_millis());
        let going =
            parted.iter().map(|(id, attempt)| ClaimedMessage { id: *id, attempt: *attempt }).collect();
        let own = record(going, terms, now.as_millis(), expires.as_millis());
        let is_new_bucket = slot.state.lock().buckets >> new.bucket() & 1 == 0;
        let done = self.0.catalogue.claim_part(&slot.owned, (old, &kept), (new, &own), is_new_bucket).await;
        let mut state = slot.state.lock();
        let Some(open) = state.queue_mut(at, queue) else {
            if !done.is_err_and(|error| error.nothing_written()) {
                state.note_orphan(queue, new);
            }
            return Err(Error::unknown(Part::Server, "the queue was closed"));
        };
        if let Err(error) = done {
            open.engine.renew_failed(old);
            let soon = now.plus_seconds(limits::RETRY_SECONDS);
            state.await_end(Deadline { at: soon, claim: old, queue: at.clone() });
            if !error.nothing_written() {
                // The records may say either, and memory must say what they do.
                slot.lose("messages may have parted from their claim");
            }
            return Err(error);
        }
        let over = open.engine.parted(old, new, terms, expires, &parted);
        state.spend(over);
        state.buckets |= 1 << new.bucket();
        state.live_claims += 1;
        state.await_end(Deadline { at: expires, claim: new, queue: at.clone() });
        state.await_end(Deadline { at: rest.expires, claim: old, queue: at.clone() });
        Ok(new)
    }
}

/// What can be parted from a claim.
enum Parted {
    /// Nothing: it is over.
    Over,
    /// All that it has.
    Whole,
    /// Some of it: its queue, what stays, and what goes.
    Some(QueueId, Held, Vec<(MessageId, u32)>),
}
