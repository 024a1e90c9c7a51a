//! The bodies of the Identity API v3: the request for a token of the service, and the description of a token in an
//! answer. The answer is external input: all of it is checked, and a missing or wrong part makes it unusable.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::login::{Credentials, Secret};
use super::{TokenHolder, limits};
use angarium_core::access::Role;
use angarium_core::names::ProjectId;
use angarium_core::role_names::RoleNames;
use angarium_core::time::Timestamp;

/// Keystone's answer to the look-up of a token.
pub(super) enum Subject {
    /// Keystone knows the token.
    Known(TokenBody),
    /// Keystone does not know the token.
    Unknown,
    /// Keystone does not accept the service's own token.
    NotAllowed,
}

#[derive(Deserialize)]
struct Envelope {
    token: TokenBody,
}

/// The token of an answer. What has no meaning here is not read.
#[derive(Deserialize)]
pub(super) struct TokenBody {
    expires_at: String,
    user: Option<User>,
    project: Option<Project>,
    domain: Option<IgnoredAny>,
    system: Option<IgnoredAny>,
    /// Whether the project is a domain in the form of a project.
    is_domain: Option<bool>,
    /// False where the operator has named one project for administrators, and this is another one.
    is_admin_project: Option<bool>,
    #[serde(default)]
    roles: Vec<NamedRole>,
    application_credential: Option<ApplicationCredential>,
}

#[derive(Deserialize)]
struct User {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Project {
    id: String,
}

#[derive(Deserialize)]
struct NamedRole {
    name: String,
}

#[derive(Deserialize)]
struct ApplicationCredential {
    access_rules: Option<IgnoredAny>,
}

/// Parses the token in the body of an answer.
pub(super) fn token(body: &[u8]) -> Result<TokenBody, String> {
    // The text repeats nothing of the answer, which must not be logged.
    let envelope: Result<Envelope, _> = serde_json::from_slice(body);
    let in_words = |error: serde_json::Error| {
        let (line, column) = (error.line(), error.column());
        format!("its answer is not a token of the Identity API v3 (line {line}, column {column})")
    };
    envelope.map(|envelope| envelope.token).map_err(in_words)
}

impl TokenBody {
    /// Returns the expiry of the token.
    pub(super) fn expires(&self) -> Result<Timestamp, String> {
        let expires = Timestamp::from_calendar(&self.expires_at);
        expires.ok_or_else(|| "its answer has a token without a date of expiry".to_owned())
    }

    /// Returns the holder of the token. If its credential is restricted to some paths of some services, it has no role:
    /// those rules are not enforced here, and Keystone shows such tokens only to services that announce their
    /// enforcement.
    pub(super) fn holder(self, roles: &RoleNames) -> Result<TokenHolder, String> {
        let expires = self.expires()?;
        let is_of_project = self.domain.is_none() && self.system.is_none() && self.is_domain != Some(true);
        let project = match self.project.filter(|_| is_of_project) {
            Some(Project { id }) if id.is_empty() => {
                return Err("its answer has a token of a project without an id".to_owned());
            }
            Some(Project { id }) => Some(
                ProjectId::new(&id)
                    .map_err(|_| "its answer has a token of a project with a long id".to_owned())?,
            ),
            None => None,
        };
        let is_restricted = self.application_credential.is_some_and(|held| held.access_rules.is_some());
        let names = self.roles.iter().map(|role| role.name.as_str()).filter(|_| !is_restricted);
        let role = roles.greatest(names).map(|role| match self.is_admin_project {
            Some(false) => role.min(Role::Member),
            _ => role,
        });
        let name = self.user.and_then(|user| user.name).filter(|name| !name.is_empty());
        Ok(TokenHolder { project, role, name: name.map(|name| bounded(&name)), expires })
    }
}

/// Returns the body of the request for a token of the service.
pub(super) fn authentication(credentials: &Credentials, secret: &Secret) -> Vec<u8> {
    let body: Value = match credentials {
        Credentials::Password { user, user_domain, project, project_domain } => json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": {
                "name": user, "domain": {"name": user_domain}, "password": secret.as_str(),
            }}},
            "scope": {"project": {"name": project, "domain": {"name": project_domain}}},
        }}),
        Credentials::Application { id } => json!({"auth": {
            "identity": {
                "methods": ["application_credential"],
                "application_credential": {"id": id, "secret": secret.as_str()},
            },
        }}),
    };
    body.to_string().into_bytes()
}

