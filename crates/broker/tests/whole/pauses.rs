//! Acts that must not be repeated on a queue within a minute.

use angarium_broker::Act;
use angarium_clock::Clock;

use super::{Whole, open_journal, queue, start, whole};

#[tokio::test(flavor = "multi_thread")]
async fn an_act_is_not_begun_twice_within_a_minute() {
    let whole = whole().await;
    let (one, other) = (queue("one"), queue("other"));
    assert!(whole.broker.act_begin(&one, Act::Purge).await.unwrap());
    for (at, act) in [(&other, Act::Purge), (&one, Act::Deletion)] {
        assert!(!whole.broker.is_recent(at, act).await.unwrap());
        assert!(whole.broker.act_begin(at, act).await.unwrap(), "{act:?} of {at:?} is something else");
    }
    whole.clock.advance(59_000);
    assert!(whole.broker.is_recent(&one, Act::Purge).await.unwrap());
    assert!(!whole.broker.act_begin(&one, Act::Purge).await.unwrap());
    // A refused act starts no new pause.
    whole.clock.advance(1_000);
    assert!(!whole.broker.is_recent(&one, Act::Purge).await.unwrap());
    assert!(whole.broker.act_begin(&one, Act::Purge).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn new_owner_knows_recent_acts() {
    let data = tempfile::tempdir().unwrap();
    let clock = Clock::manual(1_700_000_000_000);
    let journal = open_journal(data.path(), "journal");
    let broker = start(journal.clone(), journal.clone(), clock.clone()).await;
    assert!(broker.act_begin(&queue("q"), Act::Deletion).await.unwrap());
    broker.stop().await;
    let broker = start(journal.clone(), journal, clock.clone()).await;
    let whole = Whole { broker, clock, _data: data };
    assert!(!whole.broker.act_begin(&queue("q"), Act::Deletion).await.unwrap());
    whole.clock.advance(60_000);
    assert!(!whole.broker.is_recent(&queue("q"), Act::Deletion).await.unwrap());
}
