//! The file of keys: one a line, the newest first.

use std::fmt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error as ThisError;

use crate::cipher::{Cipher, KEY_BYTES};
use angarium_settings::files;

/// Max bytes of the file.
const FILE_BYTES: u64 = 64 << 10;
/// Max number of keys: a new one, the one before it, and some more.
const KEYS: usize = 8;
/// Max characters of the name of a key.
const NAME_CHARS: usize = 64;
/// Bytes of the id of a key.
const ID_BYTES: usize = 8;

/// A key of the file.
pub struct SecretKey {
    generation: String,
    id: String,
    cipher: Cipher,
}

impl SecretKey {
    fn new(generation: &str, bytes: &[u8; KEY_BYTES]) -> Self {
        let mut digest = Context::new(&SHA256);
        digest.update(b"angarium id of a secret key\0");
        digest.update(bytes);
        let digest = digest.finish();
        let id = digest.as_ref()[..ID_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        Self { generation: generation.to_owned(), id, cipher: Cipher::new(bytes) }
    }

    /// The name that its line begins with.
    pub fn generation(&self) -> &str {
        &self.generation
    }

    /// Tells keys apart, whatever their names: a part of a hash of the key, which is no secret.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn cipher(&self) -> &Cipher {
        &self.cipher
    }
}

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (id {})", self.generation, self.id)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey {self}")
    }
}

/// The keys of a file. The first one seals, all open.
#[derive(Debug)]
pub struct KeyRing(Vec<SecretKey>);

/// Errors of the file. No text has a part of a key.
#[derive(Debug, ThisError)]
#[error("{file}: {why} (--secret-key-file)", file = .file.display())]
pub struct KeyFileError {
    file: PathBuf,
    why: String,
}

impl KeyRing {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// For a file that cannot be read, and for one without a key or with a bad line.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let failed = |why: String| KeyFileError { file: path.to_owned(), why };
        let text = files::read_text(path, FILE_BYTES).map_err(|error| failed(error.to_string()))?;
        Self::parse(&text).map_err(failed)
    }

    /// Reads the lines of a file: `NAME KEY`, where the key is 32 bytes in Base64 or in hexadecimal digits. Empty lines
    /// and lines that begin with `#` are skipped.
    ///
    /// # Errors
    ///
    /// The number of the bad line, and the reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut keys: Vec<SecretKey> = Vec::new();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: String| format!("line {number}: {why}");
            let key = secret_key(line).map_err(wrong)?;
            if keys.iter().any(|other| other.generation == key.generation) {
                return Err(wrong(format!("the name '{}' is there twice", key.generation)));
            }
            if let Some(other) = keys.iter().find(|other| other.id == key.id) {
                return Err(wrong(format!("the key is that of '{}'", other.generation)));
            }
            if keys.len() == KEYS {
                return Err(wrong(format!("there are more than {KEYS} keys")));
            }
            keys.push(key);
        }
        if keys.is_empty() { Err("there is no key in it".to_owned()) } else { Ok(Self(keys)) }
    }

    /// The key that seals.
    pub fn first(&self) -> &SecretKey {
        self.0.first().expect("a file without keys is refused")
    }

    /// All keys, the newest first.
    pub fn keys(&self) -> &[SecretKey] {
        &self.0
    }

    /// The ids of all keys.
    pub fn ids(&self) -> Vec<String> {
        self.0.iter().map(|key| key.id.clone()).collect()
    }
}

fn secret_key(line: &str) -> Result<SecretKey, String> {
    let form = "a key is 'NAME KEY', with 32 random bytes in Base64 as `openssl rand -base64 32` prints them";
    let (name, key) = line.split_once(char::is_whitespace).ok_or(form)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if name.len() > NAME_CHARS || !name.bytes().all(is_plain) {
        return Err(format!(
            "a name is up to {NAME_CHARS} ASCII letters, digits, underscores, dashes or dots"
        ));
    }
    let key = key.trim();
    let bytes = if key.len() == 2 * KEY_BYTES { from_hex(key) } else { STANDARD.decode(key).ok() };
    let bytes = bytes.ok_or(form)?;
    let length = bytes.len();
    let wrong = |_| format!("the key of '{name}' has {length} bytes, and a key has {KEY_BYTES}");
    let bytes: [u8; KEY_BYTES] = bytes.try_into().map_err(wrong)?;
    if bytes.iter().all(|byte| *byte == bytes[0]) {
        return Err(format!("the key of '{name}' is one byte {KEY_BYTES} times, and not random"));
    }
    Ok(SecretKey::new(name, &bytes))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    text.as_bytes().chunks_exact(2).map(|two| Some(digit(two[0])? << 4 | digit(two[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";

    #[test]
    fn keys_are_read_line_by_line() {
        let other = "ff".to_owned() + &HEX[2..];
        let ring = KeyRing::parse(&format!("# newest first\n\n 2026-11 {KEY} \r\nold\t{other}\n")).unwrap();
        let names: Vec<_> = ring.keys().iter().map(SecretKey::generation).collect();
        assert_eq!(names, ["2026-11", "old"]);
        let same = KeyRing::parse(&format!("hex {HEX}")).unwrap();
        assert_eq!(same.first().id(), ring.first().id());
        assert_eq!(ring.ids().len(), 2);
    }

    #[test]
    fn bad_keys_are_refused_without_their_text() {
        let many: String = (0..9).map(|at| format!("k{at} {at:02x}{}\n", &HEX[2..])).collect();
        for (text, why) in [
            ("", "no key"),
            ("# a comment", "no key"),
            ("hidden", "line 1: a key is 'NAME KEY'"),
            (KEY, "line 1: a key is"),
            ("\na hidden!", "line 2: a key is"),
            ("a aGlkZGVu", "the key of 'a' has 6 bytes, and a key has 32"),
            (&format!("a {}", &KEY[..40]), "the key of 'a' has 30 bytes"),
            (&format!("a {}", &HEX[..60]), "has 45 bytes, and a key has 32"),
            (&format!("a {}g", &HEX[..63]), "line 1: a key is"),
            (&format!("a {}", "00".repeat(32)), "not random"),
            (&format!("a/b {KEY}"), "line 1: a name is up to 64"),
            (&format!("{} {KEY}", "a".repeat(65)), "a name is up to 64"),
            (&format!("a {KEY}\na {HEX}"), "line 2: the name 'a' is there twice"),
            (&format!("a {KEY}\nb {HEX}"), "line 2: the key is that of 'a'"),
            (&many, "line 9: there are more than 8"),
        ] {
            let found = KeyRing::parse(text).unwrap_err();
            assert!(found.contains(why), "{text:?}: {found}");
            assert!(!["hidden", &KEY[..20], &HEX[..20]].iter().any(|part| found.contains(part)), "{found}");
        }
    }

    #[test]
    fn missing_file_is_named_with_its_setting() {
        let error = KeyRing::read(Path::new("/no/such/file")).unwrap_err().to_string();
        assert!(error.starts_with("/no/such/file: No such file"), "{error}");
        assert!(error.ends_with("(--secret-key-file)"), "{error}");
    }
}
