//! Settle of the messages of a claim: each is done, moved, failed or deferred, in one step with the messages that follow
//! from it.

use std::collections::BTreeSet;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::forwards::{ForwardBody, queue};
use crate::api::error::{ApiError, ErrorBody, Errors, NoRoom};
use crate::api::extract::{CallerHeaders, ClaimPath, Path, QueuePath, QueueRequest};
use crate::api::json::{Json, Object, RequestBody, not_null, reply};
use crate::api::pipeline::forward::earlier::EarlierAttempts;
use crate::api::pipeline::forward::peer::RequestId;
use crate::api::sqs::BoundedList;
use crate::api::trace::TraceHeaders;
use angarium_broker::Broker;
use angarium_core::delay::Delay;
use angarium_core::envelope::Envelope;
use angarium_core::error::{Error, InvalidPart, Resource};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits::{self, Limits};
use angarium_core::outcome::{Meta, Outcome, Reason};
use angarium_core::settle::{Forward, Retry, SettleEntry, Settled, Verdict};

/// Messages of a claim to settle: at least one, and at most as many as a claim may have. Unknown keys are refused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleRequest {
    /// Each is settled by itself.
    #[schema(min_items = 1, max_items = 20, value_type = Vec<EntryBody>)]
    messages: BoundedList<Object<EntryBody>, { limits::CLAIM_MESSAGES_MAX }>,
}

/// What becomes of a message: exactly one of `done`, `move`, `fail` and `defer`. Unknown keys are refused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SettleEntry)]
struct EntryBody {
    /// The message.
    #[schema(value_type = uuid::Uuid)]
    id: String,
    /// It is done: it is removed, or kept with its result if its post or its queue has a time for that.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<DoneBody>, nullable = false)]
    done: Option<Object<DoneBody>>,
    /// It is transferred to another queue under its id.
    #[serde(default, rename = "move", deserialize_with = "not_null")]
    #[schema(value_type = Option<MoveBody>, nullable = false)]
    moved: Option<Object<MoveBody>>,
    /// It failed: it is tried again while it lives and has attempts left, and else is a dead letter or kept as failed.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<FailBody>, nullable = false)]
    fail: Option<Object<FailBody>>,
    /// It returns after a delay, and this claim does not count as an attempt.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<DeferBody>, nullable = false)]
    defer: Option<Object<DeferBody>>,
    /// New messages that follow from it, at most 20. Each becomes visible once, and only if the entry is applied. Not
    /// beside `defer`.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(max_items = 20, value_type = Option<Vec<ForwardBody>>, nullable = false)]
    forward: Option<BoundedList<Object<ForwardBody>, { limits::FORWARDS }>>,
    /// JSON that is kept with the message and shown in its `details`, in place of what was kept before. At most 1,024 bytes.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<serde_json::Value>)]
    meta: Option<Box<RawValue>>,
}

/// A message that is done. Unknown keys are refused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SettleDone)]
struct DoneBody {
    /// JSON that is kept with the message, for one that is kept. At most 65,536 bytes.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
}

/// A message that is transferred. Unknown keys are refused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SettleMove)]
struct MoveBody {
    /// The queue that takes it, in the same project. A queue that does not exist is created.
    #[schema(min_length = 1, max_length = 80, pattern = r"^[A-Za-z0-9_.\-]+$")]
    queue: String,
    /// Seconds until it can be claimed there, less than it still has to live; the `_default_message_delay` of that queue
    /// when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 0, maximum = 900, nullable = false)]
    delay: Option<i64>,
}

/// A message that failed. Unknown keys are refused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SettleFail)]
struct FailBody {
    /// Why: at most 512 characters, none of them a control character.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(min_length = 1, max_length = 512, nullable = false)]
    reason: Option<String>,
    /// Seconds until it can be claimed again, if it has attempts left and lives so long; by the `_backoff` of its queue when
    /// absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(minimum = 0, maximum = 43_200, nullable = false)]
    retry_in: Option<i64>,
    /// Whether it may be tried again; `false` is not possible beside `retry_in`. True when absent.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    retry: Option<bool>,
}

