//! Tests of the form: a reader gets the written content, and refuses anything else.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

use std::io::Read;

use bytes::Bytes;
use proptest::prelude::*;

use angarium_backup::limits;
use angarium_backup::{
    BackupSink, BackupWriter, Head, MAGIC, Manifest, PartPlace, ReadError, frame, open, read, store,
};
use angarium_clock::Clock;
use angarium_journal::{Journal, Space};
use angarium_testbed::backup::{Memory, head};

/// Letters of frames.
const HEAD: u8 = b'H';
const PART: u8 = b'P';
const BLOCK: u8 = b'B';
const MANIFEST: u8 = b'M';

/// Keeps all pairs.
#[derive(Default)]
struct KeptPairs(Vec<(PartPlace, Bytes, Bytes)>);

impl BackupSink for KeptPairs {
    fn begin(&mut self, _: &Head) -> Result<(), String> {
        Ok(())
    }

    fn pairs(&mut self, part: PartPlace, pairs: Vec<(Bytes, Bytes)>) -> Result<(), String> {
        self.0.extend(pairs.into_iter().map(|(key, value)| (part, key, value)));
        Ok(())
    }
}

/// Writes a backup of two journals with some pairs, among them large ones.
async fn backup() -> (Vec<u8>, Manifest) {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::manual(1);
    let open = |name: &str| Journal::open(&directory.path().join(name), &clock).unwrap();
    let journals = [open("one"), open("two")];
    for (number, journal) in journals.iter().enumerate() {
        let work = move |txn: &mut angarium_journal::Txn<'_>| {
            for key in 0..40_u8 {
                txn.put(Space::Tree, vec![key].into(), vec![key; 10 * number].into());
                txn.put(Space::Entries, vec![key, 1].into(), vec![key; 8_000].into());
            }
            txn.put(Space::Kept, "long".into(), vec![7; 300_000].into());
        };
        journal.commit(work).await.unwrap();
    }
    let views: Vec<_> = journals.iter().map(|journal| journal.view().unwrap()).collect();
    let mut writer = BackupWriter::new(Memory(Vec::new()));
    let manifest = writer.write(&head(&["journal", "pools/two"]), views).unwrap();
    (std::mem::take(&mut writer.receiver().0), manifest)
}

