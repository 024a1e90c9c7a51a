//! Notes: data of a queue beside its messages.

use bytes::Bytes;

use angarium_core::time::Timestamp;
use angarium_storage::{Changes, Note, QueueChanges, StoreError};

use angarium_testbed::drivers::Storage;
use angarium_testbed::owner::{Owner, SLOT, appends, both, changes, id, messages, queue, removes};

fn note(kind: u8, key: &'static str, value: &'static str) -> Note {
    Note { kind, key: key.into(), value: value.into(), expires: Timestamp::from_millis(7) }
}

fn notes(notes: &[Note]) -> QueueChanges {
    changes(queue(SLOT, 1), Changes::notes(notes.to_vec()))
}

async fn of_kind(owner: &Owner, kind: u8) -> Vec<Note> {
    owner.store.notes(queue(SLOT, 1), kind, None, 100).await.unwrap()
}

pub async fn notes_are_shown_by_kind_in_order_of_their_keys(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let sent = [note(1, "b", "1"), note(1, "", "2"), note(2, "a", "3"), note(1, "ab", "")];
    owner.apply(vec![notes(&sent)]).await;
    assert_eq!(of_kind(&owner, 1).await, [sent[1].clone(), sent[3].clone(), sent[0].clone()]);
    assert_eq!(of_kind(&owner, 2).await, [sent[2].clone()]);
    assert_eq!(of_kind(&owner, 3).await, []);
}

pub async fn pages_of_notes_join_to_all(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let sent = ["a", "aa", "b", "c", "d"].map(|key| note(1, key, "1"));
    owner.apply(vec![notes(&sent)]).await;
    let (mut read, mut after) = (Vec::new(), None);
    loop {
        let page = owner.store.notes(queue(SLOT, 1), 1, after, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.key.clone());
        read.extend(page);
    }
    assert_eq!(read, sent);
    let absent = Some(Bytes::from_static(b"ab"));
    assert_eq!(owner.store.notes(queue(SLOT, 1), 1, absent, 1).await.unwrap(), [sent[2].clone()]);
}

pub async fn later_note_replaces_one_of_its_name(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.apply(vec![notes(&[note(1, "a", "old"), note(2, "a", "other")])]).await;
    owner.apply(vec![notes(&[note(1, "a", "new")])]).await;
    assert_eq!(of_kind(&owner, 1).await, [note(1, "a", "new")]);
    assert_eq!(of_kind(&owner, 2).await, [note(2, "a", "other")]);
}

pub async fn removed_notes_are_gone_and_absent_ones_do_no_harm(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.apply(vec![notes(&[note(1, "a", "1"), note(1, "b", "2")])]).await;
    let note_removes = vec![(1, "a".into()), (2, "b".into()), (1, "never".into()), (1, "c".into())];
    let kept = Changes::notes(vec![note(1, "c", "3")]);
    owner.apply(vec![changes(queue(SLOT, 1), Changes { note_removes, ..kept })]).await;
    // Removals are applied first.
    assert_eq!(of_kind(&owner, 1).await, [note(1, "b", "2"), note(1, "c", "3")]);
}

/// A deduplication id is forgotten, and a message is posted with it again, before the batch is sent.
pub async fn note_and_removal_of_one_key_in_one_batch_keep_the_note(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    owner.apply(vec![notes(&[note(1, "a", "old"), note(1, "b", "old")])]).await;
    let names = ["a", "b", "c"].map(|key| (1, Bytes::from_static(key.as_bytes())));
    let kept = [note(1, "a", "new"), note(1, "c", "new")];
    let removed_first = Changes { note_removes: names.to_vec(), ..Changes::notes(kept.to_vec()) };
    owner.apply(vec![changes(queue(SLOT, 1), removed_first)]).await;
    assert_eq!(of_kind(&owner, 1).await, kept);
    let written = notes(&[note(1, "a", "newer"), note(2, "c", "other")]);
    owner.apply(vec![both(written, Changes::note_removes(names.to_vec()))]).await;
    assert_eq!(of_kind(&owner, 1).await, []);
    assert_eq!(of_kind(&owner, 2).await, [note(2, "c", "other")]);
}

pub async fn note_is_written_with_its_message_or_not_at_all(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let changes =
        |rank, key| both(appends(queue(SLOT, 1), &messages([rank])), Changes::notes(vec![note(1, key, "1")]));
    owner.apply(vec![changes(1, "a")]).await;
    owner.send(9, vec![changes(2, "b")]).await.unwrap_err();
    assert_eq!(of_kind(&owner, 1).await, [note(1, "a", "1")]);
    assert_eq!(owner.all(queue(SLOT, 1)).await, messages([1]));
}

pub async fn note_outlives_its_message_and_the_storage(storage: &mut dyn Storage) {
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let changes = both(appends(queue(SLOT, 1), &messages([1])), Changes::notes(vec![note(1, "a", "1")]));
    owner.apply(vec![changes, removes(queue(SLOT, 2), &[id(1)])]).await;
    owner.remove(queue(SLOT, 1), &[id(1)]).await;
    drop(owner);
    let owner = Owner::fence(&storage.open().await, SLOT, 2).await;
    assert_eq!(of_kind(&owner, 1).await, [note(1, "a", "1")]);
    assert_eq!(owner.store.notes(queue(SLOT, 2), 1, None, 10).await.unwrap(), []);
}

pub async fn note_beyond_its_bounds_is_refused(storage: &mut dyn Storage) {
    let owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let long = |key: usize, value: usize| Note {
        key: vec![0; key].into(),
        value: vec![0; value].into(),
        ..note(1, "", "")
    };
    for refused in [
        long(angarium_storage::limits::NOTE_KEY_BYTES + 1, 0),
        long(0, angarium_storage::limits::NOTE_BYTES + 1),
    ] {
        let answer = owner.send(1, vec![notes(&[refused])]).await;
        assert!(matches!(answer, Err(StoreError::NotSent(_))), "{answer:?}");
    }
    let greatest = long(angarium_storage::limits::NOTE_KEY_BYTES, angarium_storage::limits::NOTE_BYTES);
    owner.send(1, vec![notes(std::slice::from_ref(&greatest))]).await.unwrap();
    assert_eq!(of_kind(&owner, 1).await, [greatest]);
}
