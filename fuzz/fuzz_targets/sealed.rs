//! Files of keys, sealed data keys and sealed values. The judge is `tests/fuzz/sealed.rs`.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/fuzz/sealed.rs"]
mod sealed;

static JUDGE: LazyLock<sealed::Judge> = LazyLock::new(sealed::Judge::new);

fuzz_target!(|input: &[u8]| JUDGE.check(input));
