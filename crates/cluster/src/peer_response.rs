//! A forwarded response of another replica: a short one whole, a long one as a stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

use super::connection::BusyConnection;
use crate::limits;

/// The body of a forwarded response.
pub type PeerResponseBody = Either<Full<Bytes>, StreamTail>;

/// The streamed body of a response that is too long to be held in memory. It fails when nothing arrives for
/// [`limits::PEER_STEP`]; then its reader sees it break off, and has no complete response.
pub struct StreamTail {
    body: Incoming,
    /// The connection it is read from; none once it is read.
    link: Option<BusyConnection>,
    /// The timeout of the current wait for data.
    step_timeout: Option<Pin<Box<Sleep>>>,
    /// Counts the request as in flight until the response is read.
    _permit: OwnedSemaphorePermit,
}

impl StreamTail {
    /// Creates the rest of a response to a request that holds this permit.
    pub(super) fn new(body: Incoming, link: BusyConnection, permit: OwnedSemaphorePermit) -> Self {
        Self { body, link: Some(link), step_timeout: None, _permit: permit }
    }
}

impl fmt::Debug for StreamTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rest")
    }
}

impl Body for StreamTail {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let me = &mut *self;
        let Some(link) = &mut me.link else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = link.poll_frame(&mut me.body, cx) {
            me.step_timeout = None;
            if frame.is_none()
                && let Some(mut link) = me.link.take()
            {
                link.settle(cx);
                link.give_back();
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let step_timeout = me.step_timeout.get_or_insert_with(|| Box::pin(sleep(limits::PEER_STEP)));
        ready!(step_timeout.as_mut().poll(cx));
        Poll::Ready(Some(Err("the answer of the other replica does not go on".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