fn error(bytes: &[u8]) -> ReadError {
    read(bytes, &mut ()).unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_is_read_as_it_was_written() {
    let (bytes, manifest) = backup().await;
    let mut kept = KeptPairs::default();
    assert_eq!(read(&*bytes, &mut kept).unwrap(), manifest);
    assert_eq!((manifest.pairs(), kept.0.len()), (162, 162));
    assert_eq!(manifest.parts.len(), 30);
    let entries = |journal: usize| {
        let is_there = move |part: &&(PartPlace, Bytes, Bytes)| {
            part.0 == PartPlace { journal, space: Space::Entries } && part.2.len() == 8_000
        };
        kept.0.iter().filter(is_there).count()
    };
    assert_eq!([entries(0), entries(1)], [40, 40]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_flipped_byte_is_found_and_named() {
    let (bytes, _) = backup().await;
    // Each frame has a begin, a content and an end: so does the stream.
    let places =
        (0..100).chain((100..bytes.len() - 100).step_by(19_973)).chain(bytes.len() - 100..bytes.len());
    let mut named = std::collections::BTreeSet::new();
    for at in places {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        match error(&damaged) {
            ReadError::Damaged { place, offset, .. } | ReadError::Cut { place, offset } => {
                assert!(offset <= at as u64, "{at}: the frame at {offset}");
                named.insert(place);
            }
            ReadError::OtherForm(_) => assert!(at < MAGIC.len(), "{at}"),
            other => panic!("{at}: {other}"),
        }
    }
    for place in ["the head", "part journal/entries", "part pools/two/kept", "the manifest"] {
        assert!(named.contains(place), "{place} in {named:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_without_its_end_is_no_backup() {
    let (bytes, _) = backup().await;
    for length in (0..bytes.len()).step_by(7_919).chain(bytes.len() - 50..bytes.len()) {
        let found = error(&bytes[..length]);
        assert!(matches!(found, ReadError::Cut { .. }), "{length}: {found}");
    }
    let longer = [&bytes[..], b"x"].concat();
    assert!(error(&longer).to_string().contains("behind the manifest"));
}

/// Returns the frames of a stream.
fn frames(bytes: &[u8]) -> Vec<&[u8]> {
    let mut rest = &bytes[MAGIC.len()..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_be_bytes(rest[1..5].try_into().unwrap()) as usize;
        let (frame, behind) = rest.split_at(5 + length + 8);
        frames.push(frame);
        rest = behind;
    }
    frames
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_doubled_and_exchanged_frames_are_found() {
    let (bytes, _) = backup().await;
    let frames = frames(&bytes);
    let joined = |frames: &[&[u8]]| [MAGIC, &frames.concat()].concat();
    assert_eq!(joined(&frames), bytes);
    for at in 0..frames.len() - 1 {
        let mut lost = frames.clone();
        lost.remove(at);
        let mut doubled = frames.clone();
        doubled.insert(at, frames[at]);
        let mut exchanged = frames.clone();
        exchanged.swap(at, at + 1);
        for changed in [lost, doubled, exchanged] {
            let found = error(&joined(&changed));
            assert!(matches!(found, ReadError::Damaged { .. }), "{at}: {found}");
        }
    }
}

#[test]
fn reason_of_an_abort_is_shown() {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(frame(HEAD, 0, &serde_json::to_vec(&head(&["journal"])).unwrap()));
    let mut writer = BackupWriter::new(Memory(Vec::new()));
    writer.abort("the disk is near its reserve").unwrap();
    // It is the second frame there.
    assert!(error(&[&bytes[..], &writer.receiver().0].concat()).to_string().contains("checksum"));
    bytes.extend(frame(b'X', 1, b"the disk is near its reserve"));
    let text = error(&bytes).to_string();
    assert!(text.contains("broke the backup off: the disk is near"), "{text}");
}

/// Returns the error for a backup with this text as its head.
fn head_error(text: &str) -> String {
    error(&[MAGIC, &frame(HEAD, 0, text.as_bytes())].concat()).to_string()
}

#[test]
fn hostile_heads_are_refused() {
    let text = |head: &Head| serde_json::to_string(head).unwrap();
    let many: Vec<String> = (0..=limits::BACKUP_JOURNALS).map(|number| format!("j{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (journals, why) in [
        (&["journal", "../other"][..], "is no path below a data directory"),
        (&["/etc"], "is no path below a data directory"),
        (&["journal", "a/../../b"], "is no path below a data directory"),
        (&["journal", "./a"], "is no path below a data directory"),
        (&["journal", "a//b"], "is no path below a data directory"),
        (&["journal", ""], "is no path below a data directory"),
        (&["journal", "a\nb"], "is no path below a data directory"),
        (&["journal", "instance"], "is no path below a data directory"),
        (&["journal", "instance.copy"], "is no path below a data directory"),
        (&["journal", "instance.copy.unfinished"], "is no path below a data directory"),
        (&["journal", "location"], "is no path below a data directory"),
        (&["journal", "location.unfinished/inner"], "is no path below a data directory"),
        (&["journal", "journal"], "overlap"),
        (&["journal", "journal/inner"], "overlap"),
        (&["a/b/c", "a/b"], "overlap"),
        (&[], "it has 0 journals"),
        (&many, "it has 1001 journals"),
        (&["journal", &"x".repeat(300)], "is no path below a data directory"),
    ] {
        let found = head_error(&text(&head(journals)));
        assert!(found.contains(why), "{journals:?}: {found}");
    }
    let whole = head(&["journal"]);
    for (bad, why) in [
        (Head { form: 2, ..whole.clone() }, "it has form 2"),
        (Head { program: "\u{1b}[2J".into(), ..whole.clone() }, "control characters"),
        (Head { outside: vec!["x".repeat(300)], ..whole.clone() }, "too long"),
        (Head { spaces: vec!["meta".into()], ..whole.clone() }, "knows no key space \"meta\""),
        (Head { spaces: vec!["tree".into(), "tree".into()], ..whole.clone() }, "once each"),
        (Head { spaces: vec![], ..whole.clone() }, "once each"),
        (Head { outside: vec![String::new(); 2_000], ..whole.clone() }, "2000 pools elsewhere"),
    ] {
        let found = head_error(&text(&bad));
        assert!(found.contains(why), "{found}");
    }
    for text in ["", "{", "[]", "{\"form\": -1}", "{\"form\": 1}", &"[".repeat(100_000)] {
        head_error(text);
    }
}

#[test]
fn false_lengths_take_no_memory() {
    for length in [u32::MAX, limits::BACKUP_FRAME_BYTES as u32 + 1] {
        let bytes = [MAGIC, b"H", &length.to_be_bytes(), b"{}"].concat();
        assert!(error(&bytes).to_string().contains("a frame of"));
    }
    let bytes = [MAGIC, b"H", &(limits::BACKUP_FRAME_BYTES as u32).to_be_bytes(), b"{}"].concat();
    assert!(matches!(error(&bytes), ReadError::Cut { offset: 18, .. }));
}

/// Returns the error of a backup with these contents of blocks in its first part.
fn block_error(blocks: &[&[u8]]) -> String {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(frame(HEAD, 0, &serde_json::to_vec(&head(&["journal"])).unwrap()));
    bytes.extend(frame(PART, 1, br#"{"journal":"journal","space":"tree"}"#));
    for (number, block) in (2..).zip(blocks) {
        bytes.extend(frame(BLOCK, number, block));
    }
    error(&bytes).to_string()
}

#[test]
fn false_pairs_are_refused() {
    let pair = |key: &[u8], value: &[u8]| {
        let lengths = [key.len(), value.len()].map(|length| u32::try_from(length).unwrap().to_be_bytes());
        [&lengths.concat(), key, value].concat()
    };
    let whole = pair(b"b", b"value");
    for block in [&whole[..whole.len() - 1], &[0xff; 8], &[0], &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 1]] {
        let found = block_error(&[block]);
        assert!(found.contains("the lengths of a pair"), "{found}");
    }
    for blocks in [[&whole, &pair(b"a", b"")], [&whole, &whole], [&pair(b"", b""), &whole]] {
        let found = block_error(&[blocks[0], blocks[1]]);
        assert!(found.contains("part journal/tree") && found.contains("not in order"), "{found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn false_manifest_is_refused() {
    let (bytes, manifest) = backup().await;
    let parts = frames(&bytes);
    let number = parts.len() as u64 - 1;
    let before = [MAGIC, &parts[..parts.len() - 1].concat()].concat();
    let with = |manifest: &Manifest| {
        let text = serde_json::to_vec(manifest).unwrap();
        read(&*[&before[..], &frame(MANIFEST, number, &text)].concat(), &mut ())
    };
    assert_eq!(with(&manifest).unwrap(), manifest);
    let mut other = manifest.clone();
    other.head.generation = 2;
    assert!(with(&other).unwrap_err().to_string().contains("its head is another one"));
    let mut other = manifest.clone();
    other.parts[3].sha256 = "00".to_owned();
    let found = with(&other).unwrap_err().to_string();
    assert!(found.contains("the sums of journal/entries differ"), "{found}");
    let mut other = manifest;
    other.parts.pop();
    assert!(with(&other).unwrap_err().to_string().contains("the sums differ"));
}

/// Returns the error of a backup that is stored in a directory, after a change of one of its files.
fn stored_error(bytes: &[u8], file: &str, at: usize) -> String {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("b");
    store(bytes, &target).unwrap();
    let path = target.join(file);
    let mut content = std::fs::read(&path).unwrap();
    content[at] ^= 1;
    std::fs::write(&path, content).unwrap();
    open(&target).unwrap().read(&mut ()).unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_backup_is_whole_or_refused() {
    let (bytes, manifest) = backup().await;
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("b");
    assert_eq!(store(&*bytes, &target).unwrap(), manifest);
    assert_eq!(open(&target).unwrap().read(&mut ()).unwrap(), manifest);
    let names = |directory: &std::path::Path| {
        let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(names(directory.path()).into_iter().collect::<Vec<_>>(), ["b"]);
    assert!(stored_error(&bytes, "manifest.json", 40).contains("manifest.json"));
    assert!(stored_error(&bytes, "stream", 20_000).contains("part journal/entries"));
    let again = store(&*bytes, &target).unwrap_err().to_string();
    assert!(again.contains("is there and is not empty"), "{again}");
    let cut = store(bytes[..bytes.len() - 1].chain(&b""[..]), &directory.path().join("c"));
    assert!(cut.unwrap_err().to_string().contains("cut short in the manifest"));
    assert_eq!(names(directory.path()).into_iter().collect::<Vec<_>>(), ["b"]);
}

/// A reader that stores another backup under the same name before its last bytes.
struct Overtaken<'b> {
    bytes: &'b [u8],
    target: &'b std::path::Path,
    is_overtaken: bool,
}

impl Read for Overtaken<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if !self.is_overtaken {
            self.is_overtaken = true;
            store(self.bytes, self.target).unwrap();
        }
        self.bytes.read(into)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_under_one_name_do_not_mix() {
    let (bytes, manifest) = backup().await;
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("b");
    let overtaken = Overtaken { bytes: &bytes, target: &target, is_overtaken: false };
    store(overtaken, &target).unwrap_err();
    assert_eq!(open(&target).unwrap().read(&mut ()).unwrap(), manifest);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    // A backup and a link with the name of an unfinished one stay.
    let other = directory.path().join("c.unfinished");
    store(&*bytes, &other).unwrap();
    std::os::unix::fs::symlink(&other, directory.path().join("d.unfinished")).unwrap();
    store(&*bytes, &directory.path().join("c")).unwrap();
    store(&*bytes, &directory.path().join("d")).unwrap();
    assert_eq!(open(&other).unwrap().read(&mut ()).unwrap(), manifest);
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(directory.path().join("absent"), &link).unwrap();
    assert!(store(&*bytes, &link).unwrap_err().to_string().contains("symbolic link"));
}

proptest! {
    /// Frames with right checksums and any content: read to an end, never with a panic.
    #[test]
    fn any_frames_are_read_or_refused(
        parts in prop::collection::vec(("[HPBMXZ]", prop::collection::vec(any::<u8>(), 0..200)), 0..8),
    ) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(frame(HEAD, 0, &serde_json::to_vec(&head(&["journal"])).unwrap()));
        for (number, (letter, content)) in (1..).zip(&parts) {
            bytes.extend(frame(letter.as_bytes()[0], number, content));
        }
        prop_assert!(read(&*bytes, &mut ()).is_err());
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(read(&*bytes, &mut ()).is_err());
        prop_assert!(read(&*[MAGIC, &bytes].concat(), &mut ()).is_err());
    }
}
