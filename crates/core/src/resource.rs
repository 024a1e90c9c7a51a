//! The kinds of things that requests name.

use std::fmt;

/// Kind of a thing that a request names. Programs tell missing things apart by the kind, never by the text of an error.
#[allow(missing_docs, reason = "most names say it all")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    Queue,
    Topic,
    Message,
    /// A message that must be under the claim of the request.
    ClaimedMessage,
    Claim,
    Pool,
    PoolDrain,
    Flavor,
    Migration,
    Hold,
    GroupHold,
    PoolHold,
    ProjectHold,
    Task,
    Subscription,
    /// A replica in the list of components.
    Component,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue => "queue",
            Self::Topic => "topic",
            Self::Message => "message",
            Self::ClaimedMessage => "message under this claim",
            Self::Claim => "claim",
            Self::Pool => "pool",
            Self::PoolDrain => "drain of pool",
            Self::Flavor => "flavor",
            Self::Migration => "migration",
            Self::Hold => "hold of queue",
            Self::GroupHold => "hold of group",
            Self::PoolHold => "hold of pool",
            Self::ProjectHold => "hold of project",
            Self::Task => "task",
            Self::Subscription => "subscription",
            Self::Component => "component",
        })
    }
}
