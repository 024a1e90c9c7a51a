//! The identity of a sender, its proof, and the means of authentication.

use std::fmt;

use axum::http::request::Parts;
use axum::http::{Extensions, Method};

use super::bodies::BodyOwner;
use super::credentials::Credentials;
use super::refusal::AdmissionRefusal;
use angarium_core::access::Role;
use angarium_core::hosts::AllowedHosts;
use angarium_core::names::ProjectId;
use std::sync::Arc;

/// The means of authentication.
#[derive(Clone, Debug)]
pub enum Authentication {
    /// None: a caller states its identity itself, as in Zaqar without Keystone. Requests that a web page can make a
    /// browser send are refused, and so are hosts that are not in this list.
    Off(Arc<AllowedHosts>),
    /// Each caller has a token.
    On(Credentials),
}

/// The authenticated caller, added to every request that reaches a handler.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The project of the requested queues.
    pub project: ProjectId,
    /// The rights of the caller.
    pub role: Role,
    /// The name of its token in the file, or of its user in Keystone, if there is one. It is for people, and proves nothing.
    pub name: Option<Arc<str>>,
    /// Whether a client without a token has only stated the project: it may do nothing in its name.
    pub is_anonymous: bool,
}

/// The permission that an operation requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// None: the operation shows nothing about the queues of any client.
    Nothing,
    /// At least this role.
    Role(Role),
}

impl Need {
    /// Returns the need of an operation with this method: a reader may see everything that a member may change.
    pub fn of_method(self, method: &Method) -> Self {
        if self == Self::Role(Role::Member) && method.is_safe() { Self::Role(Role::Reader) } else { self }
    }
}

/// Whether REST serves a project `ACCOUNT@REGION`, which the owner of an SQS key reaches by its choice of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionalAccess {
    /// Served: a key can sign only for the region of the service.
    Served,
    /// Refused: a project with an `@` may belong to the account of a key.
    Refused,
}

/// The sender of a request, as its headers state it.
#[derive(Debug)]
pub struct Sender {
    /// The identity, valid if the proof is.
    pub identity: Identity,
    /// The part of the proof that is still to be checked.
    pub proof: Proof,
}

/// The proof of a sender.
#[derive(Debug)]
pub enum Proof {
    /// Nothing is left to check.
    Complete,
    /// The signature is checked with the body.
    Signature(Box<dyn BodyProof>),
}

/// A proof of the sender that its protocol completes with the body of the request.
pub trait BodyProof: fmt::Debug + Send + Sync {
    /// Whether no other client can have sent these headers.
    fn is_certain(&self) -> bool;

    /// Checks the proof with the body.
    fn verify(self: Box<Self>, head: &Parts, body: &[u8]) -> Result<(), AdmissionRefusal>;
}

impl Sender {
    /// Creates a sender without anything left to check.
    pub fn known(identity: Identity) -> Self {
        Self { identity, proof: Proof::Complete }
    }

    /// Returns the owner of the body until it was read. A key in a request is no secret, and the signature may be for
    /// another body, so the body of an unproven sender counts for its address.
    pub fn body_owner(&self, extensions: &Extensions) -> BodyOwner {
        if self.identity.is_anonymous || !self.proof.is_certain() {
            return BodyOwner::client(extensions);
        }
        BodyOwner::Project(self.identity.project.clone())
    }
}

impl Proof {
    /// Whether the headers prove the sender, or no client has to prove anything.
    pub fn is_certain(&self) -> bool {
        match self {
            Self::Complete => true,
            Self::Signature(headers) => headers.is_certain(),
        }
    }
}
