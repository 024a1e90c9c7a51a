//! The meaning of an answer.

use std::time::{Duration, UNIX_EPOCH};

use http::header::{HeaderMap, RETRY_AFTER};
use http::response::Parts;

use crate::delivery::Accepted;
use crate::error::DeliveryError;
use crate::limits;

/// Judges an answer by its status. `timestamp` is the time of the delivery, in seconds since the Unix epoch.
pub fn judge(parts: &Parts, body: &[u8], timestamp: u64) -> Result<Accepted, DeliveryError> {
    let status = parts.status;
    match status.as_u16() {
        200..=299 => Ok(Accepted { status }),
        408 | 425 | 429 | 500..=599 => {
            let retry_after = retry_after(&parts.headers, timestamp);
            Err(DeliveryError::Unavailable { status, answer: text(body), retry_after })
        }
        _ => Err(DeliveryError::Refused { status, answer: text(body) }),
    }
}

/// Reads `Retry-After`: seconds, or a date. A header that is neither counts as absent.
fn retry_after(headers: &HeaderMap, timestamp: u64) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let wait = if is_number {
        // More digits than a number holds are more than the bound.
        value.parse().map_or(limits::RETRY_AFTER, Duration::from_secs)
    } else {
        let date = httpdate::parse_http_date(value).ok()?.duration_since(UNIX_EPOCH).ok()?;
        date.saturating_sub(Duration::from_secs(timestamp))
    };
    Some(wait.min(limits::RETRY_AFTER))
}

/// Returns the answer as text of at most [`limits::ANSWER_BYTES`]. Bytes that are not UTF-8 are replaced.
fn text(body: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(body).into_owned();
    while text.len() > limits::ANSWER_BYTES {
        text.pop();
    }
    text
}
