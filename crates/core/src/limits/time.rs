//! Bounds of tree time: how it follows the clock of the coordination servers, and how replicas agree on it (P3).

use std::time::Duration;

/// Period in which a replica records tree time and learns the servers' clock, if the tree has a clock of its own. Two
/// replicas notice a step at most this far apart, so they differ by at most a tenth of it while they follow the step.
pub const TREE_CLOCK_TICK: Duration = Duration::from_secs(5);
/// Pause between two reads of the record while a replica waits for a change of it. The age of the record is known no
/// more precisely than this.
pub const CLOCK_LOOK: Duration = Duration::from_millis(50);
