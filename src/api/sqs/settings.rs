//! How the endpoint of SQS was set up, and what follows from that for accounts and their regions.

use std::sync::Arc;

use tokio::sync::watch;

use super::context::ContextLimits;
use super::pauses::Pauses;
use crate::api::pipeline::identity::{Authentication, RegionalAccess};
use angarium_core::access_keys::AccessKeyTable;
use angarium_core::region::{Accounts, Regions};

/// How the endpoint was set up.
#[derive(Clone, Debug)]
pub struct SqsSettings {
    /// The region of projects that name none.
    pub region: String,
    /// The regions that requests may be for beside it.
    pub regions: Regions,
    /// What the URLs of queues begin with, without a slash at the end; the address that the request was sent to when absent.
    pub public_url: Option<String>,
    /// The scheme of that address.
    pub scheme: &'static str,
    /// The keys that requests must be signed with, which may change while it runs; none: they need no signature.
    pub keys: Option<watch::Receiver<Arc<AccessKeyTable>>>,
    /// What requests may ask for.
    pub most: ContextLimits,
    /// Whether a queue is not purged or made again at once.
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
    /// How projects belong to accounts: by their regions, where a client can choose one.
    pub fn accounts(&self, authentication: &Authentication) -> Accounts {
        match (&self.keys, authentication) {
            // No client is served by SQS.
            (None, Authentication::On(_)) => Accounts::Projects,
            (Some(_), _) | (None, Authentication::Off(_)) => self.regions.accounts(&self.region),
        }
    }

    /// What becomes of callers of REST whose project a key may reach by its region.
    pub fn regional_projects(&self) -> RegionalAccess {
        let has_others = self.regions.accounts(&self.region) == Accounts::Regions;
        if self.keys.is_some() && has_others { RegionalAccess::Refused } else { RegionalAccess::Served }
    }
}
