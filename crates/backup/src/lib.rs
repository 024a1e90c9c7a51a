//! The form of a backup: the contents of all journals of an installation at one moment, as a stream of bytes.
//!
//! ```text
//! "angarium backup 1\n"
//! frame H   the head: the installation, the moment, the journals and their key spaces
//! frame P   the name of a part: a key space of a journal ┐ for each key space of each journal,
//! frame B   keys and values of the part, any number      ┘ in the order of the head
//! frame M   the manifest: the head, and of each part its pairs, bytes and SHA-256
//! end of the stream
//! ```
//!
//! | bytes of a frame | what |
//! |---|---|
//! | 1 | the letter of the frame; `X` has the reason why the service broke the backup off |
//! | 4 | length of the content, big endian |
//! | length | the content: JSON; of `B` for each pair two lengths of 4 bytes, the key, the value |
//! | 8 | XXH3 of the number of the frame (8 bytes), its letter, its length and its content |
//!
//! A stream without its manifest, or with anything behind it, is no backup. The checksum of a frame names the damaged
//! place; its number shows frames that are missing, doubled or exchanged. SHA-256 of a part covers the contents of its
//! frames. Written backups are read by later programs, so the form never changes; another form has another first line.
//!
//! `write` makes the stream from views, `read` checks it and passes its contents on, `directory` keeps it in a
//! directory. This crate knows no queue, no tree and no HTTP, and holds one frame in memory.

mod directory;
mod frame;
pub mod limits;
mod manifest;
mod read;
mod write;

pub use directory::{DirectoryError, check_target, is_free, open, store};
pub use frame::{MAGIC, Pairs, frame};
pub use manifest::{FORM, Head, Manifest, PartSum};
pub use read::{BackupSink, PartPlace, ReadError, read};
pub use write::{BackupReceiver, BackupWriter, WriteError};
