//! Checks of queues: those from which nothing is delivered, with the sentence that explains why. It reads the counts of a
//! bounded number of queues, and the explanations of few.

use std::time::{Duration, Instant};

use serde::Deserialize;

use super::Check;
use crate::failure::Failure;
use crate::listing::{ExtentArgs, Listing};
use crate::queue::{parsed, path};
use crate::queue_counts::{QueueEntry, counts_queues};
use crate::remote::Remote;

/// Max number of queues whose counts are read.
const COUNTED: u64 = 200;
/// Time after which no further page of counts is read: a page may take seconds while a pool does not answer.
const COUNTING: Duration = Duration::from_secs(10);
/// Max number of queues that are explained, those with the oldest messages first.
const EXPLAINED: usize = 20;
/// Seconds that a ready message may wait before its queue is reported.
const WAIT: u64 = 60;

/// The part of an explanation that decides about the verdict.
#[derive(Deserialize)]
struct Explanation {
    says: String,
    #[serde(default)]
    held: Vec<ExplainedHold>,
    pool: ExplainedPool,
}

/// A hold in force: of the queue, unless it names a pool or a project.
#[derive(Deserialize)]
struct ExplainedHold {
    claim: bool,
    pool: Option<String>,
    project: Option<String>,
}

impl ExplainedHold {
    /// Returns the command that ends it.
    fn release(&self, queue: &str) -> String {
        match (&self.pool, &self.project) {
            (Some(pool), _) => format!("angarium pool release {pool}"),
            (None, Some(project)) => format!("angarium project release {project}"),
            (None, None) => format!("angarium queue release {queue}"),
        }
    }
}

#[derive(Deserialize)]
struct ExplainedPool {
    name: String,
    up: bool,
}

/// Queues of the project with ready messages of which none has left in the last half minute.
struct StillQueues {
    /// The queues, those with the oldest messages first.
    queues: Vec<StillQueue>,
    /// Number of queues whose counts were read.
    counted: usize,
    /// Whether there may be more queues.
    is_cut: bool,
}

struct StillQueue {
    name: String,
    /// Seconds since the oldest message was posted.
    oldest: u64,
}

/// Runs the checks of these queues; without names those of the queues from which nothing is delivered.
pub(super) fn checks(remote: &Remote, names: &[String]) -> Vec<Check> {
    if !names.is_empty() {
        return names.iter().map(|name| named(remote, name)).collect();
    }
    still(remote).unwrap_or_else(|failure| vec![Check::skipped("queues", failure.to_string())])
}

fn named(remote: &Remote, name: &str) -> Check {
    match explanation(remote, name) {
        Ok(Some(explained)) => {
            explained.fault(name).unwrap_or_else(|| Check::ok(&title(name), explained.says))
        }
        Ok(None) => Check::warning(
            &title(name),
            "there is no such queue",
            "are its name and --project right? The first post creates it",
        ),
        Err(failure) => Check::skipped(&title(name), failure.to_string()),
    }
}

/// Checks the queues with ready messages of which none leaves.
fn still(remote: &Remote) -> Result<Vec<Check>, Failure> {
    if !counts_queues(remote)? {
        return Ok(vec![Check::skipped("queues", "the server does not count queues in their listing")]);
    }
    let StillQueues { queues, counted, is_cut } = StillQueues::read(remote)?;
    let mut checks = Vec::new();
    for queue in queues.iter().take(EXPLAINED) {
        // A queue may have been deleted since it was listed.
        let Some(explained) = explanation(remote, &queue.name)? else { continue };
        let waits = || queue.waits(&explained.says);
        checks.extend(explained.fault(&queue.name).or_else(waits));
    }
    if let Some(more) = queues.len().checked_sub(EXPLAINED).filter(|more| *more > 0) {
        let found = format!("{more} more have ready messages of which none leaves");
        checks.push(Check::warning("queues", found, "angarium queue list shows all of them"));
    }
    if checks.is_empty() {
        let first = if is_cut { "the first " } else { "" };
        let found = format!("{first}{counted} were looked at: none has messages that wait for a consumer");
        checks.push(Check::ok("queues", found));
    }
    Ok(checks)
}

impl StillQueues {
    fn read(remote: &Remote) -> Result<Self, Failure> {
        let start = Instant::now();
        let parameters = [("with_stats", Some("true".to_owned()))];
        let extent = ExtentArgs::first(COUNTED);
        let mut listing = Listing::new(remote, "/v2/queues", "queues", &extent, &parameters);
        let mut read = Self { queues: Vec::new(), counted: 0, is_cut: true };
        while start.elapsed() < COUNTING {
            let Some(page) = listing.page()? else {
                read.is_cut = read.counted as u64 == COUNTED;
                break;
            };
            read.counted += page.len();
            for json in page {
                read.queues.extend(StillQueue::of(parsed(&json)?));
            }
        }
        read.queues
            .sort_by(|one, other| other.oldest.cmp(&one.oldest).then_with(|| one.name.cmp(&other.name)));
        Ok(read)
    }
}

impl StillQueue {
    /// Returns the queue if it has ready messages and none has left.
    fn of(entry: QueueEntry) -> Option<Self> {
        let stats = entry.stats.filter(|stats| stats.ready > 0 && stats.removed_per_second() == 0.0)?;
        Some(Self { name: entry.name, oldest: stats.oldest_age.unwrap_or(0) })
    }

    /// Returns a warning, if its messages wait for long.
    fn waits(&self, says: &str) -> Option<Check> {
        let advice = "do its consumers run, and with this server and project?";
        (self.oldest >= WAIT).then(|| Check::warning(&title(&self.name), says, advice))
    }
}

impl Explanation {
    /// Returns a warning, if a hold or its pool stops the queue.
    fn fault(&self, name: &str) -> Option<Check> {
        let advice = if let Some(hold) = self.held.iter().find(|hold| hold.claim) {
            format!("when the reason has ended: {}", hold.release(name))
        } else if !self.pool.up {
            format!("its messages wait for pool {}: angarium health", self.pool.name)
        } else {
            return None;
        };
        Some(Check::warning(&title(name), &self.says, &advice))
    }
}

/// Returns the explanation of a queue; none if there is no such queue.
fn explanation(remote: &Remote, name: &str) -> Result<Option<Explanation>, Failure> {
    match remote.get(format!("{}/explain", path(name))) {
        Ok(reply) => reply.parse().map(Some),
        Err(Failure::Refused(refusal)) if refusal.is_missing() => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn title(name: &str) -> String {
    format!("queue {name}")
}
