//! The sentence that explains a queue: first whether a claim would get a message, then the reasons and all else that a
//! person who looks at the queue may miss. The words need no knowledge of the service.

use angarium_core::group::GroupName;
use angarium_core::hold::{AppliedHold, AppliedHolds, GroupHold, Hold, HoldTarget, PostEffect};
use angarium_core::overflow::Gap;
use angarium_core::time::Timestamp;
use angarium_engine::{Availability, QueueFacts};
use angarium_metrics::SessionState;

use crate::explain::pool_state::PoolState;
use crate::explain::queue::{ExplainedCounts, LimitEffect, QueueExplanation, ReachedLimit};
use crate::explain::words::{be, counted, date, listed, messages_are};
use crate::webhooks::WebhookStatus;

/// Seconds for which the sentence names the last refused claim.
const REFUSAL_SECONDS: u64 = 300;

/// Returns the sentence about a queue.
pub(super) fn sentence(queue: &QueueExplanation) -> String {
    let (head, end) = head(queue);
    let clauses = clauses(queue);
    if clauses.is_empty() { format!("{head}.") } else { format!("{head}{end} {}.", clauses.join("; ")) }
}

/// Returns the first clause, and the mark between it and the others.
fn head(queue: &QueueExplanation) -> (String, &'static str) {
    if let Some(subscriptions) = queue.subscriptions {
        return (topic(subscriptions), ";");
    }
    if let Some(why) = barred(&queue.holds) {
        return (format!("A claim gets nothing now, because {why}"), ";");
    }
    if let Some(refusal) = refusal(queue.session, &queue.limits) {
        return (format!("No message can be claimed now, because {refusal}"), ";");
    }
    if queue.is_barred_by_fill {
        return ("A claim gets nothing until all earlier messages of the source are copied".to_owned(), ";");
    }
    let Some(counts) = queue.counts else {
        return (format!("The messages of the queue cannot be read now, because {}", fault(queue)), ";");
    };
    let ExplainedCounts { ready, delayed, claimed, in_transfer, kept } = counts;
    if ready + delayed + claimed + in_transfer + kept == 0 {
        return ("The queue is empty: a claim gets nothing until a message is posted".to_owned(), ";");
    }
    if ready + delayed + claimed + in_transfer == 0 {
        return ("A claim gets nothing until a message is posted".to_owned(), ":");
    }
    let facts = queue.facts.as_ref();
    let fit = ready - facts.map_or(0, unfit).min(ready);
    let available = facts.map_or(Availability::Unknown, |facts| facts.available);
    if fit == 0 || available == Availability::Nothing {
        return ("A claim gets nothing now".to_owned(), ":");
    }
    let blocked = facts.map_or(0, |facts| facts.groups_blocked);
    let ready = messages_are(fit);
    let text = match (available, fit) {
        (Availability::Unknown, 1) => {
            format!("{ready} ready, and only a claim shows whether it can be claimed now")
        }
        (Availability::Unknown, _) => {
            format!("{ready} ready, and only a claim shows whether one of them can be claimed now")
        }
        _ if blocked > 0 => format!("{ready} ready, and a claim gets those of groups that are not blocked"),
        _ if has_barred_groups(queue) => {
            format!("{ready} ready, and a claim gets those of groups that are not held")
        }
        _ => format!("{ready} ready: a claim gets the oldest"),
    };
    (text, ";")
}

/// Returns the first clause about a topic.
fn topic(subscriptions: usize) -> String {
    match u64::try_from(subscriptions).unwrap_or(u64::MAX) {
        0 => "This is a topic without subscriptions: messages that are posted to it are dropped".to_owned(),
        count => format!(
            "This is a topic with {}: a message is copied for each one whose filter accepts it, and the topic keeps none",
            counted(count, "subscription")
        ),
    }
}

/// Returns all holds because of which claims get nothing, if there are such holds.
pub(super) fn barred(holds: &AppliedHolds) -> Option<String> {
    holds_with(holds, |applied| applied.hold.effects.bars_claims())
}

