//! `angarium openapi`: prints the OpenAPI document.

use std::io::Write;

use clap::{Args, ValueEnum};

use crate::api::openapi::{Version, document};

/// Which form of the document to print.
#[derive(Args, Debug)]
pub(super) struct OpenapiArgs {
    /// The version of OpenAPI
    #[arg(long, default_value = "3.1")]
    version: VersionArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum VersionArg {
    #[value(name = "3.1")]
    V31,
    #[value(name = "3.0")]
    V30,
}

pub(super) fn run(args: &OpenapiArgs) -> anyhow::Result<()> {
    let version = match args.version {
        VersionArg::V31 => Version::V31,
        VersionArg::V30 => Version::V30,
    };
    std::io::stdout().write_all(document(version).as_bytes())?;
    Ok(())
}
