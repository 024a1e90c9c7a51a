//! `angarium config`: prints the settings with which the service would start.

use std::io::Write;

use crate::config::Config;
use crate::config::layers::GivenSettings;

/// Prints the settings in the form of a file, then checks their combination.
pub(super) fn run(given: &GivenSettings, config: &Config) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(given.effective().as_bytes())?;
    out.flush()?;
    config.check()?;
    Ok(())
}
