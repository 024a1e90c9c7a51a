//! Who sends a request, as its headers show it, and how the service learns it.

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

/// How the service learns who asks.
#[derive(Clone, Debug)]
pub enum Authentication {
    /// It does not: callers are what they say they are, as in Zaqar without Keystone.
    /// What a page makes a browser send is refused, and so is a host that is not among these.
    Off(Arc<AllowedHosts>),
    /// By their tokens.
    On(Credentials),
}

/// Who asks: it is with every request that reaches a handler.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The project whose queues are meant.
    pub project: ProjectId,
    /// What the caller may do.
    pub role: Role,
    /// Whether the project is only what a client without a token states: nothing may be done in its name.
    pub is_anonymous: bool,
}

/// What an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Nothing: it tells nothing about any client's queues.
    Nothing,
    /// A role.
    Role(Role),
}

impl Need {
    /// The need of an operation that has this method: a reader may see all that a member may change.
    pub fn of_method(self, method: &Method) -> Self {
        if self == Self::Role(Role::Member) && method.is_safe() { Self::Role(Role::Reader) } else { self }
    }
}

/// Whether a caller of REST may have a project `ACCOUNT@REGION`, which a key of SQS reaches by choosing its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionalAccess {
    /// No key signs for other regions than that of the service.
    Served,
    /// A project with an `@` may be that of a key's account.
    Refused,
}

/// Who sends a request, as far as its headers show it.
#[derive(Debug)]
pub struct Sender {
    /// Who it is, if the proof holds.
    pub identity: Identity,
    /// What is left to check of that.
    pub proof: Proof,
}

/// What proves who sends a request.
#[derive(Debug)]
pub enum Proof {
    /// Nothing is left to check.
    Complete,
    /// The signature is to be checked with the body.
    Signature(Box<dyn BodyProof>),
}

/// A proof of the sender that its protocol completes with the body of the request.
pub trait BodyProof: fmt::Debug + Send + Sync {
    /// Whether no other client can have sent the headers.
    fn is_certain(&self) -> bool;

    /// Checks the proof with the body.
    fn verify(self: Box<Self>, head: &Parts, body: &[u8]) -> Result<(), AdmissionRefusal>;
}

impl Sender {
    /// A sender of whom nothing is left to check.
    pub fn known(identity: Identity) -> Self {
        Self { identity, proof: Proof::Complete }
    }

    /// Whose the body is until it was read: the key of a request is no secret, its signature may be for another body.
    pub fn body_owner(&self, extensions: &Extensions) -> BodyOwner {
        if self.identity.is_anonymous || !self.proof.is_certain() {
            return BodyOwner::client(extensions);
        }
        BodyOwner::Project(self.identity.project.clone())
    }
}

impl Proof {
    /// Whether no other client can have sent the headers, or no client has to prove anything.
    pub fn is_certain(&self) -> bool {
        match self {
            Self::Complete => true,
            Self::Signature(headers) => headers.is_certain(),
        }
    }
}
