//! Owns the checks of the checker: hand-made histories with one fault each, which `verdict` must find,
//! and excuses, which it must accept. It never needs a server.

use std::time::Duration;

use super::history::{
    Delete, Grant, LostGrant, Moment, Outcome, Post, Purge, Record, Release, Settle, ShownMessage, Sighting,
    Span, Tag,
};
use super::verdict::{Verdict, judge};

const QUEUE: &str = "q";
/// Hand-made times are in seconds, and the drain follows all of them unless told otherwise.
const DRAIN: u64 = 1000;

fn at(second: u64) -> Moment {
    Duration::from_secs(second)
}

fn span(second: u64) -> Span {
    Span { start: at(second), end: at(second) + Duration::from_millis(500) }
}

fn tag(number: u64) -> Tag {
    Tag { producer: 1, number }
}

fn id(number: u64) -> String {
    format!("id-{number}")
}

fn shown(number: u64) -> ShownMessage {
    ShownMessage { id: id(number), tag: Some(tag(number)) }
}

/// A history of messages 1 and 2, acknowledged at second 1 and read at the end. Each test spoils it.
fn clean() -> Record {
    let mut record = Record { drain: Some(at(DRAIN)), ..Record::default() };
    record.post(1, &[1, 2], Outcome::Acked);
    record.sight(DRAIN, shown(1));
    record.sight(DRAIN, shown(2));
    record
}

impl Record {
    fn post(&mut self, second: u64, numbers: &[u64], outcome: Outcome) {
        let tags = numbers.iter().copied().map(tag).collect();
        let acked = numbers.iter().filter(|_| outcome == Outcome::Acked);
        let ids = acked.copied().map(id).collect();
        self.posts.push(Post { queue: QUEUE, tags, span: span(second), outcome, ids });
    }

    fn grant(&mut self, second: u64, claim: &str, numbers: &[u64]) {
        self.grants.push(Grant {
            queue: QUEUE,
            consumer: 1,
            claim: claim.to_owned(),
            ttl: at(60),
            span: span(second),
            messages: numbers.iter().copied().map(shown).collect(),
        });
    }

    fn delete(&mut self, second: u64, claim: &str, number: u64, outcome: Outcome) {
        self.deletes.push(Delete { id: id(number), claim: claim.to_owned(), span: span(second), outcome });
    }

    fn release(&mut self, second: u64, claim: &str, outcome: Outcome) {
        self.releases.push(Release { claim: claim.to_owned(), span: span(second), outcome });
    }

    fn purge(&mut self, second: u64, outcome: Outcome) {
        self.purges.push(Purge { queue: QUEUE, span: span(second), outcome });
    }

    fn sight(&mut self, second: u64, message: ShownMessage) {
        self.sightings.push(Sighting { queue: QUEUE, span: span(second), message });
    }
}

/// Exactly this many cases in exactly one list.
fn assert_only(verdict: &Verdict, list: fn(&Verdict) -> &Vec<String>, cases: usize) {
    let all = [
        &verdict.lost,
        &verdict.unexpected,
        &verdict.resurrected,
        &verdict.double_claimed,
        &verdict.out_of_order,
        &verdict.broken_leases,
        &verdict.late_deletes,
        &verdict.split_settles,
    ];
    assert_eq!(list(verdict).len(), cases, "{verdict}");
    assert_eq!(all.iter().map(|list| list.len()).sum::<usize>(), cases, "{verdict}");
    assert_eq!(verdict.is_clean(), cases == 0);
}

#[test]
fn message_shown_after_its_forward_is_split() {
    let mut record = clean();
    record.post(1, &[3], Outcome::Acked);
    record.grant(2, "a", &[3]);
    record.delete(3, "a", 3, Outcome::Unknown);
    record.settles.push(Settle { id: id(3), forward: tag(2) });
    assert_clean(&record);
    record.sight(DRAIN + 5, shown(3));
    assert_only(&judge(&record), |v| &v.split_settles, 1);
}

fn assert_clean(record: &Record) {
    assert_only(&judge(record), |v| &v.lost, 0);
}

