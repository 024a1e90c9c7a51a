//! The judge of pops: what they may have removed, and what they must not get.

use super::*;

fn pop(history: &mut History, numbers: &[u64], began: u64, certainty: Certainty) {
    let pop = history.begin_pop(0, at(began));
    history.end_pop(pop, claim_of("", numbers).messages, span(began, began + 1), certainty);
}

#[test]
fn popped_message_is_neither_lost_nor_delivered_again() {
    let mut history = posted();
    pop(&mut history, &[0], 10, Certainty::Done);
    deliver(&mut history, "a", &[1, 2], 20);
    history.check_all_delivered(at(15));
    assert_eq!(history.take_violations(), [""; 0]);
    deliver(&mut history, "b", &[0], 30);
    assert_eq!(violations(history), ["message 0 was delivered by claim b after its delete"]);
}

#[test]
fn pop_without_answer_may_have_removed_any_message() {
    let mut history = posted();
    pop(&mut history, &[], 10, Certainty::Unknown);
    deliver(&mut history, "a", &[2], 20);
    history.check_all_delivered(at(15));
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn refused_pop_removes_nothing() {
    let mut history = posted();
    pop(&mut history, &[], 10, Certainty::NotDone);
    deliver(&mut history, "a", &[0, 1], 20);
    history.check_all_delivered(at(15));
    assert_eq!(violations(history), ["message 2 is lost"]);
}

#[test]
fn popped_message_is_under_no_claim_and_in_order() {
    let mut history = posted();
    pop(&mut history, &[1], 10, Certainty::Done);
    assert_eq!(history.take_violations(), ["message 1 overtook 0 of its group"]);
    deliver(&mut history, "a", &[0], 20);
    pop(&mut history, &[0], 22, Certainty::Done);
    assert_eq!(violations(history), ["message 0 is under two claims, a and pop 2"]);
}

#[test]
fn pop_of_held_queue_is_noticed() {
    let mut history = posted();
    let terms = HoldTerms::lasting(HeldPosts::Stored);
    history.begin_hold(&HeldResource::Queue(0), terms, at(5));
    history.end_hold(&HeldResource::Queue(0), terms, span(5, 6), Certainty::Done);
    pop(&mut history, &[0], 10, Certainty::Done);
    assert_eq!(violations(history), ["claim pop 1 of queue 0 got message 0, held by Queue(0)"]);
}
