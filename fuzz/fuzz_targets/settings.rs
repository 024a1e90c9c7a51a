//! Files of settings and of tokens, and addresses: read, or refused with a reason.
#![no_main]

use angarium::config::{TreeChoice, layers, tokens};
use angarium_core::pool::PoolUri;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let reasons = [
        layers::parse(text).err(),
        tokens::parse(text).err(),
        text.parse::<TreeChoice>().err().map(str::to_owned),
        PoolUri::new(text).err().map(|error| error.to_string()),
    ];
    assert!(reasons.into_iter().flatten().all(|why| !why.trim().is_empty()));
});
