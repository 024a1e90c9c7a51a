//! The judge of files of keys, sealed data keys and sealed values: nothing opens but what was sealed, and whatever is
//! refused has a reason without a part of a key.

use angarium_sealing::{DataKey, KeyRing, SealedDataKey, is_sealed};
use uuid::Uuid;

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const BASE64_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const PATH: &str = "/meta/pools/fast";
const VALUE: &[u8] = b"redis://:secret@127.0.0.1:6379/0";
const INSTALLATION: Uuid = Uuid::from_u128(1);

/// A data key, the key of a file that seals it, and a value that it seals.
pub struct Judge {
    ring: KeyRing,
    key: DataKey,
    value: Vec<u8>,
    record: Vec<u8>,
}

impl Judge {
    pub fn new() -> Self {
        let ring = KeyRing::parse(&format!("a {KEY}")).expect("it is a key");
        let key = DataKey::generate(INSTALLATION);
        let value = key.seal(PATH, VALUE);
        let record = serde_json::to_vec(&key.sealed_under(&ring)).expect("it is text");
        Self { ring, key, value, record }
    }

    /// Inputs that are right, for others that are nearly right.
    #[allow(dead_code, reason = "coverage finds its own inputs")]
    pub fn seeds(&self) -> Vec<Vec<u8>> {
        let file = format!("# newest first\nb {BASE64_KEY}\nold ff{}\n", &KEY[2..]);
        vec![self.value.clone(), self.record.clone(), file.into_bytes()]
    }

    pub fn check(&self, input: &[u8]) {
        if let Some(found) = self.key.open(PATH, input) {
            assert!(found == VALUE && input == self.value && is_sealed(input), "other bytes are opened");
        }
        assert!(self.key.open("/meta/pools/other", input).is_none(), "a value opens at another path");
        self.check_data_key(input);
        if let Ok(text) = std::str::from_utf8(input)
            && let Err(why) = KeyRing::parse(text)
        {
            let shows = [&KEY[2..], BASE64_KEY].iter().any(|key| why.contains(key));
            assert!(!why.trim().is_empty() && !shows, "{why}");
        }
    }

    fn check_data_key(&self, input: &[u8]) {
        let Ok(record) = serde_json::from_slice::<SealedDataKey>(input) else { return };
        match record.open(&self.ring, INSTALLATION) {
            Ok(key) => {
                assert_eq!(key.open(PATH, &self.value).as_deref(), Some(VALUE), "another key is opened")
            }
            Err(error) => assert!(!error.to_string().trim().is_empty()),
        }
        assert!(record.open(&self.ring, Uuid::nil()).is_err(), "it opens for another installation");
    }
}
