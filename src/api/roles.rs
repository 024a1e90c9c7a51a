//! Authorization of administrators: pools, flavors and health require the role admin, as in Zaqar's default policy.
//!
//! The pipeline (`rest`) has checked the role already, by the document. The handlers check it again, so that a route
//! whose document lacks the role is closed too, and a test detects it.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use utoipa::IntoParams;

use super::error::ApiError;
use super::extract::Caller;
use super::pipeline::identity::Identity;
use angarium_core::access::Role;
use angarium_core::error::Error;

/// A caller with the role of an administrator.
#[derive(Debug)]
pub struct Admin;

impl<S: Send + Sync> FromRequestParts<S> for Admin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        // This also checks the headers that every request may have.
        Caller::from_request_parts(parts, state).await?;
        match parts.extensions.get::<Identity>() {
            Some(Identity { role: Role::Admin, .. }) => Ok(Self),
            _ => Err(Error::NotAuthorized(Role::Admin.as_str()).into()),
        }
    }
}

/// Documents the header that states what the caller may do.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used: the header is read by name")]
pub struct RoleHeaders {
    /// The roles of the caller, separated by commas. When it is there, `admin` must be among them. It counts only while
    /// authentication is off.
    #[param(rename = "X-Roles", nullable = false, example = "admin")]
    roles: Option<String>,
}
