//! Bounds of tree time: how it follows the clock of the coordination servers, and how replicas agree on it (P3).

use std::time::Duration;

/// How often a replica records tree time, and learns the clock of the servers, on a tree with a clock of its own. Two replicas
/// notice a step at most this much apart, and so differ by a tenth of it while they follow the step.
pub const TREE_CLOCK_TICK: Duration = Duration::from_secs(5);
/// How often the record is read in that time: its age is known no better.
pub const CLOCK_LOOK: Duration = Duration::from_millis(50);
