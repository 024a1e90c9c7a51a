//! Totals of an embedded pool are counted again after a crash, which may have left them wrong, and only then.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use angarium_clock::Clock;
use angarium_core::ids::QueueId;
use angarium_core::message::{Header, Message, State};
use angarium_journal::{Journal, Space};
use angarium_storage::embedded::EmbeddedPool;
use angarium_storage::{Correction, PoolStore, Recount, Totals};

use crate::shared::{self, LENDER, post};
use angarium_testbed::owner::{Owner, SLOT, appends, claimed_again, messages, queue, removes, settled};

const WRONG: Totals =
    Totals { messages: 2, bytes: 7, scheduled: 2, in_transfer: 0, kept: 0, shared: 0, lent: 0 };

fn open(path: &Path) -> (Journal, Arc<dyn PoolStore>) {
    let journal = Journal::open(path, &Clock::manual(1_700_000_000_000)).unwrap();
    (journal.clone(), Arc::new(EmbeddedPool::new(journal)))
}

/// Copies the files as a crash at this moment would leave them. The store may replace one meanwhile: then all are copied
/// again.
fn copy(from: &Path, to: &Path) {
    for _ in 0..100 {
        match try_copy(from, to) {
            Ok(()) => return,
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
        }
        fs::remove_dir_all(to).unwrap();
    }
    panic!("the store does not rest");
}

fn try_copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            try_copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Overwrites the totals of a queue.
async fn falsify(journal: &Journal, queue: QueueId, totals: Totals) {
    let Totals { messages, bytes, scheduled, in_transfer, kept, shared, lent } = totals;
    let mut value = [messages, bytes, scheduled, in_transfer].map(u64::to_be_bytes).concat();
    value.extend([0; 16]);
    if kept > 0 || shared > 0 || lent > 0 {
        value.extend(kept.to_be_bytes());
    }
    if shared > 0 || lent > 0 {
        value.extend([shared, lent].map(u64::to_be_bytes).concat());
    }
    let key = Bytes::copy_from_slice(queue.as_bytes());
    journal.commit(move |txn| txn.put(Space::Totals, key, value.into())).await.unwrap();
}

async fn recounted(store: &dyn PoolStore) -> Vec<Correction> {
    let mut all = Vec::new();
    for _ in 0..1_000 {
        match store.recount().await.unwrap() {
            Recount::Done => return all,
            Recount::More(corrections) => all.extend(corrections),
        }
    }
    panic!("the count has no end");
}

#[tokio::test]
async fn totals_are_recounted_after_a_crash_and_not_else() {
    let data = tempfile::tempdir().unwrap();
    let (first, crashed) = (data.path().join("first"), data.path().join("crashed"));
    let (right, wrong) = (queue(SLOT, 1), queue(SLOT, 2));
    let (journal, store) = open(&first);
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    // The count needs more than one step.
    let sent = messages(1..=2_500);
    let put_off = |message: &Message| {
        let header = Header { state: State::Scheduled, ..message.header.clone() };
        Message { header, ..message.clone() }
    };
    let delayed: Vec<Message> = messages(3_000..=3_001).iter().map(put_off).collect();
    owner.apply(vec![appends(right, &sent), appends(wrong, &[&sent[..], &delayed].concat())]).await;
    let [before, expected] = [right, wrong].map(|queue| store.totals(queue));
    let (before, expected) = (before.await.unwrap(), expected.await.unwrap());
    falsify(&journal, wrong, WRONG).await;
    copy(&first, &crashed);
    assert_eq!(recounted(&*store).await, [], "there was no crash");
    drop((owner, store, journal));

    let (journal, store) = open(&crashed);
    let mut owner = Owner::fence(&store, SLOT, 2).await;
    let Recount::More(none) = store.recount().await.unwrap() else { panic!("it is to be counted") };
    assert_eq!(none, []);
    // Writes continue during the count.
    owner.remove(wrong, &[sent[0].header.id]).await;
    let found = recounted(&*store).await;
    assert_eq!(found.iter().map(|found| found.queue).collect::<Vec<_>>(), [wrong]);
    let removed = Totals { messages: 1, bytes: sent[0].body.len() as u64, ..Totals::default() };
    let after = store.totals(wrong).await.unwrap();
    assert_eq!(after.messages, expected.messages - removed.messages);
    assert_eq!((after.bytes, after.scheduled), (expected.bytes - removed.bytes, 2));
    assert_eq!(store.totals(right).await.unwrap(), before);
    drop((owner, store, journal));

    let (_journal, store) = open(&crashed);
    assert_eq!(store.recount().await.unwrap(), Recount::Done, "it ended as it should");
}

