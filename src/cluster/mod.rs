//! Who is up and who should serve what: the registry, the places of slots, and the numbers that fence out owners before.
//!
//! It knows nothing of what is in a slot.

mod answer;
mod connection;
pub mod forward;
pub mod questions;
pub mod replicas;
pub mod slots;
pub mod view;
