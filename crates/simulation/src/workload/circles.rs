//! Two queues that subscribe to each other: each message is sent on eight times, and its next copy is a dead letter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;

use super::worker::Worker;
use super::{CLAIM_TTLS, RECOVERY, Workload};
use crate::client::{Client, OwnClaim, pool_name};
use crate::history::Certainty;
use crate::requests::{ApiRequest, LONG_TTL, Outcome, Posting};
use crate::scenario::Verb;

/// The queues of the circle.
const CIRCLE: [&str; 2] = ["circle-a", "circle-b"];

/// The queue of the dead letters of both subscriptions.
const DEAD: &str = "circle-dead";

/// How many messages a queue gets of each one that is posted there, the other one, and the queue of dead letters.
const COUNTS: [usize; 3] = [5, 4, 1];

/// The messages of the circle: where each was posted, and where it was found.
#[derive(Debug, Default)]
pub(super) struct CircleHistory {
    /// For each message the number of its queue in the circle, and whether it is stored.
    posts: BTreeMap<u64, (usize, Certainty)>,
    /// The ids with which a message was found in each queue; the last one is that of the dead letters.
    found: BTreeMap<u64, [BTreeSet<String>; 3]>,
}

impl CircleHistory {
    fn find(&mut self, place: usize, number: u64, id: &str) {
        self.found.entry(number).or_default()[place].insert(id.to_owned());
    }

    /// Returns the broken promises, once all messages were found. The copies of a message exist exactly if it does.
    fn judge(&self) -> Vec<String> {
        let unknown = self.found.keys().filter(|number| !self.posts.contains_key(number));
        let mut broken: Vec<String> =
            unknown.map(|number| format!("the circle has message {number} of no client")).collect();
        for (number, (first, posted)) in &self.posts {
            let found = self.found.get(number).map_or([0; 3], |found| found.each_ref().map(BTreeSet::len));
            let [a, b, dead] = COUNTS;
            let whole = if *first == 0 { [a, b, dead] } else { [b, a, dead] };
            let is_right = match posted {
                Certainty::Done => found == whole,
                Certainty::NotDone => found == [0; 3],
                Certainty::Unknown => found == whole || found == [0; 3],
            };
            if !is_right {
                broken.push(format!(
                    "message {number}, {posted:?}, is {found:?} times in the circle, not {whole:?}"
                ));
            }
        }
        broken
    }
}

impl Worker {
    /// Posts messages to a queue of the circle, takes some out there, or moves the queue.
    pub(super) async fn use_circle(&self) {
        let place = self.pick(CIRCLE.len());
        match self.world.below(8) {
            0..=3 => {
                let postings: Vec<Posting> =
                    (0..=self.world.below(3)).map(|_| posting(self.next_number())).collect();
                let request = ApiRequest::post(CIRCLE[place], &postings);
                let posted = match self.client.send(&request).await {
                    outcome if outcome.is_discarded() => Certainty::NotDone,
                    Outcome::Done(_) => Certainty::Done,
                    Outcome::Missing | Outcome::Refused(_) => Certainty::NotDone,
                    Outcome::Unknown => Certainty::Unknown,
                };
                let numbers = postings.iter().map(|posting| (posting.number, (place, posted)));
                self.shared.circle.lock().posts.extend(numbers);
            }
            4 if self.scenario.verbs.has(Verb::Migrations) => {
                let pool = pool_name(self.pick(self.scenario.cluster.pools.len()));
                self.client.send(&ApiRequest::migrate(CIRCLE[place], &pool)).await;
            }
            _ => {
                let (limit, ttl) = (1 + self.world.below(6), CLAIM_TTLS[self.pick(CLAIM_TTLS.len())]);
                let OwnClaim::Held(claim) = self.client.claim_own(CIRCLE[place], limit, ttl).await else {
                    return;
                };
                for message in &claim.messages {
                    self.shared.circle.lock().find(place, message.number, &message.id);
                    self.client.delete_in_own(CIRCLE[place], &message.id, Some(&claim.id)).await;
                }
            }
        }
    }
}

fn posting(number: u64) -> Posting {
    Posting { number, group: None, has_dedup_id: false, delay: 0, ttl: None, keep: 0 }
}