/// A message that is deferred. Unknown keys are refused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SettleDefer)]
struct DeferBody {
    /// Seconds until it can be claimed again; less than it still has to live.
    #[schema(minimum = 0, maximum = 43_200)]
    delay: i64,
}

impl RequestBody for SettleRequest {
    fn most(_: &Limits) -> usize {
        limits::SQS_REQUEST_BYTES
    }
}

/// An entry with its id as the client wrote it.
#[derive(Debug)]
struct NamedEntry {
    name: String,
    /// None if the name is no id, which no message has.
    entry: Option<SettleEntry>,
}

impl SettleRequest {
    /// Checks all entries. Messages that follow are posted in the trace of `envelope`.
    fn into_entries(self, envelope: &Envelope, limits: &Limits) -> Result<Vec<NamedEntry>, Error> {
        let most = limits.claim_messages.most();
        let entries = self.messages.whole().or_else(|count| limit("messages", too_many(count, most)))?;
        match entries.len() {
            0 => return limit("messages", "no messages to settle".to_owned()),
            count if count > most => return limit("messages", too_many(count, most)),
            _ => {}
        }
        let mut names = BTreeSet::new();
        let mut named = Vec::with_capacity(entries.len());
        for (index, Object(entry)) in entries.into_iter().enumerate() {
            let path = format!("messages[{index}]");
            let entry = entry.named(&path, envelope, limits)?;
            let id = entry.entry.as_ref().map(|entry| entry.id.to_string());
            if !names.insert(id.unwrap_or_else(|| entry.name.clone())) {
                return limit(format!("{path}.id"), "an entry before it has the same id".to_owned());
            }
            named.push(entry);
        }
        Ok(named)
    }
}

fn too_many(count: usize, most: usize) -> String {
    format!("a request settles at most {most} messages, and this one has {count}")
}

fn limit<T>(field: impl Into<String>, why: String) -> Result<T, Error> {
    Err(Error::invalid(InvalidPart::Limit, field, why))
}

impl EntryBody {
    fn named(self, path: &str, envelope: &Envelope, limits: &Limits) -> Result<NamedEntry, Error> {
        let Self { id: name, done, moved, fail, defer, forward, meta } = self;
        let field = |name| format!("{path}.{name}");
        let verdict = match (done, moved, fail, defer) {
            (Some(Object(done)), None, None, None) => done.verdict(&field("done"))?,
            (None, Some(Object(moved)), None, None) => moved.verdict(&field("move"), limits)?,
            (None, None, Some(Object(fail)), None) => fail.verdict(&field("fail"))?,
            (None, None, None, Some(Object(defer))) => {
                if forward.is_some() {
                    return limit(field("forward"), "a deferred message forwards nothing".to_owned());
                }
                defer.verdict(&field("defer"))?
            }
            _ => return limit(path, "it has exactly one of done, move, fail and defer".to_owned()),
        };
        let forwards = forwards(forward.unwrap_or_default(), field("forward"), envelope, limits)?;
        let meta = meta.map(|meta| Meta::new(&meta, field("meta"))).transpose()?;
        let entry = name.parse().ok().map(|id: MessageId| SettleEntry { id, verdict, forwards, meta });
        Ok(NamedEntry { name, entry })
    }
}

fn forwards(
    list: BoundedList<Object<ForwardBody>, { limits::FORWARDS }>,
    path: String,
    envelope: &Envelope,
    limits: &Limits,
) -> Result<Vec<Forward>, Error> {
    let most = limits::FORWARDS;
    let list = list.whole().or_else(|count| {
        limit(&*path, format!("an entry forwards at most {most} messages, and this one has {count}"))
    })?;
    let forward = |(index, Object(body)): (usize, Object<ForwardBody>)| {
        body.into_forward(&format!("{path}[{index}]"), envelope, limits)
    };
    list.into_iter().enumerate().map(forward).collect()
}

