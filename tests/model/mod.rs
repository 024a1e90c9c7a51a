//! The engine of a queue under random histories, held against a naive queue that is never clever.

mod dice;
mod histories;
mod holes;
mod step;
mod truth;
mod whole;
mod world;
