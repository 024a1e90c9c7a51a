//! The queues that a request names: resolved once, and used by all later steps.
//!
//! ```text
//! request ──▶ identify ──▶ ResolvedRequest::new ──▶ slot of the subject (forwarding)
//!                               │                 ├▶ authorize: each target, each action
//!                               ▼                 └▶ the operation, which reads no other name
//!                            refused: unresolved, of a wrong type, repeated, of another region
//! ```
//!
//! Only the members of the operation are read; a `QueueName` beside the `QueueUrl` of SendMessage is ignored.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::account::{self, Address, Caller, RegionalQueues};
use super::arguments::required;
use super::decode::Arguments;
use super::fault::Fault;
use super::incoming::IncomingRequest;
use super::operation::Operation;
use super::{move_tasks, queue_attributes, redrive};
use crate::api::json;
use angarium_core::limits;
use angarium_core::names::{ProjectId, QueueRef};

/// A request with its caller and its queues.
#[derive(Clone, Debug)]
pub struct ResolvedRequest {
    /// The operation of the request.
    pub operation: Operation,
    /// The account and the region of the caller.
    pub caller: Caller,
    /// The project of the caller in the region of the request.
    pub project: ProjectId,
    /// The arguments; the operation reads the members other than queues from here.
    pub arguments: Arguments,
    targets: Vec<Target>,
}

/// A queue that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The queue.
    pub queue: QueueRef,
    /// The role of the queue in the request.
    pub part: Part,
    /// The actions that the policy of the queue must permit.
    pub actions: &'static [Operation],
}

/// The role of a queue in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The queue of the operation. Its owner serves the request.
    Subject,
    /// The destination of a move task.
    Destination,
    /// The target for the dead letters of the subject. An attribute of the target permits this, as in AWS.
    DeadLetters,
    /// A queue that may use the subject as its dead-letter target.
    DeadLetterSource,
}

/// The queue in the path of a request that was sent to a queue URL.
pub type PathQueue = Option<Address>;

