//! Bounds of tree time: how it follows the clock of the coordination servers, and how replicas agree on it (P3).

use std::time::Duration;

/// How often a replica records tree time, and learns the clock of the servers, on a tree with a clock of its own. Two replicas
/// notice a step at most this much apart, and so differ by a tenth of it while they follow the step.
pub const TREE_CLOCK_TICK: Duration = Duration::from_secs(5);
/// A replica that could not record tree time for so long takes it from the others, if there are any.
pub const CLOCK_AWAY: Duration = Duration::from_secs(15);
/// Two replicas whose distances from the servers' clock differ by more than this do not agree on the time. Those that do may
/// differ by half of it while they follow a step, and by the length of a commit.
pub const CLOCK_APART: Duration = Duration::from_secs(1);
/// How long a replica that was asked to record tree time, and that does not agree with the last record, waits for another one
/// to do so: those are asked at the same time, and who asks waits for [`CLOCK_AGREE`].
pub const CLOCK_ASKED: Duration = Duration::from_millis(500);
/// A record of tree time whose commit took longer is written again at once, as often as [`CLOCK_RECORD_TRIES`] allows.
pub const CLOCK_RECORD_TOOK: Duration = Duration::from_millis(200);
/// How often a record is written in a row at most.
pub const CLOCK_RECORD_TRIES: usize = 3;
/// How long a start beside running replicas waits for one of them to record tree time, which its registration asks them to.
/// More than [`TREE_CLOCK_TICK`], so that one that is slow to hear of the registration records it in that time too.
pub const CLOCK_AGREE: Duration = Duration::from_secs(6);
/// How often the record is read in that time: its age is known no better.
pub const CLOCK_LOOK: Duration = Duration::from_millis(50);
