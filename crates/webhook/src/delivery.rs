//! A delivery, and its acceptance.

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use crate::headers::CustomHeaders;
use crate::limits::ID_BYTES;
use crate::signature::SigningSecret;
use crate::url::WebhookUrl;

/// One attempt to give a message to a subscriber. `Debug` shows neither the secrets nor the values of headers, but the
/// body.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub url: WebhookUrl,
    /// Owner of the subscription: accounts share the look-ups of names.
    pub account: String,
    /// The same at each attempt, so that the subscriber can recognise a duplicate.
    pub id: DeliveryId,
    /// Time of this attempt, in seconds since the Unix epoch. Dates in `Retry-After` are compared with it.
    pub timestamp: u64,
    pub headers: CustomHeaders,
    pub content_type: HeaderValue,
    pub body: Bytes,
    /// Two while a secret is replaced: each signs. Without one the delivery has no signature.
    pub secrets: Vec<SigningSecret>,
}

/// Id of a delivery: 1 to 128 characters of visible ASCII without a dot, which separates it in the signed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryId(String);

/// Why an id is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id of a delivery has 1 to {ID_BYTES} characters of visible ASCII, and no dot")]
pub struct IdError;

/// The subscriber has accepted the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// 200 to 299.
    pub status: StatusCode,
}

impl DeliveryId {
    /// Reads an id.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let is_allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'.';
        if text.is_empty() || text.len() > ID_BYTES || !text.bytes().all(is_allowed) {
            return Err(IdError);
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}
