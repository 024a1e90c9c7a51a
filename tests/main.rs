//! The one test binary: each folder is a subject, each test states a fact.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod cli;
mod clients;
mod cluster;
mod docs;
mod faults;
mod fuzz;
mod http;
mod openapi;
mod packaging;
mod sdk;
mod sqs;
mod suites;
mod support;
mod tidy;
