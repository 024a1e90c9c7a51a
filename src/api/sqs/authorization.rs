//! Authorization of a request: the policy of each queue that it names, for each action.

use serde_json::value::RawValue;

use super::account::RegionalQueues;
use super::fault::{Fault, Kind};
use super::operation::Operation;
use super::permissions;
use super::policy::RequestFacts;
use super::resolution::{Part, ResolvedRequest, Target};
use angarium_broker::Broker;
use angarium_core::attributes;

/// Refuses a request for a queue of another account whose policy does not allow an action, or for a queue of the
/// caller's own account whose policy forbids it. The replica that serves the request checks the same resolved request
/// that the operation then uses.
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
            // An operation for which a queue requires no permission from its own account is not available to other
            // accounts.
            !target.actions.is_empty() && target.actions.iter().all(allows)
        };
        if !is_permitted {
            return Err(Fault::new(Kind::AccessDenied, "Access to the resource is denied."));
        }
    }
    Ok(())
}

/// Returns the policy of a queue as it was written; none without a policy or without the queue.
async fn policy(broker: &Broker, target: &Target) -> Result<Option<Box<RawValue>>, Fault> {
    let metadata = match target.part {
        Part::Subject => broker.queue_metadata(&target.queue).await?,
        // Another replica may serve this queue.
        _ => broker.queue_metadata_anywhere(&target.queue).await?,
    };
    let policy = metadata.and_then(|metadata| metadata.own().remove(attributes::POLICY));
    Ok(policy.filter(|policy| policy.get() != "null"))
}
