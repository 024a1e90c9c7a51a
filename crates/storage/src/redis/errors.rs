//! Meaning of a Redis failure for the caller: refused for certain, or an unknown outcome.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use crate::StoreError;

/// Error codes of a server that did not begin the command.
const REFUSALS: [&str; 7] = ["MISCONF", "NOREPLICAS", "BUSY", "NOAUTH", "WRONGPASS", "NOPERM", "OOM"];

/// Whether a write was sent once, or by a cluster client that repeats it by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SendMode {
    Once,
    Repeatedly,
}

/// Whether the server has no room for the write.
pub(super) fn is_full(error: &RedisError) -> bool {
    error.code() == Some("OOM")
}

pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Whether the connection is broken, or leads to the wrong server.
pub(super) fn breaks(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(
            ServerErrorKind::ResponseError | ServerErrorKind::NoScript | ServerErrorKind::TryAgain,
        ) => false,
        ErrorKind::Extension => !is_full(error),
        _ => true,
    }
}

/// Converts the failure of a write. A cluster client repeats a write by itself, so an earlier attempt may have been
/// carried out, whatever the last answer is.
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

/// Converts the failure of a read, or of another command that writes nothing.
pub(super) fn read_failed(error: &RedisError) -> StoreError {
    StoreError::NotSent(error.to_string())
}

/// Error for an answer that no script gives.
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
