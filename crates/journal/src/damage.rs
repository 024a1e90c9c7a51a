//! Damage that reads of an open store meet: what counts as damage, and how often it was met.
//!
//! A read of a damaged place fails each time, however often it is repeated, so it is told from one that failed for the
//! moment. Each place is logged once; all of them are counted.
//!
//! A disk that refuses a read (EIO) may serve the next one: a cable, a path of a network, a controller. The kernel gives the same
//! error for a bad sector. So such a read counts as failed for the moment, and is reported for as long as reads fail.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rustix::io::Errno;
use tracing::error;

use super::{JournalError, Space};
use crate::limits;

/// What an operator does about damage that was met.
const NEXT_STEP: &str =
    "stop the service and run angarium doctor --data DIR, which names the files and the queues";
/// What an operator does about a disk that refuses reads.
const DISK_STEP: &str = "look at the log of the kernel and at the disk";

/// What reads have met since the journal was opened first. Shared by all stores that it opens.
#[derive(Debug, Default)]
pub(super) struct DamageWatch(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    reads: u64,
    /// At most [`limits::DAMAGED_PLACES`].
    places: BTreeSet<String>,
    /// When the disk last refused a read, and why.
    refused: Option<(Instant, String)>,
}

impl State {
    /// Why the disk refused a read of late.
    fn refused_of_late(&self) -> Option<&str> {
        let (at, why) = self.refused.as_ref()?;
        (at.elapsed() < limits::READ_FAILURE_REPORT).then_some(why)
    }
}

/// What reads have met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetDamage {
    /// Reads that failed for it.
    pub reads: u64,
    /// Places that are known, up to [`limits::DAMAGED_PLACES`].
    pub places: usize,
    /// What to tell an operator.
    pub text: String,
}

impl DamageWatch {
    /// What a failed read of `space` means, after it was noted.
    pub(super) fn judge(&self, space: Space, failure: &fjall::Error) -> JournalError {
        if is_damage(failure) {
            return self.meet(space, &failure.to_string());
        }
        if is_refusal(failure) {
            self.note_refusal(space, failure);
        }
        JournalError::Read(failure.to_string().into())
    }

    /// Notes that the disk refused a read of `space`. The first one of a while is logged.
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

    /// Notes a read of `space` that met damage. `place` tells it from other places.
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

    /// What was met; none when nothing was. Reads that the disk refused are told of for [`limits::READ_FAILURE_REPORT`].
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

/// Whether a failure means that what is on the disk is not what was written: a repetition fails too.
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

/// Whether the disk refused a read, without a word on whether it will refuse the next one.
fn is_refusal(failure: &fjall::Error) -> bool {
    use fjall::{Error, LsmError};
    match failure {
        Error::Io(error) | Error::Storage(LsmError::Io(error)) => is_refused(error),
        _ => false,
    }
}

/// Whether an error is the one of a disk that cannot be read now.
pub(super) fn is_refused(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::IO)
}

/// Whether the bytes are gone: not there, or not readable for the disk.
fn is_lost(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof | ErrorKind::InvalidData)
        || is_medium_lost(error)
}

/// Whether the kernel states that the medium has lost the bytes: a critical error of the medium, or a failed checksum of the
/// file system or the device. It repeats with each read.
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
