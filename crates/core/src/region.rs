//! Regions of SQS, and the accounts to which projects belong.
//!
//! In a region other than the service's own, the project of an account is `ACCOUNT@REGION`. The client chooses the
//! region, so the bounds of an account apply to all its regions together.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::limits;
use crate::names::ProjectId;

/// Regions that requests may name, in addition to the service's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Regions {
    /// Any region.
    #[default]
    Any,
    /// These regions; the set may be empty.
    Named(BTreeSet<String>),
}

/// How projects belong to accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accounts {
    /// Each project is an account of its own.
    #[default]
    Projects,
    /// The projects `ACCOUNT@REGION` belong to the account in front of the `@`.
    Regions,
}

/// Whether a text is the name of a region.
pub fn is_region(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=limits::SQS_REGION_CHARS).contains(&text.len()) && text.bytes().all(plain)
}

impl Regions {
    /// Whether the service serves requests for `region`; `own` is its own region.
    pub fn contains(&self, own: &str, region: &str) -> bool {
        match self {
            _ if region == own => true,
            Self::Any => is_region(region),
            Self::Named(names) => names.contains(region),
        }
    }

    /// How projects belong to accounts, if `own` is the service's own region.
    pub fn accounts(&self, own: &str) -> Accounts {
        match self {
            Self::Named(names) if names.iter().all(|name| name == own) => Accounts::Projects,
            Self::Named(_) | Self::Any => Accounts::Regions,
        }
    }
}

impl FromStr for Regions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let names: BTreeSet<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        match names.iter().find(|name| !is_region(name)) {
            Some(wrong) => Err(format!(
                "{wrong:?} is no region: it has 1 to {} lower-case letters, digits and hyphens; * is any region",
                limits::SQS_REGION_CHARS
            )),
            None => Ok(Self::Named(names)),
        }
    }
}

impl fmt::Display for Regions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Named(names) => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                f.write_str(&names.join(","))
            }
        }
    }
}

impl Accounts {
    /// Returns the account and the region of a project; no region when the project is the whole account.
    pub fn split(self, project: &str) -> (&str, Option<&str>) {
        match project.rsplit_once('@') {
            Some((account, region)) if self == Self::Regions && !account.is_empty() && is_region(region) => {
                (account, Some(region))
            }
            _ => (project, None),
        }
    }

    /// Returns the account of a project, as the project that the account has in the service's own region. An account
    /// belongs to itself.
    pub fn of(self, project: &ProjectId) -> ProjectId {
        let mut account = project.as_str();
        while let (shorter, Some(_)) = self.split(account) {
            account = shorter;
        }
        if account.len() == project.as_str().len() {
            project.clone()
        } else {
            ProjectId::new(account).unwrap_or_else(|_| project.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_names_are_bounded() {
        for good in ["a", "us-east-1", "elasticmq", &"r".repeat(32)] {
            assert!(is_region(good) && Regions::Any.contains("own", good), "{good}");
        }
        for bad in ["", "US", "a.b", "a@b", "a/b", "ä", &"r".repeat(33)] {
            assert!(!is_region(bad) && !Regions::Any.contains("own", bad), "{bad}");
        }
    }

    #[test]
    fn named_regions_exclude_the_others() {
        let regions: Regions = "eu-west-1, us-west-2".parse().unwrap();
        assert!(regions.contains("us-east-1", "us-east-1") && regions.contains("us-east-1", "us-west-2"));
        assert!(!regions.contains("us-east-1", "ap-east-1"));
        assert_eq!(regions.accounts("us-east-1"), Accounts::Regions);
        assert_eq!("us-east-1".parse::<Regions>().unwrap().accounts("us-east-1"), Accounts::Projects);
        assert!("eu,".parse::<Regions>().is_err() && "EU".parse::<Regions>().is_err());
        assert_eq!("*".parse::<Regions>(), Ok(Regions::Any));
        assert_eq!(regions.to_string().parse(), Ok(regions));
    }

    #[test]
    fn projects_of_all_regions_belong_to_one_account() {
        let of = |text: &str| Accounts::Regions.of(&ProjectId::new(text).unwrap()).as_str().to_owned();
        for (project, account) in [
            ("alice", "alice"),
            ("alice@corp", "alice"),
            ("a@b@eu-west-1", "a"),
            ("joe@example.com", "joe@example.com"),
            ("@corp", "@corp"),
        ] {
            assert_eq!(of(project), account);
            assert_eq!(Accounts::Projects.of(&ProjectId::new(project).unwrap()).as_str(), project);
        }
    }
}
