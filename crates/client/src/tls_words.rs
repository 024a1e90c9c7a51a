//! Texts for failed TLS handshakes: the reason and advice.

use std::io;

use rustls::{CertificateError, Error};

/// Describes the TLS error inside a socket error, if there is one.
pub fn of_io(error: &io::Error) -> Option<String> {
    error.get_ref()?.downcast_ref::<Error>().map(of)
}

/// Describes a TLS error.
pub fn of(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => of_certificate(why),
        Error::InvalidMessage(_) => "it does not speak TLS on this port: is its URL http://?".to_owned(),
        Error::AlertReceived(_) => "it refused the TLS handshake".to_owned(),
        Error::PeerIncompatible(_) => "it speaks no version of TLS that is safe (1.2 or 1.3)".to_owned(),
        Error::NoCertificatesPresented => "it shows no certificate".to_owned(),
        _ => "the TLS handshake failed".to_owned(),
    }
}

fn of_certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => {
            "its certificate is signed by an untrusted CA: --ca FILE trusts a CA of your own".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet, by the clock of this machine".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } if !presented.is_empty() => {
            let names: Vec<&str> = presented.iter().map(|name| bare_name(name)).collect();
            format!("its certificate is for {}, and not for this name", names.join(", "))
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is not for this name".to_owned()
        }
        CertificateError::Revoked => "its certificate is revoked".to_owned(),
        CertificateError::BadSignature => "its certificate has a wrong signature".to_owned(),
        _ => "its certificate cannot be used".to_owned(),
    }
}

/// Extracts the name from the library's form `DnsName("name")`.
fn bare_name(name: &str) -> &str {
    name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name).trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_handshake_is_explained() {
        for (error, words) in [
            (CertificateError::UnknownIssuer, "--ca FILE"),
            (CertificateError::Expired, "expired"),
            (CertificateError::NotValidForName, "not for this name"),
            (CertificateError::BadEncoding, "cannot be used"),
        ] {
            let text = of(&Error::InvalidCertificate(error.clone()));
            assert!(text.contains(words), "{text}");
            assert!(!text.contains(&format!("{error:?}")), "{text}");
        }
        let io = io::Error::other(Error::NoCertificatesPresented);
        assert_eq!(of_io(&io).as_deref(), Some("it shows no certificate"));
        assert_eq!(of_io(&io::Error::other("certificate")), None);
        assert_eq!(bare_name("DnsName(\"a.example\")"), "a.example");
    }
}
