//! Angarium.

pub mod api;
pub mod broker;
pub mod catalogue;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod coordination;
pub mod domain;
pub mod engine;
pub mod error;
pub mod journal;
pub mod placement;
pub mod server;
pub mod storage;
pub mod telemetry;
