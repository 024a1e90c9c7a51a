//! Writing tables again that have damaged blocks, after a merge failed.
//!
//! The store merges tables by itself, reads them whole for that, and takes no write any more once a merge has failed;
//! opened again it begins the same merge. So one damaged block would end all queues. Therefore a damaged table is
//! written again from the blocks that can be read, under its own number. What it was before is copied first, and the
//! keys that the damaged blocks may have had are noted as damaged ([`DamagedRanges`]), so that reads of them still
//! fail: nothing is taken for removed.
//!
//! A table without any block that can be read has the keys that a list beside the logs names ([`TableKeys`]): all of
//! them are noted. Such a table, or one without a readable description, stops the start too, and is rewritten then.
//!
//! The form of tables is that of lsm-tree 3.1: blocks one after the other, each with a head that states how long it is;
//! then an index, a filter and a block of metadata.

use std::fs::{self, File};
use std::io::{self, Cursor, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lsm_tree::coding::{Decode, Encode};
use lsm_tree::table::block::decoder::ParsedItem;
use lsm_tree::table::block::{BlockType, Header};
use lsm_tree::table::{Block, DataBlock, Writer};
use lsm_tree::{CompressionType, InternalValue, ValueType};
use tracing::{error, warn};
use xxhash_rust::xxh3::xxh3_128;

use super::damage::{is_medium_lost, is_refused};
use super::log::{self, DamagedRange, DamagedRanges, MendedTable, TableKeys};
use super::tables;
use crate::limits;
use angarium_core::time::Timestamp;

/// Bytes that are read at a time: the disk may refuse each of them alone.
const PAGE: usize = 4_096;

/// What was done about damaged tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MendResult {
    pub(super) tables: usize,
    pub(super) ranges: usize,
    /// Tables that are left as they are.
    pub(super) left: usize,
    /// Those of them of which the disk refuses a part.
    pub(super) refused: usize,
}

/// What becomes of a table of which the disk refuses a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is left as it is: the disk may serve the part later.
    Leave,
    /// It is rewritten without the part.
    GiveUp,
}

/// Which damaged tables are rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    All,
    /// Those whose keys are listed, or none: a store that was not open yet may need the others to be what it was.
    Listed,
}

/// Writes the damaged tables of the store at `path` again, which no process may have open. One that cannot be read at
/// all is left as it is, and one of which the disk refuses a part as `refused` states.
pub(super) fn mend(path: &Path, now: Timestamp, refused: Refused, scope: Scope) -> io::Result<MendResult> {
    let Some(_lock) = log::lock(path)? else { return Ok(MendResult::default()) };
    let mut known = DamagedRanges::read(path)?;
    // Without the list less can be mended.
    let keys = TableKeys::read(path).unwrap_or_default();
    let mut done = MendResult::default();
    let damaged = tables::damaged(path, &known)?;
    let is_unknown = |table: &tables::TableFile| keys.find(table.space, table.number).is_none();
    if scope == Scope::Listed && damaged.iter().any(is_unknown) {
        return Ok(MendResult { left: damaged.len(), ..done });
    }
    for table in damaged {
        let listed = keys.find(table.space, table.number);
        let listed = listed.map(|keys| Metadata::listed(&keys.first, &keys.last));
        match rewrite(path, &table, listed, now, refused) {
            Ok(rewritten) => {
                done.tables += 1;
                done.ranges += rewritten.ranges.len();
                known.add(rewritten.table, rewritten.ranges);
                // First the note: until the table is replaced its own damage stops the reads.
                known.write(path)?;
                fs::rename(&rewritten.file, &table.file)?;
                File::open(path.join("keyspaces").join(table.space.to_string()).join("tables"))?
                    .sync_all()?;
                error!(
                    table = %table.file.display(),
                    copy = %rewritten.copy.display(),
                    "damaged table rewritten"
                );
            }
            Err(error) => {
                done.left += 1;
                done.refused += usize::from(is_refused(&error));
                warn!(table = %table.file.display(), %error, "damaged table not rewritten");
            }
        }
    }
    Ok(done)
}

/// A table that was rewritten, beside its place.
struct RewrittenTable {
    file: PathBuf,
    copy: PathBuf,
    table: MendedTable,
    ranges: Vec<DamagedRange>,
}

