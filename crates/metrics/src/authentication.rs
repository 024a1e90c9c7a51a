//! Counters of failed authentication, by reason.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Reason of a failed authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AuthenticationFailure {
    /// A REST request has no token.
    MissingToken,
    /// The credentials do not have the form `Bearer TOKEN`.
    MalformedToken,
    /// The token is unknown.
    UnknownToken,
    /// The token has expired.
    ExpiredToken,
    /// The token has no project scope.
    UnscopedToken,
    /// The token has no accepted role.
    UnknownRole,
    /// The token is for another project.
    ForeignProject,
    /// An SQS request has no signature.
    MissingSignature,
    /// The signature lacks a part, or has an invalid one.
    MalformedSignature,
    /// The key of the signature is unknown.
    UnknownKey,
    /// The signature does not match the request.
    SignatureMismatch,
    /// The signature is not current, or the one of a presigned URL has expired.
    ExpiredSignature,
    /// An SQS request, but no keys are configured.
    NoKeys,
    /// A connection to the listener for replicas did not send the peer secret.
    PeerSecret,
    /// A connection to the listener for replicas did not show the certificate of a replica.
    PeerCertificate,
    /// A page of another site made a browser send the request.
    ForeignOrigin,
}

impl AuthenticationFailure {
    /// All variants in their order.
    pub const ALL: [Self; 16] = [
        Self::MissingToken,
        Self::MalformedToken,
        Self::UnknownToken,
        Self::ExpiredToken,
        Self::UnscopedToken,
        Self::UnknownRole,
        Self::ForeignProject,
        Self::MissingSignature,
        Self::MalformedSignature,
        Self::UnknownKey,
        Self::SignatureMismatch,
        Self::ExpiredSignature,
        Self::NoKeys,
        Self::PeerSecret,
        Self::PeerCertificate,
        Self::ForeignOrigin,
    ];

    /// Returns the value of the label `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MissingToken => "missing_token",
            Self::MalformedToken => "malformed_token",
            Self::UnknownToken => "unknown_token",
            Self::ExpiredToken => "expired_token",
            Self::UnscopedToken => "unscoped_token",
            Self::UnknownRole => "unknown_role",
            Self::ForeignProject => "foreign_project",
            Self::MissingSignature => "missing_signature",
            Self::MalformedSignature => "malformed_signature",
            Self::UnknownKey => "unknown_key",
            Self::SignatureMismatch => "signature_mismatch",
            Self::ExpiredSignature => "expired_signature",
            Self::NoKeys => "no_keys",
            Self::PeerSecret => "peer_secret",
            Self::PeerCertificate => "peer_certificate",
            Self::ForeignOrigin => "foreign_origin",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    reason: &'static str,
}

/// The failure counters. All exist from the start, so that the first failure is an increase.
pub(super) struct Failures([Counter; AuthenticationFailure::ALL.len()]);

impl Failures {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let family = Family::<Labels, Counter>::default();
        registry.register(
            "angarium_authentication_failures",
            "Requests whose caller was not known, by reason",
            family.clone(),
        );
        let counter =
            |failure: AuthenticationFailure| family.get_or_create_owned(&Labels { reason: failure.as_str() });
        Self(AuthenticationFailure::ALL.map(counter))
    }

    pub(super) fn note(&self, failure: AuthenticationFailure) {
        self.0[failure as usize].inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_each_under_its_name() {
        let mut registry = Registry::default();
        let failures = Failures::register(&mut registry);
        for (times, failure) in AuthenticationFailure::ALL.into_iter().enumerate() {
            (0..=times).for_each(|_| failures.note(failure));
        }
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        for (times, failure) in AuthenticationFailure::ALL.into_iter().enumerate() {
            let name = failure.as_str();
            let line = format!("angarium_authentication_failures_total{{reason=\"{name}\"}} {}\n", times + 1);
            assert!(page.contains(&line), "{line} {page}");
        }
    }
}
