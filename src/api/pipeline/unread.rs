//! The unread rest of a request body after an early answer: reads and drops it within bounds. It looks at no byte of
//! the body and changes no answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Version, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::oneshot;

use angarium_core::limits;

/// Receives a body that its reader has dropped before the end.
#[derive(Debug)]
pub struct UnreadBodies(oneshot::Receiver<PartialBody>);

/// A body and the number of bytes read.
#[derive(Debug)]
struct PartialBody {
    body: Body,
    read: usize,
}

/// Watches the body of a request. Returns none when there is no body; when the client waits for `100 Continue`: such a
/// client sends no body after a refusal; and in HTTP/2, where an early answer ends the stream alone (RFC 9113, 8.1).
/// There a refused request that waited would be memory of the service that no bound counts.
pub fn watch(request: Request) -> (Request, Option<UnreadBodies>) {
    let is_stream = request.version() == Version::HTTP_2;
    if is_stream || request.body().is_end_stream() || request.headers().contains_key(header::EXPECT) {
        return (request, None);
    }
    let (home, unread) = oneshot::channel();
    let request = request
        .map(|body| Body::new(ReturningBody { rest: Some(PartialBody { body, read: 0 }), home: Some(home) }));
    (request, Some(UnreadBodies(unread)))
}

impl UnreadBodies {
    /// Reads and drops the rest, so that a client which is still sending sees the answer instead of a broken
    /// connection. Stops after [`limits::EXCESS_BYTES`] bytes in all, or after [`limits::BODY_DEADLINE`].
    pub async fn read(mut self) {
        // Nothing was returned if the body was read to its end or failed.
        let Ok(mut rest) = self.0.try_recv() else { return };
        let dropped = async {
            while rest.read <= limits::EXCESS_BYTES {
                let Some(Ok(frame)) = rest.body.frame().await else { return };
                rest.read = rest.read.saturating_add(frame.data_ref().map_or(0, Bytes::len));
            }
        };
        // A client that is too slow sees a broken connection, as without this.
        let _ = tokio::time::timeout(limits::BODY_DEADLINE, dropped).await;
    }
}

/// A body that is sent back when it is dropped before its end.
struct ReturningBody {
    /// None when the body has ended.
    rest: Option<PartialBody>,
    home: Option<oneshot::Sender<PartialBody>>,
}

impl HttpBody for ReturningBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let polled = Pin::new(&mut rest.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                rest.read = rest.read.saturating_add(frame.data_ref().map_or(0, Bytes::len));
            }
            // After an error there is nothing left to read.
            Poll::Ready(None | Some(Err(_))) => self.rest = None,
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.rest.as_ref().is_none_or(|rest| rest.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.rest.as_ref().map_or(SizeHint::with_exact(0), |rest| rest.body.size_hint())
    }
}

impl Drop for ReturningBody {
    fn drop(&mut self) {
        if let (Some(rest), Some(home)) = (self.rest.take(), self.home.take())
            && !rest.body.is_end_stream()
        {
            // Fails when the whole request is dropped, because its client has disconnected.
            let _ = home.send(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::Instant;

    use super::*;

    /// An endless body: pieces of 1 MiB with a counter, or a stall without one.
    struct EndlessBody(Option<Arc<AtomicUsize>>);

    impl HttpBody for EndlessBody {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            let Some(given) = &self.0 else { return Poll::Pending };
            given.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 1 << 20])))))
        }
    }

    #[tokio::test]
    async fn no_more_than_the_bound_is_read() {
        let given = Arc::new(AtomicUsize::new(0));
        let (request, unread) = watch(Request::new(Body::new(EndlessBody(Some(given.clone())))));
        drop(request);
        unread.unwrap().read().await;
        assert_eq!(given.load(Ordering::Relaxed), (limits::EXCESS_BYTES >> 20) + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_client_is_awaited_until_deadline() {
        let (request, unread) = watch(Request::new(Body::new(EndlessBody(None))));
        drop(request);
        let since = Instant::now();
        unread.unwrap().read().await;
        assert_eq!(since.elapsed(), limits::BODY_DEADLINE);
    }

    #[tokio::test]
    async fn fully_read_body_is_released() {
        let (request, unread) = watch(Request::new(Body::from("text")));
        assert_eq!(request.into_body().collect().await.unwrap().to_bytes(), "text");
        assert!(unread.unwrap().0.try_recv().is_err());
    }

    #[test]
    fn requests_without_a_body_and_streams_are_not_watched() {
        assert!(watch(Request::new(Body::empty())).1.is_none());
        let mut stream = Request::new(Body::from("text"));
        *stream.version_mut() = Version::HTTP_2;
        assert!(watch(stream).1.is_none());
    }
}