/// Returns the begin of a name. A line of a log or an answer has no room for more, and names of Keystone are shorter.
fn bounded(name: &str) -> Arc<str> {
    let end = (0..=name.len().min(limits::KEYSTONE_NAME_BYTES)).rev().find(|end| name.is_char_boundary(*end));
    name[..end.unwrap_or(0)].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPIRES: &str = "2030-01-01T00:00:00.000000Z";

    fn holder(token: Value) -> Result<TokenHolder, String> {
        let body = json!({ "token": token }).to_string();
        super::token(body.as_bytes())?.holder(&RoleNames::default())
    }

    fn of_project(more: &Value) -> Value {
        let mut token = json!({
            "methods": ["password"], "user": {"id": "u", "name": "n", "domain": {"id": "default", "name": "Default"}},
            "expires_at": EXPIRES, "issued_at": EXPIRES, "audit_ids": ["x"], "catalog": [],
            "project": {"id": "p1", "name": "demo", "domain": {"id": "default", "name": "Default"}},
            "roles": [{"id": "1", "name": "member"}, {"id": "2", "name": "reader"}],
        });
        for (key, value) in more.as_object().unwrap() {
            token[key] = value.clone();
        }
        token
    }

    #[test]
    fn token_of_a_project_has_its_greatest_role() {
        for (more, role) in [
            (json!({}), Some(Role::Member)),
            (json!({"roles": [{"name": "Admin"}]}), Some(Role::Admin)),
            (json!({"roles": [{"name": "reader"}, {"name": "other"}]}), Some(Role::Reader)),
            (json!({"roles": [{"name": "other"}]}), None),
            (json!({"roles": []}), None),
            (json!({"roles": [{"name": "admin"}], "is_admin_project": false}), Some(Role::Member)),
            (json!({"roles": [{"name": "admin"}], "is_admin_project": true}), Some(Role::Admin)),
            (json!({"application_credential": {"id": "a", "restricted": true}}), Some(Role::Member)),
            (json!({"application_credential": {"id": "a", "access_rules": [{"path": "/v2/**"}]}}), None),
            (json!({"application_credential": {"id": "a", "access_rules": []}}), None),
        ] {
            let found = holder(of_project(&more)).unwrap();
            assert_eq!((found.project.unwrap().as_str(), found.role), ("p1", role), "{more}");
        }
    }

    #[test]
    fn name_of_user_is_bounded_and_may_be_absent() {
        let name = |user: Value| holder(of_project(&json!({ "user": user }))).unwrap().name;
        assert_eq!(name(json!({"name": "nora"})).as_deref(), Some("nora"));
        let long = "é".repeat(200);
        assert_eq!(name(json!({"name": long})).as_deref(), Some("é".repeat(127).as_str()));
        for user in [json!(null), json!({}), json!({"name": null}), json!({"name": ""})] {
            assert_eq!(name(user), None);
        }
    }

    #[test]
    fn token_of_anything_else_has_no_project() {
        for more in [
            json!({"project": null}),
            json!({"project": null, "domain": {"id": "d", "name": "D"}}),
            json!({"domain": {"id": "d", "name": "D"}}),
            json!({"project": null, "system": {"all": true}}),
            json!({"system": {"all": true}}),
            json!({"is_domain": true}),
        ] {
            assert_eq!(holder(of_project(&more)).unwrap().project, None, "{more}");
        }
    }

    #[test]
    fn incomplete_answer_is_unusable() {
        for more in [
            json!({"expires_at": "soon"}),
            json!({"expires_at": null}),
            json!({"expires_at": 1_893_456_000}),
            json!({"project": {"name": "demo"}}),
            json!({"project": {"id": ""}}),
            json!({"project": {"id": 7}}),
            json!({"project": {"id": "p".repeat(257)}}),
            json!({"project": "p1"}),
            json!({"roles": "admin"}),
            json!({"roles": ["admin"]}),
            json!({"roles": null}),
        ] {
            assert!(holder(of_project(&more)).is_err(), "{more}");
        }
        let twice = format!(
            r#"{{"token": {{"expires_at": "{EXPIRES}", "project": {{"id": "a"}}, "project": {{"id": "b"}}}}}}"#
        );
        let deep = format!(r#"{{"token": {{"x": {}{}}}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        for body in ["", "null", "[]", "{}", "{\"token\": null}", "<html>", "{\"token\": {}}", &twice, &deep]
        {
            let error = super::token(body.as_bytes()).err().unwrap();
            assert!(error.contains("is not a token") && error.len() < 120, "{error}");
        }
    }

    #[test]
    fn token_is_asked_for_by_password_or_application_credential() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "s\"3\n").unwrap();
        let secret = Secret::read(&path).unwrap();
        let name = |text: &str| text.to_owned();
        let by_password = Credentials::Password {
            user: name("angarium"),
            user_domain: name("Default"),
            project: name("service"),
            project_domain: name("Services"),
        };
        let body: Value = serde_json::from_slice(&authentication(&by_password, &secret)).unwrap();
        let user = &body["auth"]["identity"]["password"]["user"];
        assert_eq!(user, &json!({"name": "angarium", "domain": {"name": "Default"}, "password": "s\"3"}));
        let scope = json!({"project": {"name": "service", "domain": {"name": "Services"}}});
        assert_eq!(body["auth"]["scope"], scope);
        let by_credential = Credentials::Application { id: name("id") };
        let body: Value = serde_json::from_slice(&authentication(&by_credential, &secret)).unwrap();
        let identity = json!({
            "methods": ["application_credential"], "application_credential": {"id": "id", "secret": "s\"3"},
        });
        assert_eq!(body, json!({"auth": {"identity": identity}}));
    }
}
