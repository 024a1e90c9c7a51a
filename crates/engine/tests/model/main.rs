//! Compares the engine of a queue, under random histories, with a naive queue.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

mod dice;
mod fair;
mod group_reads;
mod histories;
mod holes;
mod settled;
mod step;
mod takeover;
mod truth;
mod world;
