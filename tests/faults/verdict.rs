//! Owns the judgement of a recorded history: which promises it proves broken. It never talks to the
//! server, and it accuses only of what is certain: an unknown outcome excuses either way.
//!
//! The idea is the "total queue" of Jepsen: what is put in must come out, or be there at the end; on top
//! of it leases and order are judged.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use super::history::{DOUBT, Delete, Grant, Moment, Outcome, Post, Purge, Record, ShownMessage, Span, Tag};

/// How much earlier than its ttl a claim may end: the server's clock steps and ours are not the same.
const MARGIN: Duration = Duration::from_secs(2);

/// Each list names what proves one promise broken. All empty: the history is clean.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Acknowledged, and neither deleted nor present at the end.
    pub lost: Vec<String>,
    /// Shown, and never posted like this: other body, other queue, other id.
    pub unexpected: Vec<String>,
    /// Shown by an operation that started after its delete was acknowledged.
    pub resurrected: Vec<String>,
    /// In two claims that are certainly live at one moment.
    pub double_claimed: Vec<String>,
    /// First delivered to one consumer after a later message of its queue's only producer.
    pub out_of_order: Vec<String>,
    /// A delete refused to the holder of a claim that is certainly live.
    pub broken_leases: Vec<String>,
    /// A delete acknowledged to the holder of a lost claim while another one certainly held the message.
    pub late_deletes: Vec<String>,
    /// A forward that was shown, although its message was shown after it, or that was shown as two messages.
    pub split_settles: Vec<String>,
    /// Messages whose post was acknowledged.
    pub acked: usize,
    /// Messages whose post had no certain outcome.
    pub unknown: usize,
    /// Messages whose delete was acknowledged.
    pub deleted: usize,
    /// Purges that were acknowledged.
    pub purges: usize,
    /// Deliveries beyond a message's first.
    pub redelivered: usize,
    /// Ids beyond the first under which one unacknowledged message was seen.
    pub duplicates: usize,
}

pub fn judge(record: &Record) -> Verdict {
    let evidence = Evidence::new(record);
    let mut verdict = Verdict {
        lost: evidence.lost(),
        unexpected: evidence.unexpected(),
        resurrected: evidence.resurrected(),
        double_claimed: evidence.double_claimed(),
        out_of_order: evidence.out_of_order(),
        broken_leases: evidence.broken_leases(),
        late_deletes: evidence.late_deletes(),
        split_settles: evidence.split_settles(),
        ..Verdict::default()
    };
    evidence.count(&mut verdict);
    verdict
}

impl Verdict {
    pub fn is_clean(&self) -> bool {
        self.faults().iter().all(|(_, list)| list.is_empty())
    }

    fn faults(&self) -> [(&'static str, &[String]); 8] {
        [
            ("lost", &self.lost),
            ("unexpected", &self.unexpected),
            ("resurrected", &self.resurrected),
            ("double claimed", &self.double_claimed),
            ("out of order", &self.out_of_order),
            ("broken leases", &self.broken_leases),
            ("late deletes", &self.late_deletes),
            ("split settles", &self.split_settles),
        ]
    }
}

/// One line; and where there is a fault, its first cases below.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acked, unknown, deleted, purges, redelivered, duplicates, .. } = self;
        write!(f, "acked {acked}, unknown {unknown}, deleted {deleted}, purges {purges}")?;
        write!(f, ", redelivered {redelivered}, duplicates {duplicates}")?;
        for (name, list) in self.faults() {
            write!(f, ", {name} {}", list.len())?;
        }
        for (name, list) in self.faults() {
            for case in list.iter().take(10) {
                write!(f, "\n  {name}: {case}")?;
            }
        }
        Ok(())
    }
}

/// The record with the look-ups that the judgements share.
struct Evidence<'a> {
    record: &'a Record,
    /// Each acknowledged id with its tag.
    acked: HashMap<&'a str, Tag>,
    /// Each tag that may exist, with its post, and with its id if that was acknowledged.
    posted: HashMap<Tag, (&'a Post, Option<&'a str>)>,
    grants_of: HashMap<&'a str, Vec<&'a Grant>>,
    deletes_of: HashMap<&'a str, Vec<&'a Delete>>,
    /// The tags of messages that settles forwarded.
    forwards: HashSet<Tag>,
    /// When the first release of a claim started that was not refused.
    release_of: HashMap<&'a str, Moment>,
}

