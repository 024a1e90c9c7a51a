//! What a failure of Redis means for any process that asked: refused for certain, or an outcome that is not known.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use crate::StoreError;

/// Answers of a server that did not begin what it was asked.
const REFUSALS: [&str; 7] = ["MISCONF", "NOREPLICAS", "BUSY", "NOAUTH", "WRONGPASS", "NOPERM", "OOM"];

/// Whether a write was sent once, or by a client of a cluster that repeats it by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SendMode {
    Once,
    Repeatedly,
}

/// Whether the server has no room for what was asked.
pub(super) fn is_full(error: &RedisError) -> bool {
    error.code() == Some("OOM")
}

pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Whether the connection is of no use any more, or leads to the wrong server.
pub(super) fn breaks(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(
            ServerErrorKind::ResponseError | ServerErrorKind::NoScript | ServerErrorKind::TryAgain,
        ) => false,
        ErrorKind::Extension => !is_full(error),
        _ => true,
    }
}

/// A write failed. An earlier try of a client that repeats by itself may have been carried out, whatever the last
/// answer states.
pub(super) fn write_failed(error: &RedisError, sent: SendMode) -> StoreError {
    let is_refused = match error.kind() {
        ErrorKind::Server(kind) => kind != ServerErrorKind::ResponseError,
        ErrorKind::Extension => error.code().is_some_and(|code| REFUSALS.contains(&code)),
        _ => false,
    };
    if is_refused && sent == SendMode::Once {
        StoreError::NotSent(error.to_string())
    } else {
        StoreError::Unknown(error.to_string())
    }
}

/// A read failed, or something else that writes nothing.
pub(super) fn read_failed(error: &RedisError) -> StoreError {
    StoreError::NotSent(error.to_string())
}

/// An answer that no script gives.
pub(super) fn strange(value: &Value) -> StoreError {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) | Value::Okay => "text",
        Value::Array(_) => "a list",
        _ => "another type",
    };
    StoreError::Unknown(format!("Redis answered with {kind}, which was not expected"))
}
