//! Damage met by reads of an open store: what counts as damage, and how often reads met it.
//!
//! A read of a damaged place fails every time, so it must be distinguished from a read that fails temporarily. Each
//! place is logged once; every failed read is counted.
//!
//! A disk that refuses a read (EIO) may serve the next one: the cause may be a cable, a network path or a controller.
//! The kernel returns the same error for a bad sector. So a refused read counts as a temporary failure, and is reported
//! for as long as reads fail.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rustix::io::Errno;
use tracing::error;

use super::{JournalError, Space};
use crate::limits;

/// Instruction to the operator for damage that was met.
const NEXT_STEP: &str =
    "stop the service and run angarium doctor --data DIR, which names the files and the queues";
/// Instruction to the operator for a disk that refuses reads.
const DISK_STEP: &str = "look at the log of the kernel and at the disk";

/// Failed reads since the journal was first opened. All stores that the journal opens share it.
#[derive(Debug, Default)]
pub(super) struct DamageWatch(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    reads: u64,
    /// Damaged places, at most [`limits::DAMAGED_PLACES`].
    places: BTreeSet<String>,
    /// When and why the disk last refused a read.
    refused: Option<(Instant, String)>,
}

impl State {
    /// Returns why the disk refused a read within the last [`limits::READ_FAILURE_REPORT`].
    fn refused_of_late(&self) -> Option<&str> {
        let (at, why) = self.refused.as_ref()?;
        (at.elapsed() < limits::READ_FAILURE_REPORT).then_some(why)
    }
}

/// A report of the damage that reads have met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetDamage {
    /// Number of reads that failed because of damage.
    pub reads: u64,
    /// Number of known places, at most [`limits::DAMAGED_PLACES`].
    pub places: usize,
    /// Text for the operator.
    pub text: String,
}

impl DamageWatch {
    /// Records a failed read of `space` and returns the error for the caller.
    pub(super) fn judge(&self, space: Space, failure: &fjall::Error) -> JournalError {
        if is_damage(failure) {
            return self.meet(space, &failure.to_string());
        }
        if is_refusal(failure) {
            self.note_refusal(space, failure);
        }
        JournalError::Read(failure.to_string().into())
    }

    /// Records that the disk refused a read of `space`. Logs it unless a refusal was recorded within the last
    /// [`limits::READ_FAILURE_REPORT`].
    fn note_refusal(&self, space: Space, failure: &fjall::Error) {
        let why = format!("key space {}: {failure}", space.name());
        let mut state = self.0.lock();
        let is_first = state.refused_of_late().is_none();
        state.refused = Some((Instant::now(), why));
        drop(state);
        if is_first {
            error!(space = space.name(), %failure, next_step = DISK_STEP, "disk refuses reads");
        }
    }

    /// Records a read of `space` that met damage. `place` identifies the damaged place.
    pub(super) fn meet(&self, space: Space, place: &str) -> JournalError {
        let text: Arc<str> = format!("key space {}: {place}", space.name()).into();
        let mut state = self.0.lock();
        state.reads += 1;
        let has_room = state.places.len() < limits::DAMAGED_PLACES;
        let is_new = has_room && state.places.insert(text.to_string());
        drop(state);
        if is_new {
            error!(space = space.name(), found = place, next_step = NEXT_STEP, "stored data is damaged");
        }
        JournalError::Damaged(text)
    }

    /// Returns a report, or none when reads met no damage. It mentions refused reads for
    /// [`limits::READ_FAILURE_REPORT`] after the last one.
    pub(super) fn met(&self) -> Option<MetDamage> {
        let state = self.0.lock();
        let (reads, places) = (state.reads, state.places.len());
        let damage = state.places.first().map(|first| {
            format!("stored data is damaged, known places: {places}, the first in {first}; {NEXT_STEP}")
        });
        let refused = state.refused_of_late();
        let refused =
            refused.map(|why| format!("the disk refuses reads, the last one in {why}; {DISK_STEP}"));
        let texts: Vec<_> = damage.into_iter().chain(refused).collect();
        (!texts.is_empty()).then(|| MetDamage { reads, places, text: texts.join("; ") })
    }
}

