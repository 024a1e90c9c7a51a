//! The judge of subscriptions: copies without a source, missing ones, and the numbers of those left out.

use super::*;

fn subscription(terms: SubscriptionTerms, span: (u64, u64)) -> History {
    let mut history = History::new(false, false);
    let number = history.begin_subscription(terms, at(span.0));
    history.end_subscription(number, at(span.1), Certainty::Done, Some("id".into()));
    history
}

fn terms() -> SubscriptionTerms {
    SubscriptionTerms {
        source: 0,
        is_sent_on: false,
        filter: None,
        is_from_oldest: false,
        bound: None,
        ttl: None,
    }
}

fn post(history: &mut History, number: u64, span: (u64, u64), posted: Certainty) {
    let terms = PostTerms { group: Some("g".into()), is_fifo: true, ..PostTerms::default() };
    history.begin_post(number, &terms, at(span.0));
    history.end_post(number, at(span.1), posted);
}

fn read(history: &mut History, claim: &str, bodies: &[u64], began: u64) {
    let numbers: Vec<u64> = bodies.iter().map(|body| number_in(SUBSCRIPTIONS, *body)).collect();
    history.deliver(SUBSCRIPTIONS, &claim_of(claim, &numbers), span(began, began + 1), at(60), 60);
}

/// The verdict on subscription 0, which is there at the end with these numbers.
fn judged(mut history: History, left_out: u64, dropped: u64) -> Vec<String> {
    let found = BTreeMap::from([(0, FoundSubscription { left_out, dropped })]);
    history.check_subscriptions(&found, at(1_000));
    violations(history)
}

#[test]
fn copy_of_each_post_is_good() {
    let mut history = subscription(terms(), (1, 2));
    post(&mut history, 0, (3, 4), Certainty::Done);
    post(&mut history, 1, (5, 6), Certainty::NotDone);
    post(&mut history, 2, (7, 8), Certainty::Unknown);
    read(&mut history, "a", &[0], 10);
    assert_eq!(judged(history, 0, 0), [""; 0]);
}

#[test]
fn missing_copy_is_noticed() {
    for (posted, seen, count) in [
        (Certainty::Done, false, 1),
        (Certainty::Unknown, false, 0),
        // The message is there, so its copies are.
        (Certainty::Unknown, true, 1),
    ] {
        let mut history = subscription(terms(), (1, 2));
        post(&mut history, 0, (3, 4), posted);
        if seen {
            deliver(&mut history, "a", &[0], 10);
        }
        assert_eq!(judged(history, 0, 0).len(), count, "{posted:?} {seen}");
    }
}

#[test]
fn copy_without_source_is_noticed() {
    let of_refused = |history: &mut History| post(history, 0, (3, 4), Certainty::NotDone);
    let of_nothing = |_: &mut History| {};
    let deeds: [&dyn Fn(&mut History); 2] = [&of_refused, &of_nothing];
    for deed in deeds {
        let mut history = subscription(terms(), (1, 2));
        deed(&mut history);
        read(&mut history, "a", &[0], 10);
        assert_eq!(violations(history).len(), 1);
    }
}

#[test]
fn earlier_post_is_copied_from_oldest_alone() {
    for (is_from_oldest, count) in [(true, 0), (false, 1)] {
        let mut history = History::new(false, false);
        post(&mut history, 0, (1, 2), Certainty::Done);
        let number = history.begin_subscription(SubscriptionTerms { is_from_oldest, ..terms() }, at(3));
        history.end_subscription(number, at(4), Certainty::Done, Some("id".into()));
        read(&mut history, "a", &[0], 10);
        assert_eq!(violations(history).len(), count, "{is_from_oldest}");
    }
    // A message that waited all the time must be copied.
    let mut history = History::new(false, false);
    post(&mut history, 0, (1, 2), Certainty::Done);
    let number = history.begin_subscription(SubscriptionTerms { is_from_oldest: true, ..terms() }, at(3));
    history.end_subscription(number, at(4), Certainty::Done, Some("id".into()));
    assert_eq!(judged(history, 0, 0).len(), 1);
}

#[test]
fn message_deleted_before_subscription_is_not_copied() {
    let mut history = History::new(false, false);
    post(&mut history, 0, (1, 2), Certainty::Done);
    let delete = history.begin_delete(0, 0, at(3));
    history.end_delete(0, delete, at(4), Certainty::Done);
    history.begin_subscription(SubscriptionTerms { is_from_oldest: true, ..terms() }, at(5));
    read(&mut history, "a", &[0], 10);
    assert_eq!(violations(history).len(), 1);
}

#[test]
fn filtered_message_has_no_copy() {
    let mut history = subscription(SubscriptionTerms { filter: Some(1), ..terms() }, (1, 2));
    post(&mut history, 0, (3, 4), Certainty::Done);
    post(&mut history, 1, (5, 6), Certainty::Done);
    read(&mut history, "a", &[1], 10);
    assert_eq!(history.take_violations(), [""; 0]);
    read(&mut history, "b", &[0], 20);
    assert_eq!(violations(history).len(), 1);
}

