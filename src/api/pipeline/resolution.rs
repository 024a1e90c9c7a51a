//! Resolution of a request from its body: reads the body within its bounds, authenticates the sender, and finds the
//! operation and its queues. Refuses a request that cannot be resolved.

use axum::body::Body;
use axum::http::request::Parts;

use super::bodies::BodyOwner;
use super::protocol::{BodyParser, RequestedOperation, ResolvedCall};
use super::refusal::AdmissionRefusal;
use super::{Admission, Pipeline, ScreenedRequest};
use crate::api::json;

impl Pipeline {
    /// Reads the body of a request, and resolves its sender, operation and queues.
    pub(super) async fn resolve<'a>(
        &'a self,
        parser: BodyParser,
        head: &Parts,
        screened: ScreenedRequest<'a>,
        operation: &mut RequestedOperation<'a>,
    ) -> Result<Admission<'a>, AdmissionRefusal> {
        let ScreenedRequest { sender, body, permit, charge } = screened;
        let bytes = json::read(body, parser.most_bytes(head)).await?;
        let parsed = self.protocols.parse(parser, head, bytes.clone())?;
        operation.meter = self.protocols.meter(&parsed).unwrap_or(operation.meter);
        let (kind, keeps_body) = (parsed.place_kind(), parsed.keeps_body());
        let proven = self.protocols.prove(parsed, sender, head, &bytes)?;
        let permit = match permit {
            Some(permit) => Some(self.admission.confirm(permit, kind, proven.project())?),
            None => None,
        };
        let ResolvedCall { identity, call } = self.protocols.resolve(head, proven)?;
        let charge = self.bodies.assign(charge, BodyOwner::Project(identity.project.clone()))?;
        // Only another replica reads the body a second time.
        let is_kept = self.relay.is_some() || keeps_body;
        let body = if self.relay.is_some() { Body::from(bytes) } else { Body::empty() };
        Ok(Admission { identity, call, body, _permit: permit, _charge: is_kept.then_some(charge) })
    }
}
