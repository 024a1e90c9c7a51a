//! Settings of the SQS endpoint, and their consequences for accounts and regions.

use std::sync::Arc;

use tokio::sync::watch;

use super::context::ContextLimits;
use super::pauses::Pauses;
use crate::api::pipeline::identity::{Authentication, RegionalAccess};
use angarium_core::access_keys::AccessKeyTable;
use angarium_core::region::{Accounts, Regions};

/// Settings of the SQS endpoint.
#[derive(Clone, Debug)]
pub struct SqsSettings {
    /// The region of projects that name none.
    pub region: String,
    /// Other regions that requests may name.
    pub regions: Regions,
    /// Prefix of queue URLs, without a slash at the end; none: the address that the request was sent to.
    pub public_url: Option<String>,
    /// The scheme of that address.
    pub scheme: &'static str,
    /// The keys that requests must be signed with, which may change at run time; none: requests need no signature.
    pub keys: Option<watch::Receiver<Arc<AccessKeyTable>>>,
    /// Limits of a request.
    pub most: ContextLimits,
    /// Whether a queue can be purged or recreated at once.
    pub pauses: Pauses,
}

impl Default for SqsSettings {
    fn default() -> Self {
        Self {
            region: "us-east-1".to_owned(),
            regions: Regions::Any,
            public_url: None,
            scheme: "http",
            keys: None,
            most: ContextLimits::default(),
            pauses: Pauses::Off,
        }
    }
}

impl SqsSettings {
    /// Returns the mapping of projects to accounts: by region if clients can choose one.
    pub fn accounts(&self, authentication: &Authentication) -> Accounts {
        match (&self.keys, authentication) {
            // SQS serves no client.
            (None, Authentication::On(_)) => Accounts::Projects,
            (Some(_), _) | (None, Authentication::Off(_)) => self.regions.accounts(&self.region),
        }
    }

    /// Returns whether REST serves projects that a key may reach by its region.
    pub fn regional_projects(&self) -> RegionalAccess {
        let has_others = self.regions.accounts(&self.region) == Accounts::Regions;
        if self.keys.is_some() && has_others { RegionalAccess::Refused } else { RegionalAccess::Served }
    }
}