impl Workload {
    /// Creates the queues of the circle and their subscriptions, before faults happen.
    pub(super) async fn create_circle(&self, client: &Client) {
        let queues = CIRCLE.iter().chain([&DEAD]).map(|queue| ApiRequest::put_queue(queue, json!({})));
        let subscription = |source: &str, target: &str| {
            let options = json!({"_max_claim_count": 1_000, "_dead_letter_queue": DEAD});
            let body = json!({"subscriber": format!("queue:{target}"), "ttl": LONG_TTL, "options": options});
            ApiRequest::create_subscription_of(source, body)
        };
        let [a, b] = CIRCLE;
        for request in queues.chain([subscription(a, b), subscription(b, a)]) {
            if !self.repeat(client, &request).await {
                self.history.lock().violation(format!("{} is not done for the circle", request.text()));
            }
        }
    }

    /// Takes all messages out of the circle, until none is on its way, and checks how often each one was there.
    pub async fn empty_circle(&self) {
        if !self.scenario.verbs.has(Verb::Circles) {
            return;
        }
        let client = self.client("cleaner".into());
        let (mut end, mut empty) = (self.world().elapsed() + RECOVERY, 0);
        while empty < 2 {
            if self.world().elapsed() > end {
                return self.history.lock().violation("the circle does not become empty".into());
            }
            match self.empty_circle_once(&client).await {
                Some(0) if self.is_circle_empty(&client).await => empty += 1,
                Some(0) | None => {}
                Some(_) => (end, empty) = (self.world().elapsed() + RECOVERY, 0),
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let broken = self.shared.circle.lock().judge();
        broken.into_iter().for_each(|text| self.history.lock().violation(text));
    }

    /// Takes messages out of each queue. Returns their number, and none without an answer.
    async fn empty_circle_once(&self, client: &Client) -> Option<usize> {
        let mut taken = 0;
        for (place, queue) in CIRCLE.iter().chain([&DEAD]).enumerate() {
            loop {
                let claim = match client.claim_own(queue, 20, 300).await {
                    OwnClaim::Held(claim) => claim,
                    OwnClaim::Empty => break,
                    OwnClaim::Refused | OwnClaim::Doubtful => return None,
                };
                for message in &claim.messages {
                    self.shared.circle.lock().find(place, message.number, &message.id);
                    client.delete_in_own(queue, &message.id, Some(&claim.id)).await;
                }
                taken += claim.messages.len();
            }
        }
        Some(taken)
    }

    /// Whether no queue of the circle has a message, and no subscription a copy that is on its way.
    async fn is_circle_empty(&self, client: &Client) -> bool {
        let mut queues: Vec<String> = CIRCLE.iter().chain([&DEAD]).map(|queue| (*queue).to_owned()).collect();
        for source in CIRCLE {
            let Outcome::Done(body) = client.send(&ApiRequest::list_subscriptions(source)).await else {
                return false;
            };
            let Some(id) = body["subscriptions"][0]["id"].as_str() else {
                self.history.lock().violation(format!("the subscription of {source} is lost"));
                return true;
            };
            queues.push(format!("{source}/{id}"));
        }
        for queue in queues {
            match client.send(&ApiRequest::stats(&queue)).await {
                Outcome::Done(body) if super::emptying::is_empty(&body["messages"]) => {}
                _ => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The history of message 7, which was found so often in the queues.
    fn history(posted: Certainty, found: [usize; 3]) -> CircleHistory {
        let mut history = CircleHistory::default();
        history.posts.insert(7, (1, posted));
        for (place, count) in found.into_iter().enumerate() {
            (0..count).for_each(|id| history.find(place, 7, &format!("{place}-{id}")));
        }
        history
    }

    #[test]
    fn each_hop_leaves_one_message() {
        let cases = [
            (Certainty::Done, [4, 5, 1], true),
            (Certainty::Done, [5, 4, 1], false),
            (Certainty::Done, [4, 5, 2], false),
            (Certainty::Done, [0, 0, 0], false),
            (Certainty::Unknown, [4, 5, 1], true),
            (Certainty::Unknown, [0, 0, 0], true),
            (Certainty::Unknown, [0, 1, 0], false),
            (Certainty::NotDone, [0, 0, 0], true),
            (Certainty::NotDone, [4, 5, 1], false),
        ];
        for (posted, found, is_right) in cases {
            assert_eq!(history(posted, found).judge().is_empty(), is_right, "{posted:?} {found:?}");
        }
    }
}
