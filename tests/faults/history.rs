//! Owns the record of what the tests' clients asked and were told, with times: the evidence that
//! `verdict` judges. It never talks to the server and never judges. What is certain and what is not
//! is kept apart: an operation is acknowledged, refused (certainly not done) or unknown.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::client::{Claim, Message, Reply};

/// Whether the embedded pool of this build looks up what it is told of entries. The server was built with the same features.
const VERIFIES_HINTS: bool = cfg!(any(debug_assertions, feature = "verify-hints"));

/// Time since the history began, on one clock that runs on across restarts of the server.
pub type Moment = Duration;

/// How much later than its lost answer a request may still be carried out: longer than any deadline of the server.
pub const DOUBT: Duration = Duration::from_secs(60);

/// How long after the servers are calm again the last request that they had may still be carried out.
const CALM_DOUBT: Duration = Duration::from_secs(5);

/// From just before the request was sent until just after its answer was read.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub start: Moment,
    pub end: Moment,
}

/// What makes a message unique: its producer, and its place in that producer's posting order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    pub producer: u32,
    pub number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Acked,
    /// A 4xx: certainly not done.
    Refused,
    /// No answer, or a 5xx: done or not.
    Unknown,
}

/// One post of one or more messages. `ids` is empty unless it was acknowledged.
#[derive(Clone, Debug)]
pub struct Post {
    pub queue: &'static str,
    pub tags: Vec<Tag>,
    pub span: Span,
    pub outcome: Outcome,
    pub ids: Vec<String>,
}

/// A message as the server showed it. Without a tag its body is none that a producer makes.
#[derive(Clone, Debug)]
pub struct ShownMessage {
    pub id: String,
    pub tag: Option<Tag>,
}

/// An acknowledged claim.
#[derive(Clone, Debug)]
pub struct Grant {
    pub queue: &'static str,
    pub consumer: u32,
    pub claim: String,
    pub ttl: Duration,
    pub span: Span,
    pub messages: Vec<ShownMessage>,
}

/// A claim that failed or whose answer never came. It may have held messages unknown to us. The server may release these
/// at any moment: it learns that its answer reached no holder.
#[derive(Clone, Debug)]
pub struct LostGrant {
    pub queue: &'static str,
    pub span: Span,
    /// When it was carried out at the latest: it holds no message that was posted later.
    pub latest: Moment,
}

/// A delete in the name of a claim, or of none: then that is empty.
#[derive(Clone, Debug)]
pub struct Delete {
    pub id: String,
    pub claim: String,
    pub span: Span,
    pub outcome: Outcome,
}

#[derive(Clone, Debug)]
pub struct Release {
    pub claim: String,
    pub span: Span,
    pub outcome: Outcome,
}

/// A message that its holder settled as done, with one forward. Its delete and the post of the forward are recorded too,
/// with its outcome.
#[derive(Clone, Debug)]
pub struct Settle {
    pub id: String,
    pub forward: Tag,
}

/// Everything that was in a queue when it began is gone when it is acknowledged.
#[derive(Clone, Debug)]
pub struct Purge {
    pub queue: &'static str,
    pub span: Span,
    pub outcome: Outcome,
}

/// A message found by a read that does not claim it.
#[derive(Clone, Debug)]
pub struct Sighting {
    pub queue: &'static str,
    pub span: Span,
    pub message: ShownMessage,
}

/// The whole evidence.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub posts: Vec<Post>,
    pub grants: Vec<Grant>,
    pub lost_grants: Vec<LostGrant>,
    pub deletes: Vec<Delete>,
    pub releases: Vec<Release>,
    pub purges: Vec<Purge>,
    pub settles: Vec<Settle>,
    pub sightings: Vec<Sighting>,
    /// When the final drain began: what is present at the end is what was shown after this.
    pub drain: Option<Moment>,
}

/// A message that is settled as done, and the message that follows from it.
pub struct SettledMessage<'a> {
    pub id: &'a str,
    pub claim: &'a str,
    pub target: &'static str,
    pub forward: Tag,
}

/// The recorder that all client threads share. Its lock is held for one push at a time.
pub struct History {
    began: Instant,
    record: Mutex<Record>,
}

impl Tag {
    /// The body of this message. Its length varies, so that records of many sizes are stored.
    pub fn body(self) -> Value {
        let length = usize::try_from(self.number * 37 % 331).unwrap_or_default();
        json!({"producer": self.producer, "number": self.number, "filling": "x".repeat(length)})
    }

    /// The tag of a body, if it is exactly the body of a tag.
    pub fn of(body: &Value) -> Option<Self> {
        let producer = u32::try_from(body["producer"].as_u64()?).ok()?;
        let tag = Self { producer, number: body["number"].as_u64()? };
        (tag.body() == *body).then_some(tag)
    }
}

impl Outcome {
    pub fn of(reply: &Reply) -> Self {
        match reply {
            Ok(answer) if answer.status.is_success() => Self::Acked,
            Ok(answer) if answer.status.is_client_error() => Self::Refused,
            Ok(_) | Err(_) => Self::Unknown,
        }
    }
}