#[test]
fn clean_history_is_clean() {
    let mut record = clean();
    record.grant(2, "a", &[1]);
    record.release(3, "a", Outcome::Acked);
    record.grant(5, "b", &[1, 2]);
    let verdict = judge(&record);
    assert_only(&verdict, |v| &v.lost, 0);
    assert_eq!((verdict.acked, verdict.redelivered), (2, 1));
}

#[test]
fn missing_acknowledged_message_is_lost() {
    let mut record = clean();
    record.sightings.pop();
    assert_only(&judge(&record), |v| &v.lost, 1);
}

#[test]
fn message_seen_only_before_the_drain_is_lost() {
    let mut record = clean();
    record.sightings[0].span = span(5);
    assert_only(&judge(&record), |v| &v.lost, 1);
}

#[test]
fn refused_delete_does_not_excuse_a_loss() {
    let mut record = clean();
    record.sightings.pop();
    record.delete(5, "a", 2, Outcome::Refused);
    assert_only(&judge(&record), |v| &v.lost, 1);
}

#[test]
fn unknown_delete_and_unknown_post_excuse_an_absence() {
    let mut record = clean();
    record.sightings.pop();
    record.delete(5, "a", 2, Outcome::Unknown);
    record.post(6, &[3], Outcome::Unknown);
    assert_clean(&record);
}

#[test]
fn in_doubt_purge_excuses_absence() {
    for outcome in [Outcome::Acked, Outcome::Unknown] {
        let mut record = clean();
        record.sightings.clear();
        record.purge(5, outcome);
        assert_clean(&record);
    }
    let mut record = clean();
    record.sightings.pop();
    record.purge(5, Outcome::Refused);
    assert_only(&judge(&record), |v| &v.lost, 1);
}

#[test]
fn purge_excuses_no_absence_of_later_posts() {
    for (outcome, second) in [(Outcome::Acked, 6), (Outcome::Unknown, 100)] {
        let mut record = clean();
        record.purge(5, outcome);
        record.sightings.clear();
        record.post(second, &[3], Outcome::Acked);
        assert_only(&judge(&record), |v| &v.lost, 1);
    }
}

#[test]
fn reappearing_purged_message_is_resurrected() {
    let mut record = clean();
    record.purge(5, Outcome::Acked);
    assert_only(&judge(&record), |v| &v.resurrected, 2);
    // What was posted while it went on may stay.
    record.purges[0].span.start = at(1);
    assert_clean(&record);
    record.purges[0] = Purge { queue: "other", span: span(5), outcome: Outcome::Acked };
    assert_clean(&record);
}

#[test]
fn forward_may_arrive_after_a_purge() {
    let mut record = clean();
    record.purge(5, Outcome::Acked);
    record.settles.push(Settle { id: id(3), forward: tag(1) });
    assert_only(&judge(&record), |v| &v.resurrected, 1);
}

#[test]
fn purge_ends_claims_and_no_later_ones() {
    let mut record = clean();
    record.sightings.clear();
    record.grant(4, "a", &[1]);
    record.purge(5, Outcome::Unknown);
    record.delete(6, "a", 1, Outcome::Refused);
    assert_clean(&record);
    let mut record = clean();
    record.purge(1, Outcome::Acked);
    record.purges[0].span.start = at(0);
    record.grant(4, "a", &[1]);
    record.delete(6, "a", 1, Outcome::Refused);
    assert_only(&judge(&record), |v| &v.broken_leases, 1);
}

#[test]
fn delete_without_a_claim_of_a_held_message_is_late() {
    let mut record = clean();
    record.sightings.remove(0);
    record.grant(4, "a", &[1]);
    record.delete(6, "", 1, Outcome::Refused);
    assert_clean(&{
        let mut kept = record.clone();
        kept.sight(DRAIN, shown(1));
        kept
    });
    record.deletes[0].outcome = Outcome::Acked;
    assert_only(&judge(&record), |v| &v.late_deletes, 1);
}

