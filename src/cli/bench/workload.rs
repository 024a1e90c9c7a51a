//! Owns what is asked of the server: the requests of `post`, `claim` and `cycle`, built once and cloned.
//! Never opens a connection and never decides when to stop.

use std::borrow::Cow;
use std::cell::RefCell;

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::Full;
use rand::distr::{Alphanumeric, SampleString};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Deserialize;

use super::line::{Answer, Broken, Line, Target};
use super::tally::{Tally, Verb};

/// Which requests make one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Post a batch.
    Post,
    /// Claim a batch and keep it. What there is to claim is posted by whoever finds nothing.
    Claim,
    /// Post a batch, claim as many, delete each under its claim.
    Cycle,
}

impl Kind {
    /// The word on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Post => "post",
            Self::Claim => "claim",
            Self::Cycle => "cycle",
        }
    }
}

/// Batches that one post brings for the claims of [`Kind::Claim`], so that posts are rare among them.
const FILL: usize = 100;

/// Bytes of such a post at most: what a server of this API takes by default is 262,144.
const FILL_BYTES: usize = 240_000;

type Ask = Request<Full<Bytes>>;

/// The requests of a run, ready to be cloned.
pub struct Workload {
    kind: Kind,
    batch: usize,
    queues: Vec<Queue>,
    post: Ask,
    claim: Ask,
    delete: Ask,
}

struct Queue {
    messages: Uri,
    claims: Uri,
}

/// The part of a claim's answer that the deletes need.
#[derive(Deserialize)]
struct Claimed<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    messages: Vec<ClaimedMessage<'a>>,
}

#[derive(Deserialize)]
struct ClaimedMessage<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}

impl Workload {
    /// Turns over `queues` queues named `bench-0` onwards, `batch` messages each, whose body is a JSON value of
    /// `body_bytes` bytes (2 at least: an empty string). The letters are random, so that a compressing store gains
    /// nothing, and the same in every run.
    pub fn new(
        kind: Kind,
        batch: usize,
        body_bytes: usize,
        queues: usize,
        target: &Target,
    ) -> anyhow::Result<Self> {
        let mut random = StdRng::seed_from_u64(0);
        let posted = match kind {
            // A message costs some 30 bytes beside its body.
            Kind::Claim => (batch * FILL).min(FILL_BYTES / (body_bytes + 32)).max(batch),
            Kind::Post | Kind::Cycle => batch,
        };
        let messages: Vec<_> = (0..posted)
            .map(|_| Alphanumeric.sample_string(&mut random, body_bytes.saturating_sub(2)))
            .map(|letters| serde_json::json!({ "body": letters, "ttl": 3600 }))
            .collect();
        let post = serde_json::json!({ "messages": messages }).to_string();
        let claim = serde_json::json!({ "ttl": 60, "grace": 60 }).to_string();
        let client = client_id(&mut random);
        Ok(Self {
            kind,
            batch,
            queues: (0..queues).map(|number| Queue::new(number, batch)).collect::<Result<_, _>>()?,
            post: template(Method::POST, target, &client, Some(post))?,
            claim: template(Method::POST, target, &client, Some(claim))?,
            delete: template(Method::DELETE, target, &client, None)?,
        })
    }

    /// The queue of a connection's n-th turn: each connection walks over its own share of the queues, and shares them
    /// when there are fewer queues than connections.
    pub fn queue_of(&self, connection: usize, turn: usize, connections: usize) -> usize {
        connection.wrapping_add(turn.wrapping_mul(connections)) % self.queues.len()
    }

    /// Asks the requests of one turn on `line`, each counted in `tally`. An unexpected status ends the turn.
    pub async fn turn(&self, line: &mut Line, queue: usize, tally: &RefCell<Tally>) -> Result<(), Broken> {
        let queue = &self.queues[queue];
        if self.kind == Kind::Claim {
            return self.claim_and_keep(line, queue, tally).await;
        }
        let answer = line.ask(aimed(&self.post, &queue.messages)).await?;
        if !expect(Verb::Post, StatusCode::CREATED, &answer, tally) {
            return Ok(());
        }
        match self.kind {
            Kind::Post | Kind::Claim => tally.borrow_mut().count_messages(self.batch as u64),
            Kind::Cycle => self.claim_and_delete(line, queue, tally).await?,
        }
        Ok(())
    }

    async fn claim_and_keep(
        &self,
        line: &mut Line,
        queue: &Queue,
        tally: &RefCell<Tally>,
    ) -> Result<(), Broken> {
        let mut answer = line.ask(aimed(&self.claim, &queue.claims)).await?;
        if answer.status == StatusCode::NO_CONTENT {
            tally.borrow_mut().count_empty_claim();
            let posted = line.ask(aimed(&self.post, &queue.messages)).await?;
            if !expect(Verb::Post, StatusCode::CREATED, &posted, tally) {
                return Ok(());
            }
            answer = line.ask(aimed(&self.claim, &queue.claims)).await?;
        }
        if answer.status != StatusCode::NO_CONTENT && expect(Verb::Claim, StatusCode::CREATED, &answer, tally)
        {
            tally.borrow_mut().count_messages(self.batch as u64);
        }
        Ok(())
    }

