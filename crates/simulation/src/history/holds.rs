//! Holds: after the answer to a hold no claim or pop that begins gets a message, and no post that begins is stored if the
//! hold refuses or discards posts, until a release begins. Without a hold that discards, no post is discarded.

use std::collections::BTreeMap;
use std::time::Duration;

use super::records::shortest;
use super::{Certainty, HeldClaim, History, LATEST, Span};

/// A resource that can be held.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeldResource {
    /// A queue.
    Queue(usize),
    /// A group of a queue.
    Group(usize, String),
    /// All queues in a pool.
    Pool(usize),
    /// All queues.
    Project,
}

/// What a hold does with posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldPosts {
    /// They are stored.
    Stored,
    /// They are refused.
    Refused,
    /// They are answered and dropped.
    Discarded,
}

impl HeldPosts {
    /// Whether no post is stored.
    fn are_barred(self) -> bool {
        self != Self::Stored
    }
}

/// The terms of a hold.
#[derive(Clone, Copy, Debug)]
pub struct HoldTerms {
    /// What it does with posts.
    pub posts: HeldPosts,
    /// Seconds after which it ends by itself; none if it lasts until its release.
    pub ttl: Option<u64>,
}

impl HoldTerms {
    /// A hold that lasts until its release.
    pub fn lasting(posts: HeldPosts) -> Self {
        Self { posts, ttl: None }
    }

    /// Returns the time until which a hold certainly lasts whose request begins now.
    fn lasts(self, began: Duration) -> Option<Duration> {
        self.ttl.map(|ttl| began + shortest(ttl))
    }
}

/// When one effect of the holds of a resource is certainly in force.
#[derive(Debug, Default)]
struct EffectTimes {
    /// When the hold was answered; none when the effect may have ended.
    since: Option<Duration>,
    /// From the answer to a hold to the begin of the next release.
    ended: Vec<Span>,
    /// Number of releases without an outcome.
    open_releases: u32,
    /// After this time no release is carried out that has begun. A hold whose request begins earlier may end by it.
    released: Duration,
    /// Until when it certainly lasts by itself: the earliest of the holds that may be in force; none without an end.
    lasts: Option<Duration>,
    /// Number of holds without an outcome.
    open_holds: u32,
    /// After this time no hold is carried out that has begun. One whose request begins earlier may replace a later one.
    held: Duration,
}

/// Returns the earlier of two ends.
fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

impl EffectTimes {
    /// A hold begins that lasts at least until `lasts`, perhaps in place of an earlier one.
    fn begin_hold(&mut self, lasts: Option<Duration>) {
        self.open_holds += 1;
        self.lasts = earlier(self.lasts, lasts);
    }

    fn end_hold(&mut self, request: Span, lasts: Option<Duration>, held: Certainty) {
        self.open_holds = self.open_holds.saturating_sub(1);
        match held {
            Certainty::Done => self.hold(request, lasts),
            Certainty::NotDone => {}
            Certainty::Unknown => self.held = self.held.max(request.began + LATEST),
        }
    }

    fn hold(&mut self, request: Span, lasts: Option<Duration>) {
        // An earlier one may have ended by itself before this one.
        if let Some(end) = self.lasts.filter(|end| *end < request.ended)
            && let Some(since) = self.since.take()
        {
            self.ended.push(Span { began: since, ended: end });
        }
        let is_last = self.open_holds == 0 && request.began >= self.held;
        self.lasts = if is_last { lasts } else { earlier(self.lasts, lasts) };
        self.held = self.held.max(request.ended);
        if self.open_releases == 0 && request.began >= self.released {
            self.since.get_or_insert(request.ended);
        }
    }

    fn begin_release(&mut self, began: Duration) {
        self.open_releases += 1;
        if let Some(since) = self.since.take() {
            self.ended.push(Span { began: since, ended: self.lasts.map_or(began, |end| end.min(began)) });
        }
    }

    fn end_release(&mut self, request: Span, released: Certainty) {
        self.open_releases = self.open_releases.saturating_sub(1);
        self.since = None;
        let latest = match released {
            Certainty::Done => request.ended,
            Certainty::NotDone => Duration::ZERO,
            Certainty::Unknown => request.began + LATEST,
        };
        self.released = self.released.max(latest);
    }

