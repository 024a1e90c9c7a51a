//! Messages that get a time of their own: they part from the others of their claim into a claim of their own, in the commit
//! that writes both (P7). A commit without a known outcome is made again until it has one; meanwhile the claim neither ends nor
//! changes, and its messages may be deleted.

use std::time::Duration;

use tracing::{info, warn};

use angarium_catalogue::{ClaimRecord, ClaimedMessage, SplitPart};
use angarium_core::claim::ClaimTerms;
use angarium_core::error::{Error, Part, Resource};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_engine::{ClaimSnapshot, ClaimSplit};

use crate::claims::Claims;
use crate::limits;
use crate::slot::claims::{ClaimStep, SplitClaims, retry_at};
use crate::slot::queue_handle::QueueHandle;

impl Claims {
    /// Gives a message of a claim a time of its own: the claim that it is under then. Without any time it can be claimed again
    /// at once.
    pub async fn message_hide(
        &self,
        at: &QueueRef,
        claim: ClaimId,
        message: MessageId,
        terms: ClaimTerms,
    ) -> Result<ClaimId, Error> {
        let queue = self.0.slots.queue(at).await?;
        let no_claim = || Error::NotFound { resource: Resource::ClaimedMessage, name: message.to_string() };
        let Some(queue) = self.0.open_queues.open(&queue).await? else {
            return self.0.slots.check_ours(queue.slot()).and(Err(no_claim()));
        };
        self.split_claim(&queue, claim, vec![message], terms).await?.ok_or_else(no_claim)
    }

    /// Gives messages of one claim a time of their own: the claim that they are under then, or were under if they get none.
    /// None when the claim holds none of them.
    pub(crate) async fn split_claim(
        &self,
        queue: &QueueHandle,
        claim: ClaimId,
        messages: Vec<MessageId>,
        terms: ClaimTerms,
    ) -> Result<Option<ClaimId>, Error> {
        let (claims, queue) = (self.clone(), queue.clone());
        let change = async move {
            let (slot, at) = (queue.slot(), queue.at());
            let _guard = slot.lost_on_panic();
            let own = match claims.begin_split(&queue, claim, &messages).await? {
                ClaimSplit::Ended | ClaimSplit::Busy => {
                    return claims.0.slots.check_ours(slot).map(|()| None);
                }
                ClaimSplit::Whole => claim,
                ClaimSplit::Begun { rest, parted } => {
                    let now = claims.0.replica.clock.now();
                    let split = SplitCommit::new(&queue, claim, rest, parted, terms, now);
                    let done = claims.commit_split(&queue, split).await;
                    slot.changed.notify_waiters();
                    done?
                }
            };
            if terms.ttl() == 0 {
                let released = claims.claim_release(at, own).await;
                // If it fails for a claim of its own, that ends all the same: it has no time.
                if own == claim {
                    released?;
                }
            } else if own == claim {
                claims.claim_renew(at, claim, terms).await?;
            }
            Ok(Some(own))
        };
        self.0.replica.carry_out(change).await
    }

    /// Begins a split as soon as no other caller changes the claim.
    async fn begin_split(
        &self,
        queue: &QueueHandle,
        claim: ClaimId,
        messages: &[MessageId],
    ) -> Result<ClaimSplit, Error> {
        loop {
            let changed = match queue.begin_split(claim, messages, self.0.slots.claim_time()) {
                ClaimStep::Begun(split) => return Ok(split),
                ClaimStep::Ended => return Err(queue.closed()),
                ClaimStep::Busy(changed) => changed,
            };
            if tokio::time::timeout(limits::CLAIM_DEADLINE, changed).await.is_err() {
                let why = "a change of the claim has no outcome yet";
                return Err(Error::unavailable(Part::Coordination, why));
            }
        }
    }

