//! `angarium config`: the settings that the service would start with.

use std::io::Write;

use crate::config::Config;
use crate::config::layers::GivenSettings;

/// Prints the settings in the form of a file, then states whether they go together.
pub(super) fn run(given: &GivenSettings, config: &Config) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(given.effective().as_bytes())?;
    out.flush()?;
    config.check()?;
    Ok(())
}
