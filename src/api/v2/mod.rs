//! Zaqar's API v2, with one file for each resource; messages have several.

pub mod attributes;
pub mod balance;
pub mod batch;
pub mod bulk;
pub mod claim_list;
pub mod claims;
pub mod components;
mod details;
pub mod flavors;
mod forwards;
pub mod health;
pub mod listing;
pub mod map;
pub mod messages;
pub mod metadata;
pub mod migration;
mod page;
pub mod ping;
pub mod pool_drain;
pub mod pools;
pub mod purge;
pub mod queues;
pub mod quota;
pub mod requeue;
pub mod settle;
pub mod stats;
pub mod status;
