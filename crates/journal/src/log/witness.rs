//! The file that records the last synced group, so that damage of that group is noticed too.
//!
//! A separate thread writes the file a moment after a sync, at most once per [`limits::WITNESS_PAUSE`], so no commit
//! waits for it. An idle store costs nothing. The file also records which writes are in no table yet
//! ([`super::unflushed`]) and how many key ranges damage has taken. The same thread maintains the list of the keys of
//! tables ([`super::table_keys`]).

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use tracing::{error, warn};
use xxhash_rust::xxh3::xxh3_64;

use super::files;
use super::table_keys::TableKeys;
use super::unflushed::{Tracker, Unflushed};
use crate::current::Current;
use crate::limits;
use crate::{SPACES, Space};

pub(super) const FILE: &str = "log-witness";
/// The new file until it replaces the old one. A leftover one is overwritten.
const UNFINISHED: &str = "log-witness.unfinished";
const TITLE: &str = "angarium log witness 1";

/// Contents of the file: one line of text with a checksum (XXH3) of the text before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The random number of the store.
    pub(crate) store: u64,
    /// The last synced group.
    pub(crate) group: u64,
    /// Numbers of the existing key spaces. A missing one is damage and must not be recreated.
    pub(crate) spaces: Vec<u64>,
    /// Writes that are in no table.
    pub(crate) unflushed: Vec<Unflushed>,
    /// Number of key ranges that damage has taken. Another file lists them.
    pub(crate) ranges: usize,
}

impl Mark {
    /// Reads the mark below `path`. None when there is no file; `InvalidData` when it is damaged.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        match files::read_bounded(&path.join(FILE), limits::STORE_FILE_BYTES) {
            Ok(text) => {
                let damaged = || io::Error::new(ErrorKind::InvalidData, "the file is damaged");
                Self::parse(&String::from_utf8_lossy(&text)).ok_or_else(damaged).map(Some)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (text, check) = text.strip_suffix('\n')?.rsplit_once(" check=")?;
        if u64::from_str_radix(check, 16).ok()? != xxh3_64(text.as_bytes()) {
            return None;
        }
        let mut fields = text.strip_prefix(TITLE)?.split_whitespace();
        let mut field = |name: &str| fields.next()?.strip_prefix(name)?.strip_prefix('=');
        let store = u64::from_str_radix(field("store")?, 16).ok()?;
        let group = field("group")?.parse().ok()?;
        let spaces = list(field("spaces")?).map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let unflushed = list(field("unflushed")?).map(parse_unflushed).collect::<Option<_>>()?;
        let ranges = field("ranges")?.parse().ok()?;
        Some(Self { store, group, spaces, unflushed, ranges })
    }

    fn text(&self) -> String {
        let Self { store, group, spaces, unflushed, ranges } = self;
        let spaces: Vec<_> = spaces.iter().map(u64::to_string).collect();
        let unflushed =
            unflushed.iter().map(|Unflushed { space, list, sequence }| format!("{space}:{list}:{sequence}"));
        let (spaces, unflushed) = (spaces.join(","), unflushed.collect::<Vec<_>>().join(","));
        let text = format!(
            "{TITLE} store={store:016x} group={group} spaces={spaces} unflushed={unflushed} ranges={ranges}"
        );
        let check = xxh3_64(text.as_bytes());
        format!("{text} check={check:016x}\n")
    }

    /// Replaces the file. The new one is synced.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let unfinished = path.join(UNFINISHED);
        let mut file = File::create(&unfinished)?;
        file.write_all(self.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(unfinished, path.join(FILE))?;
        File::open(path)?.sync_all()
    }
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|element| !element.is_empty())
}

fn parse_unflushed(text: &str) -> Option<Unflushed> {
    let mut numbers = text.split(':').map(|number| number.parse().ok());
    let mut next = || numbers.next()?;
    let found = Unflushed { space: next()?, list: next()?, sequence: next()? };
    numbers.next().is_none().then_some(found)
}

/// State shared by the committer and the witness's thread. The lock is held for the time of a copy.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    mark: Mark,
    is_written: bool,
    is_closed: bool,
}

