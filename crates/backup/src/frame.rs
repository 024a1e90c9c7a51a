//! Frames: written with their checksums, read within their bounds.

use std::io::{ErrorKind, Read};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use xxhash_rust::xxh3::Xxh3;

use crate::limits;
use crate::read::ReadError;

/// The first bytes of a backup.
pub const MAGIC: &[u8] = b"angarium backup 1\n";

/// Bytes before the content, and behind it.
const HEAD: usize = 5;
const SUM: usize = 8;
/// Bytes before a pair: the lengths of its key and of its value.
const PAIR_HEAD: usize = 8;

/// Letters of the frames.
pub(crate) const HEAD_FRAME: u8 = b'H';
pub(crate) const PART_FRAME: u8 = b'P';
pub(crate) const BLOCK_FRAME: u8 = b'B';
pub(crate) const MANIFEST_FRAME: u8 = b'M';
pub(crate) const ABORT_FRAME: u8 = b'X';

/// Returns the frame with this letter, number and content. The content has at most
/// [`limits::BACKUP_FRAME_BYTES`].
pub fn frame(letter: u8, number: u64, content: &[u8]) -> Bytes {
    let length = u32::try_from(content.len()).expect("the content of a frame is bounded");
    let mut bytes = BytesMut::with_capacity(HEAD + content.len() + SUM);
    bytes.put_u8(letter);
    bytes.put_u32(length);
    bytes.put_slice(content);
    bytes.put_u64(sum(number, letter, content));
    bytes.freeze()
}

fn sum(number: u64, letter: u8, content: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&number.to_be_bytes());
    hash.update(&[letter]);
    hash.update(&(content.len() as u64).to_be_bytes());
    hash.update(content);
    hash.digest()
}

/// Adds a pair to the content of a block. Returns false, with nothing added, if a frame cannot hold it.
pub(crate) fn put_pair(block: &mut Vec<u8>, key: &[u8], value: &[u8]) -> bool {
    let length = PAIR_HEAD.saturating_add(key.len()).saturating_add(value.len());
    let lengths = (u32::try_from(key.len()), u32::try_from(value.len()));
    let (Ok(key_length), Ok(value_length)) = lengths else { return false };
    if block.len().saturating_add(length) > limits::BACKUP_FRAME_BYTES {
        return false;
    }
    block.put_u32(key_length);
    block.put_u32(value_length);
    block.put_slice(key);
    block.put_slice(value);
    true
}

/// The pairs of a block, in its order. After an error there are no further ones.
#[derive(Clone, Debug)]
pub struct Pairs(Bytes);

impl Pairs {
    /// Returns the pairs in the content of a block.
    pub fn of(content: Bytes) -> Self {
        Self(content)
    }

    fn take(&mut self) -> Option<(Bytes, Bytes)> {
        let (key, value) = (self.0.try_get_u32().ok()?, self.0.try_get_u32().ok()?);
        let (key, value) = (usize::try_from(key).ok()?, usize::try_from(value).ok()?);
        if key.checked_add(value)? > self.0.len() {
            return None;
        }
        Some((self.0.split_to(key), self.0.split_to(value)))
    }
}

impl Iterator for Pairs {
    type Item = Result<(Bytes, Bytes), &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let pair = self.take();
        if pair.is_none() {
            self.0.clear();
        }
        Some(pair.ok_or("the lengths of a pair exceed its block"))
    }
}

/// A frame as it was read.
pub(crate) struct Frame {
    pub(crate) letter: u8,
    pub(crate) content: Bytes,
    /// Where the frame begins in the stream.
    pub(crate) offset: u64,
}

/// The frames of a stream.
pub(crate) struct Frames<R> {
    source: R,
    /// Bytes read so far.
    offset: u64,
    /// Number of the next frame.
    number: u64,
    /// The part that is being read, for errors.
    pub(crate) place: String,
}

impl<R: Read> Frames<R> {
    /// Reads the first line of a stream.
    pub(crate) fn open(source: R) -> Result<Self, ReadError> {
        let mut frames = Self { source, offset: 0, number: 0, place: "the first line".to_owned() };
        let mut magic = vec![0; MAGIC.len()];
        frames.fill(&mut magic, 0)?;
        if magic != MAGIC {
            let text = String::from_utf8_lossy(&magic).trim_end().to_owned();
            return Err(ReadError::OtherForm(format!("it begins with {text:?}")));
        }
        Ok(frames)
    }

    /// Reads the next frame. Memory is taken as its bytes arrive, so a false length costs nothing.
    pub(crate) fn next(&mut self) -> Result<Frame, ReadError> {
        let offset = self.offset;
        let mut head = [0; HEAD];
        self.fill(&mut head, offset)?;
        let letter = head[0];
        if letter == MANIFEST_FRAME {
            "the manifest".clone_into(&mut self.place);
        }
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > limits::BACKUP_FRAME_BYTES {
            let bound = limits::BACKUP_FRAME_BYTES;
            return Err(self.damaged(offset, format!("a frame of {length} bytes, and the max is {bound}")));
        }
        let mut content = Vec::new();
        let read = (&mut self.source).take(length as u64).read_to_end(&mut content)?;
        self.offset += read as u64;
        if read < length {
            return Err(self.cut(offset));
        }
        let mut sum = [0; SUM];
        self.fill(&mut sum, offset)?;
        if self::sum(self.number, letter, &content) != u64::from_be_bytes(sum) {
            return Err(self.damaged(offset, "its checksum differs".to_owned()));
        }
        self.number += 1;
        Ok(Frame { letter, content: content.into(), offset })
    }

    /// Checks that the stream has ended.
    pub(crate) fn end(&mut self) -> Result<(), ReadError> {
        let mut rest = [0];
        loop {
            match self.source.read(&mut rest) {
                Ok(0) => return Ok(()),
                Ok(_) => return Err(self.damaged(self.offset, "bytes behind the manifest".to_owned())),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads all of `bytes`, which belong to what begins at `offset`.
    fn fill(&mut self, bytes: &mut [u8], offset: u64) -> Result<(), ReadError> {
        match self.source.read_exact(bytes) {
            Ok(()) => self.offset += bytes.len() as u64,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(self.cut(offset)),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    pub(crate) fn damaged(&self, offset: u64, why: String) -> ReadError {
        ReadError::Damaged { place: self.place.clone(), offset, why }
    }

    fn cut(&self, offset: u64) -> ReadError {
        ReadError::Cut { place: self.place.clone(), offset }
    }
}
