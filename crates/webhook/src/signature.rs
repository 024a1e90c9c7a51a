//! Signatures of Standard Webhooks: `v1,` and the base64 of HMAC-SHA256 of id, timestamp and body, joined by dots.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::limits::SECRET_BYTES;

/// What a secret begins with.
const PREFIX: &str = "whsec_";

/// A secret of signatures: 24 to 64 bytes, written as `whsec_` and their base64. `Debug` does not show it.
#[derive(Clone)]
pub struct SigningSecret {
    key: Vec<u8>,
}

/// Why a secret is refused. The text never contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("a secret begins with \"whsec_\"")]
    Prefix,
    #[error("a secret is \"whsec_\" and base64 with padding")]
    Base64,
    #[error("a secret has 24 to 64 bytes before base64; this one has {bytes}")]
    Length { bytes: usize },
}

impl SigningSecret {
    /// Reads a secret.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(SecretError::Prefix)?;
        let key = STANDARD.decode(encoded).map_err(|_| SecretError::Base64)?;
        if !SECRET_BYTES.contains(&key.len()) {
            return Err(SecretError::Length { bytes: key.len() });
        }
        Ok(Self { key })
    }

    /// Returns one signature of a delivery, as in the header `webhook-signature`.
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        // HMAC takes keys of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes a key of any length");
        mac.update(id.as_bytes());
        mac.update(b".");
        mac.update(timestamp.to_string().as_bytes());
        mac.update(b".");
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SigningSecret(..)")
    }
}
