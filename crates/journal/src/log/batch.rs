//! A reader of the batches of a log file, in the format of fjall 3.1, with bounded memory.
//!
//! A batch is a start (tag 1, number of items `u32`, sequence number `u64`), its items (tag 2 with a key and a value,
//! tag 4 for a cleared key space) and an end (tag 3, XXH3 of the items, four fixed bytes). A new log is a long file of
//! zeros, so zeros follow the last batch.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};

use xxhash_rust::xxh3::Xxh3;

use super::position::{self, KEY, Position};

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: &[u8; 4] = b"FJL\x03";
/// Kinds of values: value, removal, weak removal.
const KINDS: [u8; 3] = [0, 1, 2];
/// Compressions: none, LZ4.
const COMPRESSIONS: [u8; 2] = [0, 1];
/// Bytes of a value read at a time.
const BLOCK: usize = 64 << 10;
/// Max distance of a batch's sequence number from its floor. The store's other threads use few sequence numbers.
const SEQUENCE_STEPS: u64 = 1 << 32;

/// A whole batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogBatch {
    pub(super) sequence: u64,
    /// None in logs of older programs, which wrote no positions.
    pub(super) position: Option<Position>,
}

/// The next thing in a log.
#[derive(Debug)]
pub(super) enum Next {
    Batch(LogBatch),
    /// No batch begins here: the file ends, or the next byte is zero.
    End,
    /// A batch that cannot be read, with the reason.
    Bad(&'static str),
}

pub(super) struct BatchReader {
    from: BufReader<File>,
    /// Number of bytes read.
    offset: u64,
    /// Offset after the last whole batch.
    end: u64,
    block: Vec<u8>,
}

/// Why a batch cannot be read.
enum Failure {
    Bad(&'static str),
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => Self::Bad("the file ends within a batch"),
            _ => Self::Io(error),
        }
    }
}

impl BatchReader {
    pub(super) fn new(log: File) -> Self {
        Self { from: BufReader::with_capacity(BLOCK, log), offset: 0, end: 0, block: vec![0; BLOCK] }
    }

    /// Returns the offset after the last whole batch.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Reads the next batch. Must not be called again after it returned anything but a batch.
    pub(super) fn next(&mut self) -> io::Result<Next> {
        let mut tag = [0];
        if self.from.read(&mut tag)? == 0 || tag[0] == 0 {
            return Ok(Next::End);
        }
        self.offset += 1;
        match self.batch(tag[0]) {
            Ok(batch) => {
                self.end = self.offset;
                Ok(Next::Batch(batch))
            }
            Err(Failure::Bad(found)) => Ok(Next::Bad(found)),
            Err(Failure::Io(error)) => Err(error),
        }
    }

    fn batch(&mut self, tag: u8) -> Result<LogBatch, Failure> {
        if tag != START {
            return Err(Failure::Bad("no batch begins here"));
        }
        let items = u32::from_le_bytes(self.take()?);
        let sequence = u64::from_le_bytes(self.take()?);
        let mut hash = Xxh3::new();
        let mut position = None;
        for _ in 0..items {
            let [tag] = self.take()?;
            hash.update(&[tag]);
            position = match tag {
                ITEM => self.item(&mut hash)?,
                CLEAR => {
                    hash.update(&self.take::<8>()?);
                    None
                }
                _ => return Err(Failure::Bad("a batch has an item of no known kind")),
            };
        }
        if self.take()? != [END] {
            return Err(Failure::Bad("a batch has no end after its last item"));
        }
        let check = u64::from_le_bytes(self.take()?);
        if self.take()? != *TRAILER {
            return Err(Failure::Bad("the end of a batch is not whole"));
        }
        if check != hash.digest() {
            return Err(Failure::Bad("the checksum of a batch is wrong"));
        }
        let is_off = |at: &Position| sequence < at.floor || sequence - at.floor > SEQUENCE_STEPS;
        if position.as_ref().is_some_and(is_off) {
            return Err(Failure::Bad("a batch has a sequence number that it was not written with"));
        }
        Ok(LogBatch { sequence, position })
    }

    /// Reads an item, and returns the position if the item is one.
    fn item(&mut self, hash: &mut Xxh3) -> Result<Option<Position>, Failure> {
        let head: [u8; 20] = self.take()?;
        hash.update(&head);
        let [kind, compression, _, _, _, _, _, _, _, _, key @ .., _, _, _, _, a, b, c, d] = head;
        if !KINDS.contains(&kind) || !COMPRESSIONS.contains(&compression) {
            return Err(Failure::Bad("an item has no known form"));
        }
        let key = usize::from(u16::from_le_bytes(key));
        let stored = u32::from_le_bytes([a, b, c, d]) as usize;
        let is_position = key == KEY.len() && stored == position::BYTES;
        let mut left = key + stored;
        while left > 0 {
            let part = left.min(BLOCK);
            self.from.read_exact(&mut self.block[..part])?;
            self.offset += part as u64;
            hash.update(&self.block[..part]);
            left -= part;
        }
        let found = &self.block[..key.min(BLOCK)];
        Ok((is_position && found == KEY).then(|| Position::decode(&self.block[key..key + stored])).flatten())
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        self.offset += N as u64;
        Ok(bytes)
    }
}
