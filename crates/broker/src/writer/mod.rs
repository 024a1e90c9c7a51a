//! What is written of a queue and how: changes, their notes, batches. It knows no engine.

pub(crate) mod change;
pub(crate) mod notes;
pub(crate) mod pending;
pub(crate) mod send;
