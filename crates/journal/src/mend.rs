//! Rewrites tables that have damaged blocks, after a merge failed.
//!
//! The store merges tables on its own. It reads them whole for that, and refuses all writes after a failed merge; when
//! it is opened again, it starts the same merge again. So one damaged block would stop all queues. Therefore a damaged
//! table is rewritten from its readable blocks, under the same number. A copy of the damaged table is kept, and the
//! keys that the damaged blocks may have had are recorded as damaged ([`DamagedRanges`]), so that reads of them still
//! fail and no key appears to be removed.
//!
//! If no block of a table can be read, the list beside the logs ([`TableKeys`]) tells its keys, and all of them are
//! recorded. Such a table, or one without readable metadata, also prevents the start; then it is rewritten at the
//! start.
//!
//! Tables have the format of lsm-tree 3.1: consecutive blocks, each with a header that states its length; then an
//! index, a filter and a metadata block.

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

/// Bytes that are read at a time. The disk may refuse each page separately.
const PAGE: usize = 4_096;

/// Result of rewriting damaged tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MendResult {
    pub(super) tables: usize,
    pub(super) ranges: usize,
    /// Number of damaged tables that stay as they are.
    pub(super) left: usize,
    /// Number of tables of which the disk refuses a part, or did a moment before.
    pub(super) refused: usize,
}

/// What to do with a table of which the disk refuses a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Leave it as it is: the disk may serve the part later.
    Leave,
    /// Rewrite it without the part.
    GiveUp,
}

/// Which damaged tables to rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    All,
    /// Only if the keys of every damaged table are listed. Otherwise none is rewritten, because the store was not
    /// opened yet and may need the others unchanged.
    Listed,
}

/// Rewrites the damaged tables of the store at `path`, which no process may have open. A table that cannot be read at
/// all stays as it is. `refused` decides about a table of which the disk refuses a part.
pub(super) fn mend(path: &Path, now: Timestamp, refused: Refused, scope: Scope) -> io::Result<MendResult> {
    let Some(_lock) = log::lock(path)? else { return Ok(MendResult::default()) };
    let mut known = DamagedRanges::read(path)?;
    // Without the list, fewer tables can be rewritten.
    let keys = TableKeys::read(path).unwrap_or_default();
    let mut result = MendResult::default();
    let damaged = tables::damaged(path, &known)?;
    let is_unknown = |table: &tables::TableFile| keys.find(table.space, table.number).is_none();
    if scope == Scope::Listed && damaged.iter().any(is_unknown) {
        return Ok(MendResult { left: damaged.len(), ..result });
    }
    for table in damaged {
        let listed = keys.find(table.space, table.number);
        let listed = listed.map(|keys| Metadata::listed(&keys.first, &keys.last));
        match rewrite(path, &table, listed, now, refused) {
            // The disk refused it before and serves it now. It may refuse it again.
            Ok(None) => result.refused += 1,
            Ok(Some(rewritten)) => {
                result.tables += 1;
                result.ranges += rewritten.ranges.len();
                known.add(rewritten.table, rewritten.ranges);
                // The ranges are recorded first: until the table is replaced, its own damage fails the reads.
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
                result.left += 1;
                result.refused += usize::from(is_refused(&error));
                warn!(table = %table.file.display(), %error, "damaged table not rewritten");
            }
        }
    }
    Ok(result)
}

/// A rewritten table that has not replaced the damaged one yet.
struct RewrittenTable {
    file: PathBuf,
    copy: PathBuf,
    table: MendedTable,
    ranges: Vec<DamagedRange>,
}

/// Writes what is left of a damaged table to a new file. Returns none when the table is read as it was written, unless
/// the disk has refused parts for long: then a new file takes its contents to another place.
fn rewrite(
    path: &Path,
    table: &tables::TableFile,
    listed: Option<Metadata>,
    now: Timestamp,
    refused: Refused,
) -> io::Result<Option<RewrittenTable>> {
    let bytes = read_all(&table.file, refused)?;
    if refused == Refused::Leave && xxh3_128(&bytes) == table.check {
        return Ok(None);
    }
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
    Ok(Some(RewrittenTable { file, copy, table: mended, ranges: contents.ranges }))
}

/// Keeps a damaged table as `copy`. The copy is a hard link where the file system has links, because the disk may serve
/// the refused parts later.
fn move_into(table: &Path, copy: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::hard_link(table, copy).is_err() {
        fs::write(copy, bytes)?;
        File::open(copy)?.sync_all()?;
    }
    copy.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Reads a whole file. Bad pages become zeros, and so do refused pages with [`Refused::GiveUp`].
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

/// Reads page by page. A page counts as bad only if the kernel reports that the medium lost it. After any other error
/// (no memory, a stale handle, a missing device) the bytes may be whole, and zeros would destroy them.
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

/// The readable contents of a table.
struct Contents {
    items: Vec<InternalValue>,
    ranges: Vec<DamagedRange>,
    compression: CompressionType,
    level: u8,
}

/// The metadata of a table, as far as it is known.
struct Metadata {
    first: Vec<u8>,
    last: Vec<u8>,
    /// Whether `last` is the table's last key. Otherwise it is a bound above any key that the table may have.
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
            // A table needs an item. This one removes a key whose reads fail anyway.
            let key = contents.ranges.first().map_or(&meta.first, |range| &range.first);
            contents.items.push(InternalValue::from_components(&key[..], b"", 0, ValueType::Tombstone));
        }
        Ok(contents)
    }

    /// Takes the items of whole blocks. Records the key range of each damaged block, and that of missing blocks at the
    /// end.
    fn take_blocks(&mut self, data: &[u8], is_whole: bool, table: &tables::TableFile, meta: &Metadata) {
        let range = |first: &[u8], last: &[u8]| DamagedRange {
            space: table.space,
            table: table.number,
            first: first.to_vec(),
            last: last.to_vec(),
        };
        // The first key that the current run of damaged blocks may have had.
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
                // The damaged block may end with a newer value of the same key.
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

/// The parts of a table, as far as they can be found.
struct Parts<'a> {
    /// The data blocks.
    data: &'a [u8],
    /// Whether the end of the data blocks is certain.
    is_whole: bool,
    meta: Metadata,
}

