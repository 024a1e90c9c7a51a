//! The API as the services of its two listeners: for clients, and for the other replicas.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tower::Service;

use super::peer as peer_routes;
use super::pipeline::forward::peer;
use super::pipeline::{Pipeline, failures};
use angarium_broker::Broker;
use angarium_cluster::trust::PeerTrust;
use angarium_metrics::AuthenticationFailure;

const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// The future of an answer.
type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

/// The whole API, as the service of the clients' listener.
#[derive(Clone)]
pub struct Front(Arc<Pipeline>);

/// The whole API and the requests between replicas, as the service of the peer listener.
#[derive(Clone)]
pub struct PeerFront {
    front: Front,
    trust: PeerTrust,
    peer_routes: Router,
}

impl Front {
    pub(super) fn new(pipeline: Pipeline) -> Self {
        Self(Arc::new(pipeline))
    }
}

impl PeerFront {
    /// Creates the service for the replicas that `trust` admits: the API of `front`, and peer requests to `broker`.
    /// Each request needs the proof of its connection, a [`PeerProof`](angarium_cluster::trust::PeerProof), as an
    /// extension.
    pub fn new(broker: Broker, front: Front, trust: PeerTrust) -> Self {
        Self { front, trust, peer_routes: peer_routes::peer_routes(broker) }
    }
}

/// Returns the answer to a client that is no replica.
fn refusal(status: StatusCode) -> Response {
    (status, [(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF)]).into_response()
}

/// Returns the answer to a request that is not admitted. A replica of an older version passes any other answer on to its
/// client, and its secret may only be unknown here yet: this one states that nothing was done, so it tries again.
fn unadmitted() -> Response {
    let mut answer = refusal(StatusCode::MISDIRECTED_REQUEST);
    answer.headers_mut().insert(peer::MOVED, HeaderValue::from_static("1"));
    answer
}

impl Service<Request> for Front {
    type Response = Response;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let pipeline = Arc::clone(&self.0);
        Box::pin(async move {
            let mut response = pipeline.answer(request).await;
            // With this header a browser takes no answer for a page or a script unless its type states it.
            response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
            Ok(response)
        })
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
        if !peer::is_admitted(&self.trust, &request) {
            let failure = AuthenticationFailure::PeerSecret;
            self.front.0.failures.note(failure, request.extensions(), failures::PEER);
            return Box::pin(async { Ok(unadmitted()) });
        }
        if peer_routes::is_peer_request(request.uri().path()) {
            return Box::pin(self.peer_routes.call(request));
        }
        if !peer::note(&mut request) {
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
        let refused = unadmitted();
        assert_eq!(refused.status(), StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(refused.headers().get(header::X_CONTENT_TYPE_OPTIONS), Some(&NOSNIFF));
    }
}
