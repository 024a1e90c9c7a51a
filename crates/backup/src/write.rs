//! Writes a backup from views of journals.

use bytes::Bytes;
use serde::Serialize;
use sha2::{Digest, Sha256};
use thiserror::Error as ThisError;

use crate::frame::{
    ABORT_FRAME, BLOCK_FRAME, HEAD_FRAME, MAGIC, MANIFEST_FRAME, PART_FRAME, frame, put_pair,
};
use crate::limits;
use crate::manifest::{Head, Manifest, PartSum};
use angarium_journal::{JournalError, ReadPair, Space, View};

/// Why a backup could not be written.
#[derive(Debug, ThisError)]
pub enum WriteError<E> {
    /// The receiver takes no more.
    #[error("the backup was ended")]
    Ended(E),
    /// Stored data cannot be read.
    #[error("{0}")]
    Read(JournalError),
    /// A stored pair is larger than a frame.
    #[error("a key of {0} bytes has a value of {1} bytes, which no backup can hold")]
    TooLarge(usize, usize),
    /// The head is not one that a reader accepts.
    #[error("{0}")]
    Head(String),
}

/// Takes the bytes of a backup as they are written.
pub trait BackupReceiver {
    /// Why it takes no more.
    type End;

    /// Takes the next bytes. An error ends the backup.
    fn take(&mut self, bytes: Bytes) -> Result<(), Self::End>;
}

/// The name of a part, as its frame has it.
#[derive(Serialize)]
pub(crate) struct PartName<'a> {
    pub(crate) journal: &'a str,
    pub(crate) space: &'a str,
}

/// The sums of the part that is being written or read.
#[derive(Default)]
pub(crate) struct RunningSum {
    pairs: u64,
    bytes: u64,
    hash: Sha256,
}

impl RunningSum {
    /// Adds the content of a frame with `pairs` pairs.
    pub(crate) fn add(&mut self, content: &[u8], pairs: u64) {
        self.pairs += pairs;
        self.bytes += content.len() as u64;
        self.hash.update(content);
    }

    pub(crate) fn finish(self, part: &PartName<'_>) -> PartSum {
        let hash = self.hash.finalize();
        let sha256 = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let (journal, space) = (part.journal.to_owned(), part.space.to_owned());
        PartSum { journal, space, pairs: self.pairs, bytes: self.bytes, sha256 }
    }
}

/// Writes the frames of one backup to its receiver, one after the other.
pub struct BackupWriter<R> {
    receiver: R,
    number: u64,
    place: String,
}

impl<R: BackupReceiver> BackupWriter<R> {
    /// Returns a writer of one backup.
    pub fn new(receiver: R) -> Self {
        Self { receiver, number: 0, place: "the head".to_owned() }
    }

    /// Returns the receiver.
    pub fn receiver(&mut self) -> &mut R {
        &mut self.receiver
    }

    /// Returns the part that was last begun, for people.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Writes a whole backup. `views` are those of the journals of `head`, in their order. They are dropped as soon as
    /// their scans are open: they would keep in memory all that is written during the backup.
    pub fn write(&mut self, head: &Head, views: Vec<View>) -> Result<Manifest, WriteError<R::End>> {
        let spaces = head.check().and_then(|()| head.spaces()).map_err(WriteError::Head)?;
        let scans = |view: View| spaces.iter().map(|space| (*space, view.scan(*space, b"", b""))).collect();
        let contents: Vec<Vec<_>> = views.into_iter().map(scans).collect();
        self.receiver.take(Bytes::from_static(MAGIC)).map_err(WriteError::Ended)?;
        self.send(HEAD_FRAME, &json(head))?;
        let mut parts = Vec::new();
        for (journal, scans) in head.journals.iter().zip(contents) {
            for (space, pairs) in scans {
                parts.push(self.part(journal, space, pairs)?);
            }
        }
        let manifest = Manifest { head: head.clone(), parts };
        self.send(MANIFEST_FRAME, &json(&manifest))?;
        Ok(manifest)
    }

    /// Ends a backup that cannot be completed, with the reason for its reader.
    pub fn abort(&mut self, why: &str) -> Result<(), WriteError<R::End>> {
        self.send(ABORT_FRAME, why.as_bytes())
    }

    fn part(
        &mut self,
        journal: &str,
        space: Space,
        contents: impl Iterator<Item = ReadPair>,
    ) -> Result<PartSum, WriteError<R::End>> {
        let name = PartName { journal, space: space.name() };
        self.place = format!("part {journal}/{}", space.name());
        self.send(PART_FRAME, &json(&name))?;
        let (mut sum, mut block, mut pairs) = (RunningSum::default(), Vec::new(), 0);
        for pair in contents {
            let (key, value) = pair.map_err(WriteError::Read)?;
            if block.len() >= limits::BACKUP_BLOCK_BYTES {
                self.block(&mut block, &mut pairs, &mut sum)?;
            }
            if !put_pair(&mut block, &key, &value) {
                self.block(&mut block, &mut pairs, &mut sum)?;
                if !put_pair(&mut block, &key, &value) {
                    return Err(WriteError::TooLarge(key.len(), value.len()));
                }
            }
            pairs += 1;
        }
        self.block(&mut block, &mut pairs, &mut sum)?;
        Ok(sum.finish(&name))
    }

    fn block(
        &mut self,
        block: &mut Vec<u8>,
        pairs: &mut u64,
        sum: &mut RunningSum,
    ) -> Result<(), WriteError<R::End>> {
        if block.is_empty() {
            return Ok(());
        }
        sum.add(block, *pairs);
        self.send(BLOCK_FRAME, block)?;
        block.clear();
        *pairs = 0;
        Ok(())
    }

    fn send(&mut self, letter: u8, content: &[u8]) -> Result<(), WriteError<R::End>> {
        let bytes = frame(letter, self.number, content);
        self.number += 1;
        self.receiver.take(bytes).map_err(WriteError::Ended)
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("a head and a manifest have text keys")
}
