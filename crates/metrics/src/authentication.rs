//! Failed authentication: how often, by its reason.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Why a caller was not taken for whom it states it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AuthenticationFailure {
    /// A request of REST has no token.
    MissingToken,
    /// Its credentials are not of the form `Bearer TOKEN`.
    MalformedToken,
    /// Its token is none of those that are accepted.
    UnknownToken,
    /// The time of its token has passed.
    ExpiredToken,
    /// Its token is not for a project.
    UnscopedToken,
    /// None of the roles of its token counts here.
    UnknownRole,
    /// Its token is for another project.
    ForeignProject,
    /// A request of SQS has no signature.
    MissingSignature,
    /// Its signature lacks a part, or has one that cannot be read.
    MalformedSignature,
    /// It is signed with a key that is not known.
    UnknownKey,
    /// Its signature is not that of the request.
    SignatureMismatch,
    /// Its signature is not of now, or that of its URL has ended.
    ExpiredSignature,
    /// It is for SQS, and there are no keys for it.
    NoKeys,
    /// A connection to the address of the peers did not show their secret.
    PeerSecret,
    /// A page of another site made a browser send it.
    ForeignOrigin,
}

impl AuthenticationFailure {
    /// Each of them, in their order.
    pub const ALL: [Self; 15] = [
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
        Self::ForeignOrigin,
    ];

    /// Its name.
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
            Self::ForeignOrigin => "foreign_origin",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    reason: &'static str,
}

/// The counters of failures. Each is there from the start, so that the first failure is a rise.
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
