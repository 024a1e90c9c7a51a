//! The data of `top`, requested from the server.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::failure::Failure;
use crate::listing::{ExtentArgs, Listing};
use crate::queue::parsed;
use crate::queue_counts::{QueueEntry, counts_queues};
use crate::remote::Remote;

/// Queues and replicas at one moment.
#[derive(Default)]
pub struct Snapshot {
    /// Queues, those with the most ready messages first.
    pub queues: Vec<QueueEntry>,
    /// Whether there may be more queues.
    pub is_cut: bool,
    /// Replicas; none when the caller is no administrator.
    pub replicas: Option<Vec<Replica>>,
    /// The failure of the last request, if it failed.
    pub last_error: Option<String>,
    /// Seconds for which the server has not answered, if that is longer than usual.
    pub silence: Option<u64>,
    json: (Vec<Box<RawValue>>, Vec<Box<RawValue>>),
}

/// A replica with its own report.
#[derive(Deserialize)]
pub struct Replica {
    /// Id of the replica.
    pub instance: String,
    /// Address for requests of other replicas.
    pub address: String,
    /// Whether it responded.
    pub answer: Answer,
    /// Its last report; none when it has never responded.
    #[serde(default)]
    pub serves: Option<ReplicaService>,
}

/// Whether the replica responded.
#[derive(Deserialize)]
pub struct Answer {
    /// True if it responded.
    pub given: bool,
}

/// The report of a replica.
#[derive(Deserialize)]
pub struct ReplicaService {
    /// Whether it serves posts and claims.
    pub ready: bool,
    /// State of its session with the tree.
    pub session: String,
    pub slots: u64,
    /// Number of open queues.
    pub open_queues: u64,
    /// Number of claims that wait for messages.
    pub waiting_claims: u64,
    /// Number of claimed messages.
    pub claimed_messages: u64,
}

/// Requests the first `limit` queues of the project and all replicas.
pub fn fetch(remote: &Remote, limit: u64) -> Result<Snapshot, Failure> {
    if !counts_queues(remote)? {
        let why = format!(
            "{} does not count queues in their listing: it is older, or another service",
            remote.base()
        );
        return Err(Failure::Found(why));
    }
    let mut snapshot = Snapshot::default();
    let parameters = [("with_stats", Some("true".to_owned()))];
    let mut listing = Listing::new(remote, "/v2/queues", "queues", &ExtentArgs::first(limit), &parameters);
    while let Some(page) = listing.page()? {
        for json in page {
            snapshot.queues.push(parsed(&json)?);
            snapshot.json.0.push(json);
        }
    }
    snapshot.is_cut = snapshot.queues.len() as u64 == limit;
    let ready = |queue: &QueueEntry| queue.stats.as_ref().map(|stats| stats.ready);
    snapshot
        .queues
        .sort_by(|one, other| ready(other).cmp(&ready(one)).then_with(|| one.name.cmp(&other.name)));
    snapshot.fetch_replicas(remote)?;
    Ok(snapshot)
}

impl Snapshot {
    fn fetch_replicas(&mut self, remote: &Remote) -> Result<(), Failure> {
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

    /// Returns both as one JSON document.
    pub fn json(&self) -> Result<String, Failure> {
        let document = json!({"queues": self.json.0, "replicas": self.json.1});
        serde_json::to_string(&document).map_err(|error| Failure::Found(error.to_string()))
    }

    /// Returns the names of the queues, in their order.
    pub fn names(&self) -> Vec<String> {
        self.queues.iter().map(|queue| queue.name.clone()).collect()
    }
}
