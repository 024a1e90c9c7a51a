//! Owns how processor time is read: of this process, and of another one by its id.
//! Never decides when to read it; the generator does, at the two ends of the measured window.

use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Length of one tick in `/proc/PID/stat`. The kernel shows that file in `USER_HZ`, which is 100 on every Linux
/// architecture that Rust builds for, whatever the kernel's own timer rate is.
const TICK: Duration = Duration::from_millis(10);

/// User plus system time of this process so far, all its threads, in nanoseconds.
pub fn of_this_process() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(spent.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(spent.tv_nsec).unwrap_or(0))
}

/// User plus system time of the process `pid` so far.
///
/// Read from `/proc/PID/stat` because that sum still holds the threads that have ended; the finer
/// `/proc/PID/task/*/schedstat` forgets them, and a server's pool of blocking threads does shrink. The kernel scales
/// the two figures to the exact run time, so the only error is the rounding down of each to a tick: a window's
/// difference is within 20 ms of the truth, 0.4 % of a core busy for five seconds.
///
/// An error means that there is no such process, or that this system has no `/proc`.
pub fn of_process(pid: u32) -> io::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let line = std::fs::read_to_string(&path)?;
    parse_stat(&line)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: not understood")))
}

/// Fields 14 and 15 of proc(5). Counted from the last `)`: the second field is the program's name, which may hold
/// blanks and brackets of its own.
fn parse_stat(line: &str) -> Option<Duration> {
    let (_, after_name) = line.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(TICK * user + TICK * system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_gives_user_plus_system() {
        let line =
            "8193 (angarium) S 8188 8188 6692 0 -1 4194304 100 0 0 0 250 75 9 9 20 0 1 0 111754 3133440";
        assert_eq!(parse_stat(line), Some(Duration::from_millis(3250)));
    }

    #[test]
    fn a_name_with_blanks_and_brackets_shifts_nothing() {
        let line = "1 (a) b (c)) R 8188 8188 6692 0 -1 4194304 100 0 0 0 1 2 0 0 20 0";
        assert_eq!(parse_stat(line), Some(Duration::from_millis(30)));
    }

    #[test]
    fn a_short_line_is_refused() {
        assert_eq!(parse_stat("1 (cat) R 1 2 3"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn own_cpu_time_matches_kernel() {
        let shown = of_process(std::process::id()).unwrap();
        let own = of_this_process();
        assert!(own.abs_diff(shown) < Duration::from_millis(500), "{own:?} {shown:?}");
    }
}