/// The handle of the witness's thread. The committer owns it.
pub(crate) struct Witness {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Witness {
    /// Writes the first mark of the open store, and starts the thread.
    pub(crate) fn start(path: PathBuf, mark: Mark, current: Arc<Current>) -> io::Result<Self> {
        let tracker = Tracker::after(&mark.unflushed);
        let mut writer = Writer { path, current, tracker, unflushed: Vec::new(), keys: None };
        writer.write(mark.clone())?;
        let state = Mutex::new(State { mark, is_written: true, is_closed: false });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("witness".into()).spawn(move || run(&own, writer))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Records that all groups up to `group` are synced.
    pub(crate) fn note(&self, group: u64) {
        let mut state = self.shared.state.lock();
        if state.mark.group == group {
            return;
        }
        state.mark.group = group;
        if std::mem::replace(&mut state.is_written, false) {
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!("log witness panicked");
        }
    }
}

/// Writes marks, completed by the state of the open store at that moment.
struct Writer {
    path: PathBuf,
    current: Arc<Current>,
    tracker: Tracker,
    /// The unflushed writes in the last written mark.
    unflushed: Vec<Unflushed>,
    keys: Option<TableKeys>,
}

impl Writer {
    fn write(&mut self, mut mark: Mark) -> io::Result<()> {
        self.write_keys()?;
        mark.unflushed = self.find_unflushed();
        mark.write(&self.path)?;
        self.unflushed = mark.unflushed;
        Ok(())
    }

    /// Writes the list of table keys if it has changed. Without an open store the file stays as it is.
    fn write_keys(&mut self) -> io::Result<()> {
        let keys = self.keys();
        if keys.is_some() && keys != self.keys {
            keys.iter().try_for_each(|keys| keys.write(&self.path))?;
            self.keys = keys;
        }
        Ok(())
    }

    fn keys(&self) -> Option<TableKeys> {
        let store = self.current.store().ok()?;
        let spaces = SPACES.iter().map(|(space, _)| *space).filter(|space| *space != Space::Meta);
        Some(TableKeys::of(spaces.map(|space| store.space(space))))
    }

    /// Returns whether tables were written or merged since the last mark.
    fn has_new_tables(&mut self) -> bool {
        self.find_unflushed() != self.unflushed || self.keys().is_some_and(|keys| Some(keys) != self.keys)
    }

    /// Returns the writes that are in no table now. Empty while the store is not open.
    fn find_unflushed(&mut self) -> Vec<Unflushed> {
        let Ok(store) = self.current.store() else { return Vec::new() };
        let keyspaces: Vec<_> = SPACES.iter().map(|(space, _)| store.space(*space).clone()).collect();
        self.tracker.observe(&keyspaces)
    }
}

fn run(shared: &Shared, mut writer: Writer) {
    let mut has_failed = false;
    loop {
        let mut state = shared.state.lock();
        while state.is_written && !state.is_closed {
            shared.changed.wait(&mut state);
        }
        if state.is_written {
            return;
        }
        let (mark, is_closed) = (state.mark.clone(), state.is_closed);
        state.is_written = true;
        drop(state);
        match writer.write(mark) {
            Ok(()) => has_failed = false,
            // The old file stays, which records less.
            Err(error) if !has_failed => {
                has_failed = true;
                warn!(%error, path = %writer.path.display(), "log witness not written");
            }
            Err(_) => {}
        }
        if is_closed {
            return;
        }
        let mut state = shared.state.lock();
        if !state.is_closed {
            // Only the close wakes this wait. A new mark does not, because the pause must pass first.
            shared.changed.wait_while_for(&mut state, |state| !state.is_closed, limits::WITNESS_PAUSE);
        }
        if has_failed && state.is_closed {
            return;
        }
        drop(state);
        // Tables written during the pause are recorded even without a commit.
        if has_failed || writer.has_new_tables() {
            shared.state.lock().is_written = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_read_as_written_and_damage_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Mark::read(dir.path()).unwrap(), None);
        let unflushed =
            vec![Unflushed { space: 1, list: 9, sequence: 77 }, Unflushed { space: 5, list: 0, sequence: 8 }];
        let mark = Mark { store: 7, group: 300, spaces: vec![0, 1, 12], unflushed, ranges: 2 };
        mark.write(dir.path()).unwrap();
        assert_eq!(Mark::read(dir.path()).unwrap(), Some(mark.clone()));
        let file = dir.path().join(FILE);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text.replace("group=300", "group=200")).unwrap();
        assert_eq!(Mark::read(dir.path()).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