    /// Whether the effect was in force from the begin of a request to its answer.
    fn covers(&self, request: Span) -> bool {
        let lasts = self.lasts.is_none_or(|end| request.ended <= end);
        let is_held = lasts && self.since.is_some_and(|since| since <= request.began);
        is_held || self.ended.iter().any(|hold| hold.began <= request.began && request.ended <= hold.ended)
    }
}

/// The effects of the holds of one resource.
#[derive(Debug, Default)]
struct Effects {
    claims: EffectTimes,
    /// Posts are refused or discarded.
    posts: EffectTimes,
    /// When the first hold began that discards posts.
    discards_from: Option<Duration>,
}

/// The holds of all resources.
#[derive(Debug, Default)]
pub(super) struct Holds {
    of: BTreeMap<HeldResource, Effects>,
    /// Number of pools. A queue is in one of them, or in two.
    pools: usize,
    /// Queues that certainly stay in a pool.
    pinned: BTreeMap<usize, usize>,
}

impl Holds {
    /// Returns the resource whose hold had an effect on a queue, or on a group of it, all the time from the begin of a
    /// request to its answer.
    fn covering(
        &self,
        queue: usize,
        group: Option<&String>,
        covers: impl Fn(&Effects) -> bool,
    ) -> Option<HeldResource> {
        let is_held = |resource: &HeldResource| self.of.get(resource).is_some_and(&covers);
        let group = group.map(|group| HeldResource::Group(queue, group.clone()));
        let pool = self.pinned.get(&queue).map(|pool| HeldResource::Pool(*pool));
        let single = [Some(HeldResource::Queue(queue)), Some(HeldResource::Project), group, pool];
        if let Some(held) = single.into_iter().flatten().find(is_held) {
            return Some(held);
        }
        // Wherever the queue is.
        let mut pools = (0..self.pools).map(HeldResource::Pool);
        (self.pools > 0 && pools.all(|pool| is_held(&pool))).then_some(HeldResource::Pool(0))
    }
}

impl History {
    /// Notes the number of pools.
    pub fn note_pools(&mut self, pools: usize) {
        self.holds.pools = pools;
    }

    /// Notes that a queue is in a pool, and stays there until it is moved.
    pub fn pin(&mut self, queue: usize, pool: usize) {
        self.holds.pinned.insert(queue, pool);
    }

    /// Notes that a queue may be moved to another pool at any time from now on.
    pub fn unpin(&mut self, queue: usize) {
        self.holds.pinned.remove(&queue);
    }

    /// Notes that every queue may be moved to another pool at any time from now on.
    pub fn unpin_all(&mut self) {
        self.holds.pinned.clear();
    }

    /// Notes that a hold begins, in place of an earlier one. If it lets posts be stored, it ends what the earlier one
    /// did with them.
    pub fn begin_hold(&mut self, resource: &HeldResource, terms: HoldTerms, began: Duration) {
        let effects = self.effects(resource);
        let (posts, lasts) = (terms.posts, terms.lasts(began));
        effects.claims.begin_hold(lasts);
        if posts.are_barred() {
            effects.posts.begin_hold(lasts);
        }
        match posts {
            HeldPosts::Stored => effects.posts.begin_release(began),
            HeldPosts::Refused => {}
            HeldPosts::Discarded => drop(effects.discards_from.get_or_insert(began)),
        }
    }

    /// Notes the outcome of a hold.
    pub fn end_hold(&mut self, resource: &HeldResource, terms: HoldTerms, request: Span, held: Certainty) {
        let effects = self.effects(resource);
        let lasts = terms.lasts(request.began);
        effects.claims.end_hold(request, lasts, held);
        match terms.posts.are_barred() {
            false => effects.posts.end_release(request, held),
            true => effects.posts.end_hold(request, lasts, held),
        }
    }

    /// Notes that a release begins.
    pub fn begin_hold_release(&mut self, resource: &HeldResource, began: Duration) {
        let Effects { claims, posts, .. } = self.effects(resource);
        claims.begin_release(began);
        posts.begin_release(began);
    }

    /// Notes the outcome of a release.
    pub fn end_hold_release(&mut self, resource: &HeldResource, request: Span, released: Certainty) {
        let Effects { claims, posts, .. } = self.effects(resource);
        claims.end_release(request, released);
        posts.end_release(request, released);
    }

    fn effects(&mut self, resource: &HeldResource) -> &mut Effects {
        self.holds.of.entry(resource.clone()).or_default()
    }

