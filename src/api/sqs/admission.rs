//! What is known of a request before its body is read: who states that it sends it, and where it counts among those in
//! progress.

use axum::body::Body;
use axum::http::request::Parts;
use tokio::sync::SemaphorePermit;

use super::account::{Caller, RegionalQueues};
use super::fault::Fault;
use super::signature;
use crate::api::pipeline::admission::CountedPlace;
use crate::api::pipeline::bodies::{self, BodyOwner};

/// A request of which only the headers are known, and hold.
pub(super) struct ScreenedRequest<'a> {
    pub(super) by: Sender,
    /// None for what another replica has let in.
    pub(super) place: Option<AdmissionPermit<'a>>,
}

/// Who sends a request.
pub(super) enum Sender {
    /// A client known.
    Caller(Caller),
    /// Who has signed it, if it is signed so.
    Signer(signature::ScreenedHeaders),
}

/// Where a request counts among those in progress.
pub(super) struct AdmissionPermit<'a> {
    pub(super) permit: SemaphorePermit<'a>,
    /// Whether it is one of those that wait for a message.
    pub(super) waits: bool,
    /// While its sender is not proven.
    pub(super) unproven: Option<CountedPlace<'a>>,
    /// For the address that a proxy names.
    pub(super) forwarded: Option<CountedPlace<'a>>,
}

impl ScreenedRequest<'_> {
    /// The body as it is to be read: one whose sender is not proven may not hold up the place of a request.
    pub(super) fn paced(&self, body: Body) -> Body {
        match &self.place {
            Some(AdmissionPermit { unproven: Some(_), .. }) => bodies::paced(body),
            _ => body,
        }
    }

    /// Whose the body is until it has been read: the key of a request is no secret, its signature may be for another body.
    pub(super) fn owner(&self, head: &Parts, places: &RegionalQueues) -> BodyOwner {
        let (account, region) = self.by.account();
        match (&self.by, places.project(account, region)) {
            (by, _) if !by.is_proven() => BodyOwner::client(&head.extensions),
            (_, Ok(project)) => BodyOwner::Project(project),
            (_, Err(_)) => BodyOwner::client(&head.extensions),
        }
    }
}

impl Sender {
    /// The account and the region that it states it is of.
    pub(super) fn account(&self) -> (&str, &str) {
        match self {
            Self::Caller(caller) => (&caller.account, &caller.region),
            Self::Signer(signer) => {
                let (project, region) = signer.project();
                (project.as_str(), region)
            }
        }
    }

    /// Whether no other client can have sent the headers, or no client has to prove anything.
    pub(super) fn is_proven(&self) -> bool {
        match self {
            Self::Caller(_) => true,
            Self::Signer(signer) => signer.is_certain(),
        }
    }

    /// Who it is, for certain.
    pub(super) fn verify(self, head: &Parts, body: &[u8]) -> Result<Caller, Fault> {
        match self {
            Self::Caller(caller) => Ok(caller),
            Self::Signer(signer) => {
                let signer = signer.verify(head, body)?;
                let account = signer.project.as_str().to_owned();
                Ok(Caller { account, region: signer.region })
            }
        }
    }
}
