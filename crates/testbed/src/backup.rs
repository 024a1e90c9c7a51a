//! Parts of backups that tests write themselves: their head, and a receiver that keeps the bytes.

use std::convert::Infallible;

use angarium_backup::{BackupReceiver, FORM, Head};
use angarium_journal::Space;
use bytes::Bytes;
use uuid::Uuid;

/// Keeps the bytes of a backup.
#[derive(Default)]
pub struct Memory(pub Vec<u8>);

impl BackupReceiver for Memory {
    type End = Infallible;

    fn take(&mut self, bytes: Bytes) -> Result<(), Infallible> {
        self.0.extend_from_slice(&bytes);
        Ok(())
    }
}

/// The head of a backup of these journals with all their contents, and of a pool elsewhere.
pub fn head(journals: &[&str]) -> Head {
    Head {
        form: FORM,
        program: "0.1.0".to_owned(),
        installation: Uuid::nil(),
        generation: 1,
        schema: 1,
        point: 1_000,
        begun: 1_000,
        clock: 1_000,
        stopped_us: 1,
        journals: journals.iter().map(|journal| (*journal).to_owned()).collect(),
        spaces: Space::contents().map(|space| space.name().to_owned()).collect(),
        outside: vec!["far".to_owned()],
    }
}