    async fn claim_and_delete(
        &self,
        line: &mut Line,
        queue: &Queue,
        tally: &RefCell<Tally>,
    ) -> Result<(), Broken> {
        let answer = line.ask(aimed(&self.claim, &queue.claims)).await?;
        if answer.status == StatusCode::NO_CONTENT {
            let mut tally = tally.borrow_mut();
            tally.count(Verb::Claim, &answer);
            tally.count_empty_claim();
            return Ok(());
        }
        if !expect(Verb::Claim, StatusCode::CREATED, &answer, tally) {
            return Ok(());
        }
        let uris = match deletes(queue, &answer.body) {
            Ok(uris) => uris,
            Err(error) => {
                tally.borrow_mut().fail(format!("claim: {error:#}"));
                return Ok(());
            }
        };
        for uri in &uris {
            let answer = line.ask(aimed(&self.delete, uri)).await?;
            if expect(Verb::Delete, StatusCode::NO_CONTENT, &answer, tally) {
                tally.borrow_mut().count_messages(1);
            }
        }
        Ok(())
    }
}

impl Queue {
    fn new(number: usize, batch: usize) -> anyhow::Result<Self> {
        let path = format!("/v2/queues/bench-{number}");
        Ok(Self {
            messages: Uri::try_from(format!("{path}/messages"))?,
            claims: Uri::try_from(format!("{path}/claims?limit={batch}"))?,
        })
    }
}

/// Counts the answer, as an answer or as an error; true when it is the one hoped for.
fn expect(verb: Verb, status: StatusCode, answer: &Answer, tally: &RefCell<Tally>) -> bool {
    let mut tally = tally.borrow_mut();
    if answer.status == status {
        tally.count(verb, answer);
        true
    } else {
        tally.refuse(verb, answer.status, &answer.body);
        false
    }
}

/// Where to delete each message of a claim.
fn deletes(queue: &Queue, body: &[u8]) -> anyhow::Result<Vec<Uri>> {
    let claimed: Claimed<'_> = serde_json::from_slice(body).context("answer not understood")?;
    let messages = queue.messages.path();
    let uri = |message: &ClaimedMessage<'_>| {
        let text = format!("{messages}/{}?claim_id={}", message.id, claimed.id);
        Uri::try_from(text).context("an id that fits into no URL")
    };
    claimed.messages.iter().map(uri).collect()
}

fn aimed(template: &Ask, uri: &Uri) -> Ask {
    let mut request = template.clone();
    *request.uri_mut() = uri.clone();
    request
}

fn template(method: Method, target: &Target, client: &str, body: Option<String>) -> anyhow::Result<Ask> {
    let mut request = Request::new(Full::new(Bytes::from(body.clone().unwrap_or_default())));
    *request.method_mut() = method;
    let headers = request.headers_mut();
    headers.insert(header::HOST, target.authority.clone());
    // Zaqar wants each client to name itself by a UUID.
    headers.insert(HeaderName::from_static("client-id"), HeaderValue::from_str(client)?);
    if body.is_some() {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(request)
}

/// A version 4 UUID.
fn client_id(random: &mut StdRng) -> String {
    let bits = random.random::<u128>();
    uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn workload(batch: usize, body_bytes: usize, queues: usize) -> Workload {
        let target = Target::parse("http://127.0.0.1:1").unwrap();
        Workload::new(Kind::Cycle, batch, body_bytes, queues, &target).unwrap()
    }

    #[tokio::test]
    async fn each_message_body_has_the_size_asked_for() {
        let post = workload(3, 200, 1).post.into_body().collect().await.unwrap().to_bytes();
        let post: serde_json::Value = serde_json::from_slice(&post).unwrap();
        let messages = post["messages"].as_array().unwrap();
        assert_eq!(messages.len(), 3);
        assert!(messages.iter().all(|message| message["body"].to_string().len() == 200));
        assert_ne!(messages[0]["body"], messages[1]["body"]);
    }

    #[test]
    fn connections_walk_over_every_queue() {
        let workload = workload(1, 2, 10);
        let mut seen: Vec<_> =
            (0..5).flat_map(|turn| [0, 1].map(|connection| workload.queue_of(connection, turn, 2))).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn more_connections_than_queues_share_them() {
        let workload = workload(1, 2, 3);
        assert_eq!(workload.queue_of(64, 0, 65), 1);
    }

    #[test]
    fn each_claimed_message_is_deleted_under_its_claim() {
        let queue = Queue::new(7, 10).unwrap();
        let body =
            br#"{"id":"c1","messages":[{"id":"m1","body":{"id":"x"},"ttl":60},{"body":[],"id":"m2"}]}"#;
        let uris = deletes(&queue, body).unwrap();
        assert_eq!(uris[0], "/v2/queues/bench-7/messages/m1?claim_id=c1");
        assert_eq!(uris[1], "/v2/queues/bench-7/messages/m2?claim_id=c1");
        assert!(deletes(&queue, b"{}").is_err());
        assert!(deletes(&queue, br#"{"id":"c 1","messages":[{"id":"m"}]}"#).is_err());
    }
}
