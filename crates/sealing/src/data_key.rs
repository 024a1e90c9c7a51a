//! The data key of an installation: sealed under a key of the file in the tree, and open in the memory of replicas.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;
use uuid::Uuid;

use crate::cipher::{Binding, Cipher, KEY_BYTES, Purpose, random_key};
use crate::key_file::{KeyRing, SecretKey};

/// A sealed value is a JSON object with one member: records of the tree are JSON, so that backups show them.
const BEGIN: &[u8] = br#"{"sealed":""#;
const END: &[u8] = br#""}"#;

/// Max bytes of a sealed value: that of a node.
const VALUE_BYTES: usize = 128 << 10;
/// Max characters of a sealed data key. It has 61 bytes.
const SEALED_KEY_CHARS: usize = 128;

/// Whether the data of a node is a sealed value. No clear record begins like one.
pub fn is_sealed(data: &[u8]) -> bool {
    data.starts_with(BEGIN)
}

/// The key under which the values of an installation are sealed.
pub struct DataKey {
    installation: Uuid,
    cipher: Cipher,
    bytes: [u8; KEY_BYTES],
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataKey of {}", self.installation)
    }
}

impl DataKey {
    /// Makes the data key of a new installation.
    pub fn generate(installation: Uuid) -> Self {
        Self::new(installation, random_key())
    }

    fn new(installation: Uuid, bytes: [u8; KEY_BYTES]) -> Self {
        Self { installation, cipher: Cipher::new(&bytes), bytes }
    }

    /// Returns the sealed form of the value of the node at `path`.
    pub fn seal(&self, path: &str, value: &[u8]) -> Vec<u8> {
        let sealed = self.cipher.seal(self.binding(path), value);
        [BEGIN, STANDARD.encode(sealed).as_bytes(), END].concat()
    }

    /// Returns the value of the node at `path`; none when its sealed form was changed, or is from another node or another
    /// installation.
    pub fn open(&self, path: &str, data: &[u8]) -> Option<Vec<u8>> {
        if data.len() > VALUE_BYTES {
            return None;
        }
        let text = data.strip_prefix(BEGIN)?.strip_suffix(END)?;
        self.cipher.open(self.binding(path), &STANDARD.decode(text).ok()?)
    }

    /// Returns this key sealed under the first key of the file, for a tree that may have secrets in the clear.
    pub fn sealed_under(&self, ring: &KeyRing) -> SealedDataKey {
        self.sealed(ring, false)
    }

    /// Returns this key sealed under the first key of the file, for a tree in which every secret is sealed.
    pub fn sealed_whole_under(&self, ring: &KeyRing) -> SealedDataKey {
        self.sealed(ring, true)
    }

    fn sealed(&self, ring: &KeyRing, is_whole: bool) -> SealedDataKey {
        let key = ring.first();
        let binding = key_binding(self.installation, is_whole);
        SealedDataKey {
            generation: key.generation().to_owned(),
            key: key.id().to_owned(),
            sealed: STANDARD.encode(key.cipher().seal(binding, &self.bytes)),
            is_whole,
        }
    }

    fn binding<'a>(&self, path: &'a str) -> Binding<'a> {
        Binding { purpose: Purpose::Value, installation: self.installation, path }
    }
}

/// A data key seals no other one, so its path is not part of its place: only whether every secret is sealed is. So a
/// client of the tree cannot take that back.
fn key_binding(installation: Uuid, is_whole: bool) -> Binding<'static> {
    Binding { purpose: Purpose::DataKey, installation, path: if is_whole { "whole" } else { "" } }
}

/// The stored form of a data key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedDataKey {
    /// The name of the key in the file that it is sealed under.
    pub generation: String,
    /// The id of this key, see [`SecretKey::id`].
    pub key: String,
    /// The sealed bytes, in Base64.
    sealed: String,
    /// Whether every secret of the tree is sealed. The sealed bytes open with this value only.
    #[serde(default, rename = "whole", skip_serializing_if = "std::ops::Not::not")]
    pub is_whole: bool,
}

/// Errors of the opening of a data key.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum KeyError {
    /// The file does not have the key.
    #[error(
        "the secrets in the tree are sealed under the key '{generation}' (id {key}), and the secret key file has only: {found}"
    )]
    NoKey {
        /// The name of the missing key.
        generation: String,
        /// Its id.
        key: String,
        /// The keys of the file.
        found: String,
    },
    /// The key of the file does not open it.
    #[error(
        "the data key in the tree does not open with the key '{generation}': it was changed, or is from another installation"
    )]
    Damaged {
        /// The name of the key.
        generation: String,
    },
}