    /// A claim gets no message that is held.
    pub(super) fn check_claim_holds(&mut self, queue: usize, claim: &HeldClaim, request: Span) {
        let broken = claim.messages.iter().find_map(|message| {
            let group = self.messages.get(&message.number).and_then(|message| message.terms.group.as_ref());
            let held = self.holds.covering(queue, group, |effects| effects.claims.covers(request));
            held.map(|held| (message.number, held))
        });
        if let Some((number, held)) = broken {
            let claim = &claim.id;
            self.violation(format!("claim {claim} of queue {queue} got message {number}, held by {held:?}"));
        }
    }

    /// Checks a post that was answered as discarded by a request: a hold that discards may be in force.
    pub fn check_discarded(&mut self, number: u64, request: Span) {
        let Some(message) = self.messages.get(&number) else { return };
        let (queue, group) = (message.terms.queue, message.terms.group.as_ref());
        let concerns = |resource: &HeldResource| match resource {
            HeldResource::Queue(of) => *of == queue,
            HeldResource::Group(of, name) => *of == queue && Some(name) == group,
            HeldResource::Pool(_) | HeldResource::Project => true,
        };
        let may_discard = |(resource, effects): (&HeldResource, &Effects)| {
            concerns(resource) && effects.discards_from.is_some_and(|began| began <= request.ended)
        };
        if !self.holds.of.iter().any(may_discard) {
            self.violation(format!(
                "message {number} of queue {queue} was discarded, and no hold discards it"
            ));
        }
    }

