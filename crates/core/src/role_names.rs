//! The table from the role names of an identity service to the roles of this service.

use std::fmt;
use std::str::FromStr;

use crate::access::Role;

/// The role of each name, in the form `NAME=ROLE,NAME=ROLE`. Names are compared without case, as in OpenStack's
/// policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleNames(Vec<(String, Role)>);

impl RoleNames {
    /// Returns the greatest role of these names; none when no name is known.
    pub fn greatest<'a>(&self, names: impl Iterator<Item = &'a str>) -> Option<Role> {
        let role = |name: &str| {
            let entry = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            entry.map(|(_, role)| *role)
        };
        names.filter_map(role).max()
    }
}

/// The default roles of Keystone.
impl Default for RoleNames {
    fn default() -> Self {
        Self([Role::Admin, Role::Member, Role::Reader].map(|role| (role.as_str().to_owned(), role)).into())
    }
}

impl fmt::Display for RoleNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, role)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={role}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for RoleNames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut entries: Vec<(String, Role)> = Vec::new();
        for entry in text.split(',') {
            let form = "it is NAME=ROLE with commas between, where ROLE is reader, member or admin";
            let (name, role) = entry.split_once('=').ok_or(form)?;
            let (name, role) = (name.trim(), role.trim().parse().map_err(|_| form)?);
            if name.is_empty() {
                return Err(form.to_owned());
            }
            if entries.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
                return Err(format!("{name} is there twice"));
            }
            entries.push((name.to_owned(), role));
        }
        Ok(Self(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greatest_role_of_known_names_counts() {
        let names: RoleNames = "cloud_admin=admin, member=member,Auditor=reader".parse().unwrap();
        for (held, role) in [
            (&["member", "auditor"][..], Some(Role::Member)),
            (&["AUDITOR"], Some(Role::Reader)),
            (&["member", "Cloud_Admin"], Some(Role::Admin)),
            (&["admin", "members", "member ", ""], None),
            (&[], None),
        ] {
            assert_eq!(names.greatest(held.iter().copied()), role, "{held:?}");
        }
    }

    #[test]
    fn shown_form_is_read_back() {
        let default = RoleNames::default();
        assert_eq!(default.to_string(), "admin=admin,member=member,reader=reader");
        assert_eq!(default.to_string().parse(), Ok(default));
        for bad in ["", "admin", "admin=", "=admin", "admin=king", "a=admin,", "a=admin,A=member"] {
            assert!(bad.parse::<RoleNames>().is_err(), "{bad}");
        }
    }
}
