//! The sentences about queues in each situation.

use angarium_core::durability::Durability;
use angarium_core::hold::{HoldEffects, HoldId, HoldReason};
use angarium_core::names::{PoolName, ProjectId};
use uuid::Uuid;

use super::*;

fn explained(counts: ExplainedCounts, facts: QueueFacts) -> QueueExplanation {
    let name = PoolName::new("default").unwrap();
    let class = Some(Durability::Sync);
    QueueExplanation {
        says: String::new(),
        now: Timestamp::from_millis(1_000),
        counts: Some(counts),
        next_due: None,
        facts: Some(facts),
        dead_letter_queue: None,
        targets: Vec::new(),
        holds: AppliedHolds::default(),
        group_holds: Vec::new(),
        waiting_claims: 0,
        limits: Vec::new(),
        pool: PoolState { name, is_up: true, is_writable: true, class, why: None },
        older_pool: None,
        has_read_failure: false,
        last_refusal: None,
        owner: Uuid::from_u128(1),
        session: SessionState::Connected,
    }
}

fn one_ready() -> QueueExplanation {
    let facts = QueueFacts { available: Availability::Message, ..QueueFacts::default() };
    explained(ExplainedCounts { ready: 1, ..ExplainedCounts::default() }, facts)
}

#[test]
fn claims_without_session_are_refused() {
    for session in [SessionState::Suspended, SessionState::Lost] {
        let queue = QueueExplanation { session, ..one_ready() };
        assert_eq!(
            sentence(&queue),
            "No message can be claimed now, because the service has no connection to the servers that store the \
             claims."
        );
    }
}

#[test]
fn full_slot_refuses_claims() {
    let limit = |what, effect| ReachedLimit { what, bound: 5, effect };
    let limits =
        vec![limit("claims in the slot of the queue", LimitEffect::Claims), limit("ids", LimitEffect::Posts)];
    assert_eq!(
        sentence(&QueueExplanation { limits, ..one_ready() }),
        "No message can be claimed now, because there are 5 claims in the slot of the queue, as many as there may be; \
         posts with such an id are refused, because there are 5 ids, as many as there may be."
    );
    let limits = vec![limit("claims that wait for the queue", LimitEffect::WaitingClaims)];
    assert_eq!(
        sentence(&QueueExplanation { limits, ..one_ready() }),
        "1 message is ready: a claim gets the oldest; more claims that wait are refused, because there are 5 claims \
         that wait for the queue, as many as there may be."
    );
}

#[test]
fn unread_messages_are_not_promised() {
    let facts = QueueFacts::default();
    let sentence_of = |ready| {
        let counts = ExplainedCounts { ready, ..ExplainedCounts::default() };
        sentence(&explained(counts, facts.clone()))
    };
    assert_eq!(sentence_of(1), "1 message is ready, and only a claim shows whether it can be claimed now.");
    let several = "2 messages are ready, and only a claim shows whether one of them can be claimed now.";
    assert_eq!(sentence_of(2), several);
}

#[test]
fn expired_messages_are_not_called_ready() {
    let facts = QueueFacts { available: Availability::Nothing, expired: Some(2), ..QueueFacts::default() };
    let queue = explained(ExplainedCounts { ready: 2, ..ExplainedCounts::default() }, facts);
    let expected = "A claim gets nothing now: 2 messages have expired and are about to be removed.";
    assert_eq!(sentence(&queue), expected);
}

#[test]
fn migration_and_failed_read_are_told() {
    let older = PoolState { name: PoolName::new("old").unwrap(), ..one_ready().pool };
    let queue = QueueExplanation { older_pool: Some(older), has_read_failure: true, ..one_ready() };
    assert_eq!(
        sentence(&queue),
        "1 message is ready: a claim gets the oldest; waiting messages could not be read the last time; the queue is \
         moving from pool old to pool default."
    );
}

#[test]
fn refused_posts_to_group_are_told() {
    let held = |name: &str, [post, discard]: [bool; 2]| {
        let hold = Hold {
            effects: HoldEffects::new(false, post, discard).unwrap(),
            reason: HoldReason::new("invoice").unwrap(),
            by: None,
            since: Timestamp::from_millis(0),
            until: None,
        };
        let held = GroupHold { id: HoldId(Uuid::from_u128(1)), hold, is_releasing: false };
        (GroupName::new(name, "group").unwrap(), held)
    };
    let told = |group_holds| sentence(&QueueExplanation { group_holds, ..one_ready() });
    let ready = "1 message is ready: a claim gets the oldest; posts to";
    let refused = "group a are refused, because it is held until it is released (invoice).";
    assert_eq!(told(vec![held("a", [true, false])]), format!("{ready} {refused}"));
    let discarded = "group a are discarded, because it is held until it is released (invoice).";
    assert_eq!(told(vec![held("a", [false, true])]), format!("{ready} {discarded}"));
    let both = "2 groups are refused or discarded: group a is held until it is released (invoice).";
    assert_eq!(told(vec![held("a", [true, false]), held("b", [false, true])]), format!("{ready} {both}"));
}

#[test]
fn all_holds_are_named_and_the_strictest_counts() {
    let applied = |target, effects: [bool; 3], reason: &str| {
        let [claim, post, discard] = effects;
        let hold = Hold {
            effects: HoldEffects::new(claim, post, discard).unwrap(),
            reason: HoldReason::new(reason).unwrap(),
            by: None,
            since: Timestamp::from_millis(0),
            until: None,
        };
        AppliedHold { target, hold }
    };
    let pool = Some(HoldTarget::Pool(PoolName::new("fast").unwrap()));
    let project = Some(HoldTarget::Project(ProjectId::new("acme").unwrap()));
    let holds = AppliedHolds(vec![
        applied(None, [true, false, true], "bad deploy"),
        applied(pool, [true, false, false], "full disk"),
        applied(project, [false, true, false], "invoice"),
    ]);
    assert_eq!(
        sentence(&QueueExplanation { holds, ..one_ready() }),
        "A claim gets nothing now, because the queue is held until it is released (bad deploy), and pool fast is held \
         until it is released (full disk); posts are refused, because the project of the queue is held until it is \
         released (invoice); 1 message waits for the release, and expires meanwhile as its ttl requires."
    );
}