/// Splits a table into its data blocks and its metadata. If the list of parts or the metadata cannot be read, the
/// blocks and the `listed` keys replace it. Fails when there is neither.
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

/// Returns the leading data blocks of a table, up to a whole block of another kind, and whether there is such a block.
/// Without one it returns all bytes, because the unreadable rest may have been data.
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

/// Returns the distance to the next data block after the first byte.
fn next_block(data: &[u8]) -> Option<usize> {
    (1..data.len()).find(|at| block_length(&data[*at..]).is_some())
}

/// Returns whether a whole block begins here that is not a data block.
fn is_other_block(mut data: &[u8]) -> bool {
    if !data.starts_with(tables::BLOCK_MAGIC) {
        return false;
    }
    let Ok(head) = Header::decode_from(&mut data) else { return false };
    let contents = data.get(..head.data_length as usize);
    head.block_type != BlockType::Data
        && contents.is_some_and(|contents| xxh3_128(contents) == head.checksum.into_u128())
}

/// Returns the items of the block that begins here, and its length. If it cannot be read, there are no items, and the
/// length is the distance to the next possible block.
fn read_block(data: &[u8], compression: CompressionType) -> (Vec<InternalValue>, usize) {
    let Some(length) = block_length(data) else {
        return (Vec::new(), next_block(data).unwrap_or(data.len()));
    };
    (items(&data[..length], compression).unwrap_or_default(), length)
}

/// Returns the length of the data block whose header is here, if it is one.
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

    /// Returns the metadata of a table with these keys.
    fn listed(first: &[u8], last: &[u8]) -> Self {
        let compression = CompressionType::None;
        Self { first: first.to_vec(), last: last.to_vec(), is_last: true, compression, level: 0 }
    }

    /// Returns the metadata that must be assumed for a table with these blocks. Without `listed` keys, any key may have
    /// been in the table. None when there is neither a block nor a list.
    fn assumed(data: &[u8], listed: Option<Self>) -> Option<Self> {
        let at = if block_length(data).is_some() { Some(0) } else { next_block(data) };
        let Some(head) = at.and_then(|at| Header::decode_from(&mut &data[at..]).ok()) else { return listed };
        // Compressed data has another length than before the compression.
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

    /// Reads three pages of ones. The read of the second page fails.
    fn read(refused: Refused, failure: Errno) -> Result<Vec<u8>, Option<Errno>> {
        let mut bytes = vec![7; 3 * PAGE];
        let read = |page: &mut [u8], at: u64| {
            page.fill(1);
            if at == PAGE as u64 { Err(io::Error::from(failure)) } else { Ok(()) }
        };
        let result = read_pages(&mut bytes, refused, read);
        result.map(|()| bytes).map_err(|error| Errno::from_io_error(&error))
    }

    #[test]
    fn table_served_again_is_not_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("table");
        fs::write(&file, b"whole").unwrap();
        let table = tables::TableFile { space: 1, number: 2, file, check: xxh3_128(b"whole") };
        let now = Timestamp::from_millis(1);
        assert!(rewrite(dir.path(), &table, None, now, Refused::Leave).unwrap().is_none());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a copy is kept");

        let other = tables::TableFile { check: xxh3_128(b"other"), ..table };
        assert!(rewrite(dir.path(), &other, None, now, Refused::Leave).is_err());
    }

    #[test]
    fn bad_page_is_zeros_and_other_errors_are_returned() {
        let zeroed = [vec![1; PAGE], vec![0; PAGE], vec![1; PAGE]].concat();
        assert_eq!(read(Refused::GiveUp, Errno::IO), Ok(zeroed.clone()));
        assert_eq!(read(Refused::Leave, Errno::IO), Err(Some(Errno::IO)));
        for refused in [Refused::GiveUp, Refused::Leave] {
            // The kernel returns these errors for sectors and blocks that are lost for good.
            for lost in [Errno::NODATA, Errno::BADMSG, Errno::UCLEAN, Errno::ILSEQ] {
                assert_eq!(read(refused, lost), Ok(zeroed.clone()), "{lost}");
            }
            for passing in [Errno::NOMEM, Errno::STALE, Errno::NXIO, Errno::TIMEDOUT, Errno::ACCESS] {
                assert_eq!(read(refused, passing), Err(Some(passing)), "{passing}");
            }
        }
    }
}
