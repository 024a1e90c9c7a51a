//! What went wrong with a delivery.

use std::net::SocketAddr;
use std::time::Duration;

use http::StatusCode;

/// Why the subscriber has not accepted the message. Texts contain no secret, no header and no path of the address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// Any status but 2xx and those of `Unavailable`; a redirect is one.
    #[error("the subscriber refused the message with status {}", .status.as_u16())]
    Refused {
        status: StatusCode,
        /// First 1 KiB of the answer.
        answer: String,
    },
    /// 5xx, 408, 425 or 429.
    #[error("the subscriber answered with status {}", .status.as_u16())]
    Unavailable {
        status: StatusCode,
        /// First 1 KiB of the answer.
        answer: String,
        /// How long the subscriber asks to wait, at most an hour.
        retry_after: Option<Duration>,
    },
    #[error("the subscriber could not be reached: {0}")]
    Unreachable(UnreachableCause),
    #[error("the subscriber was too slow: {0}")]
    TimedOut(Phase),
    /// An address of the name, or the one in the URL, may not be reached. Nothing was sent.
    #[error("deliveries to {} are not allowed", .address.ip())]
    Forbidden { address: SocketAddr },
}

/// Why there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreachableCause {
    #[error("its name has no address")]
    Name,
    #[error("the connection was refused")]
    ConnectionRefused,
    #[error("there is no route to its address")]
    NoRoute,
    #[error("the TLS handshake failed")]
    Tls,
    #[error("its certificate is not valid for its name")]
    Certificate,
    /// The message may have arrived.
    #[error("the connection ended before the answer")]
    ConnectionLost,
    #[error("its answer was not HTTP/1.1, or had too many or too large headers")]
    InvalidAnswer,
}

/// Part of a delivery that a deadline bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Phase {
    #[error("the look-up of its name took too long")]
    Resolve,
    #[error("the connection took too long")]
    Connect,
    #[error("the TLS handshake took too long")]
    Tls,
    /// The message may have arrived.
    #[error("there was no answer in time")]
    Answer,
}

impl DeliveryError {
    /// Returns the first 1 KiB of the answer, if there was one.
    pub fn answer(&self) -> Option<&str> {
        match self {
            Self::Refused { answer, .. } | Self::Unavailable { answer, .. } => Some(answer),
            Self::Unreachable(_) | Self::TimedOut(_) | Self::Forbidden { .. } => None,
        }
    }

    /// Returns how long the subscriber asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } => *retry_after,
            Self::Refused { .. } | Self::Unreachable(_) | Self::TimedOut(_) | Self::Forbidden { .. } => None,
        }
    }
}
