//! The setting of the time that the service waits for its own disk.

use std::time::Duration;

use clap::Args;

use angarium_settings::units;

/// How long the service waits for what it depends on.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Storage")]
pub struct WaitSettings {
    /// How long a commit of the embedded stores may take; then the service is not ready and refuses new work, until
    /// the disk answers again
    #[arg(long, env = "ANGARIUM_COMMIT_TIMEOUT", default_value = "10s", value_name = "DURATION")]
    #[arg(value_parser = units::wait)]
    pub commit_timeout: Duration,
}
