//! Settles, moves and delays.

use super::*;

/// Message 0 of queue 0 is held by claim `a` since 11 seconds.
fn held() -> History {
    let mut history = History::new(false, false);
    history.begin_post(0, &PostTerms::default(), at(1));
    history.end_post(0, at(2), Certainty::Done);
    deliver(&mut history, "a", &[0], 10);
    history
}

/// Begins a settle of message 0 that forwards message 9 to queue 1.
fn begin(history: &mut History, effect: Effect) -> usize {
    let forward = (9, PostTerms { queue: 1, ..PostTerms::default() });
    let terms = SettleTerms { queue: 0, claim: "a".into(), number: 0, effect, forwards: vec![forward] };
    history.begin_settle(terms, at(20))
}

fn deliver_at(history: &mut History, queue: usize, claim: &str, number: u64, began: u64) {
    history.deliver(queue, &claim_of(claim, &[number]), span(began, began + 1), at(60), 60);
}

fn applied() -> EntryAnswer {
    EntryAnswer::Applied(vec!["id-9".into()])
}

#[test]
fn forward_of_applied_settle_must_be_delivered() {
    let mut history = held();
    let entry = begin(&mut history, Effect::Removed);
    history.answer_settle(entry, at(21), applied());
    history.check_all_delivered(at(30));
    assert_eq!(violations(history), ["message 9 is lost"]);
    let mut history = held();
    let entry = begin(&mut history, Effect::Removed);
    history.answer_settle(entry, at(21), applied());
    deliver_at(&mut history, 1, "b", 9, 40);
    history.check_all_delivered(at(30));
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn forward_of_refused_settle_is_noticed() {
    let mut history = held();
    let entry = begin(&mut history, Effect::Removed);
    history.answer_settle(entry, at(21), EntryAnswer::Refused);
    deliver_at(&mut history, 1, "b", 9, 40);
    assert_eq!(violations(history), ["message 9 was delivered, and its post was refused"]);
}

#[test]
fn settle_in_doubt_may_be_applied_or_not() {
    for number in [0, 9] {
        let mut history = held();
        let entry = begin(&mut history, Effect::Removed);
        history.answer_settle(entry, at(21), EntryAnswer::Unknown);
        deliver_at(&mut history, if number == 9 { 1 } else { 0 }, "b", number, 80);
        history.check_all_delivered(at(75));
        assert_eq!(violations(history), [""; 0]);
    }
}

#[test]
fn half_of_a_settle_in_doubt_is_noticed() {
    let mut history = held();
    let entry = begin(&mut history, Effect::Removed);
    history.answer_settle(entry, at(21), EntryAnswer::Unknown);
    deliver_at(&mut history, 1, "b", 9, 40);
    deliver_at(&mut history, 0, "c", 0, 80);
    assert_eq!(violations(history), ["message 0 was delivered by claim c after its delete"]);
    let mut history = held();
    let entry = begin(&mut history, Effect::Removed);
    history.answer_settle(entry, at(21), EntryAnswer::Unknown);
    deliver_at(&mut history, 0, "c", 0, 80);
    deliver_at(&mut history, 1, "b", 9, 90);
    assert_eq!(violations(history), ["message 9 was delivered, and its post was refused"]);
}

#[test]
fn repeated_settle_has_the_same_answer() {
    let mut history = held();
    let entry = begin(&mut history, Effect::Removed);
    history.answer_settle(entry, at(21), applied());
    history.answer_settle(entry, at(25), applied());
    history.answer_settle(entry, at(30), EntryAnswer::Unknown);
    history.answer_settle(entry, at(31), EntryAnswer::Refused);
    history.answer_settle(entry, at(300), EntryAnswer::NotHeld);
    assert_eq!(violations(history), [""; 0]);
    let mut history = held();
    let entry = begin(&mut history, Effect::Removed);
    history.answer_settle(entry, at(21), applied());
    history.answer_settle(entry, at(25), EntryAnswer::NotHeld);
    assert_eq!(violations(history), ["the repeated settle of message 0 has another answer"]);
    let mut history = held();
    let entry = begin(&mut history, Effect::Removed);
    history.answer_settle(entry, at(21), applied());
    history.answer_settle(entry, at(25), EntryAnswer::Applied(vec!["other".into()]));
    let expected = [
        "the repeated settle of message 0 forwards other messages",
        "message 9 is stored twice, as id-9 and other",
    ];
    assert_eq!(violations(history), expected);
}

#[test]
fn repeat_without_note_shows_earlier_attempt_undone() {
    let mut history = held();
    let entry = begin(&mut history, Effect::Removed);
    history.answer_settle(entry, at(21), EntryAnswer::Unknown);
    history.answer_settle(entry, at(25), EntryAnswer::NotHeld);
    deliver_at(&mut history, 1, "b", 9, 40);
    assert_eq!(violations(history), ["message 9 was delivered, and its post was refused"]);
    // After five minutes the answer is forgotten.
    let mut history = held();
    let entry = begin(&mut history, Effect::Removed);
    history.answer_settle(entry, at(21), EntryAnswer::Unknown);
    history.answer_settle(entry, at(300), EntryAnswer::NotHeld);
    deliver_at(&mut history, 1, "b", 9, 400);
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn late_answer_after_return_is_noticed() {
    let mut history = held();
    let entry = begin(&mut history, Effect::Removed);
    deliver_at(&mut history, 0, "c", 0, 80);
    history.answer_settle(entry, at(90), applied());
    assert_eq!(violations(history), ["message 0 was delivered again, and its settle was applied"]);
}

#[test]
fn moved_message_leaves_its_queue() {
    let mut history = held();
    let entry = begin(&mut history, Effect::Moved(2));
    history.answer_settle(entry, at(21), applied());
    deliver_at(&mut history, 2, "b", 0, 40);
    deliver_at(&mut history, 1, "d", 9, 40);
    history.check_all_delivered(at(30));
    assert_eq!(violations(history), [""; 0]);
    let mut history = held();
    let entry = begin(&mut history, Effect::Moved(2));
    history.answer_settle(entry, at(21), applied());
    deliver_at(&mut history, 0, "b", 0, 80);
    assert_eq!(violations(history), ["message 0 was delivered by claim b after its delete"]);
    let mut history = held();
    let entry = begin(&mut history, Effect::Moved(2));
    history.answer_settle(entry, at(21), applied());
    deliver_at(&mut history, 1, "d", 9, 40);
    history.check_all_delivered(at(30));
    assert_eq!(violations(history), ["message 0 is lost"]);
}

#[test]
fn moved_message_may_return_by_another_move() {
    let mut history = held();
    let entry = begin(&mut history, Effect::Moved(2));
    history.answer_settle(entry, at(21), applied());
    deliver_at(&mut history, 2, "b", 0, 40);
    let effect = Effect::Moved(0);
    let terms = SettleTerms { queue: 2, claim: "b".into(), number: 0, effect, forwards: Vec::new() };
    let entry = history.begin_settle(terms, at(50));
    history.answer_settle(entry, at(51), EntryAnswer::Unknown);
    deliver_at(&mut history, 0, "c", 0, 120);
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn purge_of_a_queue_reaches_messages_moved_there() {
    let mut history = held();
    let entry = begin(&mut history, Effect::Moved(2));
    history.answer_settle(entry, at(21), EntryAnswer::Unknown);
    history.begin_removal_of_all(2, at(30));
    history.check_all_delivered(at(40));
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn early_delivery_after_deferral_is_noticed() {
    for (began, expected) in [(30, &["message 0 was delivered before its time"][..]), (60, &[][..])] {
        let mut history = held();
        let entry = begin(&mut history, Effect::Returned(40));
        history.answer_settle(entry, at(21), applied());
        deliver_at(&mut history, 0, "b", 0, began);
        assert_eq!(violations(history), expected);
    }
}

#[test]
fn early_delivery_after_delayed_release_is_noticed() {
    let released = |at_seconds: u64| {
        let mut history = held();
        history.release("a", at(at_seconds));
        history.end_release("a", span(at_seconds, at_seconds + 1), 40);
        history
    };
    let mut history = released(20);
    deliver(&mut history, "b", &[0], 30);
    assert_eq!(violations(history), ["message 0 was delivered before its time"]);
    // A claim that may have ended by itself delays nothing.
    let mut history = released(75);
    deliver(&mut history, "b", &[0], 80);
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn early_delivery_of_delayed_post_is_noticed() {
    let mut history = History::new(false, false);
    history.begin_post(0, &PostTerms { delay: 30, ..PostTerms::default() }, at(1));
    history.end_post(0, at(2), Certainty::Done);
    deliver(&mut history, "a", &[0], 10);
    assert_eq!(violations(history), ["message 0 was delivered before its time"]);
}
