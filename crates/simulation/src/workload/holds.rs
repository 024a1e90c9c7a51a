//! Holds and releases while clients work, and the release of everything at the end.

use std::time::Duration;

use super::worker::Worker;
use super::{Break, CLAIM_TTLS, GROUPS, RECOVERY, Workload, is_fifo};
use crate::client::{pool_name, queue_name};
use crate::faults::Fault;
use crate::history::{HeldPosts, HeldResource, HoldTerms};
use crate::scenario::Verb;

/// After this time without a heartbeat a replica has lost its slots to others.
const REPLACED: Duration = Duration::from_secs(12);

/// How long requests are made after the end of all replicas: the next processes serve a few seconds later.
const RESTART: Duration = Duration::from_secs(8);

impl Worker {
    /// Holds or releases a resource, if the scenario has that and it is time for it. Returns whether it did.
    pub(super) async fn hold_or_release(&mut self, queue: usize) -> bool {
        let verbs = &self.scenario.verbs;
        let resource = if verbs.has(Verb::Holds) && self.world.below(12) == 0 {
            HeldResource::Queue(queue)
        } else if verbs.has(Verb::GroupHolds) && self.world.below(6) == 0 {
            HeldResource::Group(queue, group_name(self.world.below(2)))
        } else if verbs.has(Verb::SharedHolds) && self.world.below(10) == 0 {
            match self.world.below(4) {
                0 => HeldResource::Project,
                _ => HeldResource::Pool(self.pick(self.scenario.cluster.pools.len())),
            }
        } else {
            return false;
        };
        let is_group = matches!(resource, HeldResource::Group(..));
        let is_shared = matches!(resource, HeldResource::Pool(_) | HeldResource::Project);
        match self.world.below(2) {
            0 if is_shared => self.hold_shared(&resource).await,
            0 if is_group && self.world.below(3) == 0 => self.hold_shortly(queue, &resource).await,
            0 => {
                self.client.hold(&resource, self.some_hold()).await;
            }
            _ => drop(self.client.release_hold(&resource).await),
        }
        true
    }

    /// Holds a group, and releases it while a claim puts its messages aside.
    async fn hold_shortly(&mut self, queue: usize, group: &HeldResource) {
        self.client.hold(group, HoldTerms::lasting(HeldPosts::Stored)).await;
        let pause = Duration::from_millis(self.world.below(2) * self.world.below(20));
        let release = async {
            tokio::time::sleep(pause).await;
            self.second.release_hold(group).await
        };
        let claim = self.client.claim(queue, 6, CLAIM_TTLS[0], 0);
        if let (Some(claim), _) = futures_util::future::join(claim, release).await {
            self.keep_claim(queue, claim);
        }
    }

    /// Holds pools or the project: at any time, beside a replica that is stopped, or before the end of all replicas.
    async fn hold_shared(&mut self, resource: &HeldResource) {
        let (terms, draw) = (self.some_hold(), self.world.below(4));
        // After a step of the clock no replica may be left with the time from before, and none may end.
        if draw > 1 || self.scenario.rates.of(Fault::TreeClockStepped) > 0 {
            self.client.hold(resource, terms).await;
            return;
        }
        // In a break no other client has the queues opened by their next owners, which would fence their pools.
        let _break = (draw == 0 || self.world.below(2) == 0).then(|| Break::begin(&self.shared));
        // Only with a hold of the project are all queues certainly held.
        let project = HeldResource::Project;
        let resource = if draw == 0 && self.world.below(2) == 0 { &project } else { resource };
        for queue in 0..self.scenario.queues {
            self.post(queue).await;
        }
        match draw {
            0 => self.hold_beside_stopped(resource, terms).await,
            _ => self.hold_before_restart(resource, terms).await,
        }
    }

