//! Writes to the pools: changes with their purposes, notes, pending writes, and sending of batches.

pub(crate) mod change;
pub(crate) mod notes;
pub(crate) mod pending;
pub(crate) mod purpose;
pub(crate) mod send;
