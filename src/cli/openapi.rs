//! `angarium openapi`: the document, on standard output.

use std::io::Write;

use crate::api::openapi::document;

pub(super) fn run() -> anyhow::Result<()> {
    std::io::stdout().write_all(document().as_bytes())?;
    Ok(())
}