fn rewrite(
    path: &Path,
    table: &tables::TableFile,
    listed: Option<Metadata>,
    now: Timestamp,
    refused: Refused,
) -> io::Result<RewrittenTable> {
    let bytes = read_all(&table.file, refused)?;
    let contents = Contents::read(&bytes, table, listed)?;
    let folder = log::damaged_folder(path, now);
    fs::create_dir_all(&folder)?;
    let name = format!("space-{}-table-{}", table.space, table.number);
    let copy = folder.join(&name);
    move_into(&table.file, &copy, &bytes)?;
    let file = folder.join(format!("{name}.unfinished"));
    match fs::remove_file(&file) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let check = contents.write(&file, table.number).map_err(io::Error::other)?;
    let mended = MendedTable { space: table.space, table: table.number, check };
    Ok(RewrittenTable { file, copy, table: mended, ranges: contents.ranges })
}

/// Keeps a table as `copy`, whose place the rewritten one takes: the very file where the file system has links, since
/// parts that the disk refuses now may be read later.
fn move_into(table: &Path, copy: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::hard_link(table, copy).is_err() {
        fs::write(copy, bytes)?;
        File::open(copy)?.sync_all()?;
    }
    copy.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// All bytes of a file. Bad pages are zeros, if pages that the disk refuses are given up.
fn read_all(file: &Path, refused: Refused) -> io::Result<Vec<u8>> {
    let from = File::open(file)?;
    let length = from.metadata()?.len();
    if length > limits::MEND_BYTES {
        return Err(io::Error::new(ErrorKind::InvalidData, "it is too long to be held in memory"));
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    read_pages(&mut bytes, refused, |page, at| from.read_exact_at(page, at))?;
    Ok(bytes)
}

/// Reads page by page. Only a page of which the kernel states that the medium does not have it is taken for bad: after any
/// other error (no memory, a stale handle, a device that is away) the bytes may be whole, and zeros would destroy them.
fn read_pages(
    bytes: &mut [u8],
    refused: Refused,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    for (number, page) in bytes.chunks_mut(PAGE).enumerate() {
        match read(page, (number * PAGE) as u64) {
            Ok(()) => {}
            Err(error) if refused == Refused::GiveUp && is_refused(&error) => page.fill(0),
            Err(error) if is_medium_lost(&error) => page.fill(0),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What can be read of a table.
struct Contents {
    items: Vec<InternalValue>,
    ranges: Vec<DamagedRange>,
    compression: CompressionType,
    level: u8,
}

/// The description of a table, as far as it is known.
struct Metadata {
    first: Vec<u8>,
    last: Vec<u8>,
    /// Whether that is its last key, or one above any that it may have.
    is_last: bool,
    compression: CompressionType,
    level: u8,
}

impl Contents {
    fn read(bytes: &[u8], table: &tables::TableFile, listed: Option<Metadata>) -> io::Result<Self> {
        let Parts { data, is_whole, meta } = parts(bytes, listed)?;
        let mut contents =
            Self { items: Vec::new(), ranges: Vec::new(), compression: meta.compression, level: meta.level };
        contents.take_blocks(data, is_whole, table, &meta);
        if contents.items.is_empty() {
            // A table has an item. This one removes a key that is not read.
            let key = contents.ranges.first().map_or(&meta.first, |range| &range.first);
            contents.items.push(InternalValue::from_components(&key[..], b"", 0, ValueType::Tombstone));
        }
        Ok(contents)
    }

    /// Takes the items of whole blocks, and notes the keys between them where one is not, and those behind them that should be
    /// there.
    fn take_blocks(&mut self, data: &[u8], is_whole: bool, table: &tables::TableFile, meta: &Metadata) {
        let range = |first: &[u8], last: &[u8]| DamagedRange {
            space: table.space,
            table: table.number,
            first: first.to_vec(),
            last: last.to_vec(),
        };
        // The first key that a damaged block may have, from where one was met.
        let mut lost: Option<Vec<u8>> = None;
        let mut next_key = meta.first.clone();
        let mut at = 0;
        while at < data.len() {
            let (items, length) = read_block(&data[at..], meta.compression);
            at += length;
            let Some((first, last)) = items.first().zip(items.last()) else {
                lost.get_or_insert_with(|| next_key.clone());
                continue;
            };
            if let Some(from) = lost.take() {
                // A newer value of the same key may have been the last of the damaged block.
                self.ranges.push(range(&from, &first.key.user_key));
            }
            next_key = [&last.key.user_key[..], &[0]].concat();
            self.items.extend(items);
        }
        let is_cut = (meta.is_last || !is_whole) && next_key <= meta.last;
        if let Some(from) = lost.or(is_cut.then_some(next_key)) {
            self.ranges.push(range(&from, &meta.last.clone().max(from.clone())));
        }
    }

    /// Writes a table with the number `table`, and returns the checksum of the file.
    fn write(&self, file: &Path, table: u64) -> Result<u128, lsm_tree::Error> {
        let mut writer =
            Writer::new(file.to_owned(), table, self.level)?.use_data_block_compression(self.compression);
        for item in &self.items {
            writer.write(item.clone())?;
        }
        let written = writer.finish()?;
        Ok(written.map_or(0, |(_, check)| check.into_u128()))
    }
}

/// A table as far as it can be taken apart.
struct Parts<'a> {
    /// Its blocks of data.
    data: &'a [u8],
    /// Whether it is certain where these end.
    is_whole: bool,
    meta: Metadata,
}

/// The blocks of data of a table, and what it states of itself: where its list of parts cannot be read, or not what it
/// states, as far as the blocks tell, and the `listed` keys. Not when there is neither.
fn parts(bytes: &[u8], listed: Option<Metadata>) -> io::Result<Parts<'_>> {
    let list = sfa::Reader::from_reader(&mut Cursor::new(bytes)).ok();
    let part = |name: &[u8]| {
        let entry = list.as_ref()?.toc().section(name)?;
        let (from, length) = (usize::try_from(entry.pos()).ok()?, usize::try_from(entry.len()).ok()?);
        bytes.get(from..from.checked_add(length)?)
    };
    let (data, is_whole) = part(b"data").map_or_else(|| leading_blocks(bytes), |data| (data, true));
    let meta =
        part(b"meta").and_then(|meta| Metadata::read(meta).ok()).or_else(|| Metadata::assumed(data, listed));
    meta.map(|meta| Parts { data, is_whole, meta }).ok_or(ErrorKind::InvalidData.into())
}

/// The blocks of data that a table begins with, up to a whole block of another kind, and whether there is one. All of it where
/// there is none behind them: then what cannot be read may have been data.
fn leading_blocks(bytes: &[u8]) -> (&[u8], bool) {
    let mut at = 0;
    while let Some(length) = block_length(&bytes[at..]).or_else(|| next_block(&bytes[at..])) {
        at += length;
        if is_other_block(&bytes[at..]) {
            return (&bytes[..at], true);
        }
    }
    (bytes, false)
}

/// How far away the next block of data is that is not the first thing here.
fn next_block(data: &[u8]) -> Option<usize> {
    (1..data.len()).find(|at| block_length(&data[*at..]).is_some())
}

/// Whether a whole block begins here that is none of data.
fn is_other_block(mut data: &[u8]) -> bool {
    if !data.starts_with(tables::BLOCK_MAGIC) {
        return false;
    }
    let Ok(head) = Header::decode_from(&mut data) else { return false };
    let contents = data.get(..head.data_length as usize);
    head.block_type != BlockType::Data
        && contents.is_some_and(|contents| xxh3_128(contents) == head.checksum.into_u128())
}

/// The items of the block that begins here, and how many bytes it takes. Without items when it cannot be read: then up to
/// where the next one may begin.
fn read_block(data: &[u8], compression: CompressionType) -> (Vec<InternalValue>, usize) {
    let Some(length) = block_length(data) else {
        return (Vec::new(), next_block(data).unwrap_or(data.len()));
    };
    (items(&data[..length], compression).unwrap_or_default(), length)
}

/// How long the block is whose head is here, if it is the head of a block of data.
fn block_length(mut data: &[u8]) -> Option<usize> {
    let whole = data.len();
    if !data.starts_with(tables::BLOCK_MAGIC) {
        return None;
    }
    let head = Header::decode_from(&mut data).ok().filter(|head| head.block_type == BlockType::Data)?;
    let length = Header::serialized_len() + head.data_length as usize;
    (length <= whole && u64::from(head.uncompressed_length) <= tables::BLOCK_BYTES).then_some(length)
}

fn items(mut block: &[u8], compression: CompressionType) -> Option<Vec<InternalValue>> {
    let block = DataBlock::new(Block::from_reader(&mut block, compression).ok()?);
    let items = block.iter().map(|item| item.materialize(&block.inner.data)).collect();
    Some(items)
}

impl Metadata {
    fn read(section: &[u8]) -> io::Result<Self> {
        let items = items(section, CompressionType::None).ok_or(ErrorKind::InvalidData)?;
        let value = |name: &[u8]| {
            let item = items.iter().find(|item| *item.key.user_key == *name);
            item.map(|item| item.value.to_vec()).ok_or(io::Error::from(ErrorKind::InvalidData))
        };
        let compression = match value(b"compression#data")? {
            tag if tag == CompressionType::Lz4.encode_into_vec() => CompressionType::Lz4,
            tag if tag == CompressionType::None.encode_into_vec() => CompressionType::None,
            _ => return Err(ErrorKind::InvalidData.into()),
        };
        let level = value(b"initial_level")?.first().copied().unwrap_or_default();
        let (first, last) = (value(b"key#min")?, value(b"key#max")?);
        Ok(Self { first, last, is_last: true, compression, level })
    }

    /// A table with these keys.
    fn listed(first: &[u8], last: &[u8]) -> Self {
        let compression = CompressionType::None;
        Self { first: first.to_vec(), last: last.to_vec(), is_last: true, compression, level: 0 }
    }

    /// What must be assumed of a table with these blocks: any key may have been in it, if nothing is `listed`. None without a
    /// block and a list.
    fn assumed(data: &[u8], listed: Option<Self>) -> Option<Self> {
        let at = if block_length(data).is_some() { Some(0) } else { next_block(data) };
        let Some(head) = at.and_then(|at| Header::decode_from(&mut &data[at..]).ok()) else { return listed };
        // Compressed contents are not as long as before.
        let is_plain = head.data_length == head.uncompressed_length;
        let compression = if is_plain { CompressionType::None } else { CompressionType::Lz4 };
        let any = || Self { is_last: false, ..Self::listed(&[0], &[u8::MAX; limits::MEND_KEY_BYTES]) };
        Some(Self { compression, ..listed.unwrap_or_else(any) })
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    /// Reads three pages of ones, the second of which fails.
    fn read(refused: Refused, failure: Errno) -> Result<Vec<u8>, Option<Errno>> {
        let mut bytes = vec![7; 3 * PAGE];
        let read = |page: &mut [u8], at: u64| {
            page.fill(1);
            if at == PAGE as u64 { Err(io::Error::from(failure)) } else { Ok(()) }
        };
        let done = read_pages(&mut bytes, refused, read);
        done.map(|()| bytes).map_err(|error| Errno::from_io_error(&error))
    }

    #[test]
    fn bad_page_is_zeros_and_other_errors_are_returned() {
        let zeroed = [vec![1; PAGE], vec![0; PAGE], vec![1; PAGE]].concat();
        assert_eq!(read(Refused::GiveUp, Errno::IO), Ok(zeroed.clone()));
        assert_eq!(read(Refused::Leave, Errno::IO), Err(Some(Errno::IO)));
        for refused in [Refused::GiveUp, Refused::Leave] {
            // The kernel has these for sectors and blocks that are lost for good.
            for lost in [Errno::NODATA, Errno::BADMSG, Errno::UCLEAN, Errno::ILSEQ] {
                assert_eq!(read(refused, lost), Ok(zeroed.clone()), "{lost}");
            }
            for passing in [Errno::NOMEM, Errno::STALE, Errno::NXIO, Errno::TIMEDOUT, Errno::ACCESS] {
                assert_eq!(read(refused, passing), Err(Some(passing)), "{passing}");
            }
        }
    }
}
