//! How long a request may take: whatever it waits for, its client is answered.
//!
//! The time runs from the last byte of the body on: how long a client may take to send it is for the connection to
//! bound. A client that is told that a change was too late must take it for possible that it is done; a read has
//! changed nothing.
//!
//! | request | deadline |
//! |---|---|
//! | any | [`limits::REQUEST_DEADLINE`] |
//! | a claim or a receive that waits for messages | as long, beside the longest wait |
//! | a purge, whose work grows with its queue | [`limits::PURGE_DEADLINE`] |
//! | a pool that is made or changed, whose storage replays its log | [`limits::POOL_DEADLINE`] |
//!
//! There is no stream and no export: each answer is whole before its first byte is sent. Another replica to which a
//! request is passed on has the same time.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, sleep_until};

use super::admission::is_long_poll;
use crate::api::error::ApiError;
use crate::api::sqs::Operation;
use angarium_core::error::{Error, Part};
use angarium_core::limits;

/// How long a request of the REST API may take.
pub fn of_route(method: &Method, uri: &Uri) -> Duration {
    let path = uri.path();
    if is_long_poll(uri.query().unwrap_or_default()) {
        return longest_wait();
    }
    if *method == Method::POST && path.starts_with("/v2/queues/") && path.ends_with("/purge") {
        return limits::PURGE_DEADLINE;
    }
    if [Method::PUT, Method::PATCH].contains(method) && path.starts_with("/v2/pools/") {
        return limits::POOL_DEADLINE;
    }
    limits::REQUEST_DEADLINE
}

/// How long an operation of SQS may take.
pub fn of_operation(operation: Operation) -> Duration {
    match operation {
        Operation::ReceiveMessage => longest_wait(),
        Operation::PurgeQueue => limits::PURGE_DEADLINE,
        _ => limits::REQUEST_DEADLINE,
    }
}

fn longest_wait() -> Duration {
    limits::REQUEST_DEADLINE + Duration::from_secs(limits::CLAIM_WAIT.1.into())
}

/// Serves a request of the REST API, or answers that it took too long.
pub async fn serve<F: Future<Output = Response>>(
    request: Request,
    serve: impl FnOnce(Request) -> F,
) -> Response {
    let deadline = of_route(request.method(), request.uri());
    let is_read = request.method().is_safe();
    if request.body().is_end_stream() {
        return match tokio::time::timeout(deadline, serve(request)).await {
            Ok(response) => response,
            Err(_) => ApiError::from(too_late(is_read, deadline)).into_response(),
        };
    }
    let arrival = Arc::new(LastArrival::default());
    let request = request.map(|inner| Body::new(ProgressBody { inner, arrival: Arc::clone(&arrival) }));
    tokio::select! {
        biased;
        response = serve(request) => response,
        () = arrival.passed(deadline) => ApiError::from(too_late(is_read, deadline)).into_response(),
    }
}

/// Carries out an operation of SQS, whose body was read, or states that it took too long.
pub async fn carry_out<T>(operation: Operation, work: impl Future<Output = T>) -> Result<T, Error> {
    let deadline = of_operation(operation);
    let carried_out = tokio::time::timeout(deadline, work).await;
    carried_out.map_err(|_| too_late(!operation.is_change(), deadline))
}

fn too_late(is_read: bool, deadline: Duration) -> Error {
    let why = format!("the request had no answer within {} s", deadline.as_secs());
    if is_read { Error::unavailable(Part::Server, why) } else { Error::unknown(Part::Server, why) }
}

/// When the last byte of a body came that is being read.
#[derive(Debug)]
struct LastArrival {
    began: Instant,
    /// Milliseconds after `began`; the greatest number while its reader waits for more.
    last: AtomicU64,
}

impl Default for LastArrival {
    fn default() -> Self {
        Self { began: Instant::now(), last: AtomicU64::new(0) }
    }
}

impl LastArrival {
    const WAITED_FOR: u64 = u64::MAX;

    fn note(&self, is_waited_for: bool) {
        let last = match is_waited_for {
            true => Self::WAITED_FOR,
            false => u64::try_from(self.began.elapsed().as_millis()).unwrap_or(0),
        };
        self.last.store(last, Ordering::Relaxed);
    }

