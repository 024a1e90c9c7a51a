//! Bounds of how tree time follows the clock of the coordination servers (P3).

use std::time::Duration;

/// A step of the time by more than this counts as a broken clock.
pub const CLOCK_STEP: Duration = Duration::from_secs(24 * 3_600);
/// Tree time follows the servers' clock by one part in this number: at most 1 s in 10 s, at a rate of 0.9 to 1.1.
pub const CLOCK_SLEW_PARTS: u64 = 10;
/// A replica that is ahead of the others gives up its lead by one part in this number: it runs at half the rate.
pub const CLOCK_LEAD_PARTS: u64 = 2;
/// A replica that has not reached the servers for longer than this stops following their clock.
pub const CLOCK_SLEW_UNSEEN: Duration = Duration::from_secs(15);
/// A larger step of the servers' clock is logged, and reported until tree time has followed it.
pub const CLOCK_STEP_TOLD: Duration = Duration::from_secs(5);
