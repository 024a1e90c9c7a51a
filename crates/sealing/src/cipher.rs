//! The sealed form of bytes, and their opening.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | form of the rest, 1 |
//! | 12 | random nonce |
//! | as the plain bytes | AES-256-GCM-SIV |
//! | 16 | its tag |
//!
//! The associated data are the purpose, the installation and the path. GCM-SIV, because records are sealed for years
//! under one key: two equal nonces would show only that two equal values at the same place are equal.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use uuid::Uuid;

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;

const FORM: u8 = 1;
const TAG_BYTES: usize = 16;

/// The use of the sealed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    DataKey,
    Value,
}

impl Purpose {
    /// Texts of which none begins another one: what follows has no mark.
    fn label(self) -> &'static [u8] {
        match self {
            Self::DataKey => b"angarium data key\0",
            Self::Value => b"angarium value\0",
        }
    }
}

/// The only place at which sealed bytes open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding<'a> {
    pub(crate) purpose: Purpose,
    pub(crate) installation: Uuid,
    pub(crate) path: &'a str,
}

impl Binding<'_> {
    fn associated_data(self) -> Vec<u8> {
        [self.purpose.label(), self.installation.as_bytes(), self.path.as_bytes()].concat()
    }
}

/// A key with its cipher.
pub(crate) struct Cipher(RandomizedNonceKey);

impl Cipher {
    pub(crate) fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self(RandomizedNonceKey::new(&AES_256_GCM_SIV, key).expect("the cipher takes each key of 32 bytes"))
    }

    pub(crate) fn seal(&self, binding: Binding<'_>, plain: &[u8]) -> Vec<u8> {
        let mut bytes = plain.to_vec();
        let sealed = self.0.seal_in_place_append_tag(Aad::from(binding.associated_data()), &mut bytes);
        let nonce = sealed.expect("the system has random bytes, and no value has gigabytes");
        [&[FORM], nonce.as_ref().as_slice(), &bytes].concat()
    }

    /// Returns the plain bytes; none when they were changed, or sealed under another key or for another place.
    pub(crate) fn open(&self, binding: Binding<'_>, sealed: &[u8]) -> Option<Vec<u8>> {
        let (form, rest) = sealed.split_first()?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>()?;
        if *form != FORM || rest.len() < TAG_BYTES {
            return None;
        }
        let mut bytes = rest.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length =
            self.0.open_in_place(nonce, Aad::from(binding.associated_data()), &mut bytes).ok()?.len();
        bytes.truncate(length);
        Some(bytes)
    }
}

/// Returns a random key.
pub(crate) fn random_key() -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    aws_lc_rs::rand::fill(&mut key).expect("the system has random bytes");
    key
}