/// Returns the holds that `is_meant` accepts, each with who made it, why and until when.
fn holds_with(holds: &AppliedHolds, is_meant: impl Fn(&AppliedHold) -> bool) -> Option<String> {
    let texts: Vec<String> = holds.0.iter().filter(|applied| is_meant(applied)).map(held).collect();
    (!texts.is_empty()).then(|| texts.join(", and "))
}

fn held(AppliedHold { target, hold }: &AppliedHold) -> String {
    let held = match target {
        None => "the queue".to_owned(),
        Some(HoldTarget::Pool(pool)) => format!("pool {pool}"),
        Some(HoldTarget::Project(_)) => "the project of the queue".to_owned(),
    };
    format!("{held} is {}", under(hold))
}

/// Returns who holds it, why and until when.
pub(super) fn under(hold: &Hold) -> String {
    let by = hold.by.as_ref().map(|by| format!(" by {by:?}")).unwrap_or_default();
    let until =
        hold.until.map_or_else(|| " until it is released".to_owned(), |at| format!(" until {}", date(at)));
    format!("held{by}{until} ({})", hold.reason)
}

/// Number of ready messages that no claim gets, as far as memory knows.
fn unfit(facts: &QueueFacts) -> u64 {
    facts.expired.unwrap_or(0) + facts.used_up.unwrap_or(0)
}

/// Returns why every claim is refused, if it is.
pub(super) fn refusal(session: SessionState, limits: &[ReachedLimit]) -> Option<String> {
    if session != SessionState::Connected {
        return Some("the service has no connection to the servers that store the claims".to_owned());
    }
    let limit = limits.iter().find(|limit| limit.effect == LimitEffect::Claims);
    limit.map(|ReachedLimit { what, bound, .. }| format!("there are {bound} {what}, as many as there may be"))
}

fn fault(queue: &QueueExplanation) -> String {
    let pools = [Some(&queue.pool), queue.older_pool.as_ref()];
    let down = pools.into_iter().flatten().find(|pool| !pool.is_up).unwrap_or(&queue.pool);
    let PoolState { name, why, .. } = down;
    match why {
        Some(why) if why.contains(&format!("pool {name}")) => why.clone(),
        Some(why) => format!("pool {name} is not up: {why}"),
        None => format!("pool {name} does not answer"),
    }
}

/// Returns the other clauses: reasons first.
fn clauses(queue: &QueueExplanation) -> Vec<String> {
    let mut clauses = Vec::new();
    let (counts, now) = (queue.counts.unwrap_or_default(), queue.now);
    if let Some(facts) = &queue.facts {
        clauses.extend(claimed(counts.claimed, facts, now));
    }
    clauses.extend(held_groups(&queue.group_holds, now));
    clauses.extend(delayed(counts.delayed, queue.next_due, !queue.group_holds.is_empty(), now));
    if let Some(facts) = &queue.facts {
        clauses.extend(blocked(counts.ready, facts, has_barred_groups(queue)));
        clauses.extend(used_up(queue, facts));
        clauses.extend(expired(facts));
    }
    clauses.extend(transfers(counts.in_transfer, queue));
    if counts.kept > 0 {
        let kept = messages_are(counts.kept);
        clauses.push(format!("{kept} kept as done or failed, and no claim gets a kept message"));
    }
    if let Some(facts) = &queue.facts {
        clauses.extend(noisy(facts));
        if facts.waits_for_copies {
            clauses.push("messages are being copied to another pool, and claims wait for that".to_owned());
        }
    }
    clauses.extend(service(queue));
    clauses
}

fn claimed(count: u64, facts: &QueueFacts, now: Timestamp) -> Option<String> {
    if count == 0 {
        return None;
    }
    let messages = messages_are(count);
    if facts.claims == 0 {
        return Some(format!("{messages} about to be claimed or given back"));
    }
    let mut names: Vec<String> =
        facts.holders.iter().map(|holder| format!("{:?}", holder.to_string())).collect();
    if facts.has_unnamed && !names.is_empty() {
        names.push("a holder without a name".to_owned());
    }
    let by = if names.is_empty() { String::new() } else { format!(" by {}", listed(&names, names.len())) };
    let one = facts.claims == 1;
    let claims = if one { String::new() } else { format!(" in {} claims", facts.claims) };
    let until = match facts.next_expiry {
        None => String::new(),
        Some(at) if at <= now => ", and a claim has expired and is being ended".to_owned(),
        Some(at) if one => format!(" until {}", date(at)),
        Some(at) => format!(", and the first claim expires at {}", date(at)),
    };
    Some(format!("{messages} claimed{by}{claims}{until}"))
}