impl SealedDataKey {
    /// Opens the data key of an installation with the key of the file that it is sealed under.
    ///
    /// # Errors
    ///
    /// The name of the key that the file does not have, or that the data key does not open.
    pub fn open(&self, ring: &KeyRing, installation: Uuid) -> Result<DataKey, KeyError> {
        let Some(key) = ring.keys().iter().find(|key| key.id() == self.key) else {
            let found: Vec<String> = ring.keys().iter().map(SecretKey::to_string).collect();
            let (generation, key) = (self.generation.clone(), self.key.clone());
            return Err(KeyError::NoKey { generation, key, found: found.join(", ") });
        };
        let damaged = || KeyError::Damaged { generation: key.generation().to_owned() };
        if self.sealed.len() > SEALED_KEY_CHARS {
            return Err(damaged());
        }
        let sealed = STANDARD.decode(&self.sealed).map_err(|_| damaged())?;
        let bytes = key.cipher().open(key_binding(installation, self.is_whole), &sealed);
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(damaged)?;
        Ok(DataKey::new(installation, bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: Uuid = Uuid::from_u128(1);

    fn ring(lines: &str) -> KeyRing {
        KeyRing::parse(lines).unwrap()
    }

    fn file_key(byte: u8) -> [u8; KEY_BYTES] {
        let mut key = [byte; KEY_BYTES];
        key[0] = !byte;
        key
    }

    fn key_line(generation: &str, byte: u8) -> String {
        format!("{generation} {}\n", STANDARD.encode(file_key(byte)))
    }

    #[test]
    fn value_opens_at_its_own_place_only() {
        let key = DataKey::generate(ONE);
        let sealed = key.seal("/meta/pools/a", b"redis://:secret@host");
        assert!(is_sealed(&sealed) && serde_json::from_slice::<serde_json::Value>(&sealed).is_ok());
        assert_eq!(key.open("/meta/pools/a", &sealed).unwrap(), b"redis://:secret@host");
        assert_eq!(key.open("/meta/pools/b", &sealed), None);
        assert_eq!(DataKey::new(Uuid::from_u128(2), key.bytes).open("/meta/pools/a", &sealed), None);
        assert_eq!(DataKey::generate(ONE).open("/meta/pools/a", &sealed), None);
        assert_ne!(key.seal("/meta/pools/a", b"redis://:secret@host"), sealed, "the nonce is random");
    }

    #[test]
    fn changed_value_does_not_open() {
        let key = DataKey::generate(ONE);
        let sealed = key.seal("/p", b"value");
        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut changed = sealed.clone();
                changed[at] ^= 1 << bit;
                assert_eq!(key.open("/p", &changed), None, "byte {at}, bit {bit}");
            }
        }
        for length in 0..sealed.len() {
            assert_eq!(key.open("/p", &sealed[..length]), None, "{length}");
        }
        let long = [BEGIN, "A".repeat(VALUE_BYTES).as_bytes(), END].concat();
        assert_eq!(key.open("/p", &long), None);
    }

    #[test]
    fn data_key_opens_with_each_generation_until_it_is_sealed_again() {
        let (old, new) = (key_line("old", 1), key_line("new", 2));
        let (before, both, after) = (ring(&old), ring(&format!("{new}{old}")), ring(&new));
        let key = DataKey::generate(ONE);
        let value = key.seal("/p", b"value");
        let first = key.sealed_under(&before);
        let opened = first.open(&both, ONE).unwrap();
        assert_eq!(opened.open("/p", &value).unwrap(), b"value");
        let second = opened.sealed_under(&both);
        assert_eq!((second.generation.as_str(), second.key.as_str()), ("new", both.first().id()));
        assert_eq!(second.open(&after, ONE).unwrap().open("/p", &value).unwrap(), b"value");
        let refused = second.open(&before, ONE).unwrap_err().to_string();
        assert!(refused.contains("'new'") && refused.contains("only: old ("), "{refused}");
        // A name alone is no key.
        let namesake = ring(&key_line("new", 3));
        assert!(matches!(second.open(&namesake, ONE), Err(KeyError::NoKey { .. })));
        let elsewhere = second.open(&after, Uuid::from_u128(2)).unwrap_err();
        assert_eq!(elsewhere, KeyError::Damaged { generation: "new".into() });
        let shown = format!("{first:?}{key:?}{both:?}");
        assert!(!shown.contains(&STANDARD.encode(key.bytes)) && !shown.contains(&new[4..20]), "{shown}");
    }

    #[test]
    fn wholeness_of_a_sealed_key_cannot_be_changed() {
        let (ring, key) = (ring(&key_line("a", 1)), DataKey::generate(ONE));
        for (sealed, is_whole) in [(key.sealed_under(&ring), false), (key.sealed_whole_under(&ring), true)] {
            assert!(sealed.is_whole == is_whole && sealed.open(&ring, ONE).is_ok());
            let changed = SealedDataKey { is_whole: !is_whole, ..sealed };
            assert_eq!(changed.open(&ring, ONE).unwrap_err(), KeyError::Damaged { generation: "a".into() });
        }
    }

    #[test]
    fn value_under_the_data_key_is_no_data_key() {
        let ring = ring(&key_line("a", 1));
        let key = DataKey::generate(ONE);
        let record = key.sealed_under(&ring);
        let as_value = [BEGIN, record.sealed.as_bytes(), END].concat();
        let of_file = DataKey::new(ONE, file_key(1));
        assert_eq!(of_file.open("", &as_value), None);
    }

    proptest! {
        #[test]
        fn any_value_is_returned_as_it_was(path in ".{0,40}", value in prop::collection::vec(any::<u8>(), 0..2_000)) {
            let key = DataKey::generate(ONE);
            prop_assert_eq!(key.open(&path, &key.seal(&path, &value)).unwrap(), value);
        }

        #[test]
        fn no_other_bytes_open(data in prop::collection::vec(any::<u8>(), 0..200), text in "[A-Za-z0-9+/=]{0,200}") {
            let key = DataKey::generate(ONE);
            prop_assert_eq!(key.open("/p", &data), None);
            prop_assert_eq!(key.open("/p", &[BEGIN, text.as_bytes(), END].concat()), None);
        }
    }
}
