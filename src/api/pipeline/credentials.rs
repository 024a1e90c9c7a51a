//! Identity of a caller with a token: from the file of tokens, or from Keystone.
//!
//! The file is searched first: its tokens are in memory, and none of them is ever sent to Keystone. Neither is a token
//! with the prefix of the file's tokens that the file does not have.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use tokio::sync::watch;

use super::admission::{self, AdmissionControl};
use super::bodies::client_address;
use super::identity::Identity;
use super::refusal::AdmissionRefusal;
use crate::api::error::CHALLENGE;
use crate::api::extract::PROJECT;
use crate::keystone::{Keystone, Refusal, TokenHolder};
use angarium_core::access::{Grant, Role, TOKEN_PREFIX, TokenTable};
use angarium_core::error::{Error, InvalidPart, Part};
use angarium_core::names::ProjectId;
use angarium_metrics::AuthenticationFailure;

const TOKEN: &str = "x-auth-token";

/// Sources of tokens: the file of tokens, Keystone, or both.
#[derive(Clone, Debug)]
pub struct Credentials {
    tokens: Option<watch::Receiver<Arc<TokenTable>>>,
    keystone: Option<Keystone>,
    challenges: Vec<HeaderValue>,
}

impl Credentials {
    /// Creates credentials from the tokens of a file.
    pub fn tokens(table: watch::Receiver<Arc<TokenTable>>) -> Self {
        Self { tokens: Some(table), keystone: None, challenges: vec![CHALLENGE] }
    }

    /// Creates credentials from a Keystone and, optionally, a file of tokens. `url` tells refused clients where that
    /// Keystone is.
    pub fn keystone(keystone: Keystone, url: &str, tokens: Option<watch::Receiver<Arc<TokenTable>>>) -> Self {
        let challenge = HeaderValue::from_str(&format!("Keystone uri=\"{url}\"")).ok();
        let own = tokens.is_some().then_some(CHALLENGE);
        Self { tokens, keystone: Some(keystone), challenges: challenge.into_iter().chain(own).collect() }
    }

    /// Returns the authentication schemes that a refused client may use.
    pub fn challenges(&self) -> &[HeaderValue] {
        &self.challenges
    }

    /// Returns the Keystone that checks tokens, if there is one.
    pub fn asked(&self) -> Option<&Keystone> {
        self.keystone.as_ref()
    }

    /// Returns the projects that the tokens of the file belong to.
    pub fn projects(&self) -> Vec<ProjectId> {
        let table = self.tokens.as_ref().map(|tokens| tokens.borrow().clone());
        table.iter().flat_map(|table| table.projects()).cloned().collect()
    }

    /// Authenticates a request by its token. A counted request that waits for Keystone counts in `admission` for its
    /// address.
    pub async fn identify(
        &self,
        head: &Parts,
        admission: &AdmissionControl,
    ) -> Result<Identity, AdmissionRefusal> {
        let headers = &head.headers;
        let token = token(headers)?;
        if let Some(grant) = self.granted(token) {
            return of_grant(grant, headers);
        }
        match &self.keystone {
            Some(keystone) if !token.starts_with(TOKEN_PREFIX) => {
                // Boxed: a look-up has a large state, and without the box every other request would reserve room for
                // it.
                let holder = Box::pin(holder(keystone, token, head, admission)).await?;
                of_holder(holder, headers)
            }
            _ => Err(unknown()),
        }
    }

    fn granted(&self, token: &str) -> Option<Grant> {
        self.tokens.as_ref()?.borrow().grant(token).cloned()
    }
}

/// Returns the identity of a caller with a token of the file. An administrator may name any project.
fn of_grant(grant: Grant, headers: &HeaderMap) -> Result<Identity, AdmissionRefusal> {
    let project = match named_project(headers)? {
        None => grant.project,
        Some(named) if named == grant.project.as_str() => grant.project,
        Some(named) if grant.role >= Role::Admin => ProjectId::new(named)?,
        Some(_) => return Err(foreign()),
    };
    Ok(Identity { project, role: grant.role, name: grant.name, is_anonymous: false })
}

/// Returns the holder of a token that Keystone knows.
async fn holder(
    keystone: &Keystone,
    token: &str,
    head: &Parts,
    admission: &AdmissionControl,
) -> Result<TokenHolder, AdmissionRefusal> {
    if let Some(holder) = keystone.remembered(token).map_err(refused)? {
        return Ok(holder);
    }
    let is_counted = admission::is_counted(head);
    let _counted = is_counted.then(|| admission.forwarded(&head.extensions)).transpose()?;
    keystone.look_up(token, client_address(&head.extensions)).await.map_err(refused)
}

/// Returns the identity of a caller with a Keystone token: always in the project of the token, whatever its role.
fn of_holder(holder: TokenHolder, headers: &HeaderMap) -> Result<Identity, AdmissionRefusal> {
    let Some(project) = holder.project else {
        return Err(AdmissionRefusal::of(AuthenticationFailure::UnscopedToken, Error::Unscoped));
    };
    if named_project(headers)?.is_some_and(|named| named != project.as_str()) {
        return Err(foreign());
    }
    let Some(role) = holder.role else {
        let error = Error::NotAuthorized(Role::Reader.as_str());
        return Err(AdmissionRefusal::of(AuthenticationFailure::UnknownRole, error));
    };
    Ok(Identity { project, role, name: holder.name, is_anonymous: false })
}

