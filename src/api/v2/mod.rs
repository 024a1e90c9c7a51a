//! Zaqar's API v2, one file per resource, and the messages of more than one of them.

pub mod bulk;
pub mod claims;
pub mod components;
pub mod flavors;
pub mod health;
pub mod listing;
pub mod messages;
pub mod metadata;
mod page;
pub mod ping;
pub mod pools;
pub mod purge;
pub mod queues;
pub mod quota;
