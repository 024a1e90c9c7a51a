//! The empty server: bare axum handlers that read the whole request and answer with prepared bytes, as many as the real
//! server sends. Its cost is the lower bound for any server of these APIs on this machine. It stores nothing, checks no
//! request and has no timeouts.

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

/// Max bytes of a request that are read. The product's own bounds are lower.
const REQUEST_MAX: usize = 64 << 20;

/// An id with the length of the product's ids.
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

/// Serves until its parent process has ended or a signal ends it. Blocks, on its own runtime with tokio's default
/// number of threads, like the real server.
pub fn serve(args: &EmptyArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            end = accept(args) => end,
            () = parent_gone() => Ok(()),
        }
    })
}

/// Returns when the parent process has ended. An empty server must not outlive its run, even if no process is left to
/// stop it.
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
    // The tasks of the connections. They end with their connection or with the process.
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
    /// The answer to an SQS receive.
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

/// Closes the JSON object `open`, which lacks its last brace, and pads it to `bytes` bytes. It is longer if it needs
/// more.
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

/// Answers an SQS operation: a send, a receive, or otherwise a delete.
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
