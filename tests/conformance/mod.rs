//! What every implementation of a seam promises: one suite a seam, run over each of its drivers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

pub mod coordination;
pub mod storage;