#[tokio::test]
async fn queue_drained_while_it_is_counted_has_right_totals() {
    let data = tempfile::tempdir().unwrap();
    let (first, crashed) = (data.path().join("first"), data.path().join("crashed"));
    let wrong = queue(SLOT, 1);
    let (journal, store) = open(&first);
    let sent = messages(1..=2_500);
    Owner::fence(&store, SLOT, 1).await.apply(vec![appends(wrong, &sent)]).await;
    falsify(&journal, wrong, Totals { messages: 2_000, bytes: 7, ..Totals::default() }).await;
    copy(&first, &crashed);
    drop((store, journal));

    let (journal, store) = open(&crashed);
    let mut owner = Owner::fence(&store, SLOT, 2).await;
    assert_eq!(store.recount().await.unwrap(), Recount::More(Vec::new()), "a part is counted");
    for some in sent.chunks(500) {
        let ids: Vec<_> = some.iter().map(|message| message.header.id).collect();
        owner.remove(wrong, &ids).await;
    }
    recounted(&*store).await;
    assert_eq!(store.totals(wrong).await.unwrap(), Totals::default());
    assert!(journal.is_checked());
}

#[tokio::test]
async fn queues_behind_unreadable_one_are_counted() {
    let data = tempfile::tempdir().unwrap();
    let (first, crashed) = (data.path().join("first"), data.path().join("crashed"));
    let (damaged, wrong) = (queue(SLOT, 1), queue(SLOT, 2));
    let (journal, store) = open(&first);
    let sent = messages(1..=10);
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    owner.apply(vec![appends(damaged, &sent), appends(wrong, &sent)]).await;
    let expected = store.totals(wrong).await.unwrap();
    falsify(&journal, wrong, WRONG).await;
    let key = Bytes::from([&damaged.as_bytes()[..], sent[4].header.id.as_bytes()].concat());
    journal.commit(move |txn| txn.put(Space::Entries, key, Bytes::from_static(b"?"))).await.unwrap();
    copy(&first, &crashed);
    drop((owner, store, journal));

    let (journal, store) = open(&crashed);
    let found = recounted(&*store).await;
    assert_eq!(found.iter().map(|found| found.queue).collect::<Vec<_>>(), [wrong]);
    assert_eq!(store.totals(wrong).await.unwrap(), expected);
    assert!(!journal.is_checked(), "the next start counts again");
}

#[tokio::test]
async fn kept_entries_are_recounted_after_a_crash() {
    let data = tempfile::tempdir().unwrap();
    let (first, crashed) = (data.path().join("first"), data.path().join("crashed"));
    let [none, many, right] = [1, 2, 3].map(|number| queue(SLOT, number));
    let (journal, store) = open(&first);
    let kept = |ranks| messages(ranks).into_iter().map(|message| settled(message, State::Done, 5));
    let all: Vec<Message> = messages(1..=3).into_iter().chain(kept(4..=1_500)).collect();
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    owner.apply(vec![appends(none, &all), appends(many, &all), appends(right, &all)]).await;
    let again: Vec<Header> = messages([9, 10]).into_iter().map(|message| message.header).collect();
    for queue in [none, many, right] {
        owner.update(queue, &again).await;
    }
    let expected = Totals { messages: 1_500, bytes: 15_000, kept: 1_495, ..Totals::default() };
    assert_eq!(store.totals(right).await.unwrap(), expected);
    falsify(&journal, none, Totals { kept: 0, ..expected }).await;
    falsify(&journal, many, Totals { kept: 1_500, ..expected }).await;
    copy(&first, &crashed);
    drop((owner, store, journal));

    let (_journal, store) = open(&crashed);
    let mut found: Vec<_> = recounted(&*store).await.iter().map(|found| found.queue).collect();
    found.sort_unstable();
    let mut wrong = [none, many];
    wrong.sort_unstable();
    assert_eq!(found, wrong);
    for queue in [none, many, right] {
        assert_eq!(store.totals(queue).await.unwrap(), expected);
    }
}

