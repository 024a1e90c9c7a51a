//! A subscription whose terms change beside posts: each copy is one that the terms of its time allow.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::places::kind_of;
use super::records::{LATEST, longest, shortest};
use super::subscription_terms::{Bound, FoundSubscription, FullEffect};
use super::subscriptions::MAX_STAY;
use super::{Certainty, Span, count};

/// The terms of a subscription that can change.
#[derive(Clone, Copy, Debug)]
pub struct ChangedTerms {
    /// The kind of the messages that it gets; none for all.
    pub filter: Option<u64>,
    /// The bound of its copies, if it has a small one.
    pub bound: Option<Bound>,
    /// Seconds that it lives from now on, if it ends within the run.
    pub ttl: Option<u64>,
}

/// One request that set the terms.
#[derive(Clone, Copy, Debug)]
struct Change {
    terms: ChangedTerms,
    span: Span,
    certainty: Certainty,
}

impl Change {
    fn is_possible(&self) -> bool {
        self.certainty != Certainty::NotDone
    }

    /// Whether it may have taken the place of an earlier one at a time from which on `later` certainly is in force.
    fn is_replaced_by(&self, later: &Self) -> bool {
        let ended =
            if self.certainty == Certainty::Done { self.span.ended } else { self.span.began + LATEST };
        later.certainty == Certainty::Done && later.span.began >= ended
    }
}

/// The history of the subscription. Its source keeps all messages to the end.
#[derive(Debug, Default)]
pub struct ChangeHistory {
    changes: Vec<Change>,
    posts: BTreeMap<u64, (Span, Certainty)>,
    /// The ids of the copies of each message.
    found: BTreeMap<u64, BTreeSet<String>>,
}

impl ChangeHistory {
    /// Notes that a request begins that sets the terms. Returns its number.
    pub fn begin_change(&mut self, terms: ChangedTerms, began: Duration) -> usize {
        self.changes.push(Change { terms, span: Span::open(began), certainty: Certainty::Unknown });
        self.changes.len() - 1
    }

    /// Notes the outcome of that request.
    pub fn end_change(&mut self, change: usize, ended: Duration, certainty: Certainty) {
        if let Some(change) = self.changes.get_mut(change) {
            (change.span.ended, change.certainty) = (ended, certainty);
        }
    }

    /// Notes the outcome of a post to the source.
    pub fn note_post(&mut self, number: u64, request: Span, posted: Certainty) {
        self.posts.insert(number, (request, posted));
    }

    /// Notes that a copy was found.
    pub fn find(&mut self, number: u64, id: &str) {
        self.found.entry(number).or_default().insert(id.to_owned());
    }

    /// Returns the terms that may have been in force at a time of a span.
    fn terms_within(&self, span: Span) -> Vec<ChangedTerms> {
        let may_be = |change: &&Change| {
            let is_over = |later: &Change| change.is_replaced_by(later) && later.span.ended <= span.began;
            change.is_possible() && change.span.began <= span.ended && !self.changes.iter().any(is_over)
        };
        self.changes.iter().filter(may_be).map(|change| change.terms).collect()
    }

    /// Whether the subscription is certainly there: each life that it may have had lasts until now, or certainly was
    /// replaced by another one before.
    pub fn must_live(&self, now: Duration) -> bool {
        self.changes.iter().filter(|change| change.is_possible()).all(|change| {
            let end = change.terms.ttl.map_or(Duration::MAX, |ttl| change.span.began + shortest(ttl));
            let is_renewed = |later: &Change| change.is_replaced_by(later) && later.span.ended < end;
            now < end || self.changes.iter().any(is_renewed)
        })
    }

    /// Whether each life that the subscription may have now has ended.
    pub fn must_be_gone(&self, now: Duration) -> bool {
        let ends = |terms: &ChangedTerms| terms.ttl.is_some();
        let is_over = |change: &Change| {
            let began = if change.certainty == Certainty::Done {
                change.span.ended
            } else {
                change.span.began + LATEST
            };
            change.terms.ttl.is_some_and(|ttl| now > began + longest(ttl) + MAX_STAY)
        };
        let last = self.terms_within(Span { began: now, ended: now });
        last.iter().all(ends) && self.changes.iter().filter(|change| change.terms.ttl.is_some()).all(is_over)
    }

