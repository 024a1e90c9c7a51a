//! Zaqar's API v2, one file per resource, and the messages of more than one of them.

pub mod claims;
pub mod messages;
pub mod ping;
pub mod queues;