/// Returns which groups are held, and which are being released.
fn held_groups(holds: &[(GroupName, GroupHold)], now: Timestamp) -> Vec<String> {
    let (ended, held): (Vec<_>, Vec<_>) = holds.iter().partition(|(_, held)| held.is_ended(now));
    let (barred, posts_alone): (Vec<_>, Vec<_>) = held.into_iter().partition(|(_, held)| held.bars_claims());
    let mut clauses = Vec::new();
    if let [(group, held)] = barred[..] {
        clauses.push(format!("group {group} is {}, and its messages expire meanwhile", under(&held.hold)));
    } else if let Some((group, held)) = barred.first() {
        let groups = barred.len();
        clauses.push(format!("{groups} groups are held, and group {group} is {}", under(&held.hold)));
    }
    if let Some((group, held)) = posts_alone.first() {
        let posts = match (posts_alone.len(), held.hold.effects.posts()) {
            (1, Some(PostEffect::Discarded)) => format!("posts to group {group} are discarded, because it"),
            (1, _) => format!("posts to group {group} are refused, because it"),
            (groups, _) => format!("posts to {groups} groups are refused or discarded: group {group}"),
        };
        clauses.push(format!("{posts} is {}", under(&held.hold)));
    }
    if let Some((group, _)) = ended.iter().find(|(_, held)| held.hold.effects.bars_claims()) {
        clauses.push(format!("messages of group {group} are about to become ready, because it was released"));
    }
    clauses
}

fn delayed(count: u64, next_due: Option<Timestamp>, has_held: bool, now: Timestamp) -> Option<String> {
    if count == 0 {
        return None;
    }
    let messages = messages_are(count);
    Some(match next_due {
        None => format!("{messages} delayed"),
        Some(Timestamp::NEVER) if has_held => {
            format!("{messages} parked until a requeue, or of a held group and put aside until its release")
        }
        Some(Timestamp::NEVER) => format!("{messages} parked until a requeue"),
        Some(at) if at <= now => format!("{messages} delayed, and the first is about to become ready"),
        Some(at) if count == 1 => format!("{messages} delayed until {}", date(at)),
        Some(at) => format!("{messages} delayed, the first until {}", date(at)),
    })
}

/// Whether no claim gets messages of some groups, because they are held.
fn has_barred_groups(queue: &QueueExplanation) -> bool {
    queue.group_holds.iter().any(|(_, held)| held.bars_claims())
}

fn blocked(ready: u64, facts: &QueueFacts, has_barred: bool) -> Option<String> {
    let count = u64::try_from(facts.groups_blocked).unwrap_or(u64::MAX);
    if ready > 0 && has_barred && facts.available == Availability::Nothing {
        let messages = messages_are(ready);
        return Some(format!(
            "{messages} ready, but of held groups or behind an earlier message of the group"
        ));
    }
    if count == 0 || ready == 0 {
        return None;
    }
    let groups = counted(count, "group");
    let waits = match (facts.available, ready) {
        (Availability::Nothing, 1) => "1 message is ready, but waits",
        (Availability::Nothing, _) => &format!("{ready} messages are ready, but wait"),
        // Memory does not know whether one of them waits.
        _ => {
            return Some(format!(
                "in {groups} a message is claimed, delayed or in transfer, and any later ones of its group wait for it"
            ));
        }
    };
    Some(format!(
        "{waits}: in {groups} an earlier message is claimed, delayed or in transfer, and the later ones follow it"
    ))
}

