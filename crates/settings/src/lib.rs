//! Syntax of settings, and the files that settings name: durations and sizes with units, hints for misspelt names, and
//! bounded reads of regular files. This crate knows no setting.

pub mod files;
pub mod spelling;
pub mod units;
