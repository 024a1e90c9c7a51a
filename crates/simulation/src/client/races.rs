//! What races need: recalls, short faults at a chosen time, and a look at a message that must be there.

use std::time::Duration;

use angarium_core::ids::MessageId;

use super::{Client, certainty};
use crate::faults::Fault;
use crate::history::{Certainty, HeldMessage};
use crate::requests::{ApiRequest, Outcome};

impl Client {
    /// Removes a message whatever its state, also from under a claim of another client.
    pub async fn recall(&self, queue: usize, message: &HeldMessage) -> Certainty {
        let delete = self.history.lock().begin_delete(queue, message.number, self.world().elapsed());
        let request = ApiRequest::recall(&self.address(queue), &message.id);
        let recalled = certainty(&self.send(&request).await);
        self.history.lock().end_delete(message.number, delete, self.world().elapsed(), recalled);
        recalled
    }

    /// Lets no server of any pool answer for a time. Returns at once.
    pub fn stop_pools(&self, time: Duration) {
        for storage in self.cluster.storages().all() {
            self.world().count(Fault::PoolDown);
            storage.set_down(true);
            self.world().spawn(async move {
                tokio::time::sleep(time).await;
                storage.set_down(false);
            });
        }
    }

    /// Lets the tree refuse all commits for a time.
    pub fn refuse_commits(&self, time: Duration) {
        self.cluster.ensemble().refuse_commits(time);
    }

    /// Ends a replica at once. The tree refuses the next change of its registration: the first one of the next process
    /// tells that it runs.
    pub fn restart_refused(&self) {
        let number = self.pick_replica();
        self.cluster.crash(number, Duration::from_millis(self.world().below(2_000)));
        self.cluster.ensemble().refuse_registration(&format!("replica-{number}:1"));
    }

    /// Whether a message is in an answer of a pool about expired messages, which is late.
    pub fn is_in_late_answer(&self, message: &HeldMessage) -> bool {
        let Ok(id) = message.id.parse::<MessageId>() else { return false };
        self.cluster.storages().all().iter().any(|storage| storage.is_in_late_answer(id))
    }

    /// Checks that a message is there which a claim for `ttl` seconds has held, if its life has not ended.
    pub async fn check_alive(&self, queue: usize, message: &HeldMessage, claim: &str, ttl: u64) {
        let must_live = || {
            let now = self.world().elapsed();
            self.history.lock().must_live(message.number, claim, ttl, now)
        };
        if !must_live() {
            return;
        }
        let outcome = self.send(&ApiRequest::outcome(&self.address(queue), &message.id)).await;
        // Another request may have removed it meanwhile.
        if outcome == Outcome::Missing && must_live() {
            let text = format!("message {} is gone before the end of its life", message.number);
            self.history.lock().violation(text);
        }
    }
}