impl DoneBody {
    fn verdict(self, path: &str) -> Result<Verdict, Error> {
        let result = self.result.map(|result| Outcome::new(&result, format!("{path}.result"))).transpose()?;
        Ok(Verdict::Done { result })
    }
}

impl MoveBody {
    fn verdict(self, path: &str, limits: &Limits) -> Result<Verdict, Error> {
        let target = queue(&self.queue, format!("{path}.queue"))?;
        let seconds = |delay| limits.message_delay.seconds(delay, format!("{path}.delay"));
        Ok(Verdict::Move { target, delay: self.delay.map(seconds).transpose()? })
    }
}

impl FailBody {
    fn verdict(self, path: &str) -> Result<Verdict, Error> {
        let reason = |reason: String| Reason::new(&reason, format!("{path}.reason"));
        let reason = self.reason.map(reason).transpose()?;
        let field = format!("{path}.retry_in");
        let retry = match (self.retry.unwrap_or(true), self.retry_in) {
            (true, None) => Retry::Backoff,
            (true, Some(seconds)) => Retry::After(retry_seconds(seconds, field)?),
            (false, None) => Retry::Never,
            (false, Some(_)) => return limit(field, "the entry states that there is no retry".to_owned()),
        };
        Ok(Verdict::Fail { reason, retry })
    }
}

impl DeferBody {
    fn verdict(self, path: &str) -> Result<Verdict, Error> {
        let seconds = retry_seconds(self.delay, format!("{path}.delay"))?;
        Ok(Verdict::Defer { delay: Delay::Seconds(seconds) })
    }
}

fn retry_seconds(seconds: i64, field: String) -> Result<u32, Error> {
    let (least, most) = limits::RETRY_DELAY;
    match u32::try_from(seconds) {
        Ok(within) if (least..=most).contains(&within) => Ok(within),
        _ => limit(field, format!("{seconds} is not between {least} and {most} seconds")),
    }
}

/// What became of each message.
#[derive(Debug, Serialize, ToSchema)]
pub struct SettleResults {
    /// In the order of the request.
    results: Vec<SettleResult>,
}

/// What became of one message.
#[derive(Debug, Serialize, ToSchema)]
struct SettleResult {
    /// The id of the request.
    id: String,
    /// 200, or the status of its error.
    status: u16,
    /// Its state now: `ready`, `delayed`, `in_transfer`, `done` or `failed`. A message that is done is removed if it is
    /// not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "done")]
    state: Option<&'static str>,
    /// The ids of the messages that follow from it, in the order of the request, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<uuid::Uuid>>, nullable = false)]
    ids: Option<Vec<MessageId>>,
    /// Why it was not settled. Nothing of the entry was done if its `nothing_written` is true; otherwise repeat the settle.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    error: Option<ErrorBody>,
}

impl SettleResult {
    fn new(id: String, outcome: Result<Settled, Error>, request_id: &str) -> Self {
        match outcome {
            Ok(Settled { state, ids }) => Self {
                id,
                status: StatusCode::OK.as_u16(),
                state: Some(state.as_str()),
                ids: (!ids.is_empty()).then_some(ids),
                error: None,
            },
            Err(error) => {
                let error = ApiError::from(error);
                let (status, error) = (error.status().as_u16(), Some(error.error_body(request_id)));
                Self { id, status, state: None, ids: None, error }
            }
        }
    }
}

