//! A pool: a registered storage, and its settings.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::error::{Error, InvalidPart};
use crate::limits;
use crate::names::FlavorName;

/// The record of a pool in the catalogue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pool {
    /// The id that is stamped into the storage: it identifies the pool, whatever its name.
    pub id: Uuid,
    /// The address of its storage.
    pub uri: PoolUri,
    /// Weight of the pool in the placement of new queues; a pool of weight 0 gets none.
    pub weight: u32,
    /// The flavor whose queues it takes; none: it takes the queues without a flavor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<FlavorName>,
    /// Options of its driver.
    #[serde(default)]
    pub options: PoolOptions,
    /// Whether it takes part in placement.
    pub state: PoolState,
    /// Whether a request is checking whether the pool is in use, to delete it or to change its storage. It gets no new
    /// queue meanwhile.
    #[serde(default, skip_serializing_if = "is_false")]
    pub closing: bool,
    /// Terms of the drain, while its queues are moved away. The state is draining then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainTerms>,
}

/// Terms of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainTerms {
    /// Max messages a second that the migration of each queue copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Pool {
    /// Returns an active pool for queues without a flavor.
    pub fn new(id: Uuid, uri: PoolUri, weight: u32) -> Self {
        let (options, state) = (PoolOptions::default(), PoolState::Active);
        Self { id, uri, weight, flavor: None, options, state, closing: false, drain: None }
    }

    /// Whether a new queue of this flavor may be placed in the pool.
    pub fn takes(&self, flavor: Option<&FlavorName>) -> bool {
        self.state == PoolState::Active && !self.closing && self.weight > 0 && self.flavor.as_ref() == flavor
    }
}

/// Whether new queues may be placed in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolState {
    /// It takes new queues according to its weight.
    Active,
    /// It takes no new queues, whatever its weight.
    Draining,
}

impl PoolState {
    /// The state as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
        }
    }

    /// Reads a state.
    pub fn parse(text: &str) -> Result<Self, Error> {
        match text {
            "active" => Ok(Self::Active),
            "draining" => Ok(Self::Draining),
            _ => Err(Error::invalid(InvalidPart::Body, "state", "it is either active or draining")),
        }
    }
}

/// The address of a pool's storage: 1 to 255 characters (Zaqar's bound) that begin with a scheme. The drivers decide
/// which schemes exist.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PoolUri(String);

impl fmt::Debug for PoolUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_password())
    }
}

impl PoolUri {
    /// Checks a URI.
    pub fn new(text: &str) -> Result<Self, Error> {
        let wrong = |why: String| Err(Error::invalid(InvalidPart::Body, "uri", why));
        if !(1..=limits::POOL_URI_CHARS).contains(&text.chars().count()) {
            return wrong(format!("it has 1 to {} characters", limits::POOL_URI_CHARS));
        }
        if text.chars().any(char::is_control)
            || text.split_once(':').is_none_or(|(scheme, _)| scheme.is_empty())
        {
            return wrong("it is a scheme, a colon and a place, as in embedded:PATH".into());
        }
        Ok(Self(text.to_owned()))
    }

    /// The URI with `***` in place of passwords, for answers and logs.
    pub fn without_password(&self) -> String {
        hide_passwords(&self.0)
    }

    /// The URI as text. It may have a password, so only drivers may use it; never put it into an answer or a log.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether both URIs certainly name the same storage: the same text, or another spelling of the same path.
    pub fn is_at(&self, other: &Self) -> bool {
        let path = |uri: &Self| uri.0.strip_prefix("embedded:").map(PathBuf::from);
        path(self).map_or(self == other, |mine| path(other) == Some(mine))
    }

    /// Whether the storage is on the disk of the process that opens it.
    pub fn is_embedded(&self) -> bool {
        self.0.starts_with("embedded:")
    }
}

/// Returns text that may be a URI with `***` in place of its passwords: that of the login, and those of parameters.
pub fn hide_passwords(uri: &str) -> String {
    let (rest, query) = uri.split_once('?').map_or((uri, None), |(rest, query)| (rest, Some(query)));
    let mut shown = match rest.split_once("://") {
        Some((scheme, authority)) => format!("{scheme}://{}", hide_login(authority)),
        None => rest.to_owned(),
    };
    let hide = |parameter: &str| match parameter.split_once('=') {
        Some((name, _)) if name.contains("password") => format!("{name}=***"),
        Some(_) | None => parameter.to_owned(),
    };
    if let Some(query) = query {
        shown.push('?');
        shown.push_str(&query.split('&').map(hide).collect::<Vec<_>>().join("&"));
    }
    shown
}

/// Hides the password in the login, which is the part before the last `@`: everything behind its first colon.
fn hide_login(authority: &str) -> String {
    match authority.rsplit_once('@') {
        Some((login, hosts)) => {
            let user = login.split_once(':').map_or(login, |(user, _)| user);
            let mark = if user.len() < login.len() { ":***" } else { "" };
            format!("{user}{mark}@{hosts}")
        }
        None => authority.to_owned(),
    }
}

/// The options of a pool's driver: a JSON object, stored as its text.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PoolOptions(Box<RawValue>);

