//! An authority that certifies servers and clients of tests.

use std::fs;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use tempfile::TempDir;

/// An authority, and the files that it has written.
pub struct Authority {
    files: TempDir,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, both in PEM.
#[derive(Clone, Debug)]
pub struct Certified {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// The key, then the certificate.
    pub both: PathBuf,
}

/// How long a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    Now,
    /// Until the year 2001.
    Past,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::default();
        // Two of them must not look alike.
        params.distinguished_name.push(DnType::CommonName, format!("authority {}", uuid::Uuid::new_v4()));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).expect("it signs itself");
        let files = TempDir::new().expect("there is a temporary directory");
        let (certificate, issuer) = (certificate.pem(), Issuer::new(params, key));
        fs::write(files.path().join("authority.pem"), &certificate).expect("the directory is ours");
        Self { files, certificate, issuer }
    }

    /// The file of its own certificate.
    pub fn file(&self) -> PathBuf {
        self.files.path().join("authority.pem")
    }

    /// Its own certificate.
    pub fn pem(&self) -> &str {
        &self.certificate
    }

    /// Certifies the name as the subject, and these host names and addresses.
    pub fn certify(&self, name: &str, hosts: &[&str], validity: Validity) -> Certified {
        let key = KeyPair::generate().expect("a key can be made");
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("these are names");
        params.distinguished_name.push(DnType::CommonName, name);
        if validity == Validity::Past {
            (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
        }
        let certificate = params.signed_by(&key, &self.issuer).expect("the authority signs").pem();
        let key = key.serialize_pem();
        let write = |end: &str, text: &str| {
            let path = self.files.path().join(format!("{name}.{end}"));
            fs::write(&path, text).expect("the directory is ours");
            path
        };
        Certified {
            certificate: write("pem", &certificate),
            key: write("key.pem", &key),
            both: write("both.pem", &format!("{key}{certificate}")),
        }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
