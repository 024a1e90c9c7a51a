//! Who sends a request of SQS: the key that it is signed with, the replica that vouches for it, or what it states.

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

/// The sender of a request, proven.
pub struct ProvenSender {
    /// The account and the region.
    pub caller: Caller,
    /// The project of the account in the region.
    pub project: ProjectId,
    /// How certain the region is.
    pub region: Region,
}

impl Endpoint {
    /// Who sends a request, as its headers show it.
    pub fn identify(&self, head: &Parts) -> Result<Sender, AdmissionRefusal> {
        // The replica that passed it on has looked, and its admission control has let it in.
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

    /// Who asks, where no signature states it. Without authentication the account and the region are what the request
    /// states.
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

    /// Completes the check of a sender, with the body of its request.
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

    /// Refuses a change that any page can have a browser send, where nothing was checked of the sender: there are no keys,
    /// and no other replica vouches for it.
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

    /// Why a caller is not known, by the answer that it gets.
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

/// Why a signature does not prove the caller, by the error that it gets.
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
    Identity { project, role: Role::Member, is_anonymous: false }
}