impl Default for PoolOptions {
    fn default() -> Self {
        Self(RawValue::from_string("{}".into()).expect("an empty object is JSON"))
    }
}

impl PoolOptions {
    /// Checks JSON text: it must be an object.
    pub fn new(text: Box<RawValue>) -> Result<Self, Error> {
        if !text.get().starts_with('{') {
            return Err(Error::invalid(InvalidPart::Body, "options", "must be a JSON object"));
        }
        Ok(Self(text))
    }

    /// The JSON text.
    pub fn as_raw(&self) -> &RawValue {
        &self.0
    }
}

/// Checks a weight: 0 to 2^32 - 1, as in Zaqar.
pub fn weight(weight: i64) -> Result<u32, Error> {
    let why = || format!("{weight} is not between 0 and {}", u32::MAX);
    u32::try_from(weight).map_err(|_| Error::invalid(InvalidPart::Limit, "weight", why()))
}

/// A requested change of a pool. An absent field stays as it is.
#[derive(Clone, Debug, Default)]
pub struct PoolChange {
    /// Address of the storage.
    pub uri: Option<PoolUri>,
    /// Weight in the placement of new queues.
    pub weight: Option<u32>,
    /// Flavor; `Some(None)` removes it.
    pub flavor: Option<Option<FlavorName>>,
    /// Options of the driver.
    pub options: Option<PoolOptions>,
    /// Whether it takes part in placement. An active pool drains no longer.
    pub state: Option<PoolState>,
    /// New terms of its drain.
    pub drain: Option<DrainTerms>,
}

impl PoolChange {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        let Self { uri, weight, flavor, options, state, drain } = self;
        let keeps_storage = uri.is_none() && options.is_none();
        keeps_storage && weight.is_none() && flavor.is_none() && state.is_none() && drain.is_none()
    }

    /// Returns the pool after the change, except for its URI.
    pub fn apply(&self, mut pool: Pool) -> Pool {
        pool.weight = self.weight.unwrap_or(pool.weight);
        pool.flavor = self.flavor.clone().unwrap_or(pool.flavor);
        pool.options = self.options.clone().unwrap_or(pool.options);
        pool.state = self.state.unwrap_or(pool.state);
        pool.drain = self.drain.or(pool.drain).filter(|_| pool.state == PoolState::Draining);
        pool
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_have_a_scheme_and_zaqars_length() {
        for good in ["embedded:journal", "redis://h:6379", &format!("x:{}", "a".repeat(253))] {
            assert!(PoolUri::new(good).is_ok(), "{good}");
        }
        for bad in ["", "journal", ":journal", "embedded:a\nb", &format!("x:{}", "a".repeat(254))] {
            assert!(PoolUri::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_path_is_one_place_however_it_is_spelt() {
        let uri = |text: &str| PoolUri::new(text).unwrap();
        for same in ["embedded:a/b", "embedded:a/b/", "embedded:a//b", "embedded:a/./b"] {
            assert!(uri(same).is_at(&uri("embedded:a/b")), "{same}");
        }
        for other in ["embedded:a", "embedded:a/bc", "redis://a/b", "redis:a/b"] {
            assert!(!uri(other).is_at(&uri("embedded:a/b")), "{other}");
            assert!(!uri("embedded:a/b").is_at(&uri(other)), "{other}");
        }
        assert!(uri("redis://a").is_at(&uri("redis://a")) && !uri("redis://a").is_at(&uri("redis://a/")));
    }

    #[test]
    fn passwords_are_hidden_wherever_they_stand() {
        for (uri, shown) in [
            ("embedded:journal", "embedded:journal"),
            ("redis://h:6379/0?prefix=a", "redis://h:6379/0?prefix=a"),
            ("redis://u@h", "redis://u@h"),
            ("redis://u:se@cr:et@h:1,i:2/x?a=b", "redis://u:***@h:1,i:2/x?a=b"),
            (
                "redis-sentinel://:s@h/m?sentinel_password=s&wait=1",
                "redis-sentinel://:***@h/m?sentinel_password=***&wait=1",
            ),
        ] {
            assert_eq!(PoolUri::new(uri).unwrap().without_password(), shown);
        }
    }

    #[test]
    fn a_record_of_the_first_version_is_read() {
        let record = r#"{"id": "00000000-0000-0000-0000-000000000001", "uri": "embedded:journal", "weight": 100,
            "state": "active"}"#;
        let pool: Pool = serde_json::from_str(record).unwrap();
        assert!(pool.takes(None) && pool.options.as_raw().get() == "{}");
    }

    #[test]
    fn a_pool_takes_queues_of_its_own_flavor_only() {
        let flavor = FlavorName::new("fast").unwrap();
        let uri = PoolUri::new("embedded:a").unwrap();
        let plain = Pool::new(Uuid::nil(), uri, 1);
        let fast = Pool { flavor: Some(flavor.clone()), ..plain.clone() };
        assert!(plain.takes(None) && !plain.takes(Some(&flavor)));
        assert!(!fast.takes(None) && fast.takes(Some(&flavor)));
        assert!(!Pool { weight: 0, ..plain.clone() }.takes(None));
        assert!(!Pool { state: PoolState::Draining, ..plain.clone() }.takes(None));
        assert!(!Pool { closing: true, ..plain }.takes(None));
    }
}
