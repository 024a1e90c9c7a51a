//! REST as a protocol of the pipeline: the operation of a request, the permission to use it, its queue, and the form of
//! errors. The operations themselves are in `v2`.

pub mod accept;
mod caller;
mod operations;
mod parameters;
mod renderer;
mod target;

use axum::Router;
use axum::extract::Request;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use tower::Service;

use super::error::ApiError;
use super::pipeline::forward::RequestTarget;
use super::pipeline::forward::peer::PeerOrigin;
use super::pipeline::identity::{Authentication, Identity, Need, RegionalAccess};
use super::query;
use angarium_broker::Broker;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::hosts::WrongHost;
use angarium_core::request_header::HeaderExcess;
use angarium_metrics::OperationMeter;

pub use operations::{OperationTable, describe};
pub use renderer::RestRenderer;
pub use target::deadline;

/// The REST API.
pub struct Rest {
    pub authentication: Authentication,
    pub operations: OperationTable,
    pub regional: RegionalAccess,
    pub routes: Router,
    /// Has the bounds of request bodies.
    pub broker: Broker,
}

fn excess_text(excess: &HeaderExcess) -> String {
    match excess {
        HeaderExcess::Bytes { found, bound } => format!(
            "the request header has {found} bytes, and at most {bound} are taken (--max-header-bytes): send less in the \
             URL and the headers"
        ),
        HeaderExcess::Fields { found, bound } => {
            format!("the request has {found} headers, and at most {bound} are taken")
        }
    }
}

impl Rest {
    /// Refuses a head that is invalid for every operation: a header or a query that is too long, an `Accept` without
    /// JSON, or a wrong `Host`.
    pub fn check_head(&self, head: &Parts) -> Result<(), Error> {
        if let Some(excess) = head.extensions.get::<HeaderExcess>() {
            return Err(Error::invalid(InvalidPart::HeaderSize, "", excess_text(excess)));
        }
        accept::check(head.uri.path(), &head.headers)?;
        query::check_length(&head.uri)?;
        // Other replicas send no host.
        if head.extensions.get::<WrongHost>().is_some() && head.extensions.get::<PeerOrigin>().is_none() {
            let why = "the request must have the header once, with the name or the address of the service";
            return Err(Error::invalid(InvalidPart::Header, "Host", why));
        }
        Ok(())
    }

    /// Returns the permission that a request needs, and the meter of its operation; no meter if it matches no
    /// operation.
    pub fn operation(&self, head: &Parts) -> (Need, Option<&OperationMeter>) {
        self.operations.find(head)
    }

    /// Returns the answer to a refused request. It tells an unauthenticated caller how to authenticate.
    pub fn refuse(&self, error: Error) -> Response {
        let mut response = ApiError::from(error).into_response();
        if let Authentication::On(credentials) = &self.authentication
            && response.headers_mut().remove(header::WWW_AUTHENTICATE).is_some()
        {
            for challenge in credentials.challenges() {
                response.headers_mut().append(header::WWW_AUTHENTICATE, challenge.clone());
            }
        }
        response
    }

    /// Returns the facts about a request of `identity` that forwarding needs.
    pub fn target(&self, head: &Parts, identity: &Identity) -> RequestTarget {
        target::of(head, identity, self.broker.limits())
    }

    /// Serves a request by its route.
    pub async fn serve(&self, request: Request, identity: Identity) -> Response {
        let (mut head, body) = request.into_parts();
        if let Err(error) = self.operations.check_query(&head) {
            return self.refuse(error);
        }
        head.extensions.insert(identity);
        self.routes.clone().call(Request::from_parts(head, body)).await.unwrap_or_else(|never| match never {})
    }
}
