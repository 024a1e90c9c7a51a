//! Who is up and who serves what: the registry, the slots of this replica and the numbers that fence out their owners before.
//!
//! It knows nothing of what is in a slot.

pub mod replicas;
pub mod slots;