/// Returns whether a failure means that the disk no longer holds what was written. Such a read fails when it is
/// repeated.
fn is_damage(failure: &fjall::Error) -> bool {
    use fjall::{Error, LsmError};
    match failure {
        Error::Io(error) | Error::Storage(LsmError::Io(error)) => is_lost(error),
        Error::Storage(_)
        | Error::Decompress(_)
        | Error::InvalidTag(_)
        | Error::InvalidTrailer
        | Error::InvalidVersion(_)
        | Error::Unrecoverable => true,
        _ => false,
    }
}

/// Returns whether the disk refused a read. The next read may succeed.
fn is_refusal(failure: &fjall::Error) -> bool {
    use fjall::{Error, LsmError};
    match failure {
        Error::Io(error) | Error::Storage(LsmError::Io(error)) => is_refused(error),
        _ => false,
    }
}

/// Returns whether an error is EIO: the disk cannot be read now.
pub(super) fn is_refused(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::IO)
}

/// Returns whether the bytes are lost: the file is missing, too short or invalid, or the medium has lost them.
fn is_lost(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof | ErrorKind::InvalidData)
        || is_medium_lost(error)
}

/// Returns whether the kernel reports that the medium has lost the bytes: a critical medium error, or a checksum
/// mismatch of the file system or the device. Every repeated read fails as well.
pub(super) fn is_medium_lost(error: &io::Error) -> bool {
    let lost = [Errno::NODATA, Errno::UCLEAN, Errno::BADMSG, Errno::ILSEQ];
    Errno::from_io_error(error).is_some_and(|error| lost.contains(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_moment_are_no_damage() {
        let io = |errno: Errno| fjall::Error::Io(io::Error::from(errno));
        let watch = DamageWatch::default();
        for errno in [Errno::MFILE, Errno::INTR, Errno::NOMEM] {
            assert!(matches!(watch.judge(Space::Tree, &io(errno)), JournalError::Read(_)), "{errno}");
        }
        assert_eq!(watch.met(), None);
        for errno in [Errno::NODATA, Errno::NOENT] {
            assert!(matches!(watch.judge(Space::Tree, &io(errno)), JournalError::Damaged(_)), "{errno}");
        }
        let storage = fjall::Error::Storage(fjall::LsmError::InvalidTrailer);
        for _ in 0..3 {
            assert!(matches!(watch.judge(Space::Entries, &storage), JournalError::Damaged(_)));
        }
        let met = watch.met().unwrap();
        assert_eq!((met.reads, met.places), (5, 3));
    }

    #[test]
    fn refused_read_is_passing_and_reported() {
        let watch = DamageWatch::default();
        let refused = fjall::Error::Storage(fjall::LsmError::Io(io::Error::from(Errno::IO)));
        assert!(matches!(watch.judge(Space::Entries, &refused), JournalError::Read(_)));
        let met = watch.met().unwrap();
        assert_eq!((met.reads, met.places), (0, 0));
        assert!(met.text.contains("the disk refuses reads") && met.text.contains("entries"), "{}", met.text);
        watch.meet(Space::Notes, "here");
        assert!(watch.met().unwrap().text.contains("stored data is damaged"));
        let long_ago = Instant::now().checked_sub(2 * limits::READ_FAILURE_REPORT).unwrap();
        watch.0.lock().refused = Some((long_ago, String::new()));
        assert!(!watch.met().unwrap().text.contains("refuses"));
    }

    #[test]
    fn places_are_bounded_and_reads_counted() {
        let watch = DamageWatch::default();
        for place in 0..3 * limits::DAMAGED_PLACES {
            watch.meet(Space::Notes, &place.to_string());
        }
        let met = watch.met().unwrap();
        assert_eq!((met.reads, met.places), (3 * limits::DAMAGED_PLACES as u64, limits::DAMAGED_PLACES));
    }
}
