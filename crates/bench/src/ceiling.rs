//! Owns the empty server: bare axum handlers that read the request whole and answer with prepared bytes, as many as
//! the real server's. What it costs is the floor under any server of these APIs on this machine.
//! Never stores, never checks a request, never sets a deadline.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, post};
use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Largest request that is read, in bytes; the product's own bounds are below it.
const REQUEST_MAX: usize = 64 << 20;

/// An id as long as the product's.
const ID: &str = "00000000-0000-7000-8000-000000000000";

/// Arguments of `bench empty`.
#[derive(Args, Clone, Debug)]
pub struct EmptyArgs {
    /// Address to listen on; port 0 takes a free one, shown on the first line of standard output.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Size of the answer to a post, in bytes.
    #[arg(long, default_value_t = 50, value_parser = super::size(1, 16 << 20))]
    pub post_answer_bytes: usize,
    /// Size of the answer to a claim, in bytes; at least what its ids need.
    #[arg(long, default_value_t = 400, value_parser = super::size(1, 16 << 20))]
    pub claim_answer_bytes: usize,
    /// Messages in the answer to a claim.
    #[arg(long, default_value_t = 1, value_parser = super::size(1, 1000))]
    pub batch: usize,
}

/// Serves until its parent has gone or it is ended by a signal. Blocks; on a runtime of its own with tokio's default
/// number of threads, as the real server has.
pub fn serve(args: &EmptyArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            end = accept(args) => end,
            () = parent_gone() => Ok(()),
        }
    })
}

/// Returns when the process that started this one has ended: an empty server must not outlive its run, even when
/// no user was left to end it.
async fn parent_gone() {
    let parent = rustix::process::getppid();
    while rustix::process::getppid() == parent {
        sleep(Duration::from_secs(1)).await;
    }
}

#[expect(clippy::print_stdout, reason = "the parent reads the address from standard output")]
async fn accept(args: &EmptyArgs) -> anyhow::Result<()> {
    let listener = TcpListener::bind(args.listen).await.with_context(|| args.listen.to_string())?;
    let service = TowerToHyperService::new(router(PreparedAnswers::new(args)));
    println!("listening on http://{}", listener.local_addr()?);
    // One task for each connection; they end with it or with the process.
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted?.0,
            Some(_) = connections.join_next() => continue,
        };
        stream.set_nodelay(true)?;
        let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone());
        connections.spawn(serving);
    }
}

#[derive(Clone)]
struct PreparedAnswers {
    post: Bytes,
    claim: Bytes,
    /// What a receive of SQS is answered with.
    receive: Bytes,
}

impl PreparedAnswers {
    fn new(args: &EmptyArgs) -> Self {
        let message = format!(r#"{{"id":"{ID}"}}"#);
        let messages = vec![message; args.batch].join(",");
        let received = vec![format!(r#"{{"ReceiptHandle":"{ID}"}}"#); args.batch].join(",");
        Self {
            post: padded(r#"{"ids":[]"#, args.post_answer_bytes),
            claim: padded(&format!(r#"{{"id":"{ID}","messages":[{messages}]"#), args.claim_answer_bytes),
            receive: padded(&format!(r#"{{"Messages":[{received}]"#), args.claim_answer_bytes),
        }
    }
}

/// The object `open`, still without its last brace, closed and brought to `bytes` bytes; longer when it needs more.
fn padded(open: &str, bytes: usize) -> Bytes {
    let frame = open.len() + r#","pad":""}"#.len();
    let pad = "x".repeat(bytes.saturating_sub(frame));
    Bytes::from(format!(r#"{open},"pad":"{pad}"}}"#))
}

fn router(answers: PreparedAnswers) -> Router {
    Router::new()
        .route("/v2/queues/{queue}/messages", post(post_messages))
        .route("/v2/queues/{queue}/claims", post(claim_messages))
        .route("/v2/queues/{queue}/messages/{message}", delete(delete_message))
        .route("/", post(operation))
        .with_state(answers)
}

async fn post_messages(State(answers): State<PreparedAnswers>, request: Request) -> Response {
    answer(request, StatusCode::CREATED, answers.post).await
}

async fn claim_messages(State(answers): State<PreparedAnswers>, request: Request) -> Response {
    answer(request, StatusCode::CREATED, answers.claim).await
}

async fn delete_message() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// An operation of SQS: a send, a receive, or else a delete.
async fn operation(State(answers): State<PreparedAnswers>, headers: HeaderMap, request: Request) -> Response {
    let target = headers.get("x-amz-target").map(HeaderValue::as_bytes).unwrap_or_default();
    let body = if target.starts_with(b"AmazonSQS.Send") {
        answers.post
    } else if target == b"AmazonSQS.ReceiveMessage" {
        answers.receive
    } else {
        Bytes::from_static(b"{}")
    };
    answer(request, StatusCode::OK, body).await
}

async fn answer(request: Request, status: StatusCode, body: Bytes) -> Response {
    match axum::body::to_bytes(request.into_body(), REQUEST_MAX).await {
        Ok(_) => {
            let json = HeaderValue::from_static("application/json");
            (status, [(header::CONTENT_TYPE, json)], body).into_response()
        }
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_json_of_the_size_asked_for() {
        let args = EmptyArgs {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            post_answer_bytes: 61,
            claim_answer_bytes: 777,
            batch: 3,
        };
        let answers = PreparedAnswers::new(&args);
        assert_eq!((answers.post.len(), answers.claim.len()), (61, 777));
        let claim: serde_json::Value = serde_json::from_slice(&answers.claim).unwrap();
        assert_eq!(claim["messages"].as_array().unwrap().len(), 3);
        assert_eq!(answers.receive.len(), 777);
        let receive: serde_json::Value = serde_json::from_slice(&answers.receive).unwrap();
        assert_eq!(receive["Messages"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn an_answer_too_small_for_its_ids_stays_json() {
        let small = padded(r#"{"ids":[]"#, 1);
        assert!(serde_json::from_slice::<serde_json::Value>(&small).is_ok());
    }
}