#[test]
fn unposted_body_is_unexpected() {
    let mut record = clean();
    record.sight(DRAIN, ShownMessage { id: id(9), tag: None });
    record.sight(DRAIN, shown(10));
    assert_only(&judge(&record), |v| &v.unexpected, 2);
}

#[test]
fn body_of_another_message_is_unexpected() {
    let mut record = clean();
    record.sight(5, ShownMessage { id: id(1), tag: Some(tag(2)) });
    assert_only(&judge(&record), |v| &v.unexpected, 1);
}

#[test]
fn copy_of_an_acknowledged_message_is_unexpected() {
    let mut record = clean();
    record.sight(DRAIN, ShownMessage { id: id(9), tag: Some(tag(2)) });
    assert_only(&judge(&record), |v| &v.unexpected, 1);
}

#[test]
fn present_refused_message_is_unexpected() {
    let mut record = clean();
    record.post(2, &[3], Outcome::Refused);
    record.sight(DRAIN, shown(3));
    assert_only(&judge(&record), |v| &v.unexpected, 1);
}

#[test]
fn message_of_another_queue_is_unexpected() {
    let mut record = clean();
    record.sightings[0].queue = "other";
    assert_only(&judge(&record), |v| &v.unexpected, 1);
}

#[test]
fn missing_and_repeated_ids_are_unexpected() {
    let mut record = clean();
    record.post(2, &[3], Outcome::Acked);
    record.posts[1].ids.clear();
    record.sight(DRAIN, shown(3));
    let mut repeated = clean();
    repeated.posts[0].ids[1] = id(1);
    repeated.sightings.pop();
    assert_only(&judge(&record), |v| &v.unexpected, 1);
    assert!(!judge(&repeated).unexpected.is_empty());
}

#[test]
fn message_shown_after_its_acknowledged_delete_is_resurrected() {
    let mut record = clean();
    record.grant(2, "a", &[1, 2]);
    record.delete(3, "a", 1, Outcome::Acked);
    record.delete(3, "a", 2, Outcome::Unknown);
    assert_only(&judge(&record), |v| &v.resurrected, 1);
}

#[test]
fn read_begun_before_delete_end_is_no_resurrection() {
    let mut record = clean();
    record.sightings[0].span.start = at(DRAIN);
    record.delete(DRAIN, "a", 1, Outcome::Acked);
    assert_clean(&record);
}

#[test]
fn message_in_two_live_claims_is_double_claimed() {
    let mut record = clean();
    record.grant(2, "a", &[1, 2]);
    record.grant(50, "b", &[1]);
    assert_only(&judge(&record), |v| &v.double_claimed, 1);
}

/// As from a replica that stood still for longer than the claim lasted.
#[test]
fn late_answer_of_an_ended_claim_is_no_double_claim() {
    for (second, count) in [(70, 0), (50, 1)] {
        let mut record = clean();
        record.grant(2, "a", &[1]);
        record.grant(second, "b", &[1]);
        record.grants[0].span.end = at(second + 1);
        assert_only(&judge(&record), |v| &v.double_claimed, count);
    }
}

#[test]
fn message_twice_in_one_claim_is_double_claimed() {
    let mut record = clean();
    record.grant(2, "a", &[1, 1]);
    assert_only(&judge(&record), |v| &v.double_claimed, 1);
}

#[test]
fn refused_release_does_not_excuse_a_double_claim() {
    let mut record = clean();
    record.grant(2, "a", &[1]);
    record.release(3, "a", Outcome::Refused);
    record.grant(5, "b", &[1]);
    assert_only(&judge(&record), |v| &v.double_claimed, 1);
}

#[test]
fn expired_and_released_claims_may_be_followed() {
    let mut record = clean();
    record.grant(2, "a", &[1, 2]);
    record.grant(61, "b", &[1]);
    record.release(70, "b", Outcome::Unknown);
    record.grant(72, "c", &[1]);
    assert_clean(&record);
}

#[test]
fn delivery_against_posting_order_is_out_of_order() {
    let mut record = clean();
    record.grant(2, "a", &[2]);
    record.grant(3, "b", &[1]);
    assert_only(&judge(&record), |v| &v.out_of_order, 1);
}

