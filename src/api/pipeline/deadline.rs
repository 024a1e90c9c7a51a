//! The deadline of requests: a client gets an answer whatever the request waits for.
//!
//! The time runs from the last byte of the body; the connection bounds how long a client may take to send it. After a
//! late change the client must assume that the change may be done; a late read has changed nothing.
//!
//! | request | deadline |
//! |---|---|
//! | any | [`limits::REQUEST_DEADLINE`] |
//! | a claim or a receive that waits for messages | [`limits::REQUEST_DEADLINE`] and the max wait |
//! | a purge, whose work grows with its queue | [`limits::PURGE_DEADLINE`] |
//! | a pool that is created or changed, whose storage replays its log | [`limits::POOL_DEADLINE`] |
//! | a backup, whose answer grows with all that is stored | [`limits::REQUEST_DEADLINE`] up to its first byte, [`limits::BACKUP_DEADLINE`] to its last |
//!
//! Each answer but one is complete before its first byte is sent. The exception is the stream of a backup: its deadline is
//! that of its first byte, then each write to the client has the deadline of the connection, and the service bounds the
//! whole stream. A replica that serves a forwarded request has the same deadline.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, sleep_until};

use angarium_core::error::{Error, Part};
use angarium_core::limits;

/// The time limit of a request, and the kind of its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestDeadline {
    /// Max time from the last byte of the body.
    pub time: Duration,
    /// Whether the request changes nothing.
    pub is_read: bool,
}

/// Returns the time limit of a request that may wait for messages.
pub fn longest_wait() -> Duration {
    limits::REQUEST_DEADLINE + Duration::from_secs(limits::CLAIM_WAIT.1.into())
}

impl RequestDeadline {
    /// Runs the work of a request whose body was read. Fails when the work takes too long.
    pub async fn within<T>(self, work: impl Future<Output = T>) -> Result<T, Error> {
        tokio::time::timeout(self.time, work).await.map_err(|_| self.error())
    }

    /// Serves a request whose body is still to be read. Fails when the work takes too long.
    pub async fn serve<F: Future<Output = Response>>(
        self,
        request: Request,
        serve: impl FnOnce(Request) -> F,
    ) -> Result<Response, Error> {
        if request.body().is_end_stream() {
            return self.within(serve(request)).await;
        }
        let arrival = Arc::new(LastArrival::default());
        let request = request.map(|inner| Body::new(ProgressBody { inner, arrival: Arc::clone(&arrival) }));
        tokio::select! {
            biased;
            response = serve(request) => Ok(response),
            () = arrival.passed(self.time) => Err(self.error()),
        }
    }

    fn error(self) -> Error {
        let why = format!("the request had no answer within {} s", self.time.as_secs());
        if self.is_read { Error::unavailable(Part::Server, why) } else { Error::unknown(Part::Server, why) }
    }
}

/// The time at which the last byte of a body arrived.
#[derive(Debug)]
struct LastArrival {
    began: Instant,
    /// Milliseconds after `began`; `WAITED_FOR` while the reader waits for the client.
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
        let last = if is_waited_for {
            Self::WAITED_FOR
        } else {
            u64::try_from(self.began.elapsed().as_millis()).unwrap_or(0)
        };
        self.last.store(last, Ordering::Relaxed);
    }

    /// Returns once `deadline` has passed in which the reader did not wait for the client.
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

/// The body of a request; it records its progress in `arrival`.
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
    use axum::response::IntoResponse;
    use http_body_util::BodyExt;
    use tokio::sync::mpsc;
    use tokio::time::sleep;

    use super::*;
    use crate::api::error::ApiError;

    const CHANGE: RequestDeadline = RequestDeadline { time: Duration::from_secs(45), is_read: false };
    const READ: RequestDeadline = RequestDeadline { is_read: true, ..CHANGE };

    /// Returns the seconds until a hanging request is answered, and its error.
    async fn hung(deadline: RequestDeadline, body: Body) -> (u64, Error) {
        let began = Instant::now();
        let late = deadline.serve(Request::new(body), async |request| {
            let _read = request.into_body().collect().await;
            pending().await
        });
        let late = late.await.unwrap_err();
        (began.elapsed().as_secs(), late)
    }

    #[tokio::test(start_paused = true)]
    async fn hung_change_has_unknown_outcome() {
        for body in [Body::empty(), Body::from("{}")] {
            let (seconds, late) = hung(CHANGE, body).await;
            assert_eq!((seconds, late.code(), late.nothing_written()), (45, "unknown_outcome", false));
            assert_eq!(ApiError::from(late).status(), StatusCode::SERVICE_UNAVAILABLE);
        }
        let late = CHANGE.within(pending::<()>()).await.unwrap_err();
        assert_eq!((late.code(), late.nothing_written()), ("unknown_outcome", false));
    }

    #[tokio::test(start_paused = true)]
    async fn hung_read_has_written_nothing() {
        let (seconds, late) = hung(READ, Body::empty()).await;
        assert_eq!((seconds, late.code(), late.nothing_written()), (45, "unavailable", true));
        assert_eq!(ApiError::from(late).status(), StatusCode::SERVICE_UNAVAILABLE);
        let late = READ.within(pending::<()>()).await.unwrap_err();
        assert_eq!((late.code(), late.nothing_written()), ("unavailable", true));
    }

    /// A body whose frames a test sends through a channel.
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
        let asking = hung(CHANGE, Body::new(ChannelBody(receiver)));
        let ((), (seconds, _)) = tokio::join!(sending, asking);
        assert_eq!(seconds, 345);
    }

    #[tokio::test(start_paused = true)]
    async fn answer_in_time_is_passed_on() {
        let slow = async |_| {
            sleep(Duration::from_secs(44)).await;
            StatusCode::CREATED.into_response()
        };
        let response = CHANGE.serve(Request::new(Body::from("{}")), slow).await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        assert_eq!(CHANGE.within(async { 1 }).await.unwrap(), 1);
    }
}
