//! Reads a backup, checks every byte of it, and passes its contents on.

use std::io::{self, Read};

use bytes::Bytes;
use serde::Deserialize;
use thiserror::Error as ThisError;

use crate::frame::{ABORT_FRAME, BLOCK_FRAME, Frame, Frames, HEAD_FRAME, MANIFEST_FRAME, PART_FRAME, Pairs};
use crate::limits;
use crate::manifest::{Head, Manifest, PartSum};
use crate::write::{PartName, RunningSum};
use angarium_journal::Space;

/// Why a stream is no whole backup.
#[derive(Debug, ThisError)]
pub enum ReadError {
    /// The stream cannot be read.
    #[error("the backup cannot be read")]
    Io(#[from] io::Error),
    /// Bytes are not what was written.
    #[error("the backup is damaged in {place}, in the frame at byte {offset}: {why}")]
    Damaged {
        /// The part of the backup.
        place: String,
        /// Where the frame begins.
        offset: u64,
        /// The difference.
        why: String,
    },
    /// The stream ends early.
    #[error("the backup is cut short in {place}: it ends within the frame at byte {offset}")]
    Cut {
        /// The part of the backup.
        place: String,
        /// Where the frame begins.
        offset: u64,
    },
    /// The service could not complete the backup.
    #[error("the service broke the backup off: {0}")]
    Aborted(String),
    /// The stream is no backup that this program knows.
    #[error("this is no backup that this program reads: {0}")]
    OtherForm(String),
    /// The receiver of the contents has failed.
    #[error("{0}")]
    Sink(String),
}

/// The part that a pair belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartPlace {
    /// Index of the journal in the head.
    pub journal: usize,
    /// The key space.
    pub space: Space,
}

/// A receiver of the contents of a backup. Each block has passed its own checks when it is passed on, but the backup is
/// whole only when [`read`] has returned its manifest. An error ends the reading.
pub trait BackupSink {
    /// Takes the head, before any content.
    fn begin(&mut self, head: &Head) -> Result<(), String>;

    /// Takes pairs of a part, in ascending order of their keys.
    fn pairs(&mut self, part: PartPlace, pairs: Vec<(Bytes, Bytes)>) -> Result<(), String>;
}

/// A receiver that keeps nothing: the backup is only checked.
impl BackupSink for () {
    fn begin(&mut self, _: &Head) -> Result<(), String> {
        Ok(())
    }

    fn pairs(&mut self, _: PartPlace, _: Vec<(Bytes, Bytes)>) -> Result<(), String> {
        Ok(())
    }
}

/// Reads a whole backup from `source`. Holds one frame in memory.
pub fn read(source: impl Read, sink: &mut dyn BackupSink) -> Result<Manifest, ReadError> {
    let mut frames = Frames::open(source)?;
    frames.place = "the head".to_owned();
    let frame = frames.next()?;
    if frame.letter != HEAD_FRAME {
        return Err(unexpected(&frames, &frame));
    }
    let head = Head::parse(&frame.content).map_err(ReadError::OtherForm)?;
    let spaces = head.spaces().map_err(ReadError::OtherForm)?;
    sink.begin(&head).map_err(ReadError::Sink)?;
    let mut parts = PartReader { frames, sink, next: None };
    let mut sums = Vec::new();
    for (index, journal) in head.journals.iter().enumerate() {
        for space in &spaces {
            let name = PartName { journal, space: space.name() };
            sums.push(parts.part(&name, PartPlace { journal: index, space: *space })?);
        }
    }
    parts.finish(Manifest { head, parts: sums })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredPartName {
    journal: String,
    space: String,
}

struct PartReader<'s, R> {
    frames: Frames<R>,
    sink: &'s mut dyn BackupSink,
    /// The first frame behind the part that was read.
    next: Option<Frame>,
}

impl<R: Read> PartReader<'_, R> {
    fn frame(&mut self) -> Result<Frame, ReadError> {
        match self.next.take() {
            Some(frame) => Ok(frame),
            None => self.frames.next(),
        }
    }

    /// Reads the part with this name, which must be the next one.
    fn part(&mut self, name: &PartName<'_>, place: PartPlace) -> Result<PartSum, ReadError> {
        self.frames.place = format!("part {}/{}", name.journal, name.space);
        let frame = self.frame()?;
        if frame.letter != PART_FRAME {
            return Err(unexpected(&self.frames, &frame));
        }
        let found: StoredPartName = serde_json::from_slice(&frame.content)
            .map_err(|error| self.frames.damaged(frame.offset, error.to_string()))?;
        if found.journal != name.journal || found.space != name.space {
            return Err(self.frames.damaged(frame.offset, "another part is in its place".to_owned()));
        }
        let (mut sum, mut last) = (RunningSum::default(), Bytes::new());
        loop {
            let frame = self.frames.next()?;
            if frame.letter != BLOCK_FRAME {
                self.next = Some(frame);
                return Ok(sum.finish(name));
            }
            let pairs = self.pairs_of(&frame, &mut last)?;
            sum.add(&frame.content, pairs.len() as u64);
            self.sink.pairs(place, pairs).map_err(ReadError::Sink)?;
        }
    }

    /// Returns the pairs of a block, whose keys follow `last`.
    fn pairs_of(&self, frame: &Frame, last: &mut Bytes) -> Result<Vec<(Bytes, Bytes)>, ReadError> {
        let damaged = |why: &str| self.frames.damaged(frame.offset, why.to_owned());
        let pairs = Pairs::of(frame.content.clone()).collect::<Result<Vec<_>, _>>().map_err(damaged)?;
        for (key, _) in &pairs {
            if key <= last {
                return Err(damaged("its keys are not in order"));
            }
            if key.len() > limits::BACKUP_KEY_BYTES {
                return Err(damaged("a key is longer than the store takes"));
            }
            *last = key.clone();
        }
        Ok(pairs)
    }

    /// Reads the manifest, and compares it with the sums of what was read.
    fn finish(mut self, found: Manifest) -> Result<Manifest, ReadError> {
        let frame = self.frame()?;
        if frame.letter != MANIFEST_FRAME {
            return Err(unexpected(&self.frames, &frame));
        }
        let stored: Manifest = serde_json::from_slice(&frame.content)
            .map_err(|error| self.frames.damaged(frame.offset, error.to_string()))?;
        if stored.head != found.head {
            return Err(self.frames.damaged(frame.offset, "its head is another one".to_owned()));
        }
        if stored.parts != found.parts {
            let differs = |(stored, found): &(&PartSum, &PartSum)| stored != found;
            let part = stored.parts.iter().zip(&found.parts).find(differs).map(|(_, found)| found);
            let name = part.map_or_else(String::new, |part| format!(" of {}/{}", part.journal, part.space));
            return Err(self.frames.damaged(frame.offset, format!("the sums{name} differ")));
        }
        self.frames.end()?;
        Ok(stored)
    }
}

/// Returns the error for a frame that should not be there, or the reason that the service has left.
fn unexpected<R: Read>(frames: &Frames<R>, frame: &Frame) -> ReadError {
    if frame.letter == ABORT_FRAME {
        return ReadError::Aborted(String::from_utf8_lossy(&frame.content).into_owned());
    }
    let letter = char::from(frame.letter).escape_default();
    frames.damaged(frame.offset, format!("a frame {letter} is not expected there"))
}
