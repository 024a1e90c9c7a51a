//! Models of the protocols of several durable steps, each checked in all of its states: P5, the transfer between queues,
//! and P6, the migration of a queue. Each has mutations, and a test that the checker finds every one.
#![allow(clippy::panic, reason = "a test that cannot go on has failed")]

mod migration;
mod transfer;
