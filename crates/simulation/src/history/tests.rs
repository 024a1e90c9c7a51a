//! Each judge notices the promise that it is for, and accepts the histories next to it.

use super::*;

mod lives;
mod pops;
mod settles;
mod subscriptions;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn span(began: u64, ended: u64) -> Span {
    Span { began: at(began), ended: at(ended) }
}

/// A history of messages 0 to 2 of one group of queue 0, posted at 1, 2 and 3 seconds.
fn posted() -> History {
    posted_to(History::new(false, false))
}

fn posted_to(mut history: History) -> History {
    for number in 0..3 {
        let terms = PostTerms { group: Some("g".into()), is_fifo: true, ..PostTerms::default() };
        history.begin_post(number, &terms, at(number + 1));
        history.end_post(number, at(number + 1), Certainty::Done);
    }
    history
}

fn claim_of(id: &str, numbers: &[u64]) -> HeldClaim {
    let message = |number: &u64| HeldMessage { number: *number, id: format!("id-{number}"), attempts: None };
    HeldClaim { id: id.to_owned(), messages: numbers.iter().map(message).collect() }
}

fn deliver(history: &mut History, claim: &str, numbers: &[u64], began: u64) {
    history.deliver(0, &claim_of(claim, numbers), span(began, began + 1), at(60), 60);
}

fn violations(mut history: History) -> Vec<String> {
    history.take_violations()
}