    /// Makes a hold while the replica that serves a queue is stopped, which is replaced meanwhile. Pops and posts reach
    /// that replica as soon as it continues: it may not have learnt of its replacement. In half of the cases no pool
    /// answers until then, so the next owners cannot fence it.
    async fn hold_beside_stopped(&mut self, resource: &HeldResource, terms: HoldTerms) {
        let queue = queue_name(self.pick(self.scenario.queues));
        let Some(stopped) = self.client.stop_owner(&queue).or_else(|| self.client.stop_replica()) else {
            self.client.hold(resource, terms).await;
            return;
        };
        let wait = REPLACED + Duration::from_millis(self.world.below(6_000));
        let mut up = Duration::ZERO;
        if self.world.below(2) == 0 {
            let down = wait + Duration::from_millis(200 + self.world.below(800));
            self.client.stop_pools(down);
            up = self.world.elapsed() + down;
        }
        tokio::time::sleep(wait).await;
        self.client.hold(resource, terms).await;
        let pause = Duration::from_millis(self.world.below(100));
        let resume = async {
            tokio::time::sleep(up.saturating_sub(self.world.elapsed()) + pause).await;
            stopped.resume();
        };
        let client = &self.client;
        let requests = (0..self.scenario.queues).map(|queue| {
            let posting = self.some_posting(queue);
            async move {
                let pop = client.pop_at(stopped.number, queue, 3);
                let postings = [posting];
                let post = client.post_at(stopped.number, queue, &postings);
                futures_util::future::join(pop, post).await
            }
        });
        futures_util::future::join(futures_util::future::join_all(requests), resume).await;
    }

    /// Makes a hold, and ends all replicas at once. Pops, claims and posts reach the next processes as soon as these
    /// serve.
    async fn hold_before_restart(&mut self, resource: &HeldResource, terms: HoldTerms) {
        self.client.hold(resource, terms).await;
        self.client.end_replicas();
        let end = self.world.elapsed() + RESTART;
        while self.world.elapsed() < end {
            let queue = self.pick(self.scenario.queues);
            match self.world.below(3) {
                0 => self.client.pop(queue, 3).await,
                1 => drop(self.client.post(queue, &[self.some_posting(queue)]).await),
                _ => {
                    if let Some(claim) = self.client.claim(queue, 3, CLAIM_TTLS[0], 0).await {
                        self.keep_claim(queue, claim);
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(self.world.below(200))).await;
        }
    }

    /// Some holds end by themselves, if the scenario has that.
    fn some_hold(&self) -> HoldTerms {
        let posts = self.some_posts();
        let ends = self.scenario.verbs.has(Verb::EndingHolds) && self.world.below(3) > 0;
        HoldTerms { posts, ttl: ends.then(|| 5 + self.world.below(40)) }
    }

    /// Mostly posts are stored.
    fn some_posts(&self) -> HeldPosts {
        match self.world.below(4) {
            0 => HeldPosts::Refused,
            1 => HeldPosts::Discarded,
            _ => HeldPosts::Stored,
        }
    }

    /// Returns a group for a message of a FIFO queue. With holds of groups messages of other queues may have one too.
    pub(super) fn group_of(&self, queue: usize) -> Option<String> {
        let may_have_group = self.scenario.verbs.has(Verb::GroupHolds) && self.world.below(4) > 0;
        (is_fifo(queue) || may_have_group).then(|| group_name(self.world.below(GROUPS)))
    }
}

fn group_name(number: u64) -> String {
    format!("g{number}")
}

impl Workload {
    /// Notes the pool of each queue that has one. They stay there until clients move them.
    pub(super) fn note_pools(&self) {
        let pools = self.scenario.cluster.pools.len();
        let places = self.cluster.placements();
        let mut history = self.history.lock();
        history.note_pools(pools);
        for queue in 0..self.scenario.queues {
            let Some([pool]) = places.get(&queue_name(queue)).map(Vec::as_slice) else { continue };
            if let Some(index) = (0..pools).find(|index| pool_name(*index) == *pool) {
                history.pin(queue, index);
            }
        }
    }

    /// Releases everything, so that all messages can be taken out, and waits until no hold is left.
    pub async fn release_holds(&self) {
        let client = self.client("operator".into());
        for resource in self.held_resources() {
            let end = self.world().elapsed() + RECOVERY;
            while !client.release_hold(&resource).await {
                if self.world().elapsed() > end {
                    self.history.lock().violation(format!("{resource:?} cannot be released"));
                    break;
                }
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
        self.await_no_hold().await;
    }

    /// Returns the resources that clients may have held.
    fn held_resources(&self) -> Vec<HeldResource> {
        let (verbs, queues) = (&self.scenario.verbs, 0..self.scenario.queues);
        let mut resources = Vec::new();
        if verbs.has(Verb::Holds) {
            resources.extend(queues.clone().map(HeldResource::Queue));
        }
        if verbs.has(Verb::GroupHolds) {
            let groups = |queue| (0..GROUPS).map(move |group| HeldResource::Group(queue, group_name(group)));
            resources.extend(queues.flat_map(groups));
        }
        if verbs.has(Verb::SharedHolds) {
            resources.extend((0..self.scenario.cluster.pools.len()).map(HeldResource::Pool));
            resources.push(HeldResource::Project);
        }
        resources
    }
}
