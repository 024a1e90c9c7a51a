//! Lives of messages, waits in vain, posts side by side, and visibilities.

use super::*;

fn mortal() -> History {
    let mut history = History::new(false, false);
    history.begin_post(0, &PostTerms { ttl: Some(60), ..PostTerms::default() }, at(1));
    history.end_post(0, at(2), Certainty::Done);
    history
}

#[test]
fn delivery_after_life_is_noticed() {
    for (began, expected) in [(200, &["message 0 was delivered after its life"][..]), (70, &[][..])] {
        let mut history = mortal();
        deliver(&mut history, "a", &[0], began);
        history.check_lives();
        assert_eq!(violations(history), expected);
    }
}

#[test]
fn ended_message_may_be_absent() {
    let mut history = mortal();
    history.check_all_delivered(at(5));
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn claim_extends_life_by_its_grace() {
    let mut history = mortal();
    deliver(&mut history, "a", &[0], 50);
    deliver(&mut history, "b", &[0], 170);
    history.check_lives();
    assert_eq!(violations(history), [""; 0]);
    // A claim without an answer may have extended it.
    let mut history = mortal();
    history.doubt_claim(0, at(50));
    deliver(&mut history, "b", &[0], 200);
    history.check_lives();
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn held_message_must_live_until_its_extended_end() {
    let mut history = mortal();
    assert!(!history.must_live(0, "a", 60, at(20)), "it was not held");
    deliver(&mut history, "a", &[0], 50);
    assert!(history.must_live(0, "a", 60, at(140)));
    assert!(!history.must_live(0, "a", 60, at(160)), "its life may have ended");
    let delete = history.begin_delete(0, 0, at(70));
    assert!(!history.must_live(0, "a", 60, at(140)), "it may be deleted");
    history.end_delete(0, delete, at(71), Certainty::NotDone);
    assert!(history.must_live(0, "a", 60, at(140)));
}

#[test]
fn stored_message_must_be_found_unless_deleted() {
    let found = |change: fn(&mut History)| {
        let mut history = mortal();
        change(&mut history);
        history.check_found(0);
        violations(history)
    };
    assert_eq!(found(|_| {}), ["message 0 is lost"]);
    assert_eq!(found(|history| deliver(history, "a", &[0], 5)), [""; 0]);
    let deleted = found(|history| {
        history.begin_delete(0, 0, at(5));
    });
    assert_eq!(deleted, [""; 0]);
}

fn calm() -> History {
    let mut history = History::new(false, false);
    history.set_calm(true);
    history.begin_post(0, &PostTerms::default(), at(1));
    history.end_post(0, at(2), Certainty::Done);
    history.wait_in_vain(EmptyWait { queue: 0, span: span(10, 20) });
    history
}

#[test]
fn wait_beside_ready_message_is_noticed() {
    let mut history = calm();
    history.check_waits();
    assert_eq!(violations(history), ["a claim of queue 0 waited in vain, and message 0 was ready"]);
    let mut history = calm();
    deliver(&mut history, "a", &[0], 14);
    history.check_waits();
    assert_eq!(violations(history), [""; 0]);
    let mut history = calm();
    history.begin_delete(0, 0, at(12));
    history.check_waits();
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn late_delivery_to_waiting_claim_is_noticed() {
    let check = |mut history: History, ended| {
        let (claim, wait) = (claim_of("a", &[0]), span(1, ended));
        history.deliver(0, &claim, wait, at(60), 60);
        history.check_promptness(0, &claim, wait, at(7));
        violations(history)
    };
    let late = "a claim of queue 0 waited beside message 0, which was free";
    assert_eq!(check(calm(), 10), [late]);
    assert_eq!(check(calm(), 9), [""; 0]);
    let mut faulty = calm();
    faulty.set_calm(false);
    assert_eq!(check(faulty, 10), [""; 0]);
    let mut held = calm();
    deliver(&mut held, "b", &[0], 3);
    held.release("b", at(5));
    assert_eq!(check(held, 30), [""; 0], "another claim had it");
}

#[test]
fn wait_while_faults_happen_is_not_judged() {
    let mut history = calm();
    history.set_calm(false);
    history.empty_waits.clear();
    history.wait_in_vain(EmptyWait { queue: 0, span: span(10, 20) });
    history.check_waits();
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn two_posts_are_refused_when_both_are() {
    let mut history = History::new(false, false);
    history.begin_post(0, &PostTerms::default(), at(1));
    history.begin_post(0, &PostTerms::default(), at(1));
    history.end_post(0, at(2), Certainty::NotDone);
    deliver(&mut history, "a", &[0], 3);
    assert_eq!(history.take_violations(), [""; 0]);
    history.end_post(0, at(9), Certainty::NotDone);
    assert_eq!(violations(history), ["message 0 was delivered, and its post was refused"]);
}

#[test]
fn change_of_visibility_concerns_every_holder() {
    let mut history = posted();
    deliver(&mut history, "a", &[0], 10);
    let change = history.begin_visibility(0, at(20), at(0), 0);
    history.end_visibility(0, change, at(21));
    deliver(&mut history, "b", &[0], 22);
    assert_eq!(history.take_violations(), [""; 0]);
    deliver(&mut history, "c", &[0], 30);
    assert_eq!(violations(history), ["message 0 is under two claims, b and c"]);
    // A claim whose answer arrives after the change may have ended by it.
    let mut history = posted();
    history.begin_visibility(0, at(20), at(0), 0);
    history.deliver(0, &claim_of("a", &[0]), span(19, 40), at(60), 60);
    deliver(&mut history, "b", &[0], 41);
    assert_eq!(violations(history), [""; 0]);
}
