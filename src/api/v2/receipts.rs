//! The key of receipts, for administrators.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::api::extract::CallerHeaders;
use crate::api::json::reply;
use crate::api::roles::{Admin, RoleHeaders};
use angarium_broker::{self as broker, Broker};

/// The change of the key of receipts.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReceiptKeyRotation {
    /// From when on receives have receipts of the new key, as `YYYY-MM-DDTHH:MM:SSZ`.
    #[schema(example = "2026-11-29T22:01:00Z")]
    since: String,
    /// When all receipts of earlier keys end to be valid, likewise: no receive with them can hold a message then.
    #[schema(example = "2026-11-30T10:01:00Z")]
    earlier_expire: String,
}

impl From<broker::ReceiptKeyRotation> for ReceiptKeyRotation {
    fn from(rotation: broker::ReceiptKeyRotation) -> Self {
        Self { since: rotation.since.calendar(), earlier_expire: rotation.expires.calendar() }
    }
}

/// Create a key of receipts
///
/// The key of SQS receipts is replaced on all replicas, without a pause: a minute later receives have receipts of the
/// new key, and the receipts before stay valid for 12 hours more.
#[utoipa::path(
    post, path = "/v2/receipts/rotate", operation_id = "receipt_key_create", tag = "health",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(CallerHeaders, RoleHeaders),
    responses(
        (status = 200, description = "It is recorded.", body = ReceiptKeyRotation),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        (
            status = 409,
            description = "There is no key yet, the change before is less than a minute old, or eight earlier keys are \
                           valid.",
            body = ErrorBody
        ),
        Errors
    )
)]
pub async fn rotate(State(broker): State<Broker>, _: Admin) -> Result<Response, ApiError> {
    let rotation = broker.receipt_key_rotate().await?;
    Ok(reply(StatusCode::OK, &ReceiptKeyRotation::from(rotation)))
}