/// Some changed headers are of ready entries, before, between and behind the others.
#[tokio::test]
async fn entries_with_changed_headers_are_recounted() {
    let data = tempfile::tempdir().unwrap();
    let (first, crashed) = (data.path().join("first"), data.path().join("crashed"));
    let wrong = queue(SLOT, 1);
    let (journal, store) = open(&first);
    let sent = messages(1..=9);
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    owner.apply(vec![appends(wrong, &sent)]).await;
    let changed = |place: usize, state| Header { state, ..claimed_again(&sent[place].header) };
    let ready = [0, 3, 6, 8].map(|place| changed(place, State::Ready));
    let aside = [(1, State::NoTarget), (4, State::Scheduled), (7, State::NoTarget)];
    owner.update(wrong, &ready).await;
    owner.update(wrong, &aside.map(|(place, state)| changed(place, state))).await;
    owner.update(wrong, &[changed(1, State::Scheduled)]).await;
    let expected = store.totals(wrong).await.unwrap();
    assert_eq!((expected.messages, expected.scheduled, expected.in_transfer), (9, 2, 1));
    falsify(&journal, wrong, WRONG).await;
    copy(&first, &crashed);
    drop((owner, store, journal));

    let (_journal, store) = open(&crashed);
    let found = recounted(&*store).await;
    assert_eq!(found.iter().map(|found| found.after).collect::<Vec<_>>(), [expected]);
    assert_eq!(store.totals(wrong).await.unwrap(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_bytes_and_those_of_lenders_are_counted() {
    let data = tempfile::tempdir().unwrap();
    let [before, after] = ["before", "after"].map(|name| data.path().join(name));
    let (journal, store) = open(&before);
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    owner.apply(post()).await;
    owner.remove(queue(SLOT, 1), &[shared::copy(1, 0)]).await;
    let [right, lender] = [queue(SLOT, 1), LENDER].map(|queue| (queue, owner.store.totals(queue)));
    let (right, lender) = ((right.0, right.1.await.unwrap()), (lender.0, lender.1.await.unwrap()));
    let wrong = Totals { shared: right.1.shared + 7, ..right.1 };
    falsify(&journal, right.0, wrong).await;
    falsify(&journal, lender.0, Totals { lent: 1, ..lender.1 }).await;
    copy(&before, &after);
    let (_journal, store) = open(&after);
    let corrections = recounted(&*store).await;
    let corrected: Vec<_> = corrections.iter().map(|found| (found.queue, found.after)).collect();
    assert_eq!(corrected, [right, lender]);
    for (queue, totals) in [right, lender] {
        assert_eq!(store.totals(queue).await.unwrap(), totals);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lender_of_bodies_gone_during_its_count_has_right_totals() {
    let data = tempfile::tempdir().unwrap();
    let [before, after] = ["before", "after"].map(|name| data.path().join(name));
    let (journal, store) = open(&before);
    let mut owner = Owner::fence(&store, SLOT, 1).await;
    // The queues 1 and 2 have copies of one lender, the queues 3 and 4 those of another one.
    let (mut first, mut second, other) = (post(), post().split_off(2), queue(SLOT, 9));
    first.truncate(2);
    second.iter_mut().for_each(|copies| copies.changes.lender = Some(other));
    let bytes = first[0].changes.bytes() as u64;
    owner.apply([first, second].concat()).await;
    for lender in [LENDER, other] {
        assert_eq!(store.totals(lender).await.unwrap().lent, bytes);
        falsify(&journal, lender, Totals { lent: 1, ..Totals::default() }).await;
    }
    copy(&before, &after);
    drop((owner, store, journal));

    let (journal, store) = open(&after);
    let mut owner = Owner::fence(&store, SLOT, 2).await;
    // The step ends with the first wrong totals. Before the next one the other lender loses its bodies.
    let Recount::More(found) = store.recount().await.unwrap() else { panic!("it is to be counted") };
    let [Correction { queue: corrected, .. }] = found[..] else { panic!("one is wrong: {found:?}") };
    let (emptied, left) = if corrected == LENDER { (other, [3, 4]) } else { (LENDER, [1, 2]) };
    let both = |at| removes(queue(SLOT, at), &[shared::copy(at, 0), shared::copy(at, 1)]);
    owner.apply(left.map(both).to_vec()).await;
    recounted(&*store).await;
    assert_eq!(store.totals(corrected).await.unwrap(), Totals { lent: bytes, ..Totals::default() });
    assert_eq!(store.totals(emptied).await.unwrap(), Totals::default());
    assert!(journal.is_checked());
}
