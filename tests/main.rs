//! The one test binary.

mod faults;
mod support;
