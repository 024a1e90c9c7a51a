//! Authentication and authorization of REST callers, for every route before its handler runs.

use axum::http::HeaderMap;
use axum::http::request::Parts;

use super::Rest;
use crate::api::pipeline::admission::AdmissionControl;
use crate::api::pipeline::credentials::named_project;
use crate::api::pipeline::forward::peer::PeerOrigin;
use crate::api::pipeline::identity::{Authentication, Identity, Need, RegionalAccess};
use crate::api::pipeline::origin;
use crate::api::pipeline::refusal::AdmissionRefusal;
use angarium_core::access::Role;
use angarium_core::error::Error;
use angarium_core::hosts::AllowedHosts;
use angarium_core::names::ProjectId;
use angarium_metrics::AuthenticationFailure;

const ROLES: &str = "x-roles";

impl Rest {
    /// Authenticates the caller and checks its role. A request that waits for Keystone counts in `admission` for its
    /// address.
    pub async fn identify(
        &self,
        head: &Parts,
        need: Need,
        admission: &AdmissionControl,
    ) -> Result<Identity, AdmissionRefusal> {
        // The forwarding replica has authenticated the request, and its admission control has admitted it.
        if let Some(from) = head.extensions.get::<PeerOrigin>() {
            return Ok(from.identity.clone());
        }
        let identity = match &self.authentication {
            Authentication::Off(hosts) => unauthenticated(hosts, head)?,
            Authentication::On(_) if need == Need::Nothing || self.operations.is_signed(head) => Identity {
                project: ProjectId::new(named_project(&head.headers)?.unwrap_or_default())?,
                role: Role::Member,
                name: None,
                is_anonymous: true,
            },
            Authentication::On(credentials) => credentials.identify(head, admission).await?,
        };
        let may_be_of_key = identity.project.as_str().contains('@') && need != Need::Nothing;
        if self.regional == RegionalAccess::Refused && may_be_of_key {
            return Err(Error::RegionalProject.into());
        }
        match need {
            Need::Role(role) if identity.role < role => Err(Error::NotAuthorized(role.as_str()).into()),
            Need::Role(_) | Need::Nothing => Ok(identity),
        }
    }
}

fn unauthenticated(hosts: &AllowedHosts, head: &Parts) -> Result<Identity, AdmissionRefusal> {
    origin::check(hosts, &head.uri, &head.headers)
        .map_err(|error| AdmissionRefusal::of(AuthenticationFailure::ForeignOrigin, error))?;
    Ok(Identity {
        project: ProjectId::new(named_project(&head.headers)?.unwrap_or_default())?,
        role: claimed_role(&head.headers),
        name: None,
        is_anonymous: false,
    })
}

/// Returns the role that a caller states without authentication. Zaqar's policies read the same header; a caller
/// without it counts as the user that started the service.
fn claimed_role(headers: &HeaderMap) -> Role {
    let lists = || headers.get_all(ROLES).iter();
    let roles = || lists().flat_map(|list| list.to_str().unwrap_or_default().split(',').map(str::trim));
    let is = |role: Role| move |name: &str| name.eq_ignore_ascii_case(role.as_str());
    match lists().next() {
        None => Role::Admin,
        Some(_) if roles().any(is(Role::Admin)) => Role::Admin,
        Some(_) if roles().all(is(Role::Reader)) => Role::Reader,
        Some(_) => Role::Member,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn unauthenticated_caller_chooses_its_roles() {
        for (pairs, role) in [
            (&[][..], Role::Admin),
            (&[("x-roles", "admin")], Role::Admin),
            (&[("x-roles", "reader, Admin")], Role::Admin),
            (&[("x-roles", "")], Role::Member),
            (&[("x-roles", "member")], Role::Member),
            (&[("x-roles", "reader")], Role::Reader),
            (&[("x-roles", "reader,member")], Role::Member),
            (&[("x-roles", "reader,operator")], Role::Member),
            (&[("x-roles", "administrator")], Role::Member),
        ] {
            assert_eq!(claimed_role(&headers(pairs)), role, "{pairs:?}");
        }
    }
}
