//! The answer of another replica as it is passed on: a short one whole, a long one as it arrives.

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

/// The body of an answer.
pub type PeerResponseBody = Either<Full<Bytes>, StreamTail>;

/// What results from an answer that is too long to be kept. It fails when nothing arrives for [`limits::PEER_STEP`];
/// then its reader sees it break off, and has no answer.
pub struct StreamTail {
    body: Incoming,
    /// Where it is from; none once it is read.
    link: Option<BusyConnection>,
    /// Set while something is waited for.
    late: Option<Pin<Box<Sleep>>>,
    /// The request is under way until the answer is read.
    _place: OwnedSemaphorePermit,
}

impl StreamTail {
    /// The rest of an answer to a request that holds this place.
    pub(super) fn new(body: Incoming, link: BusyConnection, place: OwnedSemaphorePermit) -> Self {
        Self { body, link: Some(link), late: None, _place: place }
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
            me.late = None;
            if frame.is_none()
                && let Some(mut link) = me.link.take()
            {
                link.settle(cx);
                link.give_back();
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let late = me.late.get_or_insert_with(|| Box::pin(sleep(limits::PEER_STEP)));
        ready!(late.as_mut().poll(cx));
        Poll::Ready(Some(Err("the answer of the other replica does not go on".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
