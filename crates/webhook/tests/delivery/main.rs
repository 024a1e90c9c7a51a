//! Delivers webhooks to sinks on this machine, among them hostile ones.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]
#![allow(clippy::disallowed_methods, reason = "sinks end with the runtime of their test")]

mod answers;
mod connections;
mod egress;
mod hostile;
mod sink;
mod tls;
mod urls;
mod values;
