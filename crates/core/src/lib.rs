//! The words of the product and their rules: names, ids, messages, claims, queues, pools, receipts, limits, quotas,
//! times, access, addresses.
//!
//! A value is checked when it is made and trusted after. This crate does no I/O, never waits and reads no clock;
//! callers pass instants and randomness as arguments.

#![warn(missing_docs)]

pub mod access;
pub mod access_keys;
pub mod attributes;
pub mod backoff;
pub mod claim;
pub mod confirmation;
pub mod data_files;
pub mod dedup;
pub mod delay;
pub mod durability;
pub mod envelope;
pub mod error;
mod error_code;
pub mod flavor;
pub mod group;
pub mod hold;
pub mod hosts;
pub mod ids;
pub mod limits;
pub mod maps;
pub mod message;
pub mod message_attribute;
pub mod move_task;
pub mod mutation;
pub mod names;
pub mod network;
pub mod notification;
pub mod outcome;
pub mod overflow;
pub mod page;
pub mod patch;
pub mod peek_position;
pub mod pool;
pub mod probe;
pub mod queue;
pub mod quota;
pub mod rate;
pub mod receipt;
pub mod region;
pub mod request_header;
pub mod resource;
pub mod retry_policy;
pub mod role_names;
pub mod selection;
pub mod settle;
pub mod small_bounds;
pub mod source;
pub mod subscription;
pub mod time;
pub mod trace;
pub mod webhook;
