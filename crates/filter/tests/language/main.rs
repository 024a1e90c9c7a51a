//! Holds the language of filter policies against its documentation, a naive evaluator and hostile input.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

mod arrays;
mod bounds;
mod hostile;
mod model;
mod naive;
mod operators;
mod refusals;
mod scopes;
mod verdict;
