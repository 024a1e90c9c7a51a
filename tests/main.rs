//! The one test binary: each folder is a subject, each test says a fact.

mod faults;
mod http;
mod openapi;
mod support;
mod tidy;
