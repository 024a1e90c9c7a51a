//! Authentication of SQS requests: by the key of the signature, by the replica that forwards, or by an unproven
//! statement.

use std::sync::Arc;

use axum::http::request::Parts;

use super::account::{self, Caller};
use super::endpoint::Endpoint;
use super::fault::{Fault, Kind};
use super::incoming::credential;
use super::operation::Operation;
use super::resolution::Region;
use super::signature::{self, ScreenedHeaders};
use crate::api::pipeline::forward::peer::PeerOrigin;
use crate::api::pipeline::identity::{BodyProof, Identity, Proof, Sender};
use crate::api::pipeline::origin;
use crate::api::pipeline::refusal::AdmissionRefusal;
use angarium_core::access::Role;
use angarium_core::access_keys::AccessKeyTable;
use angarium_core::error::Error;
use angarium_core::names::ProjectId;
use angarium_core::region::Accounts;
use angarium_metrics::AuthenticationFailure;

/// The authenticated sender of a request.
pub struct ProvenSender {
    /// The account and the region.
    pub caller: Caller,
    /// The project of the account in the region.
    pub project: ProjectId,
    /// Whether the region is proven.
    pub region: Region,
}

impl Endpoint {
    /// Returns the sender of a request, as its headers state it.
    pub fn identify(&self, head: &Parts) -> Result<Sender, AdmissionRefusal> {
        // The forwarding replica has authenticated the request, and its admission control has admitted it.
        if let Some(PeerOrigin { identity, .. }) = head.extensions.get() {
            return Ok(Sender::known(identity.clone()));
        }
        let Some(keys) = &self.settings.keys else {
            let caller = self.stated_caller(head).map_err(|fault| self.failed(fault))?;
            let project = self.places.project(&caller.account, &caller.region)?;
            return Ok(Sender::known(member(project)));
        };
        let keys = Arc::clone(&keys.borrow());
        self.signer(head, &keys)
    }

    fn signer(&self, head: &Parts, keys: &AccessKeyTable) -> Result<Sender, AdmissionRefusal> {
        let signed = signature::judge(head, keys, self.clock.wall()).map_err(|fault| self.failed(fault))?;
        let (account, region) = signed.project();
        if self.places.accounts() == Accounts::Regions && account.as_str().contains('@') {
            return Err(Error::RegionalProject.into());
        }
        let identity = member(self.places.project(account.as_str(), region)?);
        Ok(Sender { identity, proof: Proof::Signature(Box::new(signed)) })
    }

    /// Returns the caller of a request without a signature. Without authentication, the request
    /// itself states the account and the region.
    fn stated_caller(&self, head: &Parts) -> Result<Caller, Fault> {
        let Some(hosts) = &self.open_hosts else {
            let why =
                "This service has no keys for SQS: it serves those who have a token through its REST API.";
            return Err(Fault::new(Kind::AccessDenied, why));
        };
        origin::check(hosts, &head.uri, &head.headers)?;
        let (key, region) = credential(head).unwrap_or_default();
        let account = if account::is_account(&key) { key } else { ProjectId::DEFAULT.to_owned() };
        let region = if region.is_empty() { self.places.region.clone() } else { region };
        Ok(Caller { account, region })
    }

    /// Completes the authentication of a sender, with the body of its request.
    pub fn prove(&self, sender: Sender, head: &Parts, body: &[u8]) -> Result<ProvenSender, AdmissionRefusal> {
        let region = match sender.proof {
            Proof::Complete => Region::Said,
            Proof::Signature(proof) => {
                proof.verify(head, body)?;
                Region::Signed
            }
        };
        let project = sender.identity.project;
        let (account, named) = self.places.split(&project);
        let caller = Caller { account: account.to_owned(), region: named.to_owned() };
        Ok(ProvenSender { caller, project, region })
    }

    /// Refuses a change that any web page can have a browser send, if the sender was not authenticated: there are no
    /// keys, and no other replica has forwarded the request.
    pub(super) fn check_change(&self, head: &Parts, operation: Operation) -> Result<(), AdmissionRefusal> {
        let is_checked = self.settings.keys.is_some() || head.extensions.get::<PeerOrigin>().is_some();
        if is_checked || !operation.is_change() {
            return Ok(());
        }
        origin::check_change(head, operation.name()).map_err(|error| self.failed(error.into()))
    }

    fn failed(&self, fault: Fault) -> AdmissionRefusal {
        AdmissionRefusal::of(self.failure(&fault), fault)
    }

    /// Returns the failed authentication of a caller, by the error that it gets.
    fn failure(&self, fault: &Fault) -> AuthenticationFailure {
        match fault.kind {
            _ if self.settings.keys.is_none() && self.open_hosts.is_some() => {
                AuthenticationFailure::ForeignOrigin
            }
            _ if self.settings.keys.is_none() => AuthenticationFailure::NoKeys,
            kind => signature_failure(kind),
        }
    }
}

impl BodyProof for ScreenedHeaders {
    fn is_certain(&self) -> bool {
        self.has_content_hash()
    }

    fn verify(self: Box<Self>, head: &Parts, body: &[u8]) -> Result<(), AdmissionRefusal> {
        match self.check_body(head, body) {
            Ok(_) => Ok(()),
            Err(fault) => Err(AdmissionRefusal::of(signature_failure(fault.kind), fault)),
        }
    }
}

/// Returns the failed authentication of a wrong signature, by the error that the caller gets.
fn signature_failure(kind: Kind) -> AuthenticationFailure {
    match kind {
        Kind::MissingAuthenticationToken => AuthenticationFailure::MissingSignature,
        Kind::IncompleteSignature => AuthenticationFailure::MalformedSignature,
        Kind::InvalidClientTokenId => AuthenticationFailure::UnknownKey,
        Kind::AccessDenied | Kind::SignatureNotCurrent => AuthenticationFailure::ExpiredSignature,
        _ => AuthenticationFailure::SignatureMismatch,
    }
}

fn member(project: ProjectId) -> Identity {
    Identity { project, role: Role::Member, name: None, is_anonymous: false }
}
