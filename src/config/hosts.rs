//! The setting of the host names of a service without authentication.

use clap::Args;

use angarium_core::hosts::HostName;

/// Names of the service, beside IP addresses, `localhost` and the machine's own name.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Access")]
pub struct HostSettings {
    /// Host name under which clients without credentials reach the service, beside IP addresses, localhost and the
    /// machine's own name; *.NAME for all below it. May be repeated, or hold several with commas
    #[arg(long, env = "ANGARIUM_ALLOWED_HOST", value_name = "NAME", value_delimiter = ',')]
    pub allowed_host: Vec<HostName>,
}