    /// Returns the broken promises of a subscription that was there all the time, once all copies were taken out.
    pub fn judge(&self, counts: FoundSubscription) -> Vec<String> {
        let of = |effect: FullEffect| {
            let has = |change: &&Change| {
                change.terms.bound.is_some_and(|bound| bound.overflow == effect) && change.is_possible()
            };
            self.changes.iter().any(|change| has(&change))
        };
        let (mut broken, mut missing) = (Vec::new(), Vec::new());
        for (number, (request, posted)) in &self.posts {
            // A message that was left out at first is copied by the terms of a later time.
            let ended = if of(FullEffect::Suspend) { Duration::MAX } else { request.ended };
            let terms = self.terms_within(Span { began: request.began, ended });
            let accepts = |terms: &ChangedTerms| terms.filter.is_none_or(|kind| kind == kind_of(*number));
            let copies = self.found.get(number).map_or(0, BTreeSet::len);
            if copies > 1 {
                broken.push(format!("message {number} was copied {copies} times"));
            }
            let may_be = *posted != Certainty::NotDone && terms.iter().any(accepts);
            if copies > 0 && !may_be {
                broken.push(format!("message {number}, {posted:?}, was copied by none of {terms:?}"));
            }
            if copies == 0 && *posted == Certainty::Done && terms.iter().all(accepts) {
                missing.push(*number);
            }
        }
        let FoundSubscription { left_out, dropped } = counts;
        // One that drops leaves a gap for good, which is counted.
        let most = if of(FullEffect::DropOldest) { left_out + dropped } else { 0 };
        if count(missing.iter()) > most {
            broken.push(format!("no copies of {missing:?}, {left_out} left out, {dropped} dropped"));
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn span(began: u64, ended: u64) -> Span {
        Span { began: at(began), ended: at(ended) }
    }

    fn terms(filter: Option<u64>) -> ChangedTerms {
        ChangedTerms { filter, bound: None, ttl: None }
    }

    fn change(history: &mut ChangeHistory, terms: ChangedTerms, request: Span, certainty: Certainty) {
        let change = history.begin_change(terms, request.began);
        history.end_change(change, request.ended, certainty);
    }

    /// A subscription of kind 1, then of kind 2 by a change with this outcome, and message 1, of kind 1.
    fn history(changed: Certainty, post: Span, copies: usize) -> ChangeHistory {
        let mut history = ChangeHistory::default();
        change(&mut history, terms(Some(1)), span(0, 1), Certainty::Done);
        change(&mut history, terms(Some(2)), span(10, 20), changed);
        history.note_post(1, post, Certainty::Done);
        (0..copies).for_each(|id| history.find(1, &id.to_string()));
        history
    }

    #[test]
    fn copies_are_those_of_the_terms_of_their_time() {
        let cases = [
            (Certainty::Done, span(2, 3), [false, true, false]),
            (Certainty::Done, span(15, 16), [true, true, false]),
            (Certainty::Done, span(21, 22), [true, false, false]),
            (Certainty::Unknown, span(21, 22), [true, true, false]),
            (Certainty::NotDone, span(21, 22), [false, true, false]),
        ];
        for (changed, post, right) in cases {
            for (copies, is_right) in right.into_iter().enumerate() {
                let broken = history(changed, post, copies).judge(FoundSubscription::default());
                assert_eq!(broken.is_empty(), is_right, "{changed:?} {post:?} {copies}: {broken:?}");
            }
        }
    }

    #[test]
    fn omission_needs_a_count() {
        let mut history = ChangeHistory::default();
        let bound = Some(Bound { messages: 3, overflow: FullEffect::DropOldest });
        change(&mut history, ChangedTerms { bound, ..terms(None) }, span(0, 1), Certainty::Done);
        history.note_post(1, span(2, 3), Certainty::Done);
        let judge = |dropped| history.judge(FoundSubscription { left_out: 0, dropped }).len();
        assert_eq!([judge(0), judge(1)], [1, 0]);
    }

    #[test]
    fn life_begins_again_with_a_change() {
        let mut history = ChangeHistory::default();
        change(&mut history, ChangedTerms { ttl: Some(100), ..terms(None) }, span(0, 1), Certainty::Done);
        assert!(history.must_live(at(50)) && !history.must_live(at(90)));
        assert!(!history.must_be_gone(at(150)) && history.must_be_gone(at(400)));
        change(&mut history, terms(None), span(50, 60), Certainty::Done);
        assert!(history.must_live(at(400)) && !history.must_be_gone(at(400)));
    }
}
