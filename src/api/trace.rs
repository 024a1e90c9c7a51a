//! W3C Trace Context in HTTP: the headers of a request, and the traces of posts for consumers.
//!
//! Zaqar's own client makes an object of each message and fails at a key that it does not know. So an answer has the
//! traces of its messages in a separate object, by id, and the trace of a single message in headers.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use angarium_broker::MessageView;
use angarium_core::trace::TraceContext;

pub const PARENT: HeaderName = HeaderName::from_static("traceparent");
pub const STATE: HeaderName = HeaderName::from_static("tracestate");

/// Documents the headers of a post.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used: the headers are read by name")]
pub struct TraceHeaders {
    /// The trace of the request (W3C Trace Context). It is kept with the messages and returned to
    /// their readers. An invalid one is ignored.
    #[param(rename = "traceparent", nullable = false)]
    parent: Option<String>,
    /// State that belongs to it, at most 512 characters; ignored when it is longer or not valid.
    #[param(rename = "tracestate", nullable = false)]
    state: Option<String>,
}

/// The trace that a message was posted in.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TraceContext)]
pub struct TraceBody {
    /// As the header of its post.
    #[schema(example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]
    traceparent: String,
    /// As the header of its post, if that had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "vendor=value")]
    tracestate: Option<String>,
}

/// Traces by message id.
pub type Traces = BTreeMap<String, TraceBody>;

/// Returns the trace of a request, if it has one. A repeated parent counts as none.
pub fn of_request(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(PARENT).iter();
    let parent = parents.next()?.to_str().ok()?;
    if parents.next().is_some() {
        return None;
    }
    let states: Vec<&str> = headers.get_all(STATE).iter().filter_map(|state| state.to_str().ok()).collect();
    TraceContext::parse(parent, &states.join(","))
}

/// Returns the traces of the messages that have one; none when no message has one.
pub fn of_messages(messages: &[MessageView]) -> Option<Traces> {
    let body = |trace: &TraceContext| TraceBody {
        traceparent: trace.parent(),
        tracestate: trace.state().map(ToOwned::to_owned),
    };
    let traced = |view: &MessageView| Some((view.id.to_string(), body(view.trace()?)));
    let traces: Traces = messages.iter().filter_map(traced).collect();
    (!traces.is_empty()).then_some(traces)
}

/// Sets the trace headers of an answer with one message.
pub fn set(headers: &mut HeaderMap, trace: &TraceContext) {
    let fields = [(PARENT, Some(trace.parent())), (STATE, trace.state().map(ToOwned::to_owned))];
    for (name, value) in fields {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(name, value);
        }
    }
}