    /// Ends when nothing of the body was waited for during `deadline`.
    async fn passed(&self, deadline: Duration) {
        let mut until = self.began + deadline;
        loop {
            sleep_until(until).await;
            let since = match self.last.load(Ordering::Relaxed) {
                Self::WAITED_FOR => Instant::now(),
                last => self.began + Duration::from_millis(last),
            };
            until = since + deadline;
            if until <= Instant::now() {
                return;
            }
        }
    }
}

/// The body of a request, which notes its progress.
struct ProgressBody {
    inner: Body,
    arrival: Arc<LastArrival>,
}

impl HttpBody for ProgressBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        self.arrival.note(polled.is_pending());
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for ProgressBody {
    fn drop(&mut self) {
        self.arrival.note(false);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use axum::http::StatusCode;
    use http_body_util::BodyExt;
    use tokio::sync::mpsc;
    use tokio::time::sleep;

    use super::*;

    fn request(method: Method, target: &str, body: Body) -> Request {
        Request::builder().method(method).uri(target).body(body).unwrap()
    }

    fn error(response: &Response) -> (StatusCode, &'static str, bool) {
        let ApiError(error) = response.extensions().get().expect("it is an error");
        (response.status(), error.code(), error.nothing_written())
    }

    /// Seconds after which a request that hangs is answered, and how.
    async fn hung(method: Method, target: &str, body: Body) -> (u64, (StatusCode, &'static str, bool)) {
        let began = Instant::now();
        let response = serve(request(method, target, body), async |request| {
            let _read = request.into_body().collect().await;
            pending().await
        });
        let response = response.await;
        (began.elapsed().as_secs(), error(&response))
    }

    #[tokio::test(start_paused = true)]
    async fn hung_change_has_unknown_outcome() {
        let unknown = (StatusCode::SERVICE_UNAVAILABLE, "unknown_outcome", false);
        for (method, target, seconds) in [
            (Method::POST, "/v2/queues/q/messages", 45),
            (Method::DELETE, "/v2/queues/q", 45),
            (Method::POST, "/v2/queues/q/claims?wait=20", 65),
            (Method::POST, "/v2/queues/q/purge", 600),
            (Method::PUT, "/v2/pools/p", 300),
        ] {
            for body in [Body::empty(), Body::from("{}")] {
                assert_eq!(hung(method.clone(), target, body).await, (seconds, unknown), "{target}");
            }
        }
        let late = carry_out(Operation::ReceiveMessage, pending::<()>()).await.unwrap_err();
        assert_eq!((late.code(), late.nothing_written()), ("unknown_outcome", false));
    }

    #[tokio::test(start_paused = true)]
    async fn hung_read_has_written_nothing() {
        let unavailable = (StatusCode::SERVICE_UNAVAILABLE, "unavailable", true);
        assert_eq!(hung(Method::GET, "/v2/queues", Body::empty()).await, (45, unavailable));
        let late = carry_out(Operation::ListQueues, pending::<()>()).await.unwrap_err();
        assert_eq!((late.code(), late.nothing_written()), ("unavailable", true));
    }

    /// A body whose frames come when a test sends them.
    struct ChannelBody(mpsc::Receiver<&'static str>);

    impl HttpBody for ChannelBody {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            self.0.poll_recv(cx).map(|text| Some(Ok(Frame::data(Bytes::from_static(text?.as_bytes())))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_runs_from_last_body_byte() {
        let (sender, receiver) = mpsc::channel(1);
        let sending = async move {
            for _ in 0..3 {
                sleep(Duration::from_secs(100)).await;
                sender.send("{").await.unwrap();
            }
        };
        let asking = hung(Method::POST, "/v2/queues/q/messages", Body::new(ChannelBody(receiver)));
        let ((), (seconds, _)) = tokio::join!(sending, asking);
        assert_eq!(seconds, 345);
    }

    #[tokio::test(start_paused = true)]
    async fn answer_in_time_is_passed_on() {
        let slow = async |_| {
            sleep(Duration::from_secs(44)).await;
            StatusCode::CREATED.into_response()
        };
        let response = serve(request(Method::POST, "/v2/queues/q/messages", Body::from("{}")), slow).await;
        assert_eq!(response.status(), StatusCode::CREATED);
        assert_eq!(carry_out(Operation::SendMessage, async { 1 }).await.unwrap(), 1);
    }
}
