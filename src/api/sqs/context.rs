//! What an operation is carried out with: who asks, how queues are named, what the product does.

use std::time::Duration;

use super::account::{self, Caller, Places};
use super::fault::Fault;
use super::pauses::Pauses;
use crate::broker::Broker;
use crate::domain::limits;
use crate::domain::names::{ProjectId, QueueRef};
use crate::domain::trace::TraceContext;

/// What a request is carried out with.
pub struct Context<'a> {
    /// What the product does.
    pub broker: &'a Broker,
    /// Who asks.
    pub caller: &'a Caller,
    /// How queues are named.
    pub places: &'a Places,
    /// What the URLs of queues begin with.
    pub base: &'a str,
    /// The account and the name in the path of the request, if it was sent to the URL of a queue.
    pub addressed: Option<&'a (String, String)>,
    /// The trace of the request.
    pub trace: Option<TraceContext>,
    /// How long it has waited already, at other replicas or for its slot.
    pub waited: Duration,
    /// What a request may ask for.
    pub most: Most,
    /// What SQS refuses to do again at once.
    pub pauses: Pauses,
}

/// Bounds that an operator may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// Messages of a receive, and entries of a batch.
    pub batch: usize,
    /// Messages of a queue under claims.
    pub in_flight: usize,
}

impl Default for Most {
    fn default() -> Self {
        Self { batch: limits::SQS_BATCH, in_flight: limits::SQS_IN_FLIGHT }
    }
}

impl Context<'_> {
    /// The project of the caller.
    pub fn project(&self) -> Result<ProjectId, Fault> {
        self.places.project(&self.caller.account, &self.caller.region)
    }

    /// The queue that a request means: by its parameter, or else by the URL it was sent to.
    pub fn queue(&self, url: Option<String>) -> Result<QueueRef, Fault> {
        let (account, name) = match (url.filter(|url| !url.is_empty()), self.addressed) {
            (Some(url), _) => account::of_url(&url).ok_or_else(Fault::no_queue)?,
            (None, Some((account, name))) => (Some(account.clone()), name.clone()),
            (None, None) => return Err(Fault::missing("QueueUrl")),
        };
        let account = account.unwrap_or_else(|| self.caller.account.clone());
        let project = self.places.project(&account, &self.caller.region)?;
        let name = account::name(&name).map_err(|_| Fault::no_queue())?;
        Ok(QueueRef { project, name })
    }

    /// A queue by its name, of the caller or of somebody else.
    pub fn named(&self, name: &str, owner: Option<&str>) -> Result<QueueRef, Fault> {
        let account = owner.filter(|owner| !owner.is_empty()).unwrap_or(&self.caller.account);
        let project = self.places.project(account, &self.caller.region)?;
        Ok(QueueRef { project, name: account::name(name)? })
    }

    /// The URL of a queue.
    pub fn url(&self, queue: &QueueRef) -> String {
        let (account, _) = self.places.split(&queue.project);
        account::url(self.base, account, &queue.name)
    }
}