impl<'a> Evidence<'a> {
    fn new(record: &'a Record) -> Self {
        let mut evidence = Self {
            record,
            acked: HashMap::new(),
            posted: HashMap::new(),
            grants_of: HashMap::new(),
            deletes_of: HashMap::new(),
            forwards: record.settles.iter().map(|settle| settle.forward).collect(),
            release_of: HashMap::new(),
        };
        for post in record.posts.iter().filter(|post| post.outcome != Outcome::Refused) {
            evidence.add_post(post);
        }
        for grant in &record.grants {
            for message in &grant.messages {
                evidence.grants_of.entry(&message.id).or_default().push(grant);
            }
        }
        for delete in &record.deletes {
            evidence.deletes_of.entry(&delete.id).or_default().push(delete);
        }
        for release in record.releases.iter().filter(|release| release.outcome != Outcome::Refused) {
            let first = evidence.release_of.entry(&release.claim).or_insert(release.span.start);
            *first = release.span.start.min(*first);
        }
        evidence
    }

    fn add_post(&mut self, post: &'a Post) {
        for (place, tag) in post.tags.iter().enumerate() {
            let id = post.ids.get(place).map(String::as_str);
            self.posted.insert(*tag, (post, id));
            if let Some(id) = id {
                self.acked.insert(id, *tag);
            }
        }
    }

    /// Every message that any operation showed.
    fn shown(&self) -> impl Iterator<Item = (&'static str, Span, &'a ShownMessage)> {
        let claimed =
            self.record.grants.iter().flat_map(|grant| {
                grant.messages.iter().map(move |message| (grant.queue, grant.span, message))
            });
        let read = self.record.sightings.iter().map(|seen| (seen.queue, seen.span, &seen.message));
        claimed.chain(read)
    }

    fn lost(&self) -> Vec<String> {
        let drain = self.record.drain.expect("a history is judged after its drain");
        let present: HashSet<&str> = self
            .shown()
            .filter(|(_, span, _)| span.start >= drain)
            .map(|(_, _, message)| message.id.as_str())
            .collect();
        let deleted = |id: &str| {
            self.deletes_of.get(id).is_some_and(|all| all.iter().any(|d| d.outcome != Outcome::Refused))
        };
        self.acked
            .iter()
            .filter(|(id, tag)| {
                !present.contains(*id) && !deleted(id) && !self.may_be_purged(self.posted[*tag].0)
            })
            .map(|(id, tag)| format!("{id} {tag:?} posted {:?}", self.posted[tag].0.span))
            .collect()
    }

    fn unexpected(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut given = HashSet::new();
        for post in self.record.posts.iter().filter(|post| post.outcome == Outcome::Acked) {
            if post.ids.len() != post.tags.len() {
                faults.push(format!("{} ids for {} messages", post.ids.len(), post.tags.len()));
            }
            faults.extend(
                post.ids.iter().filter(|id| !given.insert(*id)).map(|id| format!("{id} given twice")),
            );
        }
        for (queue, span, message) in self.shown() {
            if let Some(why) = self.why_unexpected(queue, message) {
                faults.push(format!("{} in {queue} at {span:?}: {why}", message.id));
            }
        }
        faults
    }

    fn why_unexpected(&self, queue: &str, message: &ShownMessage) -> Option<String> {
        let Some(tag) = message.tag else { return Some("a body that nobody posts".to_owned()) };
        let Some((post, id)) = self.posted.get(&tag) else {
            return Some(format!("{tag:?} was never posted"));
        };
        if post.queue != queue {
            return Some(format!("{tag:?} was posted to {}", post.queue));
        }
        if id.is_some_and(|id| id != message.id)
            || self.acked.get(message.id.as_str()).is_some_and(|t| *t != tag)
        {
            return Some(format!("{tag:?} was acknowledged as {id:?}"));
        }
        None
    }

