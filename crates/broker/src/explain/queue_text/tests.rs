//! The sentences about queues in each situation.

use angarium_core::durability::Durability;
use angarium_core::hold::{HoldEffects, HoldId, HoldReason};
use angarium_core::ids::{MessageId, QueueId, SubscriptionId};
use angarium_core::names::{PoolName, ProjectId};
use angarium_core::outcome::Reason;
use uuid::Uuid;

use super::*;

fn explained(counts: ExplainedCounts, facts: QueueFacts) -> QueueExplanation {
    let name = PoolName::new("default").unwrap();
    let class = Some(Durability::Sync);
    QueueExplanation {
        says: String::new(),
        subscriptions: None,
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
        gap: None,
        subscription: None,
        failing_webhooks: Vec::new(),
        unconfirmed: Vec::new(),
        suspended: Vec::new(),
        is_filling: false,
        is_barred_by_fill: false,
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
fn failing_webhook_is_named_with_its_next_attempt() {
    let [one, other] = [1, 2].map(|number| SubscriptionId(QueueId::from_bytes(u128::to_be_bytes(number))));
    let status = |failures, paused: Option<u64>| WebhookStatus {
        failures,
        since: Timestamp::from_millis(60_000),
        reason: Reason::cut("answered 503: \"closed\"").unwrap(),
        paused_until: paused.map(Timestamp::from_millis),
    };
    let said = |subscription, failing_webhooks| {
        let text = sentence(&QueueExplanation { subscription, failing_webhooks, ..one_ready() });
        text.strip_prefix("1 message is ready: a claim gets the oldest; ").unwrap().to_owned()
    };
    assert_eq!(
        said(Some(one), vec![(one, status(5, Some(90_000)))]),
        "the webhook has failed 5 times since 1970-01-01T00:01:00Z, and nothing is sent to it until \
         1970-01-01T00:01:30Z; the reason of its last failure is \"answered 503: \\\"closed\\\"\"."
    );
    let refused = said(None, vec![(one, status(0, None))]);
    let webhook =
        format!("the webhook of subscription {one} has refused messages since 1970-01-01T00:01:00Z, and ");
    assert!(refused.starts_with(&format!("{webhook}the next ready message is sent to it; ")), "{refused}");
    let both = said(None, vec![(one, status(1, None)), (other, status(0, None))]);
    let first =
        format!("2 webhooks fail, and that of subscription {one} has failed at 1970-01-01T00:01:00Z, and ");
    assert!(both.starts_with(&first), "{both}");
}

#[test]
fn unconfirmed_subscription_is_told() {
    let [one, other] = [1, 2].map(|number| SubscriptionId(QueueId::from_bytes(u128::to_be_bytes(number))));
    for (subscription, unconfirmed, expected) in [
        (Some(one), vec![one], "the subscription is not confirmed: it gets no copies, and".to_owned()),
        (None, vec![one], format!("subscription {one} is not confirmed and gets no copies.")),
        (
            None,
            vec![one, other],
            format!("2 subscriptions are not confirmed and get no copies, the first is {one}."),
        ),
    ] {
        let text = sentence(&QueueExplanation { subscription, unconfirmed, ..one_ready() });
        assert!(text.contains(&expected), "{text}");
    }
}

#[test]
fn fill_is_told_until_it_ends() {
    let filling = QueueExplanation { is_filling: true, ..one_ready() };
    assert_eq!(
        sentence(&filling),
        "1 message is ready: a claim gets the oldest; earlier messages of the source are still being copied."
    );
    let text = sentence(&QueueExplanation { is_barred_by_fill: true, ..filling });
    assert!(
        text.starts_with("A claim gets nothing until all earlier messages of the source are copied"),
        "{text}"
    );
}

#[test]
fn gap_is_told_with_its_end() {
    let since = Timestamp::from_millis(60_000);
    let gap = Gap { since, first: MessageId::ZERO, last: MessageId::ZERO, messages: 2 };
    let of_topic = QueueExplanation { gap: Some(gap), ..one_ready() };
    let left_out = format!(
        "the subscription is full and suspended since 1970-01-01T00:01:00Z: 2 messages were left out, the first is {}",
        MessageId::ZERO
    );
    let text = sentence(&of_topic);
    assert!(text.ends_with(&format!("{left_out}.")), "{text}");
    let text = sentence(&QueueExplanation { is_filling: true, ..of_topic });
    let copied = "messages left out are copied as there is room, as long as the source has them";
    assert!(text.ends_with(&format!("{left_out}; {copied}.")), "{text}");
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

#[test]
fn topic_is_explained_by_its_subscriptions() {
    let told = |count| {
        let empty = explained(ExplainedCounts::default(), QueueFacts::default());
        sentence(&QueueExplanation { subscriptions: Some(count), ..empty })
    };
    assert_eq!(told(0), "This is a topic without subscriptions: messages that are posted to it are dropped.");
    let copied = "a message is copied for each one whose filter accepts it, and the topic keeps none.";
    assert_eq!(told(1), format!("This is a topic with 1 subscription: {copied}"));
    assert_eq!(told(3), format!("This is a topic with 3 subscriptions: {copied}"));
}
