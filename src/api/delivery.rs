//! The body of an answer that delivers a claim: the claim takes effect with the first byte.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use angarium_broker::DeliveryGuard;
use angarium_core::ids::ClaimId;
use angarium_core::mutation::{Mutation, is_on};
use angarium_core::names::QueueRef;

/// Marks an answer that delivers a claim, for a replica that forwards it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryMark {
    /// The queue of the claim.
    pub queue: QueueRef,
    pub claim: ClaimId,
}

/// Returns the answer with its claim: see [`DeliveryBody`].
pub fn deliver(mut response: Response, delivery_guard: DeliveryGuard) -> Response {
    if let Some((queue, claim)) = delivery_guard.claim() {
        response.extensions_mut().insert(DeliveryMark { queue: queue.clone(), claim });
    }
    response.map(|body| Body::new(DeliveryBody { body, delivery_guard }))
}

/// A body that completes a delivery when it is first read, which is when the answer is written. If it is dropped
/// before, for example because the client has disconnected, the claim is released.
struct DeliveryBody {
    body: Body,
    delivery_guard: DeliveryGuard,
}

impl HttpBody for DeliveryBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !is_on(Mutation::ReleaseDelivery) {
            self.delivery_guard.done();
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
