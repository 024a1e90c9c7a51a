//! How people write settings, and the files that settings name: durations and sizes with units, hints at slips, and
//! regular files read up to a bound. It knows no setting.

pub mod files;
pub mod spelling;
pub mod units;
