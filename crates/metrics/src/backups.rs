//! Backups that the service makes.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

const WRITTEN: &str = "written";
const BROKEN_OFF: &str = "broken_off";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

/// The meter of backups. Clones share their counters.
#[derive(Clone, Debug, Default)]
pub struct BackupMeter {
    running: Gauge,
    bytes: Counter,
    outcomes: Family<Labels, Counter>,
    last_success: Gauge,
}

/// A backup that is being made. Without an outcome it counts as broken off.
#[derive(Debug)]
pub struct RunningBackup {
    meter: BackupMeter,
    is_written: bool,
}

pub(super) fn register(registry: &mut Registry) -> BackupMeter {
    let meter = BackupMeter::default();
    for outcome in [WRITTEN, BROKEN_OFF] {
        let _ = meter.outcomes.get_or_create(&Labels { outcome });
    }
    registry.register("angarium_backups_running", "Backups that are being made", meter.running.clone());
    registry.register(
        "angarium_backup_bytes",
        "Bytes of backups that clients were sent",
        meter.bytes.clone(),
    );
    registry.register(
        "angarium_backups",
        "Backups that have ended, by outcome: `written` or `broken_off`",
        meter.outcomes.clone(),
    );
    registry.register(
        "angarium_backup_last_success_timestamp_seconds",
        "When the last backup was sent completely, in seconds since the Unix epoch; 0 when none was since the start",
        meter.last_success.clone(),
    );
    meter
}

impl BackupMeter {
    /// Counts a backup that begins.
    pub fn begin(&self) -> RunningBackup {
        self.running.inc();
        RunningBackup { meter: self.clone(), is_written: false }
    }
}

impl RunningBackup {
    /// Counts bytes that the client was sent.
    pub fn note_sent(&self, bytes: u64) {
        self.meter.bytes.inc_by(bytes);
    }

    /// Counts the backup as written at this time.
    pub fn end_written(mut self, unix_seconds: u64) {
        self.is_written = true;
        self.meter.last_success.set(i64::try_from(unix_seconds).unwrap_or(i64::MAX));
    }
}

impl Drop for RunningBackup {
    fn drop(&mut self) {
        self.meter.running.dec();
        let outcome = if self.is_written { WRITTEN } else { BROKEN_OFF };
        self.meter.outcomes.get_or_create(&Labels { outcome }).inc();
    }
}
