//! Whether the caller of a request may do what it asks for: the policy of each queue that it names, for each action.

use serde_json::value::RawValue;

use super::account::RegionalQueues;
use super::fault::{Fault, Kind};
use super::operation::Operation;
use super::permissions;
use super::policy::RequestFacts;
use super::resolution::{Part, ResolvedRequest, Target};
use angarium_broker::Broker;
use angarium_core::attributes;

/// Refuses a request that names a queue of another account whose policy does not allow an action, or one of the caller's own
/// whose policy forbids it. The replica that serves the request asks with the same value that the operation is run with.
pub async fn authorize(
    broker: &Broker,
    places: &RegionalQueues,
    request: &ResolvedRequest,
    facts: &RequestFacts<'_>,
) -> Result<(), Fault> {
    for target in request.targets() {
        let is_own = target.queue.project == request.project;
        if is_own && (target.actions.is_empty() || !broker.may_have_policy(&target.queue)) {
            continue;
        }
        let policy = policy(broker, target).await?;
        let (policy, arn) = (policy.as_deref().map(RawValue::get), places.arn(&target.queue));
        let forbids = |action: &Operation| permissions::forbids(policy, facts, *action, &arn);
        let allows = |action: &Operation| permissions::allows(policy, facts, *action, &arn);
        let is_permitted = if is_own {
            !target.actions.iter().any(forbids)
        } else {
            // A queue that needs no permission of its own account is no business of another one.
            !target.actions.is_empty() && target.actions.iter().all(allows)
        };
        if !is_permitted {
            return Err(Fault::new(Kind::AccessDenied, "Access to the resource is denied."));
        }
    }
    Ok(())
}

/// The policy of a queue, as it was written; none when there is none, or no such queue.
async fn policy(broker: &Broker, target: &Target) -> Result<Option<Box<RawValue>>, Fault> {
    let metadata = match target.part {
        Part::Subject => broker.queue_metadata(&target.queue).await?,
        // Another replica may serve it.
        _ => broker.queue_metadata_anywhere(&target.queue).await?,
    };
    let policy = metadata.and_then(|metadata| metadata.own().remove(attributes::POLICY));
    Ok(policy.filter(|policy| policy.get() != "null"))
}
