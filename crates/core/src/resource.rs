//! The kinds of things that requests name.

use std::fmt;

/// Kind of a thing that a request names. Programs tell missing things apart by it, never by the text of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// A queue.
    Queue,
    /// A message.
    Message,
    /// A message that must be under the claim of the request.
    ClaimedMessage,
    /// A claim.
    Claim,
    /// A pool.
    Pool,
    /// The drain of a pool.
    PoolDrain,
    /// A flavor.
    Flavor,
    /// The migration of a queue.
    Migration,
    /// A replica in the list of components.
    Component,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue => "queue",
            Self::Message => "message",
            Self::ClaimedMessage => "message under this claim",
            Self::Claim => "claim",
            Self::Pool => "pool",
            Self::PoolDrain => "drain of pool",
            Self::Flavor => "flavor",
            Self::Migration => "migration",
            Self::Component => "component",
        })
    }
}