    /// Writes the claim without the messages, and theirs, in one commit. Returns theirs. When its outcome is unknown
    /// the claim stays as it is for every caller, in doubt, until the commit has been made again; the slot continues.
    async fn commit_split(&self, queue: &QueueHandle, split: SplitCommit) -> Result<ClaimId, Error> {
        let slot = queue.slot();
        let is_new_bucket = slot.is_new_bucket(split.new);
        let (kept, own) = split.parts();
        match self.0.replica.catalogue.split_claim(&slot.owned, kept, own, is_new_bucket).await {
            Ok(()) => {
                let is_open = queue.finish_split(&split.claims());
                is_open.map(|()| split.new).ok_or_else(|| queue.closed().into_unknown())
            }
            Err(error) if error.nothing_written() => {
                let again = retry_at(self.0.replica.clock.now());
                queue.renew_failed(split.old, again).ok_or_else(|| queue.closed().into_unknown())?;
                Err(error)
            }
            Err(error) => {
                let (claims, queue) = (self.clone(), queue.clone());
                slot.spawn(async move { claims.settle_split(&queue, &split).await });
                Err(error)
            }
        }
    }

    /// Makes a commit again whose outcome is unknown, until that is known, the slot is served elsewhere or recovered,
    /// or the service stops.
    async fn settle_split(&self, queue: &QueueHandle, split: &SplitCommit) {
        let slot = queue.slot();
        warn!(slot = slot.owned.slot.0, claim = %split.old, "claim split in doubt");
        let pause = Duration::from_secs(limits::RETRY_SECONDS.into());
        while self.0.replica.sleep_tick(pause).await && slot.check_served().is_ok() {
            let (kept, own) = split.parts();
            let is_new_bucket = slot.is_new_bucket(split.new);
            let settled =
                match self.0.replica.catalogue.repeat_split(&slot.owned, kept, own, is_new_bucket).await {
                    // Without messages in the old claim the new one gets none, and its record is cleared away.
                    Ok(_) => queue.finish_split(&split.claims()),
                    Err(Error::Unavailable { .. } | Error::Unknown { .. }) => continue,
                    Err(_) => queue.renew_failed(split.old, retry_at(self.0.replica.clock.now())),
                };
            slot.changed.notify_waiters();
            // A queue that is closed was deleted, and its claims with it.
            let is_open = settled.is_some();
            info!(slot = slot.owned.slot.0, claim = %split.old, is_open, "claim split settled");
            return;
        }
    }
}

/// A claim that is split in two: what is written, and what memory needs once it is.
struct SplitCommit {
    old: ClaimId,
    /// The claim of the messages that get a time of their own.
    new: ClaimId,
    parted: Vec<(MessageId, u32)>,
    terms: ClaimTerms,
    expires: Timestamp,
    rest_expires: Timestamp,
    /// The record of the old claim without them, and that of the new one.
    kept: ClaimRecord,
    own: ClaimRecord,
}

impl SplitCommit {
    /// What stays in the old claim, and what the new one gets.
    fn parts(&self) -> (SplitPart<'_>, SplitPart<'_>) {
        (SplitPart { id: self.old, record: &self.kept }, SplitPart { id: self.new, record: &self.own })
    }

    fn new(
        queue: &QueueHandle,
        old: ClaimId,
        rest: ClaimSnapshot,
        parted: Vec<(MessageId, u32)>,
        terms: ClaimTerms,
        now: Timestamp,
    ) -> Self {
        // A claim without any time ends as soon as it is there, by who parted it.
        let (expires, client) = (now.plus_seconds(terms.ttl()), rest.client);
        let record = |messages: Vec<ClaimedMessage>, terms: ClaimTerms, created, expires| {
            let (ttl, grace) = (terms.ttl(), terms.grace());
            let (at, queue) = (queue.at().clone(), queue.id());
            ClaimRecord { at, queue, messages, ttl, grace, created, expires, client, attempt: None }
        };
        let staying = rest.headers.iter().map(|h| ClaimedMessage { id: h.id, attempt: h.attempts }).collect();
        let created = rest.expires.minus_seconds(rest.terms.ttl());
        let kept = record(staying, rest.terms, created.as_millis(), rest.expires.as_millis());
        let going =
            parted.iter().map(|(id, attempt)| ClaimedMessage { id: *id, attempt: *attempt }).collect();
        let own = record(going, terms, now.as_millis(), expires.as_millis());
        let (new, rest_expires) = (ClaimId::new(&mut rand::rng()), rest.expires);
        Self { old, new, parted, terms, expires, rest_expires, kept, own }
    }

    /// What memory needs of it.
    fn claims(&self) -> SplitClaims<'_> {
        let Self { old, new, terms, expires, rest_expires, .. } = *self;
        SplitClaims { old, new, parted: &self.parted, terms, expires, rest_expires }
    }
}
