//! The certificate of a process, by which the other replicas know it. It is made at the start, signed by its own key, and
//! never leaves memory, or it is read from files. Its fingerprint is in the process's node of the registry.

use std::fmt;
use std::sync::Arc;

use rustls::Error;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};

/// The name in each certificate. It is not checked: the fingerprint tells the replicas apart.
const NAME: &str = "angarium-replica";

/// The keys that handshakes can use.
const KEYS: &str = "it is RSA with 2,048 to 4,096 bits, ECDSA with the curve P-256 or P-384, or Ed25519";

/// The SHA-256 digest of a certificate in DER.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; Self::BYTES]);

impl Fingerprint {
    const BYTES: usize = 32;

    /// Returns the fingerprint of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 2 * Self::BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; Self::BYTES];
        for (byte, digits) in bytes.iter_mut().zip((0..text.len()).step_by(2)) {
            *byte = u8::from_str_radix(&text[digits..digits + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A certificate with its key.
#[derive(Clone)]
pub struct PeerIdentity(Arc<CertifiedKey>);

impl fmt::Debug for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PeerIdentity").field(&self.fingerprint()).finish()
    }
}

impl PeerIdentity {
    /// Makes a key and its certificate.
    ///
    /// # Errors
    ///
    /// The reason, when the system has no random numbers.
    pub fn generate() -> Result<Self, String> {
        let key = rcgen::KeyPair::generate().map_err(|error| error.to_string())?;
        let mut terms =
            rcgen::CertificateParams::new([NAME.to_owned()]).map_err(|error| error.to_string())?;
        terms.distinguished_name.push(rcgen::DnType::CommonName, NAME);
        let certificate = terms.self_signed(&key).map_err(|error| error.to_string())?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Self::of(certificate.der().clone(), key)
    }

    /// Reads a certificate and its key, both in PEM. Of a chain the first certificate counts.
    ///
    /// # Errors
    ///
    /// The reason, also when the key belongs to another certificate.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, String> {
        let read = CertificateDer::from_pem_slice(certificate);
        let certificate = read.map_err(|error| format!("the certificate: {error}"))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key: {error}"))?;
        Self::of(certificate, key)
    }

    fn of(certificate: CertificateDer<'static>, key: PrivateKeyDer<'static>) -> Result<Self, String> {
        let pair = CertifiedKey::from_der(vec![certificate], key, &ring::default_provider());
        pair.map(|pair| Self(Arc::new(pair))).map_err(|error| match error {
            Error::InconsistentKeys(_) => "the key belongs to another certificate".to_owned(),
            Error::General(_) => format!("the key cannot be used: {KEYS}"),
            error => error.to_string(),
        })
    }

    /// Returns the fingerprint of the certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.0.cert[0])
    }

    pub(crate) fn certified(&self) -> &Arc<CertifiedKey> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl PeerIdentity {
        /// One of files, whose certificate was valid until 2020.
        pub(crate) fn expired() -> Self {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut terms = rcgen::CertificateParams::new([NAME.to_owned()]).unwrap();
            terms.not_after = rcgen::date_time_ymd(2020, 1, 1);
            let certificate = terms.self_signed(&key).unwrap().pem();
            Self::from_pem(certificate.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
        }
    }

    #[test]
    fn fingerprint_is_read_as_it_is_written() {
        let fingerprint = PeerIdentity::generate().unwrap().fingerprint();
        assert_eq!(Fingerprint::parse(&fingerprint.to_string()), Some(fingerprint));
        let text = fingerprint.to_string();
        for bad in ["", &text[1..], &format!("{text}0"), &format!("+{}", &text[1..]), &"é".repeat(32)] {
            assert_eq!(Fingerprint::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn identity_of_files_needs_the_key_of_its_certificate() {
        let [one, other] = [(); 2].map(|()| rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap());
        let (certificate, key) = (one.cert.pem(), one.signing_key.serialize_pem());
        let read = PeerIdentity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(read.fingerprint(), Fingerprint::of(one.cert.der()));
        let chain = format!("{certificate}{}", other.cert.pem());
        let first = PeerIdentity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(first.fingerprint(), read.fingerprint());
        let foreign = other.signing_key.serialize_pem();
        let refused = PeerIdentity::from_pem(certificate.as_bytes(), foreign.as_bytes()).unwrap_err();
        assert_eq!(refused, "the key belongs to another certificate");
        // A key of another kind, here of Ed448, in PKCS #8.
        let strange = "-----BEGIN PRIVATE KEY-----\n\
            MEcCAQAwBQYDK2VxBDsEOQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OQ==\n\
            -----END PRIVATE KEY-----\n";
        let refused = PeerIdentity::from_pem(certificate.as_bytes(), strange.as_bytes()).unwrap_err();
        assert!(refused.contains("P-256 or P-384"), "{refused}");
        for (certificate, key) in [(&certificate, &foreign), (&key, &key), (&certificate, &certificate)] {
            assert!(PeerIdentity::from_pem(certificate.as_bytes(), key.as_bytes()).is_err());
        }
    }

    #[test]
    fn each_process_has_another_certificate() {
        let [one, other] = [(); 2].map(|()| PeerIdentity::generate().unwrap().fingerprint());
        assert_ne!(one, other);
    }
}
