//! Backups of the service, for administrators.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};

use crate::api::error::{ApiError, ErrorBody, Errors};
use crate::api::extract::CallerHeaders;
use crate::api::roles::{Admin, RoleHeaders};
use angarium_broker::{BackupStream, Broker};

/// Media type of a backup.
const MEDIA_TYPE: &str = "application/octet-stream";

/// The stream of a backup as the body of an answer.
struct BackupBody(BackupStream);

impl HttpBody for BackupBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Create a backup
///
/// The answer is the whole content of the service at one moment during the request: the tree with queues, claims and
/// pools, and the messages of all embedded pools. It is a stream that ends with a manifest; without it, it is no
/// backup. The command `angarium backup` stores and checks it, `angarium restore` makes a data directory of it. The
/// answer has the secrets of the service. One backup is made at a time.
#[utoipa::path(
    post, path = "/v2/backup", operation_id = "backup_create", tag = "health",
    security(("bearer" = ["admin"]), ("x_auth_token" = ["admin"])),
    params(CallerHeaders, RoleHeaders),
    responses(
        (status = 200, description = "The backup.", content(
            (String = "application/octet-stream")
        )),
        (status = 403, description = "The caller is no administrator.", body = ErrorBody),
        (status = 409, description = "Another backup is being made, or the tree is in ZooKeeper.", body = ErrorBody),
        Errors
    )
)]
pub async fn post(State(broker): State<Broker>, _: Admin) -> Result<Response, ApiError> {
    let stream = broker.backup_create().await?;
    let headers = [(header::CONTENT_TYPE, MEDIA_TYPE), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::new(BackupBody(stream))).into_response())
}
