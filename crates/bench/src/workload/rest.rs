//! The requests of the REST API: built once, and cloned.

use std::borrow::Cow;

use anyhow::Context;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Deserialize;

use super::{BenchAnswer, BenchRequest, Dialect, LoadArgs, Target, Verb, template, texts, with_uri};

/// Max batches in one post that fills a queue. Many, so that such posts are rare.
const FILL: usize = 100;
/// Max bytes of such a post. Zaqar accepts 262,144.
const FILL_BYTES: usize = 240_000;
/// Bytes of a message beside its body.
const MESSAGE_OVERHEAD: usize = 32;
const JSON: Option<&str> = Some("application/json");

pub(super) struct Rest {
    queues: Vec<Queue>,
    create: BenchRequest,
    post: BenchRequest,
    fill: (BenchRequest, u64),
    claim: BenchRequest,
    delete: BenchRequest,
    /// Whether one delete removes all messages of a claim.
    is_bulk: bool,
}

struct Queue {
    path: Uri,
    messages: Uri,
    claims: Uri,
}

/// The part of a claim's answer that the deletes need.
#[derive(Deserialize)]
struct ClaimReply<'a> {
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

impl Rest {
    /// Builds the requests. Bodies are JSON strings of the requested length with their quotes, at least two bytes.
    pub(super) fn new(args: &LoadArgs, target: &Target) -> anyhow::Result<Self> {
        let client = client_id();
        let named = |mut request: BenchRequest| {
            // Zaqar requires a UUID from each client.
            request
                .headers_mut()
                .insert(HeaderName::from_static("client-id"), HeaderValue::from_str(&client)?);
            anyhow::Ok(request)
        };
        let fill = (args.batch * FILL).min(FILL_BYTES / (args.body_bytes + MESSAGE_OVERHEAD)).max(args.batch);
        let bodies = texts(fill, args.body_bytes.saturating_sub(2));
        let claim = serde_json::json!({ "ttl": 60, "grace": 60 }).to_string();
        Ok(Self {
            queues: (0..args.queues)
                .map(|number| Queue::new(number, args.batch))
                .collect::<Result<_, _>>()?,
            create: named(template(Method::PUT, target, None, String::new())?)?,
            post: named(template(Method::POST, target, JSON, posted(&bodies[..args.batch]))?)?,
            fill: (named(template(Method::POST, target, JSON, posted(&bodies))?)?, fill as u64),
            claim: named(template(Method::POST, target, JSON, claim)?)?,
            delete: named(template(Method::DELETE, target, None, String::new())?)?,
            is_bulk: args.bulk,
        })
    }
}

impl Dialect for Rest {
    fn create(&self, queue: usize) -> (Option<BenchRequest>, BenchRequest) {
        (None, with_uri(&self.create, &self.queues[queue].path))
    }

    fn makes_queues_by_posts(&self) -> bool {
        true
    }

    fn is_new(&self, _: Option<&BenchAnswer>, created: StatusCode) -> bool {
        created == StatusCode::CREATED
    }

    fn remove(&self, queue: usize) -> BenchRequest {
        with_uri(&self.delete, &self.queues[queue].path)
    }

    fn post(&self, queue: usize) -> BenchRequest {
        with_uri(&self.post, &self.queues[queue].messages)
    }

    fn fill(&self, queue: usize) -> (BenchRequest, u64) {
        let (request, messages) = &self.fill;
        (with_uri(request, &self.queues[queue].messages), *messages)
    }

    fn claim(&self, queue: usize) -> BenchRequest {
        with_uri(&self.claim, &self.queues[queue].claims)
    }

    fn claimed(&self, queue: usize, answer: &BenchAnswer) -> anyhow::Result<Option<Vec<BenchRequest>>> {
        if answer.status == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let uris = deletes(&self.queues[queue], &answer.body, self.is_bulk)?;
        Ok(Some(uris.iter().map(|uri| with_uri(&self.delete, uri)).collect()))
    }

    fn expected(&self, verb: Verb) -> StatusCode {
        match verb {
            Verb::Post | Verb::Claim => StatusCode::CREATED,
            Verb::Delete => StatusCode::NO_CONTENT,
        }
    }
}

impl Queue {
    fn new(number: usize, batch: usize) -> anyhow::Result<Self> {
        let path = format!("/v2/queues/bench-{number}");
        Ok(Self {
            path: Uri::try_from(path.as_str())?,
            messages: Uri::try_from(format!("{path}/messages"))?,
            claims: Uri::try_from(format!("{path}/claims?limit={batch}"))?,
        })
    }
}

fn posted(bodies: &[String]) -> String {
    let messages: Vec<_> =
        bodies.iter().map(|letters| serde_json::json!({ "body": letters, "ttl": 3600 })).collect();
    serde_json::json!({ "messages": messages }).to_string()
}

/// Returns the URIs that delete the messages of a claim: one per message, or one for all.
fn deletes(queue: &Queue, body: &[u8], is_bulk: bool) -> anyhow::Result<Vec<Uri>> {
    let ClaimReply { id: claim, messages } = serde_json::from_slice(body).context("answer not understood")?;
    let path = queue.messages.path();
    let ids = messages.iter().map(|message| &*message.id);
    let texts: Vec<_> = if is_bulk {
        vec![format!("{path}?ids={}&claim_ids={claim}", ids.collect::<Vec<_>>().join(","))]
    } else {
        ids.map(|id| format!("{path}/{id}?claim_id={claim}")).collect()
    };
    texts.into_iter().map(|text| Uri::try_from(text).context("an id that fits into no URL")).collect()
}

/// Returns a version 4 UUID, the same in every run.
fn client_id() -> String {
    let bits = StdRng::seed_from_u64(1).random::<u128>();
    uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_args;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn each_message_body_has_the_size_asked_for() {
        let args = load_args("post --batch 3 --body-bytes 200").unwrap();
        let rest = Rest::new(&args, &Target::parse("http://127.0.0.1:1").unwrap()).unwrap();
        let post = rest.post(0).into_body().collect().await.unwrap().to_bytes();
        let post: serde_json::Value = serde_json::from_slice(&post).unwrap();
        let messages = post["messages"].as_array().unwrap();
        assert_eq!(messages.len(), 3);
        assert!(messages.iter().all(|message| message["body"].to_string().len() == 200));
        assert_ne!(messages[0]["body"], messages[1]["body"]);
        assert_eq!(rest.fill(0).1, 300);
    }

    #[test]
    fn claimed_messages_are_deleted_under_their_claim() {
        let queue = Queue::new(7, 10).unwrap();
        let body =
            br#"{"id":"c1","messages":[{"id":"m1","body":{"id":"x"},"ttl":60},{"body":[],"id":"m2"}]}"#;
        let each = deletes(&queue, body, false).unwrap();
        assert_eq!(each[0], "/v2/queues/bench-7/messages/m1?claim_id=c1");
        assert_eq!(each[1], "/v2/queues/bench-7/messages/m2?claim_id=c1");
        let together = deletes(&queue, body, true).unwrap();
        assert_eq!(together, ["/v2/queues/bench-7/messages?ids=m1,m2&claim_ids=c1"]);
        assert!(deletes(&queue, b"{}", false).is_err());
        assert!(deletes(&queue, br#"{"id":"c 1","messages":[{"id":"m"}]}"#, false).is_err());
    }
}