/// Whether the region of a request is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// The signature has the region. A queue of another region has another endpoint, as in AWS.
    Signed,
    /// The request only states a region, or none: the URL of a queue overrides it.
    Said,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ByUrl {
    queue_url: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ByName {
    queue_name: Option<String>,
    #[serde(rename = "QueueOwnerAWSAccountId")]
    owner: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NewQueue {
    queue_name: Option<String>,
    attributes: Option<DistinctAttributes>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ChangedQueue {
    queue_url: Option<String>,
    attributes: Option<DistinctAttributes>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ByArn {
    source_arn: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ByArns {
    source_arn: Option<String>,
    destination_arn: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ByHandle {
    task_handle: Option<String>,
}

/// Attributes without repeated names.
struct DistinctAttributes(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for DistinctAttributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = DistinctAttributes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("attributes by their names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DistinctAttributes, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    if entries.len() == limits::SQS_NAMES {
                        let why = format!("there are more than {} attributes", limits::SQS_NAMES);
                        return Err(serde::de::Error::custom(why));
                    }
                    if entries.insert(name, value).is_some() {
                        return Err(serde::de::Error::custom("an attribute is there twice"));
                    }
                }
                Ok(DistinctAttributes(entries))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

impl ResolvedRequest {
    /// Resolves the queues of a request of `caller`, and so its region; or refuses the request.
    pub fn new(
        asked: IncomingRequest,
        mut caller: Caller,
        region: Region,
        addressed: &PathQueue,
        places: &RegionalQueues,
    ) -> Result<Self, Fault> {
        let IncomingRequest { operation, arguments } = asked;
        let names = Names { places, caller: &caller, addressed };
        let targets = names.targets(operation, &arguments)?;
        if let Some(subject) = targets.first() {
            let (_, named) = places.split(&subject.queue.project);
            if named != caller.region && region == Region::Signed {
                return Err(Fault::other_region(named, &caller.region));
            }
            named.clone_into(&mut caller.region);
        }
        let project = places.project(&caller.account, &caller.region)?;
        Ok(Self { operation, caller, project, arguments, targets })
    }

    /// Returns the queues that the request names; none for an operation of the account.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Returns the queue with this role, if there is one.
    pub fn queue(&self, part: Part) -> Option<&QueueRef> {
        self.targets.iter().find(|target| target.part == part).map(|target| &target.queue)
    }

    /// Returns the queue of the operation.
    pub fn subject(&self) -> Result<&QueueRef, Fault> {
        self.queue(Part::Subject).ok_or_else(|| Fault::missing("QueueUrl"))
    }
}

/// The context for resolving names.
struct Names<'a> {
    places: &'a RegionalQueues,
    caller: &'a Caller,
    addressed: &'a PathQueue,
}

impl Names<'_> {
    fn targets(&self, operation: Operation, arguments: &Arguments) -> Result<Vec<Target>, Fault> {
        use Operation as O;
        match operation {
            O::ListQueues => Ok(Vec::new()),
            O::CreateQueue => {
                let NewQueue { queue_name, attributes } = arguments.read()?;
                let queue = self.of_name(&named(queue_name)?, None)?;
                self.with_attributes(queue, &[O::CreateQueue], attributes)
            }
            O::SetQueueAttributes => {
                let ChangedQueue { queue_url, attributes } = arguments.read()?;
                self.with_attributes(self.of_url(queue_url)?, &[O::SetQueueAttributes], attributes)
            }
            O::GetQueueUrl => {
                let ByName { queue_name, owner } = arguments.read()?;
                let queue = self.of_name(&named(queue_name)?, owner.as_deref())?;
                Ok(vec![subject(queue, operation.as_action())])
            }
            O::StartMessageMoveTask => self.of_move(arguments.read()?),
            O::ListMessageMoveTasks => {
                let ByArn { source_arn } = arguments.read()?;
                let queue = self.of_arn(move_tasks::SOURCE, &required(move_tasks::SOURCE, source_arn)?)?;
                Ok(vec![subject(queue, operation.as_action())])
            }
            O::CancelMessageMoveTask => {
                let ByHandle { task_handle } = arguments.read()?;
                let arn = move_tasks::source_of(&required(move_tasks::HANDLE, task_handle)?)?;
                let queue = self.places.of_arn(&arn).filter(|queue| self.is_of_region(queue));
                let queue = queue.ok_or_else(|| move_tasks::missing(move_tasks::SOURCE))?;
                Ok(vec![subject(queue, operation.as_action())])
            }
            O::AddPermission
            | O::ChangeMessageVisibility
            | O::ChangeMessageVisibilityBatch
            | O::DeleteMessage
            | O::DeleteMessageBatch
            | O::DeleteQueue
            | O::GetQueueAttributes
            | O::ListDeadLetterSourceQueues
            | O::ListQueueTags
            | O::PurgeQueue
            | O::ReceiveMessage
            | O::RemovePermission
            | O::SendMessage
            | O::SendMessageBatch
            | O::TagQueue
            | O::UntagQueue => {
                let ByUrl { queue_url } = arguments.read()?;
                Ok(vec![subject(self.of_url(queue_url)?, operation.as_action())])
            }
        }
    }

    /// Returns the queue of a URL, or else the queue that the request was sent to.
    fn of_url(&self, url: Option<String>) -> Result<QueueRef, Fault> {
        let Address { region, account, name } = match (url.filter(|url| !url.is_empty()), self.addressed) {
            (Some(url), _) => account::of_url(&url).ok_or_else(Fault::no_queue)?,
            (None, Some(address)) => address.clone(),
            (None, None) => return Err(Fault::missing("QueueUrl")),
        };
        let account = account.as_ref().unwrap_or(&self.caller.account);
        let project = self.places.project(account, region.as_ref().unwrap_or(&self.caller.region))?;
        let name = account::name(&name).map_err(|_| Fault::no_queue())?;
        Ok(QueueRef { project, name })
    }

    /// Returns the queue with a name, of the caller or of another account.
    fn of_name(&self, name: &str, owner: Option<&str>) -> Result<QueueRef, Fault> {
        let account = owner.filter(|owner| !owner.is_empty()).unwrap_or(&self.caller.account);
        let project = self.places.project(account, &self.caller.region)?;
        Ok(QueueRef { project, name: account::name(name)? })
    }

    /// Returns the queue of an ARN, which must be in the region of the request.
    fn of_arn(&self, member: &str, arn: &str) -> Result<QueueRef, Fault> {
        let queue = self.places.of_arn(arn).filter(|queue| self.is_of_region(queue));
        queue.ok_or_else(|| {
            let why = format!(
                "You must use this format to specify the {member}: arn:<partition>:<service>:<region>:<account-id>:\
                 <resource-id>, of a queue in {}",
                self.caller.region
            );
            Fault::parameter(member, arn, &why)
        })
    }

    fn is_of_region(&self, queue: &QueueRef) -> bool {
        self.places.split(&queue.project).1 == self.caller.region
    }

    /// Resolves the source and the destination of a move task; both must have the same account and region.
    fn of_move(&self, named: ByArns) -> Result<Vec<Target>, Fault> {
        const FROM: &[Operation] =
            &[Operation::StartMessageMoveTask, Operation::ReceiveMessage, Operation::DeleteMessage];
        let source = self.of_arn(move_tasks::SOURCE, &required(move_tasks::SOURCE, named.source_arn)?)?;
        let arn = named.destination_arn.filter(|arn| !arn.is_empty()).unwrap_or_default();
        let destination = (!arn.is_empty()).then(|| self.of_arn(move_tasks::TARGET, &arn)).transpose()?;
        if destination.as_ref().is_some_and(|destination| destination.project != source.project) {
            let why = "Both queues must be of one account and region";
            return Err(Fault::parameter(move_tasks::TARGET, arn, why));
        }
        let destination = destination.map(|queue| Target {
            queue,
            part: Part::Destination,
            actions: &[Operation::SendMessage],
        });
        Ok([subject(source, FROM)].into_iter().chain(destination).collect())
    }

    /// Returns a queue and the other queues that its new attributes name.
    fn with_attributes(
        &self,
        queue: QueueRef,
        actions: &'static [Operation],
        attributes: Option<DistinctAttributes>,
    ) -> Result<Vec<Target>, Fault> {
        let DistinctAttributes(attributes) = attributes.unwrap_or(DistinctAttributes(BTreeMap::new()));
        if let Some((name, value)) = attributes.iter().find(|(_, value)| json::is_too_deep(value.as_bytes()))
        {
            return Err(queue_attributes::invalid(name, value, "JSON of a bounded depth"));
        }
        let text = |name: &str| attributes.get(name).filter(|value| !value.is_empty());
        let mut others = Vec::new();
        if let Some(value) = text(redrive::NAME) {
            let target = redrive::target(value)?;
            let target = self.places.of_arn(&target).ok_or_else(|| redrive::wrong(value, redrive::NO_ARN))?;
            let (at, of) = (self.places.split(&target.project), self.places.split(&queue.project));
            if at.1 != of.1 {
                return Err(redrive::wrong(value, "Dead-letter target must be in same region as the source"));
            }
            if at.0 != of.0 {
                return Err(redrive::wrong(value, "Dead-letter target owner should be same as the source"));
            }
            others.push(Target { queue: target, part: Part::DeadLetters, actions: &[] });
        }
        if let Some(value) = text(redrive::ALLOW) {
            for arn in redrive::sources_of(value)? {
                let source = self.places.of_arn(&arn).filter(|source| source.project == queue.project);
                let source = source.ok_or_else(|| redrive::wrong_source(value, &arn))?;
                others.push(Target { queue: source, part: Part::DeadLetterSource, actions: &[] });
            }
        }
        Ok([subject(queue, actions)].into_iter().chain(others).collect())
    }
}

/// Returns the queue name of a request; it must not be empty.
fn named(name: Option<String>) -> Result<String, Fault> {
    let empty = "Value for parameter QueueName is invalid. Reason: Must specify a queue name.";
    name.filter(|name| !name.is_empty()).ok_or_else(|| Fault::value(empty))
}

fn subject(queue: QueueRef, actions: &'static [Operation]) -> Target {
    Target { queue, part: Part::Subject, actions }
}
