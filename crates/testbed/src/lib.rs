//! Shared parts of the tests of several crates: private servers (ZooKeeper, Redis, PostgreSQL) that end with the test
//! process, a proxy that cuts connections, and substitutes for the two seams: a tree with planned faults, and a naive
//! pool. It never decides whether a test has passed.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by it")]

pub mod authority;
pub mod backup;
pub mod drivers;
pub mod faulty_tree;
pub mod held;
pub mod naive;
pub mod owner;
pub mod postgres;
pub mod proxy;
pub mod redis;
pub mod settings;
pub mod zookeeper;