    /// Whether some purge may have come after the message, and taken it along.
    fn may_be_purged(&self, post: &Post) -> bool {
        let last = |purge: &Purge| match purge.outcome {
            Outcome::Unknown => purge.span.end + DOUBT,
            Outcome::Acked | Outcome::Refused => purge.span.end,
        };
        let mut purges = self.purges_of(post.queue);
        purges.any(|purge| post.span.start <= last(purge))
    }

    fn purges_of(&self, queue: &str) -> impl Iterator<Item = &'a Purge> {
        let purges = self.record.purges.iter();
        purges.filter(move |purge| purge.queue == queue && purge.outcome != Outcome::Refused)
    }

    /// When an acknowledged message was certainly gone by a purge. A forwarded one may arrive after the purge.
    fn purged(&self, id: &str) -> Option<Moment> {
        let tag = self.acked.get(id).filter(|tag| !self.forwards.contains(tag))?;
        let (post, _) = self.posted[tag];
        let later = self.purges_of(post.queue).filter(|purge| post.span.end < purge.span.start);
        later.filter(|purge| purge.outcome == Outcome::Acked).map(|purge| purge.span.end).min()
    }

    fn resurrected(&self) -> Vec<String> {
        let deleted = |id: &str| {
            let acked = self.deletes_of.get(id)?.iter().filter(|d| d.outcome == Outcome::Acked);
            acked.map(|d| d.span.end).min()
        };
        let gone = |id: &str| [deleted(id), self.purged(id)].into_iter().flatten().min();
        self.shown()
            .filter_map(|(queue, span, message)| Some((queue, span, message, gone(&message.id)?)))
            .filter(|(_, span, _, gone)| span.start > *gone)
            .map(|(queue, span, m, gone)| format!("{} in {queue} at {span:?}, deleted {gone:?}", m.id))
            .collect()
    }

    /// Whether this grant certainly held the message at this moment after its answer.
    fn holds(&self, grant: &Grant, id: &str, at: Moment) -> bool {
        let released = self.release_of.get(grant.claim.as_str()).is_some_and(|start| *start < at);
        let deleted = self.deletes_of.get(id).is_some_and(|all| {
            all.iter().any(|d| d.claim == grant.claim && d.outcome != Outcome::Refused && d.span.start < at)
        });
        let is_over = |purge: &Purge| purge.outcome == Outcome::Acked && purge.span.end < grant.span.start;
        let purged = self.purges_of(grant.queue).any(|purge| purge.span.start < at && !is_over(purge));
        at + MARGIN < grant.span.start + grant.ttl && !released && !deleted && !purged
    }

    fn double_claimed(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (id, grants) in self.grants_of.iter().filter(|(_, grants)| grants.len() > 1) {
            let mut grants = grants.clone();
            grants.sort_by_key(|grant| grant.span.end);
            for (place, second) in grants.iter().enumerate() {
                let at = second.span.end;
                let is_held =
                    |first: &&&Grant| self.holds(first, id, at) && !may_be_over_before(second, first);
                for first in grants[..place].iter().filter(is_held) {
                    let (a, b) = (first, second);
                    faults.push(format!("{id} in {} {:?} and {} {:?}", a.claim, a.span, b.claim, b.span));
                }
            }
        }
        faults
    }

    fn out_of_order(&self) -> Vec<String> {
        let mut producers: HashMap<&str, HashSet<u32>> = HashMap::new();
        for post in &self.record.posts {
            producers.entry(post.queue).or_default().extend(post.tags.iter().map(|tag| tag.producer));
        }
        let mut grants: Vec<_> =
            self.record.grants.iter().filter(|grant| producers[grant.queue].len() == 1).collect();
        grants.sort_by_key(|grant| grant.span.start);
        let mut newest: HashMap<(&str, u32), Tag> = HashMap::new();
        let mut faults = Vec::new();
        for grant in grants {
            for tag in grant.messages.iter().filter_map(|message| self.first_delivery(grant, message)) {
                let newest = newest.entry((grant.queue, grant.consumer)).or_insert(tag);
                if tag < *newest {
                    let (claim, span) = (&grant.claim, grant.span);
                    faults.push(format!(
                        "{tag:?} after {newest:?} to consumer {} of {} by {claim} {span:?}",
                        grant.consumer, grant.queue
                    ));
                }
                *newest = tag.max(*newest);
            }
        }
        faults
    }

    /// The tag of an acknowledged message that no other claim can have held before this grant.
    fn first_delivery(&self, grant: &Grant, message: &ShownMessage) -> Option<Tag> {
        let tag = *self.acked.get(message.id.as_str())?;
        let (post, _) = self.posted[&tag];
        let earlier = self.grants_of[message.id.as_str()].iter().any(|other| {
            // The answer to the other claim may have come after its end.
            other.claim != grant.claim && other.span.start < grant.span.end
        });
        let is_perhaps_lost = self.record.lost_grants.iter().any(|lost| {
            lost.queue == grant.queue && lost.span.start < grant.span.end && post.span.start < lost.latest
        });
        (!earlier && !is_perhaps_lost).then_some(tag)
    }

    fn broken_leases(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (id, grants) in &self.grants_of {
            for delete in
                self.deletes_of.get(id).into_iter().flatten().filter(|d| d.outcome == Outcome::Refused)
            {
                let grant = grants.iter().find(|grant| grant.claim == delete.claim);
                if grant.is_some_and(|grant| self.holds(grant, id, delete.span.end)) {
                    faults.push(format!("{id}: delete at {:?} refused to {}", delete.span, delete.claim));
                }
            }
        }
        faults
    }

    fn late_deletes(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (id, grants) in &self.grants_of {
            let acked = self.deletes_of.get(id).into_iter().flatten().filter(|d| d.outcome == Outcome::Acked);
            for delete in acked {
                let holder = grants.iter().find(|grant| {
                    grant.claim != delete.claim
                        && grant.span.end < delete.span.start
                        && self.holds(grant, id, delete.span.end)
                });
                if let Some(holder) = holder {
                    let (by, to) = (&delete.claim, &holder.claim);
                    faults.push(format!("{id}: delete at {:?} by {by} while {to} held it", delete.span));
                }
            }
        }
        faults
    }

    fn split_settles(&self) -> Vec<String> {
        let mut of_tag: HashMap<Tag, Vec<(Span, &str)>> = HashMap::new();
        let mut of_id: HashMap<&str, Moment> = HashMap::new();
        for (_, span, message) in self.shown() {
            if let Some(tag) = message.tag {
                of_tag.entry(tag).or_default().push((span, &message.id));
            }
            let last = of_id.entry(&message.id).or_insert(span.start);
            *last = span.start.max(*last);
        }
        let mut faults = Vec::new();
        for settle in &self.record.settles {
            let Some(shown) = of_tag.get(&settle.forward) else { continue };
            let ids: HashSet<&str> = shown.iter().map(|(_, id)| *id).collect();
            let first = shown.iter().map(|(span, _)| span.end).min().expect("one was shown");
            if ids.len() > 1 {
                faults.push(format!("{:?} is {ids:?}", settle.forward));
            }
            if of_id.get(settle.id.as_str()).is_some_and(|last| *last > first) {
                faults.push(format!("{} after its forward {:?}", settle.id, settle.forward));
            }
        }
        faults
    }

    fn count(&self, verdict: &mut Verdict) {
        let unknown = self.record.posts.iter().filter(|post| post.outcome == Outcome::Unknown);
        let acked = |all: &&Vec<&Delete>| all.iter().any(|d| d.outcome == Outcome::Acked);
        let mut seen: HashMap<Tag, HashSet<&str>> = HashMap::new();
        for (_, _, message) in self.shown() {
            let Some(tag) = message.tag else { continue };
            seen.entry(tag).or_default().insert(&message.id);
        }
        verdict.acked = self.acked.len();
        verdict.unknown = unknown.map(|post| post.tags.len()).sum();
        verdict.purges = self.record.purges.iter().filter(|purge| purge.outcome == Outcome::Acked).count();
        verdict.deleted = self.deletes_of.values().filter(acked).count();
        verdict.redelivered = self.grants_of.values().map(|grants| grants.len() - 1).sum();
        verdict.duplicates = seen.values().map(|ids| ids.len() - 1).sum();
    }
}

/// Whether the claim of one grant may have ended before the other was granted: its answer was under way for so long.
fn may_be_over_before(late: &Grant, other: &Grant) -> bool {
    late.span.start + late.ttl <= other.span.end
}
