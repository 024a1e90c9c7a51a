//! The bytes of a log file after its last whole batch.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use rustix::io::Errno;

use super::position::{self, KEY, Position};

const BLOCK: usize = 256 << 10;
/// Max bytes at the end of a block that may be the start of a position continuing in the next block.
const OVERLAP: usize = KEY.len() + position::BYTES - 1;

/// The rest of a log file after its whole batches. Empty when it has only zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rest {
    /// Offset after the last byte that is not zero; 0 when there is none.
    pub(super) end: u64,
    /// The smallest group number among the positions found there.
    pub(super) first_group: Option<u64>,
    /// The greatest group number among them.
    pub(super) last_group: Option<u64>,
    /// The greatest group that one of these positions reports as synced.
    pub(super) synced: Option<u64>,
}

impl Rest {
    fn note(&mut self, position: Position) {
        self.first_group = Some(self.first_group.map_or(position.group, |first| first.min(position.group)));
        self.last_group = self.last_group.max(Some(position.group));
        self.synced = self.synced.max(Some(position.synced));
    }
}

/// Reads the rest of `log` from `offset`. Only positions of `store` count, or all positions when the store is unknown.
/// Holes of a sparse file are skipped.
pub(super) fn read(log: &mut File, offset: u64, store: Option<u64>) -> io::Result<Rest> {
    let mut rest = Rest::default();
    let mut block = vec![0; BLOCK];
    // Number of bytes kept from the previous block, and their offset in the file.
    let (mut kept, mut from) = (0, offset);
    loop {
        let at = from + kept as u64;
        match rustix::fs::seek(&*log, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) if data > at => (kept, from) = (0, data),
            Ok(_) => {}
            Err(Errno::NXIO) => return Ok(rest),
            // The file system does not support the search for data.
            Err(_) => _ = log.seek(SeekFrom::Start(at))?,
        }
        let read = log.read(&mut block[kept..])?;
        if read == 0 {
            return Ok(rest);
        }
        let length = kept + read;
        if let Some(last) = block[..length].iter().rposition(|byte| *byte != 0) {
            rest.end = rest.end.max(from + last as u64 + 1);
            find_positions(&block[..length], store, &mut rest);
        }
        let keep = length.min(OVERLAP);
        block.copy_within(length - keep..length, 0);
        from += (length - keep) as u64;
        kept = keep;
    }
}

fn find_positions(block: &[u8], store: Option<u64>, rest: &mut Rest) {
    let candidates = block.windows(KEY.len() + position::BYTES).filter(|window| window.starts_with(KEY));
    candidates
        .filter_map(|window| Position::decode(&window[KEY.len()..]))
        .filter(|position| store.is_none_or(|store| store == position.store))
        .for_each(|position| rest.note(position));
}