    /// A post that a hold refuses or discards is not stored.
    pub(super) fn check_post_holds(&mut self, number: u64, request: Span) {
        // A repeated post may be answered with the first one.
        let Some(message) = self.messages.get(&number).filter(|message| message.posts == 1) else { return };
        let (queue, group) = (message.terms.queue, message.terms.group.as_ref());
        if let Some(held) = self.holds.covering(queue, group, |effects| effects.posts.covers(request)) {
            self.violation(format!("message {number} of queue {queue} was stored, barred by {held:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HeldMessage, PostTerms};
    use super::*;

    const QUEUE: HeldResource = HeldResource::Queue(0);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn span((began, ended): (u64, u64)) -> Span {
        Span { began: at(began), ended: at(ended) }
    }

    /// A history with message 0 of group g of queue 0.
    fn history() -> History {
        let mut history = History::new(false, false);
        history.begin_post(0, &PostTerms { group: Some("g".into()), ..PostTerms::default() }, at(0));
        history
    }

    fn hold(history: &mut History, resource: &HeldResource, posts: HeldPosts, request: (u64, u64)) {
        hold_for(history, resource, HoldTerms::lasting(posts), request);
    }

    fn hold_for(history: &mut History, resource: &HeldResource, terms: HoldTerms, request: (u64, u64)) {
        history.begin_hold(resource, terms, at(request.0));
        history.end_hold(resource, terms, span(request), Certainty::Done);
    }

    fn release(history: &mut History, resource: &HeldResource, request: (u64, u64), released: Certainty) {
        history.begin_hold_release(resource, at(request.0));
        history.end_hold_release(resource, span(request), released);
    }

    /// A claim of message 0.
    fn claim(id: &str) -> HeldClaim {
        let message = HeldMessage { number: 0, id: "m".into(), attempts: None };
        HeldClaim { id: id.into(), messages: vec![message] }
    }

    fn claims(history: &mut History, times: &[(u64, u64)]) -> Vec<usize> {
        let claim = claim("c");
        let mut violations = |time: &(u64, u64)| {
            history.check_claim_holds(0, &claim, span(*time));
            history.take_violations().len()
        };
        times.iter().map(&mut violations).collect()
    }

    #[test]
    fn claim_within_hold_is_noticed() {
        for resource in [QUEUE, HeldResource::Group(0, "g".into()), HeldResource::Project] {
            let mut history = history();
            hold(&mut history, &resource, HeldPosts::Stored, (8, 10));
            assert_eq!(claims(&mut history, &[(9, 12), (10, 12), (11, 99)]), [0, 1, 1]);
            release(&mut history, &resource, (20, 21), Certainty::Done);
            assert_eq!(claims(&mut history, &[(12, 19), (12, 21), (21, 22)]), [1, 0, 0]);
        }
        let mut history = history();
        hold(&mut history, &HeldResource::Queue(1), HeldPosts::Stored, (8, 10));
        hold(&mut history, &HeldResource::Group(0, "h".into()), HeldPosts::Stored, (8, 10));
        assert_eq!(claims(&mut history, &[(11, 12)]), [0]);
    }

    #[test]
    fn hold_with_an_end_is_judged_until_then() {
        let mut history = history();
        let terms = HoldTerms { posts: HeldPosts::Stored, ttl: Some(100) };
        hold_for(&mut history, &QUEUE, terms, (8, 10));
        assert_eq!(claims(&mut history, &[(10, 80), (10, 100), (100, 101)]), [1, 0, 0]);
        // It is replaced by one that ends earlier, and after that by one without an end.
        hold_for(&mut history, &QUEUE, HoldTerms { ttl: Some(20), ..terms }, (30, 31));
        assert_eq!(claims(&mut history, &[(32, 40), (50, 60)]), [1, 0]);
        hold_for(&mut history, &QUEUE, HoldTerms { ttl: None, ..terms }, (70, 71));
        assert_eq!(claims(&mut history, &[(32, 40), (50, 60), (71, 999)]), [1, 0, 1]);
    }

    #[test]
    fn hold_with_release_in_doubt_is_not_judged() {
        let mut history = history();
        release(&mut history, &QUEUE, (1, 2), Certainty::Unknown);
        hold(&mut history, &QUEUE, HeldPosts::Stored, (10, 11));
        assert_eq!(claims(&mut history, &[(12, 13)]), [0]);
        hold(&mut history, &QUEUE, HeldPosts::Stored, (LATEST.as_secs() + 1, LATEST.as_secs() + 2));
        assert_eq!(claims(&mut history, &[(400, 401)]), [1]);
        // The hold may have been carried out first.
        release(&mut history, &QUEUE, (501, 502), Certainty::Done);
        hold(&mut history, &QUEUE, HeldPosts::Stored, (500, 503));
        assert_eq!(claims(&mut history, &[(504, 505)]), [0]);
    }

    #[test]
    fn pool_hold_covers_pinned_queues() {
        let mut history = history();
        history.note_pools(2);
        history.pin(0, 1);
        hold(&mut history, &HeldResource::Pool(1), HeldPosts::Stored, (8, 10));
        assert_eq!(claims(&mut history, &[(11, 12)]), [1]);
        history.unpin(0);
        assert_eq!(claims(&mut history, &[(11, 12)]), [0]);
        hold(&mut history, &HeldResource::Pool(0), HeldPosts::Stored, (12, 13));
        assert_eq!(claims(&mut history, &[(11, 12), (13, 14)]), [0, 1]);
    }

    #[test]
    fn post_is_refused_until_another_hold_allows_it() {
        let mut history = history();
        let is_noticed = |history: &mut History, time| {
            history.check_post_holds(0, span(time));
            !history.take_violations().is_empty()
        };
        hold(&mut history, &QUEUE, HeldPosts::Refused, (8, 10));
        assert!(is_noticed(&mut history, (10, 11)));
        hold(&mut history, &QUEUE, HeldPosts::Stored, (20, 21));
        assert!(!is_noticed(&mut history, (22, 23)));
        assert_eq!(claims(&mut history, &[(22, 23)]), [1]);
    }

    #[test]
    fn discarded_post_needs_a_hold_and_is_not_stored() {
        let mut history = history();
        let is_noticed = |history: &mut History, time| {
            history.check_discarded(0, span(time));
            !history.take_violations().is_empty()
        };
        hold(&mut history, &HeldResource::Queue(1), HeldPosts::Discarded, (1, 2));
        hold(&mut history, &QUEUE, HeldPosts::Refused, (1, 2));
        assert!(is_noticed(&mut history, (3, 4)));
        hold(&mut history, &QUEUE, HeldPosts::Discarded, (8, 10));
        assert!(is_noticed(&mut history, (3, 7)));
        assert!(!is_noticed(&mut history, (3, 9)));
        history.check_post_holds(0, span((10, 11)));
        assert_eq!(history.take_violations().len(), 1);
        history.end_post(0, at(12), Certainty::NotDone);
        history.deliver(0, &claim("c"), span((13, 14)), at(1), 1);
        assert!(!history.take_violations().is_empty());
    }
}