impl From<Message> for ShownMessage {
    fn from(message: Message) -> Self {
        Self { tag: Tag::of(&message.body), id: message.id }
    }
}

impl History {
    pub fn new() -> Self {
        let verifies = std::hint::black_box(VERIFIES_HINTS);
        assert!(verifies, "a release build under fault tests needs --features verify-hints");
        Self { began: Instant::now(), record: Mutex::default() }
    }

    /// A history on the same clock that continues this record.
    pub fn continued(&self, record: Record) -> Self {
        Self { began: self.began, record: Mutex::new(record) }
    }

    pub fn now(&self) -> Moment {
        self.began.elapsed()
    }

    pub fn span_from(&self, start: Moment) -> Span {
        Span { start, end: self.now() }
    }

    /// Writes down what another process than the clients of REST did.
    pub fn note(&self, write: impl FnOnce(&mut Record)) {
        write(&mut self.record.lock());
    }

    pub fn begin_drain(&self) {
        self.record.lock().drain = Some(self.now());
    }

    /// Returns the outcome, for the producer to go on or to stop.
    pub fn posted(&self, queue: &'static str, tags: Vec<Tag>, start: Moment, reply: &Reply) -> Outcome {
        let span = self.span_from(start);
        let outcome = Outcome::of(reply);
        let ids = match reply {
            Ok(answer) if outcome == Outcome::Acked => answer.posted_ids(),
            Ok(_) | Err(_) => Vec::new(),
        };
        self.record.lock().posts.push(Post { queue, tags, span, outcome, ids });
        outcome
    }

    pub fn granted(&self, queue: &'static str, consumer: u32, ttl: u64, start: Moment, claim: &Claim) {
        let span = self.span_from(start);
        let messages = claim.messages.iter().cloned().map(ShownMessage::from).collect();
        let ttl = Duration::from_secs(ttl);
        let grant = Grant { queue, consumer, claim: claim.id.clone(), ttl, span, messages };
        self.record.lock().grants.push(grant);
    }

    /// A claim that failed or got no answer from the only server that had it.
    pub fn grant_lost(&self, queue: &'static str, start: Moment) {
        let span = self.span_from(start);
        self.record.lock().lost_grants.push(LostGrant { queue, span, latest: span.end });
    }

    /// A claim that failed or got no answer. A load balancer or another server may have it still, and carry it out.
    pub fn grant_in_doubt(&self, queue: &'static str, start: Moment) {
        let span = self.span_from(start);
        self.record.lock().lost_grants.push(LostGrant { queue, span, latest: span.end + DOUBT });
    }

    /// The servers are calm again: none of them has an earlier request any more.
    pub fn calmed(&self) {
        let latest = self.now() + CALM_DOUBT;
        for lost in &mut self.record.lock().lost_grants {
            lost.latest = lost.latest.min(latest);
        }
    }

    pub fn deleted(&self, id: &str, claim: &str, start: Moment, reply: &Reply) -> Outcome {
        let (span, outcome) = (self.span_from(start), Outcome::of(reply));
        let delete = Delete { id: id.to_owned(), claim: claim.to_owned(), span, outcome };
        self.record.lock().deletes.push(delete);
        outcome
    }

    /// Returns the outcome of a settle of one message with one forward.
    pub fn settled(&self, settled: &SettledMessage<'_>, start: Moment, reply: &Reply) -> Outcome {
        let SettledMessage { id, claim, target, forward } = *settled;
        let span = self.span_from(start);
        let entry = reply.as_ref().ok().filter(|answer| answer.status == 200);
        let entry = entry.map(|answer| answer.json()["results"][0].clone());
        let outcome = match entry.as_ref().and_then(|entry| entry["status"].as_u64()) {
            Some(200) => Outcome::Acked,
            Some(400..500) => Outcome::Refused,
            Some(_) => Outcome::Unknown,
            None => Outcome::of(reply),
        };
        let first = entry.as_ref().and_then(|entry| entry["ids"][0].as_str());
        let ids = first.filter(|_| outcome == Outcome::Acked).map(str::to_owned).into_iter().collect();
        let mut record = self.record.lock();
        record.posts.push(Post { queue: target, tags: vec![forward], span, outcome, ids });
        record.deletes.push(Delete { id: id.to_owned(), claim: claim.to_owned(), span, outcome });
        record.settles.push(Settle { id: id.to_owned(), forward });
        outcome
    }

    pub fn purged(&self, queue: &'static str, start: Moment, reply: &Reply) -> Outcome {
        let (span, outcome) = (self.span_from(start), Outcome::of(reply));
        self.record.lock().purges.push(Purge { queue, span, outcome });
        outcome
    }

    pub fn released(&self, claim: &str, start: Moment, reply: &Reply) {
        let (span, outcome) = (self.span_from(start), Outcome::of(reply));
        self.record.lock().releases.push(Release { claim: claim.to_owned(), span, outcome });
    }

    pub fn sighted(&self, queue: &'static str, start: Moment, message: Message) {
        let sighting = Sighting { queue, span: self.span_from(start), message: message.into() };
        self.record.lock().sightings.push(sighting);
    }

    /// A copy of the evidence so far.
    pub fn record(&self) -> Record {
        self.record.lock().clone()
    }
}
