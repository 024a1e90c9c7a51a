//! What tests stand on: the real server as a child process, a client that speaks HTTP to it, and the
//! settings of a test run. It never looks inside the product and never decides whether a test has passed.
#![allow(dead_code, reason = "each test uses its part of this")]
#![allow(clippy::panic, reason = "a test fails by it")]

pub mod balancer;
pub mod client;
pub mod clock_step;
pub mod cluster;
pub mod identity;
pub mod pauses;
pub mod server;
pub mod shim;
pub mod sink;
pub mod terminal;
pub mod yaml;
