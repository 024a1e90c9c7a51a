//! Hints about removed entries: the embedded pool relies on them, and builds under test look the entries up and
//! compare.

use angarium_storage::{Changes, RemoveHint};

use angarium_testbed::drivers::{Storage, embedded};
use angarium_testbed::owner::{Owner, SLOT, changes, id, messages, queue, scheduled};

/// Whether this build compares. Fault tests of a release build enable the feature.
const VERIFIES_HINTS: bool = cfg!(any(debug_assertions, feature = "verify-hints"));

#[tokio::test]
async fn false_hint_is_noticed_by_build_under_test() {
    let at = queue(SLOT, 1);
    let mut storage = embedded();
    let mut owner = Owner::fence(&storage.open().await, SLOT, 1).await;
    let [ready, later] = messages([1, 2]).try_into().unwrap();
    let later = scheduled(later, 30);
    owner.append(at, &[ready.clone(), later.clone()]).await;
    let told = |header| {
        let remove_hints = vec![RemoveHint::of(header)];
        changes(at, Changes { remove_hints, ..Changes::removes(vec![header.id]) })
    };
    owner.apply(vec![told(&ready.header)]).await;
    assert_eq!(owner.totals(at).await.0, 1);
    let answer = owner.send(owner.seq + 1, vec![told(&later.header)]).await;
    assert_eq!(answer.is_err(), VERIFIES_HINTS, "{answer:?}");
    if !VERIFIES_HINTS {
        // The entry still exists but is counted as removed: the comparison finds such a difference.
        assert_eq!(owner.get(at, &[id(2)]).await.len(), 1);
    }
}