#[test]
fn redelivery_and_lost_claims_excuse_the_order() {
    let mut record = clean();
    record.post(1, &[3], Outcome::Acked);
    record.sight(DRAIN, shown(3));
    record.grant(2, "a", &[2]);
    record.release(3, "a", Outcome::Acked);
    record.lost_grants.push(LostGrant { queue: QUEUE, span: span(2), latest: span(2).end });
    record.grant(4, "b", &[3]);
    record.grant(5, "c", &[2]);
    record.grant(6, "d", &[1]);
    assert_clean(&record);
    record.lost_grants[0].span = span(7);
    assert_only(&judge(&record), |v| &v.out_of_order, 1);
}

/// The claim was carried out after its answer was lost, and gave a message back that was posted meanwhile.
#[test]
fn claim_in_doubt_excuses_order_of_later_messages() {
    let mut record = clean();
    record.lost_grants.push(LostGrant { queue: QUEUE, span: span(0), latest: at(60) });
    record.grant(2, "a", &[2]);
    record.grant(3, "b", &[1]);
    assert_clean(&record);
    record.lost_grants[0].latest = span(0).end;
    assert_only(&judge(&record), |v| &v.out_of_order, 1);
}

/// The claim of the late answer had ended before its messages were granted again.
#[test]
fn late_answer_excuses_the_order() {
    let mut record = clean();
    record.grant(70, "b", &[2]);
    record.grant(71, "c", &[1]);
    assert_only(&judge(&record), |v| &v.out_of_order, 1);
    record.grant(2, "a", &[1]);
    record.grants.last_mut().unwrap().span.end = at(75);
    assert_clean(&record);
}

#[test]
fn several_producers_have_no_order() {
    let mut record = clean();
    record.posts[0].tags[0].producer = 2;
    record.sightings[0].message.tag = Some(Tag { producer: 2, number: 1 });
    record.grant(2, "a", &[2]);
    record.grant(3, "b", &[1]);
    record.grants[1].messages[0].tag = Some(Tag { producer: 2, number: 1 });
    assert_clean(&record);
}

#[test]
fn delete_refused_to_a_live_claim_is_a_broken_lease() {
    let mut record = clean();
    record.grant(2, "a", &[1]);
    record.delete(9, "a", 1, Outcome::Refused);
    assert_only(&judge(&record), |v| &v.broken_leases, 1);
    record.deletes[0].span = span(61);
    assert_clean(&record);
}

#[test]
fn unacknowledged_message_under_two_ids_is_counted_as_duplicate() {
    let mut record = clean();
    record.post(2, &[3], Outcome::Unknown);
    record.sight(DRAIN, shown(3));
    record.sight(DRAIN, ShownMessage { id: id(33), tag: Some(tag(3)) });
    let verdict = judge(&record);
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!((verdict.duplicates, verdict.unknown), (1, 1));
}

#[test]
fn body_with_another_filling_has_no_tag() {
    let mut body = tag(7).body();
    assert_eq!(Tag::of(&body), Some(tag(7)));
    body["filling"] = "y".into();
    assert_eq!(Tag::of(&body), None);
}

#[test]
fn acknowledged_delete_by_lost_claim_is_late() {
    let mut record = clean();
    record.sightings.pop();
    record.grant(2, "a", &[2]);
    record.grant(70, "b", &[2]);
    record.delete(72, "a", 2, Outcome::Acked);
    assert_only(&judge(&record), |v| &v.late_deletes, 1);
}

#[test]
fn delete_by_holding_claim_is_not_late() {
    let mut record = clean();
    record.sightings.pop();
    record.grant(2, "a", &[2]);
    record.grant(70, "b", &[2]);
    record.delete(72, "b", 2, Outcome::Acked);
    assert_clean(&record);
}

#[test]
fn delete_begun_before_next_claim_is_excused() {
    let mut record = clean();
    record.sightings.pop();
    record.grant(2, "a", &[2]);
    record.delete(70, "a", 2, Outcome::Acked);
    record.grant(70, "b", &[2]);
    assert_clean(&record);
}