fn refused(refusal: Refusal) -> AdmissionRefusal {
    match refusal {
        Refusal::Malformed => malformed("the token has not the form of a token"),
        Refusal::Unknown => unknown(),
        Refusal::Expired => AdmissionRefusal::of(
            AuthenticationFailure::ExpiredToken,
            Error::Unauthenticated("the token has expired"),
        ),
        Refusal::Busy => Error::Overloaded.into(),
        Refusal::Unavailable => Error::Unavailable { part: Part::Keystone, cause: None }.into(),
        Refusal::NotAllowed => Error::Unavailable { part: Part::TokenLookup, cause: None }.into(),
    }
}

fn unknown() -> AdmissionRefusal {
    AdmissionRefusal::of(
        AuthenticationFailure::UnknownToken,
        Error::Unauthenticated("the token is not known"),
    )
}

fn foreign() -> AdmissionRefusal {
    AdmissionRefusal::of(AuthenticationFailure::ForeignProject, Error::ForeignProject)
}

fn malformed(why: &'static str) -> AdmissionRefusal {
    AdmissionRefusal::of(AuthenticationFailure::MalformedToken, Error::Unauthenticated(why))
}

/// Returns the value of a header that occurs at most once.
fn single<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h HeaderValue>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(()),
    }
}

/// Returns the token of a request: `Authorization: Bearer TOKEN`, or else `X-Auth-Token: TOKEN` as OpenStack's clients
/// send it. A repeated header is refused, because a proxy in front may use its other value.
fn token(headers: &HeaderMap) -> Result<&str, AdmissionRefusal> {
    let twice = |()| malformed("a header with a token must be there once");
    let (bearer, plain) = (single(headers, header::AUTHORIZATION.as_str()), single(headers, TOKEN));
    let token = match (bearer.map_err(twice)?, plain.map_err(twice)?) {
        (Some(credentials), _) => {
            let credentials = credentials.to_str().unwrap_or_default();
            let (scheme, token) = credentials.split_once(' ').unwrap_or_default();
            if !scheme.eq_ignore_ascii_case("bearer") {
                return Err(malformed("`Authorization` must be `Bearer TOKEN`"));
            }
            token.trim()
        }
        (None, Some(token)) => token.to_str().map_err(|_| unknown())?.trim(),
        (None, None) => "",
    };
    if token.is_empty() {
        let missing = Error::Unauthenticated("the request has no token");
        return Err(AdmissionRefusal::of(AuthenticationFailure::MissingToken, missing));
    }
    Ok(token)
}

/// Returns the project that a request names; none for an empty name.
pub fn named_project(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    let wrong = |why| Error::invalid(InvalidPart::Header, PROJECT, why);
    let Some(value) = single(headers, PROJECT).map_err(|()| wrong("it must be there once"))? else {
        return Ok(None);
    };
    let named = std::str::from_utf8(value.as_bytes()).map_err(|_| wrong("it is not UTF-8 text"))?;
    Ok(Some(named).filter(|named| !named.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    /// Builds a header map that keeps repeated names.
    fn appended(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn token_in_either_header_is_accepted() {
        for (pairs, found) in [
            (&[("authorization", "Bearer abc")][..], "abc"),
            (&[("authorization", "bearer  abc ")], "abc"),
            (&[("x-auth-token", "abc")], "abc"),
            (&[("x-auth-token", "old"), ("authorization", "Bearer abc")], "abc"),
        ] {
            assert_eq!(token(&headers(pairs)).unwrap(), found);
        }
    }

    #[test]
    fn wrong_credentials_are_refused_by_their_reason() {
        use AuthenticationFailure::{MalformedToken, MissingToken};
        for (pairs, failure) in [
            (&[][..], MissingToken),
            (&[("x-auth-token", "")], MissingToken),
            (&[("authorization", "Bearer ")], MissingToken),
            (&[("authorization", "Basic abc")], MalformedToken),
            (&[("authorization", "Basic abc"), ("x-auth-token", "abc")], MalformedToken),
            (&[("authorization", "abc")], MalformedToken),
            (&[("authorization", "")], MalformedToken),
            (&[("authorization", "Bearerabc")], MalformedToken),
            (&[("x-auth-token", "abc"), ("x-auth-token", "abc")], MalformedToken),
            (&[("x-auth-token", "abc"), ("x-auth-token", "")], MalformedToken),
            (&[("authorization", "Bearer a"), ("authorization", "Bearer b")], MalformedToken),
        ] {
            let refused = token(&appended(pairs)).err().unwrap();
            assert_eq!(refused.failure, Some(failure), "{pairs:?}");
        }
    }

    #[test]
    fn project_is_named_once() {
        assert_eq!(named_project(&headers(&[])).unwrap(), None);
        assert_eq!(named_project(&headers(&[("x-project-id", "")])).unwrap(), None);
        assert_eq!(named_project(&headers(&[("x-project-id", "p")])).unwrap(), Some("p"));
        for twice in
            [&[("x-project-id", "p"), ("x-project-id", "p")], &[("x-project-id", ""), ("x-project-id", "q")]]
        {
            assert!(named_project(&appended(twice)).is_err());
        }
    }
}