/// Settle messages of a claim
///
/// Each message is done, moved, failed or deferred, in one step with the new messages that follow from it: an entry is
/// applied whole or not at all, whatever becomes of the others. What is applied is on disk when the request is answered.
/// A repeat by the same claim within five minutes has the same answer and does nothing again.
#[utoipa::path(
    post, path = "/v2/queues/{queue_name}/claims/{claim_id}/settle", operation_id = "claim_settle", tag = "claims",
    params(
        QueuePath, ("claim_id" = uuid::Uuid, Path, description = "The claim."), CallerHeaders, TraceHeaders
    ),
    request_body = SettleRequest,
    responses((status = 200, description = "What became of each message.", body = SettleResults), Errors, NoRoom)
)]
pub async fn post(
    State(broker): State<Broker>,
    asked: QueueRequest,
    Extension(RequestId(request_id)): Extension<RequestId>,
    earlier: EarlierAttempts,
    Path(ClaimPath { claim_id }): Path<ClaimPath>,
    Json(body): Json<SettleRequest>,
) -> Result<Response, ApiError> {
    let envelope = Envelope { trace: asked.trace.clone(), ..Envelope::default() };
    let entries = body.into_entries(&envelope, broker.limits())?;
    let (names, entries): (Vec<_>, Vec<_>) =
        entries.into_iter().map(|NamedEntry { name, entry }| ((name, entry.is_some()), entry)).unzip();
    // Text that is no valid id belongs to no claim, and such a claim holds nothing.
    let claim = claim_id.parse().unwrap_or(ClaimId::NONE);
    let entries: Vec<SettleEntry> = entries.into_iter().flatten().collect();
    let outcomes = if entries.is_empty() {
        Vec::new()
    } else {
        broker.messages_settle(&asked.queue, claim, entries).await?
    };
    let mut outcomes = outcomes.into_iter();
    let result = |(name, is_id): (String, bool)| {
        let missing = || Err(Error::NotFound { resource: Resource::ClaimedMessage, name: name.clone() });
        let outcome = is_id.then(|| outcomes.next()).flatten().unwrap_or_else(missing);
        SettleResult::new(name, outcome.map_err(|error| earlier.judge_error(error)), &request_id)
    };
    let results = names.into_iter().map(result).collect();
    Ok(reply(StatusCode::OK, &SettleResults { results }))
}

#[cfg(test)]
mod tests {
    use angarium_core::names::QueueName;

    use super::*;

    const ID: &str = "019ab1c2-5f07-7d3e-8a41-3c5d7e9f1b20";

    fn entries(text: &str) -> Result<Vec<NamedEntry>, Error> {
        let text = text.replace("ID", ID);
        let request: SettleRequest = serde_json::from_str(&format!("{{\"messages\": [{text}]}}")).unwrap();
        request.into_entries(&Envelope::default(), &Limits::ZAQAR)
    }

    fn verdict(text: &str) -> Verdict {
        let mut entries = entries(&format!("{{\"id\": \"ID\", {text}}}")).unwrap();
        entries.remove(0).entry.unwrap().verdict
    }

