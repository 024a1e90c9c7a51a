//! The body of an answer that hands a claim over: the claim counts from its first byte.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::broker::Handover;

/// A body that finishes a handover when it is first read, which is when the answer is being written. Dropped
/// before that, as when the client has gone, it takes the claim back.
pub struct Handed {
    body: Body,
    handover: Handover,
}

impl Handed {
    /// The body of an answer about the claim of `handover`.
    pub fn new(body: Body, handover: Handover) -> Self {
        Self { body, handover }
    }
}

impl HttpBody for Handed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.handover.done();
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