fn used_up(queue: &QueueExplanation, facts: &QueueFacts) -> Option<String> {
    let count = facts.used_up.filter(|count| *count > 0)?;
    let target = queue.dead_letter_queue.as_ref()?;
    let messages = if count == 1 { "1 message was" } else { &format!("{count} messages were") };
    Some(format!(
        "{messages} claimed as often as the queue allows, and the next claim moves {} to queue {target}",
        if count == 1 { "it" } else { "them" }
    ))
}

fn expired(facts: &QueueFacts) -> Option<String> {
    let count = facts.expired.filter(|count| *count > 0)?;
    let verb = if count == 1 { "has" } else { "have" };
    Some(format!("{} {verb} expired and {} about to be removed", counted(count, "message"), be(count)))
}

fn transfers(count: u64, queue: &QueueExplanation) -> Option<String> {
    if count == 0 {
        return None;
    }
    let messages = messages_are(count);
    let names: Vec<String> = queue.targets.iter().map(|target| format!("queue {}", target.at.name)).collect();
    let stuck = queue.targets.iter().find_map(|target| Some((target, target.why.as_ref()?)));
    Some(match (names.is_empty(), stuck) {
        (true, _) => format!("{messages} in transfer to or from another queue"),
        (false, None) => format!("{messages} in transfer to {}", listed(&names, names.len())),
        (false, Some((target, why))) => format!(
            "{messages} in transfer to {}, and queue {} could not take a message yet: {why}",
            listed(&names, names.len()),
            target.at.name
        ),
    })
}

fn noisy(facts: &QueueFacts) -> Option<String> {
    if facts.noisy == 0 {
        return None;
    }
    let names: Vec<String> = facts.noisy_groups.iter().map(ToString::to_string).collect();
    let names = listed(&names, facts.noisy);
    Some(match facts.noisy {
        1 => format!("group {names} has many messages under claims, so other groups are served before it"),
        _ => {
            format!("groups {names} have many messages under claims, so other groups are served before them")
        }
    })
}

/// Returns the clauses about claims that wait, bounds and pools.
fn service(queue: &QueueExplanation) -> Vec<String> {
    let mut clauses = Vec::new();
    let waiting = u64::try_from(queue.waiting_claims).unwrap_or(u64::MAX);
    if waiting > 0 {
        let verb = if waiting == 1 { "waits" } else { "wait" };
        clauses.push(format!("{} {verb} for the next message", counted(waiting, "claim")));
    }
    clauses.extend(queue.limits.iter().filter_map(limit));
    clauses.extend(held_posts(&queue.holds, queue.counts));
    clauses.extend(suspended(queue));
    clauses.extend(unconfirmed(queue));
    clauses.extend(failing_webhooks(queue));
    if queue.has_read_failure {
        clauses.push("waiting messages could not be read the last time".to_owned());
    }
    clauses.extend(refused_claim(queue));
    if queue.counts.is_some() && !queue.pool.is_writable {
        let why = queue
            .pool
            .why
            .clone()
            .unwrap_or_else(|| format!("pool {} takes no new messages", queue.pool.name));
        clauses.push(format!("posts are refused, because {why}"));
    }
    if let Some(older) = &queue.older_pool {
        clauses.push(format!("the queue is moving from pool {} to pool {}", older.name, queue.pool.name));
    }
    clauses
}

/// Returns the clauses about copies that are missing: of the subscription whose queue it is, or of those of the queue.
fn suspended(queue: &QueueExplanation) -> Vec<String> {
    let own = queue.gap.map(|Gap { since, first, messages, .. }| {
        let verb = if messages == 1 { "was" } else { "were" };
        format!(
            "the subscription is full and suspended since {}: {} {verb} left out, the first is {first}",
            date(since),
            counted(messages, "message")
        )
    });
    let waits = (queue.is_filling && !queue.is_barred_by_fill).then(|| match own {
        Some(_) => "messages left out are copied as there is room, as long as the source has them".to_owned(),
        None => "earlier messages of the source are still being copied".to_owned(),
    });
    let others = queue.suspended.first().map(|first| match queue.suspended.len() {
        1 => format!("subscription {first} is full and gets no copies"),
        all => format!("{all} subscriptions are full and get no copies, the first is {first}"),
    });
    own.into_iter().chain(waits).chain(others).collect()
}

