//! Who is up and who should serve what: the registry, the places of slots, and the numbers that fence out owners before.
//!
//! It knows nothing of what is in a slot.

mod connection;
pub mod limits;
pub mod peer_client;
mod peer_response;
pub mod peers;
pub mod replicas;
pub mod slots;
pub mod view;