#[test]
fn second_copy_is_noticed() {
    let mut history = subscription(terms(), (1, 2));
    post(&mut history, 0, (3, 4), Certainty::Done);
    read(&mut history, "a", &[0], 10);
    let number = number_in(SUBSCRIPTIONS, 0);
    let other = HeldMessage { number, id: "other".into(), attempts: None };
    let claim = HeldClaim { id: "b".into(), messages: vec![other] };
    history.deliver(SUBSCRIPTIONS, &claim, span(200, 201), at(60), 60);
    assert_eq!(violations(history).len(), 1);
}

#[test]
fn copy_overtaken_in_its_group_is_noticed() {
    // Whether the earlier one came with its post is not known, for the creation may have been later.
    let mut history = History::new(false, false);
    let number = history.begin_subscription(SubscriptionTerms { is_from_oldest: true, ..terms() }, at(1));
    post(&mut history, 0, (2, 3), Certainty::Done);
    history.end_subscription(number, at(4), Certainty::Done, Some("id".into()));
    post(&mut history, 1, (5, 6), Certainty::Done);
    read(&mut history, "a", &[1], 10);
    assert_eq!(history.take_violations(), [""; 0]);
    read(&mut history, "b", &[0], 200);
    assert_eq!(violations(history).len(), 1);
}

#[test]
fn numbers_of_full_subscription_are_compared() {
    let bound = Some(Bound { messages: 1, overflow: FullEffect::Suspend });
    let history = || {
        let mut history = subscription(SubscriptionTerms { bound, ..terms() }, (1, 2));
        post(&mut history, 0, (3, 4), Certainty::Done);
        post(&mut history, 1, (5, 6), Certainty::Done);
        read(&mut history, "a", &[0], 10);
        history
    };
    assert_eq!(judged(history(), 0, 0).len(), 1);
    assert_eq!(judged(history(), 1, 0), [""; 0]);
    assert_eq!(judged(history(), 2, 0).len(), 1);
}

#[test]
fn message_moved_from_another_queue_may_be_left_out() {
    let bound = Some(Bound { messages: 1, overflow: FullEffect::Suspend });
    let history = || {
        let mut history = subscription(SubscriptionTerms { bound, ..terms() }, (1, 2));
        history.begin_post(0, &PostTerms { queue: 1, ..PostTerms::default() }, at(3));
        history.end_post(0, at(4), Certainty::Done);
        history.deliver(1, &claim_of("a", &[0]), span(10, 11), at(60), 60);
        let effect = Effect::Moved(0);
        let terms = SettleTerms { queue: 1, claim: "a".into(), number: 0, effect, forwards: Vec::new() };
        let entry = history.begin_settle(terms, at(20));
        history.answer_settle(entry, at(21), EntryAnswer::Applied(Vec::new()));
        history
    };
    assert_eq!(judged(history(), 1, 0), [""; 0]);
    assert_eq!(judged(history(), 2, 0).len(), 1);
}

#[test]
fn staying_message_is_caught_up_with() {
    for (messages, overflow, is_deleted, count) in [
        (3, FullEffect::Suspend, false, 1),
        (3, FullEffect::Suspend, true, 0),
        (3, FullEffect::DropOldest, false, 0),
        // A post may have been beyond it.
        (2, FullEffect::Suspend, false, 0),
    ] {
        let bound = Some(Bound { messages, overflow });
        let mut history = subscription(SubscriptionTerms { bound, ..terms() }, (1, 2));
        post(&mut history, 0, (3, 4), Certainty::Done);
        post(&mut history, 1, (5, 6), Certainty::Done);
        read(&mut history, "a", &[0], 10);
        if is_deleted {
            let delete = history.begin_delete(0, 1, at(20));
            history.end_delete(1, delete, at(21), Certainty::Done);
        }
        let case = format!("{messages} {overflow:?} {is_deleted}");
        assert_eq!(judged(history, 1, 0).len(), count, "{case}");
    }
}

#[test]
fn subscription_is_lost_or_lives_on() {
    let lost = |mut history: History| {
        history.check_subscriptions(&BTreeMap::new(), at(1_000));
        violations(history).len()
    };
    assert_eq!(lost(subscription(terms(), (1, 2))), 1);
    assert_eq!(lost(subscription(SubscriptionTerms { ttl: Some(60), ..terms() }, (1, 2))), 0);
    let mut deleted = subscription(terms(), (1, 2));
    deleted.begin_unsubscription(0, at(3));
    deleted.end_unsubscription(0, span(3, 4), Certainty::Done);
    assert_eq!(judged(deleted, 0, 0).len(), 1);
}
