//! The one test binary: each folder is a subject, each test says a fact.

mod conformance;
mod faults;
mod http;
mod support;