/// Returns the clause about subscriptions that are not confirmed: the one whose queue it is, or those of the queue.
fn unconfirmed(queue: &QueueExplanation) -> Option<String> {
    let first = queue.unconfirmed.first()?;
    Some(match queue.unconfirmed.len() {
        _ if queue.subscription.is_some() => {
            "the subscription is not confirmed: it gets no copies, and nothing is sent, until it is"
                .to_owned()
        }
        1 => format!("subscription {first} is not confirmed and gets no copies"),
        all => format!("{all} subscriptions are not confirmed and get no copies, the first is {first}"),
    })
}

/// Returns the clause about webhooks that fail: of the subscription whose queue it is, or of those of the queue.
fn failing_webhooks(queue: &QueueExplanation) -> Option<String> {
    let (id, WebhookStatus { failures, since, reason, paused_until }) = queue.failing_webhooks.first()?;
    let webhook = match queue.failing_webhooks.len() {
        _ if queue.subscription.is_some() => "the webhook has".to_owned(),
        1 => format!("the webhook of subscription {id} has"),
        all => format!("{all} webhooks fail, and that of subscription {id} has"),
    };
    let since = date(*since);
    let failed = match failures {
        0 => format!("refused messages since {since}"),
        1 => format!("failed at {since}"),
        _ => format!("failed {failures} times since {since}"),
    };
    let next = match paused_until {
        Some(until) => format!("nothing is sent to it until {}", date(*until)),
        None => "the next ready message is sent to it".to_owned(),
    };
    Some(format!("{webhook} {failed}, and {next}; the reason of its last failure is {:?}", reason.as_str()))
}

/// Returns the clause about the last refused claim, if that was not long ago.
fn refused_claim(queue: &QueueExplanation) -> Option<String> {
    let refusal = queue.last_refusal.as_ref()?;
    let is_recent = queue.now.seconds_since(refusal.at) <= REFUSAL_SECONDS;
    is_recent.then(|| format!("a claim was refused at {}: {}", date(refusal.at), refusal.why))
}

/// Returns the clause about posts to a held queue and about its transfers, and about messages that wait for its release. Holds that bar claims
/// too are in the head.
fn held_posts(holds: &AppliedHolds, counts: Option<ExplainedCounts>) -> Option<String> {
    let posts = holds.strictest_for_posts().map(|(_, effect)| {
        let is_left = |applied: &AppliedHold| {
            applied.hold.effects.posts() == Some(effect) && !applied.hold.effects.bars_claims()
        };
        let why = holds_with(holds, is_left).map_or_else(String::new, |why| format!(", because {why}"));
        match effect {
            PostEffect::Refused => format!("posts are refused{why}"),
            PostEffect::Discarded => format!("posts are discarded{why}"),
        }
    });
    let waiting = counts.map_or(0, |counts| counts.ready + counts.delayed);
    let expiry = holds.barring_claims().and(match waiting {
        0 => None,
        1 => Some("1 message waits for the release, and expires meanwhile as its ttl requires".to_owned()),
        _ => Some(format!(
            "{waiting} messages wait for the release, and expire meanwhile as their ttl requires"
        )),
    });
    let transfers = holds_with(holds, |applied| applied.hold.effects.bars_transfers())
        .map(|why| format!("transfers to other queues and migrations wait, because {why}"));
    let clauses: Vec<String> = posts.into_iter().chain(transfers).chain(expiry).collect();
    (!clauses.is_empty()).then(|| clauses.join("; "))
}

/// Returns the clause about a bound. That of claims is in the head.
fn limit(limit: &ReachedLimit) -> Option<String> {
    let ReachedLimit { what, bound, effect } = limit;
    let refused = match effect {
        LimitEffect::Claims => return None,
        LimitEffect::Receives => "receives of SQS get nothing",
        LimitEffect::WaitingClaims => "more claims that wait are refused",
        LimitEffect::Posts => "posts with such an id are refused",
    };
    Some(format!("{refused}, because there are {bound} {what}, as many as there may be"))
}

#[cfg(test)]
mod tests;
