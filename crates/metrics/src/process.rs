//! Metrics of the process, under the names of Prometheus's own clients. Values that cannot be read are zero.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

type Seconds = AtomicU64;

pub(super) struct Process {
    cpu: Counter<f64, Seconds>,
    resident: Gauge,
    virtual_memory: Gauge,
    open_files: Gauge,
    max_files: Gauge,
    started: Gauge<f64, Seconds>,
}

/// Fields of `/proc/self/stat`.
#[derive(Debug, Default, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    started_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Process {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let process = Self {
            cpu: Counter::default(),
            resident: Gauge::default(),
            virtual_memory: Gauge::default(),
            open_files: Gauge::default(),
            max_files: Gauge::default(),
            started: Gauge::default(),
        };
        registry.register(
            "process_cpu_seconds",
            "Seconds of processor time, user and system",
            process.cpu.clone(),
        );
        registry.register(
            "process_resident_memory_bytes",
            "Bytes of memory in use",
            process.resident.clone(),
        );
        registry.register(
            "process_virtual_memory_bytes",
            "Bytes of addresses in use",
            process.virtual_memory.clone(),
        );
        registry.register("process_open_fds", "Open files and sockets", process.open_files.clone());
        registry.register("process_max_fds", "Most open files and sockets", process.max_files.clone());
        registry.register(
            "process_start_time_seconds",
            "When the process began, in seconds since 1970",
            process.started.clone(),
        );
        process
    }

    pub(super) fn set(&self) {
        let ticks = seconds_of(clock_ticks_per_second());
        let stat = fs::read_to_string("/proc/self/stat").map(|text| stat(&text)).unwrap_or_default();
        let boot = fs::read_to_string("/proc/stat").map(|text| boot_seconds(&text)).unwrap_or_default();
        let cpu = seconds_of(stat.cpu_ticks) / ticks;
        self.cpu.inner().store(cpu.to_bits(), Ordering::Relaxed);
        self.started.set(seconds_of(boot) + seconds_of(stat.started_ticks) / ticks);
        let page = u64::try_from(page_size()).unwrap_or_default();
        self.resident.set(whole(stat.resident_pages.saturating_mul(page)));
        self.virtual_memory.set(whole(stat.virtual_bytes));
        // The descriptor that reads the directory is not counted.
        let open = fs::read_dir("/proc/self/fd").map(|files| files.count().saturating_sub(1));
        self.open_files.set(open.ok().and_then(|open| i64::try_from(open).ok()).unwrap_or_default());
        self.max_files.set(whole(getrlimit(Resource::Nofile).current.unwrap_or_default()));
    }
}

/// Parses `/proc/self/stat`. Fields are counted from the end of the program's name, which may contain blanks and
/// brackets (proc(5)).
fn stat(text: &str) -> Stat {
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |number: usize| {
        fields.get(number - 3).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default()
    };
    Stat {
        cpu_ticks: field(14).saturating_add(field(15)),
        started_ticks: field(22),
        virtual_bytes: field(23),
        resident_pages: field(24),
    }
}

fn boot_seconds(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("btime "));
    line.and_then(|seconds| seconds.trim().parse().ok()).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "seconds and ticks are far below 2^53")]
fn seconds_of(number: u64) -> f64 {
    number as f64
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_name_with_brackets_is_parsed() {
        let text =
            "77 (a) b (c) S 1 77 77 0 -1 4194304 10 0 0 0 150 50 0 0 20 0 4 0 9000 5000000 321 184 0 0";
        let found =
            Stat { cpu_ticks: 200, started_ticks: 9000, virtual_bytes: 5_000_000, resident_pages: 321 };
        assert_eq!(stat(text), found);
    }

    #[test]
    fn unreadable_figures_are_zero() {
        assert_eq!(stat(""), Stat::default());
        assert_eq!(stat("77 (a) S"), Stat::default());
        assert_eq!(boot_seconds("cpu 1 2 3\nbtime 1700000000\n"), 1_700_000_000);
        assert_eq!(boot_seconds(""), 0);
    }
}
