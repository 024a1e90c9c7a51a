//! Membership of replicas and ownership of slots: the registry, the assignment of slots, and requests between replicas.
//!
//! This crate does not know the contents of a slot.

mod connection;
pub mod identity;
pub mod limits;
pub mod peer_client;
mod peer_response;
pub mod peers;
pub mod random;
pub mod replicas;
pub mod slots;
pub mod tasks;
pub mod tls;
pub mod trust;
pub mod view;
