//! Backups that are whole, in the form of the inputs of `backups`.

use angarium_backup::{BackupWriter, Head, MAGIC};
use angarium_clock::Clock;
use angarium_journal::{Journal, Space};
use angarium_testbed::backup::{Memory, head};
use bytes::Bytes;

/// One with a journal and one with two.
pub fn backups() -> Vec<Vec<u8>> {
    let directory = tempfile::tempdir().expect("there is room for a temporary directory");
    let journal = Journal::open(directory.path(), &Clock::manual(1)).expect("it is new");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    let write = journal.commit(|txn| {
        for key in 0..3_u8 {
            txn.put(Space::Tree, vec![key].into(), "value".into());
            txn.put(Space::Entries, vec![key, key].into(), Bytes::new());
        }
    });
    runtime.block_on(write).expect("it is open");
    let spaces = ["tree", "entries"].map(str::to_owned).to_vec();
    let of = |journals: &[&str]| {
        let head = Head { spaces: spaces.clone(), ..head(journals) };
        let views: Vec<_> = journals.iter().map(|_| journal.view().expect("it is open")).collect();
        let mut writer = BackupWriter::new(Memory::default());
        writer.write(&head, views).expect("it can be read");
        unsealed(&writer.receiver().0)
    };
    vec![of(&["journal"]), of(&["journal", "pools/two"])]
}

/// Returns the frames of a backup without their checksums, with lengths of two bytes.
fn unsealed(bytes: &[u8]) -> Vec<u8> {
    let (mut rest, mut input) = (&bytes[MAGIC.len()..], Vec::new());
    while let Some(([letter, _, _, high, low], behind)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        input.extend_from_slice(&[*letter, *high, *low]);
        input.extend_from_slice(&behind[..length]);
        rest = &behind[length + 8..];
    }
    input
}
