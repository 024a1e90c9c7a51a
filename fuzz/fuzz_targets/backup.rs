//! Backups with right checksums: read, or refused with a reason. The judge is `tests/fuzz/backups.rs`.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};

#[path = "../../tests/fuzz/backups.rs"]
mod backups;

fuzz_target!(|input: &[u8]| -> Corpus {
    backups::check(input);
    Corpus::Keep
});