    #[test]
    fn each_verdict_is_read() {
        let target = QueueName::new("next").unwrap();
        for (text, expected) in [
            (r#""done": {}"#, Verdict::Done { result: None }),
            (r#""move": {"queue": "next", "delay": 9}"#, Verdict::Move { target, delay: Some(9) }),
            (r#""fail": {}"#, Verdict::Fail { reason: None, retry: Retry::Backoff }),
            (
                r#""fail": {"retry": true, "retry_in": 43200}"#,
                Verdict::Fail { reason: None, retry: Retry::After(43_200) },
            ),
            (r#""fail": {"retry": false}"#, Verdict::Fail { reason: None, retry: Retry::Never }),
            (r#""defer": {"delay": 0}"#, Verdict::Defer { delay: Delay::Seconds(0) }),
        ] {
            assert_eq!(verdict(text), expected, "{text}");
        }
        let empty = verdict(r#""done": {"result": null}"#);
        assert!(
            matches!(empty, Verdict::Done { result: Some(result) } if result.as_bytes().as_ref() == b"null")
        );
    }

    #[test]
    fn forward_has_the_fields_of_a_post() {
        let text = r#"{"id": "ID", "done": {}, "meta": [1], "forward": [{"queue": "b", "body": {"n": 1}, "delay": 5, "ttl": 60,
            "group": "g", "tags": ["t"], "keep": 9}, {"queue": "c", "body": 2}]}"#;
        let entry = entries(text).unwrap().remove(0).entry.unwrap();
        assert_eq!(entry.meta.unwrap().as_bytes().as_ref(), b"[1]");
        let first = &entry.forwards[0];
        assert_eq!((first.target.as_str(), first.body.as_ref()), ("b", br#"{"n": 1}"#.as_slice()));
        assert_eq!((first.delay, first.ttl.unwrap().seconds()), (Some(5), 60));
        assert_eq!((first.tags.as_slice(), first.keep.unwrap().seconds()), (["t".to_owned()].as_slice(), 9));
        assert_eq!((entry.forwards.len(), entry.forwards[1].delay), (2, None));
    }

    #[test]
    fn wrong_entry_is_refused_and_named() {
        for (text, field) in [
            ("", "messages: no messages"),
            (r#"{"id": "ID"}"#, "messages[0]: it has exactly one"),
            (r#"{"id": "ID", "done": {}, "fail": {}}"#, "messages[0]: it has exactly one"),
            (r#"{"id": "ID", "done": {}}, {"id": "ID", "fail": {}}"#, "messages[1].id"),
            (r#"{"id": "x", "done": {}}, {"id": "x", "fail": {}}"#, "messages[1].id"),
            (r#"{"id": "ID", "defer": {"delay": 1}, "forward": []}"#, "messages[0].forward"),
            (r#"{"id": "ID", "defer": {"delay": 43201}}"#, "messages[0].defer.delay"),
            (r#"{"id": "ID", "move": {"queue": "a/b"}}"#, "messages[0].move.queue"),
            (r#"{"id": "ID", "move": {"queue": "a", "delay": 901}}"#, "messages[0].move.delay"),
            (r#"{"id": "ID", "fail": {"reason": ""}}"#, "messages[0].fail.reason"),
            (r#"{"id": "ID", "fail": {"retry": false, "retry_in": 1}}"#, "messages[0].fail.retry_in"),
            (r#"{"id": "ID", "fail": {"retry_in": -1}}"#, "messages[0].fail.retry_in"),
            (
                r#"{"id": "ID", "done": {}, "forward": [{"queue": "a", "body": 1}, {"queue": "", "body": 1}]}"#,
                "messages[0].forward[1].queue",
            ),
            (
                r#"{"id": "ID", "done": {}, "forward": [{"queue": "a", "body": 1, "ttl": 1}]}"#,
                "messages[0].forward[0].ttl",
            ),
            (
                r#"{"id": "ID", "done": {}, "forward": [{"queue": "a", "body": 1, "tags": [""]}]}"#,
                "messages[0].forward[0].tags",
            ),
        ] {
            let error = entries(text).unwrap_err().to_string();
            assert!(error.starts_with(field), "{text}: {error}");
        }
    }

    #[test]
    fn bounds_of_a_request_are_inclusive() {
        let many = |count: u32| {
            let entry = |number| format!(r#"{{"id": "no id {number}", "done": {{}}}}"#);
            entries(&(0..count).map(entry).collect::<Vec<_>>().join(","))
        };
        assert!(many(20).unwrap().iter().all(|entry| entry.entry.is_none()));
        assert!(many(21).unwrap_err().to_string().starts_with("messages: "));
        let forwards = |count: usize| {
            let list = vec![r#"{"queue": "a", "body": 1}"#; count].join(",");
            entries(&format!(r#"{{"id": "ID", "done": {{}}, "forward": [{list}]}}"#))
        };
        assert!(forwards(20).is_ok());
        assert!(forwards(21).unwrap_err().to_string().starts_with("messages[0].forward: "));
        let meta = |bytes: usize| {
            entries(&format!(r#"{{"id": "ID", "done": {{}}, "meta": "{}"}}"#, "x".repeat(bytes - 2)))
        };
        assert!(meta(1_024).is_ok());
        assert!(meta(1_025).unwrap_err().to_string().starts_with("messages[0].meta"));
    }
}
