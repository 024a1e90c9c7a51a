//! Who may administer: pools, flavors and health are for the role admin, as in Zaqar's default policy.
//!
//! As long as there is no authentication the roles are what the header `X-Roles` says, and without the header the
//! caller is an administrator: whoever reaches the port can do everything else too.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use utoipa::IntoParams;

use super::error::ApiError;
use super::extract::Caller;
use crate::error::Error;

const ROLES: &str = "x-roles";
const ADMIN: &str = "admin";

/// A caller who may administer.
#[derive(Debug)]
pub struct Admin;

impl<S: Send + Sync> FromRequestParts<S> for Admin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        // The headers that every request may have are checked here too.
        Caller::from_request_parts(parts, state).await?;
        let mut lists = parts.headers.get_all(ROLES).iter().peekable();
        let is_admin = |role: &str| role.trim().eq_ignore_ascii_case(ADMIN);
        if lists.peek().is_none() || lists.any(|list| list.to_str().is_ok_and(|l| l.split(',').any(is_admin)))
        {
            return Ok(Self);
        }
        Err(Error::NotAuthorized(ADMIN).into())
    }
}

/// Documents the header that says what the caller may do.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used: the header is read by name")]
pub struct RoleHeaders {
    /// The roles of the caller, separated by commas. When it is there, `admin` must be among them.
    #[param(rename = "X-Roles", nullable = false, example = "admin")]
    roles: Option<String>,
}
