//! What a request of SQS asks for: its body is read within its bounds, proves the sender, and names the
//! operation and its queues. What cannot be resolved is refused.

use axum::body::Body;
use axum::http::request::Parts;

use super::bodies::{self, BodyOwner};
use super::protocol::{Call, RequestedOperation};
use super::refusal::AdmissionRefusal;
use super::{Admission, Pipeline, ScreenedRequest};
use crate::api::json;
use crate::api::sqs::{self, Dialect, Operation};

impl Pipeline {
    /// Reads a request of SQS, and finds out who asks for what with which queues.
    pub(super) async fn resolve<'a>(
        &'a self,
        dialect: Dialect,
        head: &Parts,
        screened: ScreenedRequest<'a>,
        operation: &mut RequestedOperation<'a>,
    ) -> Result<Admission<'a>, AdmissionRefusal> {
        let ScreenedRequest { sender, body, permit, charge } = screened;
        // A body whose sender is not proven may not hold up the place of a request.
        let is_unproven = permit.as_ref().is_some_and(|permit| permit.is_unproven());
        let body = if is_unproven { bodies::paced(body) } else { body };
        let bytes = json::read(body, sqs::most_bytes(head, dialect)).await?;
        let sqs = &self.protocols.sqs;
        let incoming = sqs.parse(head, dialect, bytes.clone())?;
        let named = incoming.operation;
        operation.meter = sqs.meter(named).unwrap_or(operation.meter);
        let caller = sqs.prove(sender, head, &bytes)?;
        let permit = match permit {
            Some(permit) => Some(self.admission.confirm(permit, named.place_kind(), &caller.project)?),
            None => None,
        };
        let call = sqs.resolve(dialect, head, incoming, caller)?;
        let identity = call.identity();
        let charge = self.bodies.assign(charge, BodyOwner::Project(identity.project.clone()))?;
        // Only another replica reads the body once more. A receive that waits needs nothing of it.
        let is_kept = self.relay.is_some() || named != Operation::ReceiveMessage;
        let body = if self.relay.is_some() { Body::from(bytes) } else { Body::empty() };
        let (call, charge) = (Call::Sqs(Box::new(call)), is_kept.then_some(charge));
        Ok(Admission { identity, call, body, _permit: permit, _charge: charge })
    }
}
