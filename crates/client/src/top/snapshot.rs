//! What `top` asks the server for.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::failure::Failure;
use crate::listing::{ExtentArgs, Listing};
use crate::queue::parsed;
use crate::queue_counts::{QueueEntry, counts_queues};
use crate::remote::Remote;

/// Queues and replicas at a moment.
#[derive(Default)]
pub struct Snapshot {
    /// Those with most ready messages first.
    pub queues: Vec<QueueEntry>,
    /// Whether there may be more than were looked at.
    pub is_cut: bool,
    /// None where the caller is no administrator.
    pub replicas: Option<Vec<Replica>>,
    /// Why there is nothing newer.
    pub trouble: Option<String>,
    json: (Vec<Box<RawValue>>, Vec<Box<RawValue>>),
}

/// A replica, and what it said of itself.
#[derive(Deserialize)]
pub struct Replica {
    /// Which one.
    pub instance: String,
    /// Where the others reach it.
    pub address: String,
    /// Whether it answered.
    pub answer: Answer,
    /// What it serves; none when it has never answered.
    #[serde(default)]
    pub serves: Option<ReplicaService>,
}

/// Whether the service answered.
#[derive(Deserialize)]
pub struct Answer {
    /// True when it did.
    pub given: bool,
}

/// What a replica serves.
#[derive(Deserialize)]
pub struct ReplicaService {
    /// Whether it serves posts and claims.
    pub ready: bool,
    /// Its session with what holds queues and claims.
    pub session: String,
    pub slots: u64,
    /// Queues that it has opened.
    pub open_queues: u64,
    /// Claims that wait for messages.
    pub waiting_claims: u64,
    /// Messages under claims.
    pub claimed_messages: u64,
}

/// Looks at the first `limit` queues of the project, and at all replicas.
pub fn look(remote: &Remote, limit: u64) -> Result<Snapshot, Failure> {
    if !counts_queues(remote)? {
        let why = format!(
            "{} does not count queues in their listing: it is older, or another service",
            remote.base()
        );
        return Err(Failure::Found(why));
    }
    let mut seen = Snapshot::default();
    let parameters = [("with_stats", Some("true".to_owned()))];
    let mut listing = Listing::new(remote, "/v2/queues", "queues", &ExtentArgs::first(limit), &parameters);
    while let Some(page) = listing.page()? {
        for json in page {
            seen.queues.push(parsed(&json)?);
            seen.json.0.push(json);
        }
    }
    seen.is_cut = seen.queues.len() as u64 == limit;
    let ready = |queue: &QueueEntry| queue.stats.as_ref().map(|stats| stats.ready);
    seen.queues.sort_by(|one, other| ready(other).cmp(&ready(one)).then_with(|| one.name.cmp(&other.name)));
    seen.look_at_replicas(remote)?;
    Ok(seen)
}

impl Snapshot {
    fn look_at_replicas(&mut self, remote: &Remote) -> Result<(), Failure> {
        #[derive(Deserialize)]
        struct Stats {
            components: Vec<Box<RawValue>>,
        }

        let reply = match remote.get("/v2/stats") {
            Ok(reply) => reply,
            Err(Failure::Refused(refusal)) if refusal.is_of_access() => return Ok(()),
            Err(failure) => return Err(failure),
        };
        let Stats { components } = reply.parse()?;
        self.replicas = Some(components.iter().map(|json| parsed(json)).collect::<Result<_, _>>()?);
        self.json.1 = components;
        Ok(())
    }

    /// Both as one document.
    pub fn json(&self) -> Result<String, Failure> {
        let document = json!({"queues": self.json.0, "replicas": self.json.1});
        serde_json::to_string(&document).map_err(|error| Failure::Found(error.to_string()))
    }

    /// The names of the queues, as they stand.
    pub fn names(&self) -> Vec<String> {
        self.queues.iter().map(|queue| queue.name.clone()).collect()
    }
}
