//! A hold that ends by itself while a claim waits, once no fault happens.

use std::time::Duration;

use super::{RECOVERY, Workload, is_fifo};
use crate::client::queue_name;
use crate::history::{Certainty, HeldPosts, HeldResource, HoldTerms};
use crate::requests::Posting;
use crate::scenario::Verb;

/// The longest wait of a claim, in seconds. A hold of at most ten seconds ends before, by a clock that is slower by a
/// tenth and looked at each second, and after that a claim gets a message within seven seconds.
const WAIT: u64 = 20;

impl Workload {
    /// Holds something for a few seconds, and checks that a claim that waits meanwhile gets a message after the end of
    /// the hold, and that the tree loses the hold.
    pub async fn wait_across_hold_end(&self) {
        // With a subscription that may be there, a post may be refused for good.
        if !self.scenario.verbs.has(Verb::EndingHolds) || self.history.lock().has_subscription() {
            return;
        }
        let client = self.client("operator".into());
        let queue = usize::try_from(self.world().below(2)).unwrap_or(0).min(self.scenario.queues - 1);
        let group = Some("g0".to_owned()).filter(|_| is_fifo(queue) || self.world().below(2) == 0);
        let resource = match (self.world().below(3), &group) {
            (0, _) => HeldResource::Project,
            (1, Some(group)) => HeldResource::Group(queue, group.clone()),
            _ => HeldResource::Queue(queue),
        };
        let terms = HoldTerms { posts: HeldPosts::Stored, ttl: Some(5 + self.world().below(5)) };
        let number = self.next_number();
        let posting = Posting { number, group, has_dedup_id: is_fifo(queue), delay: 0, ttl: None, keep: 0 };
        let is_posted_first = self.world().below(2) == 0;
        if is_posted_first && client.post(queue, std::slice::from_ref(&posting)).await != Certainty::Done {
            return;
        }
        if client.hold(&resource, terms).await != Certainty::Done {
            return;
        }
        if !is_posted_first && client.post(queue, &[posting]).await != Certainty::Done {
            return;
        }
        let Some(claim) = client.claim(queue, 1, 300, WAIT).await else { return };
        if claim.messages.is_empty() {
            let name = queue_name(queue);
            let text = format!("a claim of {name} waited in vain beyond the end of the hold of {resource:?}");
            self.history.lock().violation(text);
        }
        for message in &claim.messages {
            self.delete_for_sure(&client, queue, message, &claim.id).await;
        }
        self.empty_queue(&client, queue).await;
        self.await_no_hold().await;
    }

    /// Waits until the tree has no hold.
    pub(super) async fn await_no_hold(&self) {
        let end = self.world().elapsed() + RECOVERY;
        while let Some(path) = self.cluster.first_hold() {
            if self.world().elapsed() > end {
                self.history.lock().violation(format!("all is released, and the tree has {path}"));
                return;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }
}
