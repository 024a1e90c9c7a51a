//! The log files of the store: a scan before the store opens them, and the conclusions from it.
//!
//! The store (fjall 3.1) truncates a log at the first place that it cannot read. That is right for the torn tail that a
//! power cut leaves, and wrong for damage: every commit after the place is lost without an error. So each group of
//! commits carries its number and the number of the last synced group at the time of the write ([`Position`]), and a
//! file beside the logs records the last synced group ([`Witness`]). The scan reads the logs before the store does. If
//! synced groups are missing, the log has a hole and the store is not opened. If only unsynced groups are missing, the
//! log has a torn tail, which is copied and cut.
//!
//! Layout of the stored data (all numbers little endian):
//! * key `log position` of the space `meta`, in each batch, as its last item: see [`Position`].
//! * file `log-witness` in the directory of the store, replaced as a whole: see [`Witness`].
//! * file `damaged-ranges` there, if damage has taken keys from tables: see [`ranges`].
//! * file `table-keys` there: see [`table_keys`].
//! * folder `damaged-<milliseconds>` there: bytes cut from logs, and logs, tables and lists that were replaced.

mod batch;
mod check;
mod cut;
mod files;
mod manifest;
mod position;
mod ranges;
mod table_keys;
mod tail;
mod unflushed;
mod witness;

use std::io;
use std::path::PathBuf;

use thiserror::Error as ThisError;

pub(super) use check::{StoreCheck, check, check_opened, last_position};
pub(super) use cut::{accepted, folder as damaged_folder};
pub(super) use files::{LOG, lock};
pub(super) use manifest::{complete_spaces, is_begun, listed_tables};
pub(super) use position::{KEY, Numbering, Position};
pub(super) use ranges::{DamagedRange, DamagedRanges, FILE as RANGES, MendedTable};
pub(super) use table_keys::{FILE as TABLE_KEYS, TableKeys};
pub(super) use unflushed::number;
pub(super) use witness::{Mark, Witness};

/// Damage of a store: synced data is missing or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[error("{file} is damaged at byte {offset}: {found}{}; {}", lost(*.lost_groups), .remedy.text())]
pub struct Damage {
    /// The damaged or missing file.
    pub file: PathBuf,
    /// Offset of the first byte that cannot be trusted.
    pub offset: u64,
    /// Description of the damage.
    pub found: String,
    /// Min number of synced groups that are missing, each with at least one acknowledged commit; 0 when they cannot be
    /// counted.
    pub lost_groups: u64,
    /// What the operator can do.
    pub remedy: Remedy,
}

/// Possible actions of the operator after damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Continue without everything after the damaged place, or restore a backup.
    AcceptOrRestore,
    /// Restore a backup.
    Restore,
}

impl Remedy {
    fn text(self) -> &'static str {
        match self {
            Self::AcceptOrRestore => {
                "nothing was changed: restore the data directory from a backup, or start once with \
                 --accept-log-damage, which keeps a copy of what follows and goes on without it"
            }
            Self::Restore => "nothing was changed: restore the data directory, or this file, from a backup",
        }
    }
}

fn lost(groups: u64) -> String {
    match groups {
        0 => String::new(),
        1 => "; at least 1 synced group of acknowledged commits is lost".to_owned(),
        groups => format!("; at least {groups} synced groups of acknowledged commits are lost"),
    }
}

/// Errors of checking a store.
#[derive(Debug, ThisError)]
pub(super) enum CheckError {
    /// The store is damaged.
    #[error(transparent)]
    Damage(#[from] Box<Damage>),
    /// A file could not be read or changed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[cfg(test)]
mod hole_tests;
#[cfg(test)]
pub(super) mod tests;
