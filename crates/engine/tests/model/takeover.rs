//! Recovered claims: `restore_claim` with records that contradict each other.

use rand::SeedableRng;
use rand::rngs::SmallRng;

use angarium_core::claim::ClaimTerms;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::message::{Header, Life, State};
use angarium_core::names::PoolName;
use angarium_core::time::Timestamp;
use angarium_engine::{QueueEngine, Release, SettleStart, StoredTotals, forget_claims};

use super::world::id;

const ENDS: Timestamp = Timestamp::from_millis(60_000);

fn found() -> StoredTotals {
    StoredTotals { tail: id(9), has_ready: true, is_scheduled: false, has_aside: false }
}

fn header(id: MessageId, attempts: u32) -> Header {
    let (created, expires) = (Timestamp::default(), Timestamp::from_millis(50_000));
    Header {
        id,
        created,
        ready: created,
        life: Life::Own { ttl: 50, expires },
        attempts,
        client: None,
        size: 0,
        state: State::Ready,
        group: None,
        first_claimed: None,
        extras: None,
    }
}

fn claims() -> [ClaimId; 2] {
    let mut random = SmallRng::seed_from_u64(1);
    [ClaimId::new(&mut random), ClaimId::new(&mut random)]
}

#[test]
fn message_under_two_claims_belongs_to_the_higher_attempt() {
    let [older, newer] = claims();
    for records in [[(older, 1), (newer, 2)], [(newer, 2), (older, 1)]] {
        let mut engine = QueueEngine::open(found());
        for (claim, attempt) in records {
            let headers = vec![(header(id(1), 0), attempt)];
            engine.restore_claim(claim, ClaimTerms::stored(60, 60), ENDS, headers);
        }
        let (holder, header) = engine.hold(id(1)).expect("it is claimed");
        assert_eq!((holder, header.attempts, engine.claimed()), (newer, 2, 1));
        assert!(!engine.is_due(older, ENDS) && engine.is_due(newer, ENDS));
    }
}

#[test]
fn claim_keeps_messages_not_taken_by_another() {
    let [older, newer] = claims();
    let mut engine = QueueEngine::open(found());
    let headers = vec![(header(id(1), 0), 1), (header(id(2), 0), 1)];
    engine.restore_claim(older, ClaimTerms::stored(60, 60), ENDS, headers);
    engine.restore_claim(newer, ClaimTerms::stored(60, 60), ENDS, vec![(header(id(1), 0), 2)]);
    let holder = |id| engine.hold(id).map(|(claim, _)| claim);
    assert_eq!((holder(id(1)), holder(id(2)), engine.claimed()), (Some(newer), Some(older), 2));
}

#[test]
fn restored_message_has_claimed_attempts_and_life() {
    let [claim, _] = claims();
    for (stored, attempt, expected) in [(0, 1, 1), (3, 3, 3), (2, 3, 3)] {
        let mut engine = QueueEngine::open(found());
        let headers = vec![(header(id(1), stored), attempt)];
        engine.restore_claim(claim, ClaimTerms::stored(60, 70), ENDS, headers);
        let (_, header) = engine.hold(id(1)).expect("it is claimed");
        let life = Life::Own { ttl: 130, expires: ENDS.plus_seconds(70) };
        assert_eq!((header.attempts, header.life), (expected, life));
    }
}

#[test]
fn claim_without_messages_is_not_restored() {
    let [claim, _] = claims();
    let mut engine = QueueEngine::open(found());
    engine.restore_claim(claim, ClaimTerms::stored(60, 60), ENDS, vec![]);
    assert!(!engine.is_due(claim, ENDS));
    assert_eq!(engine.claimed(), 0);
}

#[test]
fn message_settled_before_takeover_is_not_restored() {
    let [claim, _] = claims();
    let mut requeued = header(id(1), 2);
    forget_claims(&mut requeued);
    let kept = [State::Done, State::Failed].map(|state| Header { state, ..header(id(1), 0) });
    for left in kept.into_iter().chain([requeued]) {
        let mut engine = QueueEngine::open(found());
        let ended = engine.restore_claim(claim, ClaimTerms::stored(60, 60), ENDS, vec![(left.clone(), 2)]);
        assert_eq!((ended, engine.hold(id(1))), (vec![claim], None), "{left:?}");
    }
}

/// The two pools of a migrating queue are swept at the same time. A page of one of them has an old header of a message
/// whose claim had extended its life and has ended since, and the sweep of the other one begins after that.
#[test]
fn sweep_of_one_pool_remembers_changes_when_another_begins() {
    let [claim, _] = claims();
    let [one, two] = ["one", "two"].map(|name| PoolName::new(name).unwrap());
    let now = Timestamp::from_millis(55_000);
    let mut engine = QueueEngine::open(found());
    engine.restore_claim(claim, ClaimTerms::stored(60, 60), ENDS, vec![(header(id(1), 0), 1)]);
    engine.begin_sweep(&one);
    let ready = Some(now.plus_seconds(30));
    assert!(engine.begin_release(claim, Release { ready, ..Release::COUNTED }).is_some());
    engine.finish_release(claim);
    engine.begin_sweep(&two);
    assert_eq!(engine.finish_sweep(&one, vec![header(id(1), 0)], now), []);
    assert_eq!(engine.finish_sweep(&two, vec![header(id(2), 0)], now), [id(2)]);
}

#[test]
fn sweep_of_one_pool_spares_messages_settled_meanwhile() {
    let [claim, _] = claims();
    let [one, two] = ["one", "two"].map(|name| PoolName::new(name).unwrap());
    let now = Timestamp::from_millis(55_000);
    let mut engine = QueueEngine::open(found());
    engine.restore_claim(claim, ClaimTerms::stored(60, 60), ENDS, vec![(header(id(1), 0), 1)]);
    engine.begin_sweep(&one);
    assert!(matches!(engine.begin_settle(id(1), claim, now), SettleStart::Begun(_)));
    engine.settle_gone(id(1), Some(&State::Done));
    engine.begin_sweep(&two);
    assert_eq!(engine.finish_sweep(&one, vec![header(id(1), 0)], now), []);
    assert_eq!(engine.finish_sweep(&two, vec![], now), []);
}
