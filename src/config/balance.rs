//! The settings of automatic balance between pools.

use clap::{Args, ValueEnum};

use angarium_settings::units;

/// How queues come to pools that were added after them.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Storage")]
pub struct BalanceSettings {
    /// Who moves queues to pools that have less than their share: `auto`, one of the replicas, or `manual`, an
    /// administrator (`angarium pool balance`)
    #[arg(long, env = "ANGARIUM_BALANCE", default_value = "manual", value_name = "WHO")]
    pub balance: BalanceMode,

    /// Messages per second that each migration of automatic balance copies at most
    #[arg(long, env = "ANGARIUM_BALANCE_RATE", default_value = "1000", value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub balance_rate: u32,

    /// Percentage of all stored bytes and writes that automatic balance must bring to its right pool, at least; it moves
    /// nothing for less
    #[arg(long, env = "ANGARIUM_BALANCE_WHEN", default_value = "10", value_name = "PERCENT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub balance_when: u32,

    /// How often automatic balance makes a plan; each begins at most four migrations
    #[arg(long, env = "ANGARIUM_BALANCE_EVERY", default_value = "600", value_name = "DURATION")]
    #[arg(value_parser = units::seconds_within(10, 86_400))]
    pub balance_every: u32,
}

/// Who balances the pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BalanceMode {
    /// An administrator.
    Manual,
    /// One of the replicas.
    Auto,
}
