//! The claims of one queue: which messages each holds, and until when.

use std::collections::{BTreeSet, HashMap};

use super::ending::Ending;
use crate::domain::claim::ClaimTerms;
use crate::domain::ids::{ClaimId, MessageId};
use crate::domain::time::Timestamp;

/// A claim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Its ttl and grace.
    pub terms: ClaimTerms,
    /// When it ends by itself.
    pub expires: Timestamp,
    /// Its messages that are not deleted yet.
    pub(super) messages: BTreeSet<MessageId>,
    /// Set while it is being ended: its messages are on their way back, and nobody may use it any more.
    pub(super) ending: Option<Ending>,
    /// Its new terms are not durable yet: it neither ends nor is renewed again meanwhile.
    pub(super) is_renewing: bool,
}

impl Claim {
    pub(super) fn new(terms: ClaimTerms, expires: Timestamp, messages: BTreeSet<MessageId>) -> Self {
        Self { terms, expires, messages, ending: None, is_renewing: false }
    }

    /// Whether nothing of it is about to change.
    pub(super) fn is_settled(&self) -> bool {
        self.ending.is_none() && !self.is_renewing
    }

    /// Whether whoever holds it may still use it.
    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        self.ending.is_none() && now < self.expires
    }
}

#[derive(Debug, Default)]
pub(super) struct Claims {
    claims: HashMap<ClaimId, Claim>,
}

impl Claims {
    pub(super) fn get(&self, id: ClaimId) -> Option<&Claim> {
        self.claims.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ClaimId) -> Option<&mut Claim> {
        self.claims.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: ClaimId, claim: Claim) {
        self.claims.insert(id, claim);
    }

    pub(super) fn remove(&mut self, id: ClaimId) -> Option<Claim> {
        self.claims.remove(&id)
    }

    /// A message of the claim is gone. True when it was the last one: then the claim is over.
    pub(super) fn forget(&mut self, id: ClaimId, message: MessageId) -> bool {
        let Some(claim) = self.claims.get_mut(&id) else { return false };
        claim.messages.remove(&message);
        let is_over = claim.messages.is_empty() && claim.ending.is_none();
        if is_over {
            self.claims.remove(&id);
        }
        is_over
    }
}
