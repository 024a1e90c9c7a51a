//! Reads a whole store that no process has open, without changing it. `angarium doctor --data` reports the result.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::log::{self, Damage, Remedy};
use super::tables;

/// Result of reading a store.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// Damage found; empty when everything that was synced can be read.
    pub damage: Vec<Damage>,
    /// Number of commit groups in the logs.
    pub groups: u64,
    /// Number of log files.
    pub logs: usize,
    /// Number of table files.
    pub tables: usize,
    /// Total bytes of the table files.
    pub table_bytes: u64,
    /// The log and the offset where unsynced writes end within a batch. The next start cuts the log there.
    pub torn: Option<(PathBuf, u64)>,
}

/// Reads the logs, lists and tables of the store at `path`. Returns none when there is no store, and `WouldBlock` when
/// a process has it open.
pub fn inspect(path: &Path) -> io::Result<Option<Inspection>> {
    let Some(_lock) = log::lock(path)? else { return Ok(None) };
    let checked = log::check(path)?;
    let mut found = Inspection {
        groups: checked.groups,
        logs: checked.log_count(),
        torn: checked.torn(),
        damage: checked.damage.clone(),
        ..Inspection::default()
    };
    found.damage.extend(checked.damaged_mark.iter().map(|file| {
        Damage {
            file: file.clone(),
            offset: 0,
            found:
                "it cannot be read, so damage of the last group would not be seen; the next start rewrites it"
                    .to_owned(),
            lost_groups: 0,
            remedy: Remedy::Restore,
        }
    }));
    if log::TableKeys::read(path).is_err() {
        let what = "it cannot be read, so a table without a readable block would stop all queues; the next start writes it";
        found.damage.push(Damage {
            file: path.join(log::TABLE_KEYS),
            offset: 0,
            found: what.to_owned(),
            lost_groups: 0,
            remedy: Remedy::Restore,
        });
    }
    for range in &checked.ranges.ranges {
        let found_there =
            format!("damage has taken keys of key space {} from table {}", range.space, range.table);
        found.damage.push(Damage {
            file: path.join(log::RANGES),
            offset: 0,
            found: found_there,
            lost_groups: 0,
            remedy: Remedy::Restore,
        });
    }
    for table in tables::listed(path, &checked.ranges)? {
        found.tables += 1;
        found.table_bytes += fs::metadata(&table.file).map_or(0, |meta| meta.len());
        found.damage.extend(table.damage());
    }
    Ok(Some(found))
}
