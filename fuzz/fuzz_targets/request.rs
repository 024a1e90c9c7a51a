//! Requests as text: method and target, headers, an empty line, the body. What answers must be is in
//! `tests/fuzz/judge.rs`.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{Corpus, fuzz_target};

#[path = "../../tests/fuzz/judge.rs"]
mod judge;

/// One for all inputs: what an input leaves behind is there for the next.
static SERVICE: LazyLock<judge::Service> = LazyLock::new(judge::Service::start);

fuzz_target!(|input: &[u8]| -> Corpus {
    if SERVICE.check(input).is_some() { Corpus::Keep } else { Corpus::Reject }
});
