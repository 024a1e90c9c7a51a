//! Checks of subscriptions: the full ones, which get no copies, and webhooks that fail. It reads the
//! subscriptions of a bounded number of queues and topics.

use std::time::{Duration, Instant};

use serde::Deserialize;

use super::Check;
use crate::failure::Failure;
use crate::listing::{ExtentArgs, Listing};
use crate::queue::{parsed, path};
use crate::remote::Remote;

/// Max number of queues, and of topics, whose subscriptions are read.
const SOURCES: u64 = 200;
/// Max number of subscriptions that are read of each.
const OF_SOURCE: u64 = 100;
/// Time after which the subscriptions of no further queue are read.
const READING: Duration = Duration::from_secs(10);
/// Max number of findings.
const FOUND: usize = 20;

/// A queue or a topic in a listing.
#[derive(Deserialize)]
struct Source {
    name: String,
}

/// The part of a subscription that decides about the verdict.
#[derive(Deserialize)]
struct SubscriptionState {
    id: String,
    #[serde(default)]
    subscriber: String,
    backlog: Option<Backlog>,
    failing: Option<Failing>,
    confirmed: Option<bool>,
}

#[derive(Deserialize)]
struct Backlog {
    suspended: bool,
    /// Absent in answers of older versions.
    #[serde(default)]
    filling: bool,
    gap: Option<Gap>,
}

#[derive(Deserialize)]
struct Gap {
    since: String,
    messages: u64,
}

#[derive(Deserialize)]
struct Failing {
    failures: u32,
    /// Absent in answers of older versions.
    since: Option<String>,
    reason: String,
    paused_until: Option<String>,
}

/// The subscriptions that were read.
#[derive(Default)]
struct Findings {
    checks: Vec<Check>,
    /// Number of subscriptions.
    read: usize,
    /// Number of subscriptions under a fill.
    filling: usize,
    /// Number of findings beyond the shown ones.
    more: usize,
    /// Whether there may be more subscriptions.
    is_cut: bool,
}

/// Checks the subscriptions of these queues; without names those of the first queues and topics.
pub(super) fn checks(remote: &Remote, names: &[String]) -> Vec<Check> {
    match findings(remote, names) {
        Ok(findings) => findings.into_checks(),
        // A server without such subscriptions.
        Err(Failure::Refused(refusal)) if refusal.is_missing() => Vec::new(),
        Err(Failure::Strange { .. }) => Vec::new(),
        Err(failure) => vec![Check::skipped("subscriptions", failure.to_string())],
    }
}

fn findings(remote: &Remote, names: &[String]) -> Result<Findings, Failure> {
    let start = Instant::now();
    let mut findings = Findings::default();
    if !names.is_empty() {
        for name in names.iter().filter(|name| !name.contains('/')) {
            findings.read(remote, name)?;
        }
        return Ok(findings);
    }
    for (kind, prefix) in [("queues", ""), ("topics", "topic:")] {
        let extent = ExtentArgs::first(SOURCES);
        let mut listing = Listing::new(remote, &format!("/v2/{kind}"), kind, &extent, &[]);
        let mut sources = 0;
        while let Some(page) = listing.page()? {
            sources += page.len() as u64;
            for json in page {
                let Source { name } = parsed(&json)?;
                if start.elapsed() > READING {
                    findings.is_cut = true;
                    return Ok(findings);
                }
                findings.read(remote, &format!("{prefix}{name}"))?;
            }
        }
        findings.is_cut |= sources == SOURCES;
    }
    Ok(findings)
}

impl Findings {
    /// Reads the subscriptions of a queue or a topic.
    fn read(&mut self, remote: &Remote, source: &str) -> Result<(), Failure> {
        let extent = ExtentArgs::first(OF_SOURCE);
        let path = format!("{}/subscriptions", path(source));
        let mut listing = Listing::new(remote, &path, "subscriptions", &extent, &[]);
        let mut read = 0;
        loop {
            let page = match listing.page() {
                Ok(Some(page)) => page,
                Ok(None) => break,
                // The queue was deleted meanwhile.
                Err(Failure::Refused(refusal)) if refusal.is_missing() => break,
                Err(failure) => return Err(failure),
            };
            read += page.len();
            for json in page {
                self.add(source, &parsed(&json)?);
            }
        }
        self.read += read;
        self.is_cut |= read as u64 == OF_SOURCE;
        Ok(())
    }

    fn add(&mut self, source: &str, state: &SubscriptionState) {
        self.filling += usize::from(state.backlog.as_ref().is_some_and(|backlog| backlog.filling));
        match state.fault(source) {
            Some(_) if self.checks.len() == FOUND => self.more += 1,
            fault => self.checks.extend(fault),
        }
    }

    fn into_checks(self) -> Vec<Check> {
        let Self { mut checks, read, filling, more, is_cut } = self;
        if more > 0 {
            let found = format!("{more} more are full or have a webhook that fails");
            checks.push(Check::warning(
                "subscriptions",
                found,
                "angarium doctor --queue NAME shows those of a queue",
            ));
        }
        let first = if is_cut { "the first " } else { "" };
        let filled = match filling {
            0 => String::new(),
            1 => "; 1 is still being filled with messages from before it".to_owned(),
            some => format!("; {some} are still being filled with messages from before them"),
        };
        if checks.is_empty() && read > 0 {
            let found = format!("looked at {first}{read}: none is full, and no webhook fails{filled}");
            checks.push(Check::ok("subscriptions", found));
        } else if filling > 0 {
            checks.push(Check::ok("subscriptions", format!("looked at {first}{read}{filled}")));
        }
        checks
    }
}

impl SubscriptionState {
    /// Returns a warning, if it gets no copies or its webhook fails.
    fn fault(&self, source: &str) -> Option<Check> {
        let Self { id, subscriber, backlog, failing, confirmed } = self;
        let unconfirmed =
            (*confirmed == Some(false)).then(|| "it is not confirmed and gets no copies".to_owned());
        let title = format!("subscription {source}/{id}");
        let full = backlog.as_ref().filter(|backlog| backlog.suspended).map(|backlog| {
            let Gap { since, messages } = match &backlog.gap {
                Some(gap) => gap,
                None => return "it is full and gets no copies".to_owned(),
            };
            format!("it is full and gets no copies since {since}: {messages} messages were left out")
        });
        let Some(failing) = failing else {
            if let Some(found) = unconfirmed {
                let advice =
                    "does its subscriber answer? a repeated POST of the subscriber sends the request again";
                return Some(Check::warning(&title, found, advice));
            }
            let advice =
                "do its consumers run? --options with a greater max_messages or max_bytes gives it room";
            return full.map(|full| Check::warning(&title, full, advice));
        };
        let found = [Some(failing.text(subscriber)), unconfirmed, full]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("; ");
        let advice =
            format!("does the receiver work? angarium queue explain {source}/{id} shows the next attempt");
        Some(Check::warning(&title, found, &advice))
    }
}

impl Failing {
    fn text(&self, subscriber: &str) -> String {
        let Self { failures, since, reason, paused_until } = self;
        let since = since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
        let failed = match failures {
            0 => format!("has refused messages{since}"),
            1 => format!("has failed once{since}"),
            _ => format!("has failed {failures} times{since}"),
        };
        let next = paused_until
            .as_ref()
            .map(|until| format!("; nothing is sent to it until {until}"))
            .unwrap_or_default();
        format!("the webhook {subscriber} {failed}: {reason}{next}")
    }
}
