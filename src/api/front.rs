//! The way of a request: what it passes before a route serves it, and what becomes of its answer.
//!
//! ```text
//! request ──▶ for SQS? ──▶ its endpoint ─────────────────────┐
//!                 │ no                                        ▼
//!                 └──▶ frame ──▶ gate ──▶ here, or passed on to the owner of its queue ──▶ route
//! ```
//!
//! One service and not a stack of layers: each layer of axum costs every request a clone of all that is behind it and
//! two boxes, which was a quarter of the CPU of a post.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tower::Service;

use super::error::ApiError;
use super::pipeline::failures::{self, FailureLog};
use super::pipeline::forward::peer::PeerOrigin;
use super::pipeline::forward::{Relay, ServeFuture, peer};
use super::pipeline::identity::Gate;
use super::pipeline::{deadline, frame};
use super::{peer as peer_routes, sqs};
use angarium_broker::Broker;
use angarium_core::access::PeerSecret;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::hosts::WrongHost;
use angarium_metrics::{AuthenticationFailure, Meter};

const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// An answer in the making.
type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

/// The whole API, as the clients' listener calls it.
#[derive(Clone)]
pub struct Front(Arc<Pipeline>);

/// The whole API and the questions of other replicas, as their listener calls it.
#[derive(Clone)]
pub struct PeerFront {
    front: Front,
    secret: PeerSecret,
    peer_routes: Router,
}

/// What a request passes.
pub(super) struct Pipeline {
    pub(super) sqs: sqs::Sqs,
    pub(super) meter: Meter,
    pub(super) gate: Gate,
    pub(super) failures: Arc<FailureLog>,
    /// Passes requests on; none for a service that is alone.
    pub(super) relay: Option<Relay>,
    pub(super) routes: Routes,
}

/// The routes of the REST API.
pub(super) struct Routes(pub(super) Router);

impl ServeFuture for Routes {
    fn serve(&self, request: Request) -> impl Future<Output = Response> + Send {
        let served = self.0.clone().call(request);
        async { served.await.unwrap_or_else(|never| match never {}) }
    }
}

impl Front {
    pub(super) fn new(way: Pipeline) -> Self {
        Self(Arc::new(way))
    }
}

impl PeerFront {
    /// What `front` serves, for replicas that show `secret`, and what they ask `broker` of their own accord.
    pub fn new(broker: Broker, front: Front, secret: PeerSecret) -> Self {
        Self { front, secret, peer_routes: peer_routes::peer_routes(broker) }
    }
}

impl Pipeline {
    async fn serve(&self, request: Request) -> Response {
        // Other replicas name none.
        let extensions = request.extensions();
        let is_host_wrong =
            extensions.get::<WrongHost>().is_some() && extensions.get::<PeerOrigin>().is_none();
        let mut response = match sqs::dialect(&request) {
            _ if is_host_wrong => frame::frame(&self.meter, request, refuse_host).await,
            // Apart, as every request would carry the room that all operations of SQS need.
            Some(dialect) => Box::pin(self.sqs.answer(request, dialect)).await,
            None => frame::frame(&self.meter, request, |request| self.admitted(request)).await,
        };
        // A browser takes no answer for a page or a script that is not said to be one.
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        response
    }

    async fn admitted(&self, request: Request) -> Response {
        self.gate.admit(request, |request| deadline::serve(request, |request| self.placed(request))).await
    }

    async fn placed(&self, request: Request) -> Response {
        match &self.relay {
            Some(relay) => relay.serve(request, &self.routes).await,
            None => self.routes.serve(request).await,
        }
    }
}

/// Answers a request that does not say for which host it is meant.
async fn refuse_host(_: Request) -> Response {
    let why = "the request must have the header once, with the name or the address of the service";
    ApiError::from(Error::invalid(InvalidPart::Header, "Host", why)).into_response()
}

/// The answer to a client that is no replica.
fn refusal(status: StatusCode) -> Response {
    (status, [(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF)]).into_response()
}

impl Service<Request> for Front {
    type Response = Response;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let way = Arc::clone(&self.0);
        Box::pin(async move { Ok(way.serve(request).await) })
    }
}

impl Service<Request> for PeerFront {
    type Response = Response;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        if !peer::is_admitted(&self.secret, &request) {
            let failure = AuthenticationFailure::PeerSecret;
            self.front.0.failures.note(failure, request.extensions(), failures::PEER);
            return Box::pin(async { Ok(refusal(StatusCode::FORBIDDEN)) });
        }
        if peer_routes::is_peer_request(request.uri().path()) {
            return Box::pin(self.peer_routes.call(request));
        }
        if !peer::note(&mut request, &self.secret) {
            return Box::pin(async { Ok(refusal(StatusCode::BAD_REQUEST)) });
        }
        self.front.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_a_stranger_is_no_page() {
        let refused = refusal(StatusCode::FORBIDDEN);
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        assert_eq!(refused.headers().get(header::X_CONTENT_TYPE_OPTIONS), Some(&NOSNIFF));
    }
}
