//! Look-up of a claim, and its renewal under new terms.

use super::hidden::HiddenReason;
use super::queue::QueueEngine;
use angarium_core::claim::ClaimTerms;
use angarium_core::ids::{ClaimId, ClientId, MessageId};
use angarium_core::message::Header;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::outcome::Holder;
use angarium_core::time::Timestamp;

/// Result of a request to renew a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Write the new terms with these messages and attempts, then report the outcome.
    Begun(Vec<(MessageId, u32)>),
    /// Another request is changing the claim: ask again after that.
    Busy,
    /// The claim does not exist, or has expired.
    Ended,
}

/// A claim as its holder sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSnapshot {
    /// The terms in force: those of the last renewal.
    pub terms: ClaimTerms,
    /// The `Client-ID` of the request that made it.
    pub client: Option<ClientId>,
    /// The name that its holder gave itself.
    pub by: Option<Holder>,
    /// When it ends.
    pub expires: Timestamp,
    /// Its messages, oldest first.
    pub headers: Vec<Header>,
}

impl QueueEngine {
    /// A live claim with its messages that are not deleted.
    pub(super) fn held(&self, id: ClaimId, now: Timestamp) -> Option<ClaimSnapshot> {
        self.claims.get(id).filter(|claim| claim.is_live(now))?;
        self.shown_claim(id, now)
    }

    /// As `held`, for readers: also a claim whose release is not durable yet.
    pub fn shown_claim(&self, id: ClaimId, now: Timestamp) -> Option<ClaimSnapshot> {
        let claim = self.claims.get(id).filter(|claim| claim.is_shown(now))?;
        let header = |message: &MessageId| self.hidden.get(message)?.header.clone();
        let headers = claim.messages.iter().filter_map(header).collect();
        Some(ClaimSnapshot {
            terms: claim.terms,
            client: self.client_of(id),
            by: claim.by.clone(),
            expires: claim.expires,
            headers,
        })
    }

    /// The messages that a live claim holds, oldest first, without messages leaving it. None when there is no such
    /// claim.
    pub fn held_ids(&self, id: ClaimId, now: Timestamp) -> Option<Vec<MessageId>> {
        let claim = self.claims.get(id).filter(|claim| claim.is_live(now))?;
        let is_held = |message: &&MessageId| {
            self.hidden.get(message).is_some_and(|hidden| hidden.why == HiddenReason::Claimed(id))
        };
        Some(claim.messages.iter().filter(is_held).copied().collect())
    }

    /// Begins to renew a claim. Until the outcome is reported the claim does not end, at any time.
    pub fn begin_renew(&mut self, id: ClaimId, now: Timestamp) -> Renewal {
        let Some(held) = self.held(id, now) else {
            let is_ending = self.claims.get(id).is_some_and(|claim| !claim.is_settled());
            return if is_ending { Renewal::Busy } else { Renewal::Ended };
        };
        match self.claims.get_mut(id) {
            Some(claim) if claim.is_settled() => {
                claim.is_renewing = true;
                Renewal::Begun(held.headers.iter().map(|header| (header.id, header.grant())).collect())
            }
            _ => Renewal::Busy,
        }
    }

    /// The new terms are durable.
    pub fn renewed(&mut self, id: ClaimId, terms: ClaimTerms, expires: Timestamp) {
        let Some(claim) = self.claims.get_mut(id) else { return };
        claim.is_renewing = false;
        claim.was_renewed = true;
        claim.terms = terms;
        if !is_on(Mutation::RenewInRecordOnly) {
            claim.expires = expires;
        }
        for message in &claim.messages {
            if let Some(header) = self.hidden.get_mut(message).and_then(|hidden| hidden.header.as_mut()) {
                terms.extend(header, expires);
            }
        }
    }

    /// The new terms were certainly not written.
    pub fn renew_failed(&mut self, id: ClaimId) {
        if let Some(claim) = self.claims.get_mut(id) {
            claim.is_renewing = false;
        }
    }
}