#[test]
fn delivery_in_order_is_good() {
    let mut history = posted();
    deliver(&mut history, "a", &[0, 1, 2], 10);
    history.check_all_delivered(at(5));
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn undelivered_message_is_lost() {
    let mut history = posted();
    deliver(&mut history, "a", &[0, 1], 10);
    history.check_all_delivered(at(5));
    assert_eq!(violations(history), ["message 2 is lost"]);
}

#[test]
fn relaxed_message_is_lost_only_with_lost_writes() {
    for has_lost in [false, true] {
        let mut history = posted_to(History::new(false, true));
        deliver(&mut history, "a", &[0, 1], 10);
        if has_lost {
            history.note_lost_writes();
        }
        history.check_all_delivered(at(5));
        assert_eq!(violations(history).len(), usize::from(!has_lost), "{has_lost}");
    }
}

#[test]
fn message_with_unknown_delete_may_be_absent() {
    let mut history = posted();
    history.begin_delete(0, 2, at(5));
    history.begin_removal_of_all(0, at(6));
    history.check_all_delivered(at(8));
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn overlapping_claims_are_noticed() {
    let mut history = posted();
    deliver(&mut history, "a", &[0], 10);
    deliver(&mut history, "b", &[0], 60);
    assert_eq!(violations(history), ["message 0 is under two claims, a and b"]);
    let mut history = posted();
    deliver(&mut history, "a", &[0], 10);
    history.release("a", at(30));
    deliver(&mut history, "b", &[0], 60);
    assert_eq!(violations(history), [""; 0]);
    let mut history = posted();
    deliver(&mut history, "a", &[0], 10);
    deliver(&mut history, "b", &[0], 71);
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn renewed_claim_holds_from_its_renewal() {
    let mut history = posted();
    deliver(&mut history, "a", &[0], 10);
    history.begin_renewal("a", at(40), at(60), 60);
    history.renew("a", at(40), at(60));
    deliver(&mut history, "b", &[0], 90);
    assert_eq!(violations(history), ["message 0 is under two claims, a and b"]);
    // While a renewal to a shorter time has no answer, the claim may end by that.
    let mut history = posted();
    deliver(&mut history, "a", &[0], 10);
    history.begin_renewal("a", at(12), at(5), 5);
    deliver(&mut history, "b", &[0], 20);
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn delivery_after_delete_is_noticed() {
    let mut history = posted();
    let delete = history.begin_delete(0, 0, at(5));
    history.end_delete(0, delete, at(6), Certainty::Done);
    deliver(&mut history, "a", &[0], 10);
    assert_eq!(violations(history), ["message 0 was delivered by claim a after its delete"]);
    // A delete in the source does not reach the queue of dead letters.
    let mut history = History::new(true, false);
    history.begin_post(0, &PostTerms::default(), at(1));
    history.end_post(0, at(2), Certainty::Done);
    let delete = history.begin_delete(0, 0, at(5));
    history.end_delete(0, delete, at(6), Certainty::Done);
    history.deliver(DEAD_LETTERS, &claim_of("a", &[0]), span(10, 11), at(60), 60);
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn delivery_of_refused_post_is_noticed() {
    let mut history = History::new(false, false);
    history.begin_post(0, &PostTerms::default(), at(1));
    history.end_post(0, at(2), Certainty::NotDone);
    deliver(&mut history, "a", &[0], 10);
    assert_eq!(violations(history), ["message 0 was delivered, and its post was refused"]);
    let mut history = History::new(false, false);
    history.begin_post(0, &PostTerms::default(), at(1));
    deliver(&mut history, "a", &[0], 2);
    history.end_post(0, at(9), Certainty::NotDone);
    assert_eq!(violations(history), ["message 0 was delivered, and its post was refused"]);
}

#[test]
fn foreign_and_repeated_deliveries_are_noticed() {
    let mut history = posted();
    history.deliver(1, &claim_of("a", &[0]), span(10, 11), at(60), 60);
    deliver(&mut history, "b", &[7], 10);
    let mut other = posted();
    deliver(&mut other, "a", &[0, 0], 10);
    let expected =
        ["message 0 of queue 0 was delivered by 1", "message 7 was delivered, and no client posted it"];
    assert_eq!(violations(history), expected);
    assert_eq!(violations(other), ["message 0 was delivered twice by claim a"]);
}

#[test]
fn overtaking_in_a_group_is_noticed() {
    let mut history = posted();
    deliver(&mut history, "a", &[1], 10);
    assert_eq!(violations(history), ["message 1 overtook 0 of its group"]);
    // The first message may be gone already.
    let mut history = posted();
    history.begin_delete(0, 0, at(5));
    deliver(&mut history, "a", &[1], 10);
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn second_id_of_a_message_is_noticed() {
    let mut history = posted();
    deliver(&mut history, "a", &[0], 10);
    let other = HeldMessage { number: 0, id: "other".into(), attempts: None };
    let claim = HeldClaim { id: "b".into(), messages: vec![other] };
    history.deliver(0, &claim, span(80, 81), at(60), 60);
    assert_eq!(violations(history), ["message 0 is stored twice, as id-0 and other"]);
}

#[test]
fn repeated_post_is_done_when_one_attempt_is() {
    let mut history = History::new(false, false);
    for (ended, certainty) in [(2, Certainty::Unknown), (4, Certainty::NotDone), (6, Certainty::Done)] {
        history.begin_post(0, &PostTerms::default(), at(ended - 1));
        history.end_post(0, at(ended), certainty);
    }
    history.check_all_delivered(at(8));
    assert_eq!(violations(history), ["message 0 is lost"]);
    let mut history = History::new(false, false);
    for (ended, certainty) in [(2, Certainty::Unknown), (4, Certainty::NotDone)] {
        history.begin_post(0, &PostTerms::default(), at(ended - 1));
        history.end_post(0, at(ended), certainty);
    }
    deliver(&mut history, "a", &[0], 10);
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn unanswered_renewal_may_still_shorten_the_claim() {
    let mut history = posted();
    deliver(&mut history, "a", &[0], 10);
    history.begin_renewal("a", at(12), at(5), 5);
    history.doubt_renewal("a", at(12), at(5));
    history.begin_renewal("a", at(14), at(200), 200);
    history.renew("a", at(14), at(200));
    deliver(&mut history, "b", &[0], 60);
    assert_eq!(violations(history), [""; 0]);
}

#[test]
fn message_from_before_a_purge_is_gone_after_it() {
    let mut history = posted();
    history.begin_removal_of_all(0, at(5));
    history.end_removal_of_all(0, at(5), at(6), Certainty::Done);
    deliver(&mut history, "a", &[0], 10);
    assert_eq!(violations(history), ["message 0 was delivered by claim a after its delete"]);
    let mut history = posted();
    history.begin_removal_of_all(0, at(5));
    history.end_removal_of_all(0, at(5), at(6), Certainty::NotDone);
    history.check_all_delivered(at(7));
    assert_eq!(violations(history).len(), 3);
}

#[test]
fn attempt_without_claim_is_noticed() {
    for (attempts, is_doubtful, expected) in [(1, false, 0), (2, false, 1), (2, true, 0), (3, true, 1)] {
        let mut history = posted();
        if is_doubtful {
            history.doubt_claim(0, at(5));
        }
        let mut claim = claim_of("a", &[0]);
        claim.messages[0].attempts = Some(attempts);
        history.deliver(0, &claim, span(10, 11), at(60), 60);
        history.check_attempts();
        assert_eq!(violations(history).len(), expected, "{attempts} {is_doubtful}");
    }
}
