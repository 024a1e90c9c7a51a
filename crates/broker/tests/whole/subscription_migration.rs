//! Migrations of queues with subscriptions: all of them change their pool together, and each message has one copy.

use std::collections::BTreeSet;
use std::time::Duration;

use angarium_broker::{Destination, NewSubscription};
use angarium_catalogue::Schema;
use angarium_core::ids::SubscriptionId;
use angarium_core::message::NewMessage;
use angarium_core::names::{PoolName, QueueRef};
use angarium_core::pool::PoolChange;
use angarium_core::settle::SettleEntry;
use angarium_testbed::settings;
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::deadletters::FOR_EVER;
use super::faulty::{Fault, Plan};
use super::groups::in_group;
use super::migration::{Pools, to};
use super::overflow::{backlog, bounded, post, stored, take};
use super::settle::{DONE, entry, forward, hold, settle_one};
use super::subscriptions::{new, next_body, options, with_body};
use super::topics::topic;
use super::transfers::until;
use super::{Whole, metadata, other_replica, queue};

const FAULTS: [Fault; 3] = [Fault::NotSent, Fault::UnknownBefore, Fault::UnknownAfter];

/// A migration to this pool with a bound of the messages a second.
fn slowly(pool: &str, rate: u32) -> Destination {
    Destination::new(PoolName::new(pool).unwrap(), Some(rate.into())).unwrap()
}

/// Posts messages. Returns the bodies of the ones that were acknowledged.
async fn post_some(whole: &Whole, at: &QueueRef, posts: usize) -> BTreeSet<String> {
    let mut acknowledged = BTreeSet::new();
    for _ in 0..posts {
        let bodies = [next_body(), next_body()];
        let messages = bodies.iter().map(|body| with_body(body)).collect();
        if whole.broker.messages_post(at, messages, None).await.is_ok() {
            acknowledged.extend(bodies);
        }
    }
    acknowledged
}

/// Claims all messages, each of which is there once. Returns their bodies.
async fn drain_set(whole: &Whole, at: &QueueRef, case: &str) -> BTreeSet<String> {
    let bodies = whole.drain_bodies(at).await;
    let set = BTreeSet::from_iter(bodies.iter().cloned());
    assert_eq!(set.len(), bodies.len(), "{case}: some are doubled in {at:?}");
    set
}

/// Begins a migration, unless one has begun.
async fn migrate_now(whole: &Whole, at: &QueueRef) {
    until("it does not migrate", async || match whole.broker.queue_migrate(at, to("b")).await {
        Ok(_) => true,
        Err(error) => error.code() == "conflict",
    })
    .await;
}

async fn await_moved(whole: &Whole, pools: &Pools, at: &QueueRef, ids: &[SubscriptionId]) {
    whole.arrived(at).await;
    for id in ids {
        assert_eq!(pools.held_by(id.0).await[0], 0, "{id} has left copies behind");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_migrate_with_their_queue_and_back() {
    let (pools, q, target) = (Pools::new(), queue("q"), queue("target"));
    let (whole, _) = pools.start().await;
    let (one, own) = whole.subscribe(&q, "pull:one").await;
    let (two, _) = whole.subscribe(&q, "queue:target").await;
    let refused = whole.broker.queue_migrate(&own, to("b")).await.unwrap_err();
    assert_eq!(refused.code(), "conflict", "it moves with its queue");
    let mut posted = whole.post_bodies(&q, 600, 3_600).await;
    assert_eq!(whole.claim(&own, 7, 300).await.len(), 7);
    whole.broker.queue_migrate(&q, to("b")).await.unwrap();
    posted.extend(whole.post_bodies(&q, 30, 3_600).await);
    // The claimed copies keep the whole queue in both pools.
    let left = async || whole.broker.migration_get(&q).await.unwrap().left;
    until("the others go over", async || left().await == 7).await;
    posted.extend(whole.post_bodies(&q, 3, 3_600).await);
    whole.clock.advance(400_000);
    await_moved(&whole, &pools, &q, &[one, two]).await;
    whole.broker.queue_migrate(&q, to("a")).await.unwrap();
    whole.arrived(&q).await;
    assert_eq!(pools.held_by(one.0).await, [633, 0]);
    posted.extend(whole.post_bodies(&q, 2, 3_600).await);
    for at in [&q, &own, &target] {
        assert_eq!(BTreeSet::from_iter(whole.claim_all(at, 635).await), BTreeSet::from_iter(posted.clone()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_stay_in_order_and_under_their_claims() {
    let (pools, q) = (Pools::new(), queue("q.fifo"));
    let (whole, _) = pools.start().await;
    whole.broker.queue_create(&q, metadata(r#"{"_fifo": true}"#)).await.unwrap();
    let (id, own) = whole.subscribe(&q, "pull:").await;
    let mut posted = Vec::new();
    let mut taken = Vec::new();
    let send = async |number: usize| {
        let message = NewMessage { body: number.to_string().into(), ..in_group(["a", "b"][number % 2], "") };
        whole.broker.messages_post(&q, vec![message], None).await.unwrap();
        number
    };
    for number in 0..300 {
        posted.push(send(number).await);
    }
    whole.broker.queue_migrate(&q, slowly("b", 1_500)).await.unwrap();
    for number in 300..400 {
        posted.push(send(number).await);
        taken.extend(take(&whole, &own, 3).await);
    }
    await_moved(&whole, &pools, &q, &[id]).await;
    until("copies are missing", async || {
        taken.extend(take(&whole, &own, 20).await);
        taken.len() >= posted.len()
    })
    .await;
    for group in 0..2 {
        let of_group: Vec<usize> = taken.iter().copied().filter(|body| body % 2 == group).collect();
        assert_eq!(of_group, (group..400).step_by(2).collect::<Vec<_>>());
    }
}

/// Whatever the fault, and whichever batch it stops, a subscription has a message exactly if its source has it, once.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_migration_keeps_one_copy_of_each() {
    let all = (0..=16).flat_map(|batches| FAULTS.map(|fault| (batches, fault)));
    join_all(all.map(async |(batches, fault)| {
        let case = format!("{fault:?} after {batches}");
        let (pools, q) = (Pools::new(), queue("q"));
        let (whole, plan) = pools.start().await;
        let (one, own) = whole.subscribe(&q, "pull:one").await;
        let (two, other) = whole.subscribe(&q, "pull:two").await;
        let mut acknowledged = post_some(&whole, &q, 5).await;
        plan.next(&vec![fault; FOR_EVER]);
        plan.skip(batches);
        let _ = whole.broker.queue_migrate(&q, to("b")).await;
        acknowledged.extend(post_some(&whole, &q, 3).await);
        tokio::time::sleep(Duration::from_millis(200)).await;
        whole.broker.stop().await;
        let (whole, _) = pools.start().await;
        // The first fault may have been met before the record was written.
        migrate_now(&whole, &q).await;
        await_moved(&whole, &pools, &q, &[one, two]).await;
        let kept = drain_set(&whole, &q, &case).await;
        assert!(acknowledged.is_subset(&kept), "{case}");
        assert_eq!(drain_set(&whole, &own, &case).await, kept, "{case}");
        assert_eq!(drain_set(&whole, &other, &case).await, kept, "{case}");
    }))
    .await;
}

/// A message that is prepared in the older pool brings its copies there, in the batch that publishes it.
#[tokio::test(flavor = "multi_thread")]
async fn arrival_in_either_pool_brings_one_copy() {
    let all = (0..=5).flat_map(|steps| (0..5).map(move |more| (steps, more)));
    join_all(all.map(async |(steps, more)| {
        let fault = FAULTS[(steps + more) % FAULTS.len()];
        let case = format!("{fault:?} {more} batches after {steps}");
        let (pools, q, target) = (Pools::new(), queue("q"), queue("target"));
        let (whole, plan) = pools.start().await;
        let (id, own) = whole.subscribe(&target, "pull:").await;
        whole.subscribe(&q, "queue:target").await;
        // The transfer stops after some of its batches, and continues in another life, in which the target migrates.
        plan.next(&vec![Fault::NotSent; FOR_EVER]);
        plan.skip(steps);
        let messages = (0..3).map(|number| with_body(&number.to_string())).collect();
        let _ = whole.broker.messages_post(&q, messages, None).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let _ = whole.broker.queue_migrate(&target, to("b")).await;
        whole.broker.stop().await;
        let (whole, plan) = pools.start().await;
        plan.next(&vec![fault; FOR_EVER]);
        plan.skip(more);
        let _ = whole.broker.queue_migrate(&target, to("b")).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        whole.broker.stop().await;
        let (whole, _) = pools.start().await;
        migrate_now(&whole, &target).await;
        await_moved(&whole, &pools, &target, &[id]).await;
        let posted = whole.drain_bodies(&q).await;
        for at in [&target, &own] {
            let copies = if posted.is_empty() { Vec::new() } else { whole.claim_all(at, 3).await };
            assert_eq!(BTreeSet::from_iter(copies), BTreeSet::from_iter(posted.clone()), "{case}: {at:?}");
        }
    }))
    .await;
}

/// The forward of a message that waits in the older pool is written there, with its copies.
#[tokio::test(flavor = "multi_thread")]
async fn forward_to_own_queue_brings_copies_in_a_migration() {
    let (pools, q) = (Pools::new(), queue("q"));
    let (whole, _) = pools.start().await;
    let (id, own) = whole.subscribe(&q, "pull:").await;
    whole.post_bodies(&q, 4, 3_600).await;
    let (claim, views) = hold(&whole.broker, &q).await;
    whole.broker.queue_migrate(&q, to("b")).await.unwrap();
    for view in &views {
        let forwards = SettleEntry { forwards: vec![forward("q")], ..entry(view.id, DONE) };
        settle_one(&whole.broker, &q, claim, forwards).await.unwrap();
    }
    await_moved(&whole, &pools, &q, &[id]).await;
    assert_eq!(whole.claim_all(&own, 8).await.iter().filter(|body| *body == "\"next\"").count(), 4);
    assert_eq!(whole.claim_all(&q, 4).await, vec!["\"next\""; 4]);
}

/// A fill and a gap go on in both pools, whatever stops the migration or turns it round.
#[tokio::test(flavor = "multi_thread")]
async fn fill_and_gap_copy_once_in_a_migration() {
    let all = (0..=14).step_by(2).flat_map(|batches| FAULTS.map(|fault| (batches, fault)));
    join_all(all.map(async |(batches, fault)| {
        let case = format!("{fault:?} after {batches}");
        let (pools, q) = (Pools::new(), queue("q"));
        let (whole, plan) = pools.start().await;
        let (gap, suspended) = bounded(&whole, &q, "pull:gap", r#"{"max_messages": 40}"#).await;
        for first in (0..400).step_by(40) {
            post(&whole, &q, &(first..first + 40).collect::<Vec<_>>()).await.unwrap();
        }
        plan.next(&vec![fault; FOR_EVER]);
        plan.skip(batches);
        let fill = NewSubscription { options: options(r#"{"from": "oldest"}"#), ..new("pull:fill") };
        let filled = whole.broker.subscription_create(&q, fill).await.map(|made| made.id);
        let _ = whole.broker.queue_migrate(&q, to("b")).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        if batches % 4 == 0 {
            let _ = whole.broker.migration_cancel(&q).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        whole.broker.stop().await;
        let (whole, _) = pools.start().await;
        let mut copies = Vec::new();
        until("it does not catch up", async || {
            let is_filling = backlog(&whole, &q, gap).await.is_filling;
            let taken = take(&whole, &suspended, 20).await;
            copies.extend(&taken);
            taken.is_empty() && !is_filling
        })
        .await;
        whole.arrived(&q).await;
        // A claim may have got nothing while the last ones were between two pools.
        until("copies are missing", async || {
            copies.extend(take(&whole, &suspended, 20).await);
            copies.len() >= 400
        })
        .await;
        copies.extend(take(&whole, &suspended, 20).await);
        assert_eq!(copies.len(), 400, "{case}");
        assert_eq!(BTreeSet::from_iter(copies), BTreeSet::from_iter(0..400), "{case}");
        assert_eq!(backlog(&whole, &q, gap).await.omissions.left_out, 0, "{case}");
        let Ok(filled) = filled else { return };
        until("it is not filled", async || !backlog(&whole, &q, filled).await.is_filling).await;
        let copies = drain_set(&whole, &q.of_subscription(filled), &case).await;
        assert_eq!(copies, (0..400).map(|body: usize| body.to_string()).collect(), "{case}");
    }))
    .await;
}

/// A message that is being copied is in two pools: it counts once for the bounds.
#[tokio::test(flavor = "multi_thread")]
async fn oldest_copies_are_dropped_within_bounds_while_moving() {
    let (pools, q) = (Pools::new(), queue("q"));
    let (whole, _) = pools.start().await;
    let (id, own) = bounded(&whole, &q, "pull:", r#"{"max_messages": 300, "overflow": "drop_oldest"}"#).await;
    post(&whole, &q, &(0..300).collect::<Vec<_>>()).await.unwrap();
    whole.broker.queue_migrate(&q, slowly("b", 1_000)).await.unwrap();
    for body in 300..360 {
        post(&whole, &q, &[body]).await.unwrap();
        assert!(stored(&whole, &own).await <= 300);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    await_moved(&whole, &pools, &q, &[id]).await;
    assert_eq!(stored(&whole, &own).await, 300);
    assert_eq!(backlog(&whole, &q, id).await.omissions.dropped, 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_come_and_go_in_a_migration() {
    let (pools, q) = (Pools::new(), queue("q"));
    let (whole, _) = pools.start().await;
    let (leaves, _) = whole.subscribe(&q, "pull:leaves").await;
    let (stays, own) = whole.subscribe(&q, "pull:stays").await;
    let mut posted = whole.post_bodies(&q, 5, 3_600).await;
    assert_eq!(whole.claim(&q, 1, 300).await.len(), 1, "it keeps the migration from ending");
    whole.broker.queue_migrate(&q, to("b")).await.unwrap();
    let (late, new) = whole.subscribe(&q, "pull:late").await;
    posted.extend(whole.post_bodies(&q, 2, 3_600).await);
    whole.broker.subscription_delete(&q, leaves).await.unwrap();
    until("its copies stay", async || pools.held_by(leaves.0).await == [0, 0]).await;
    assert!(whole.broker.migration_get(&q).await.is_ok(), "it has ended too early to be a test");
    whole.clock.advance(400_000);
    await_moved(&whole, &pools, &q, &[stays, late]).await;
    assert_eq!(whole.claim_all(&own, 7).await, posted);
    assert_eq!(whole.claim_all(&new, 2).await, posted[5..]);
    // A deletion of the queue in a migration takes all of them along.
    whole.broker.queue_migrate(&q, slowly("a", 1)).await.unwrap();
    whole.broker.queue_delete(&q).await.unwrap();
    for id in [stays, late] {
        until("its copies stay", async || pools.held_by(id.0).await == [0, 0]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_leaves_a_drained_pool_with_its_subscriptions() {
    let pools = Pools::new();
    let (whole, _) = pools.start().await;
    let news = topic("news");
    whole.broker.queue_create(&news, metadata("{}")).await.unwrap();
    let (id, own) = whole.subscribe(&news, "pull:").await;
    let mut posted = whole.post_bodies(&news, 300, 3_600).await;
    let b = PoolChange { weight: Some(1), ..PoolChange::default() };
    whole.broker.pool_patch(&PoolName::new("b").unwrap(), b).await.unwrap();
    let a = PoolName::new("a").unwrap();
    let begun = whole.broker.pool_drain(&a, None).await.unwrap();
    assert_eq!(begun.waiting + begun.moving, 1);
    posted.extend(whole.post_bodies(&news, 5, 3_600).await);
    let left = async || whole.broker.pool_drain_get(&a).await.map_or(1, |view| view.waiting + view.moving);
    until("the topic stays", async || left().await == 0).await;
    assert_eq!(pools.held_by(id.0).await, [0, 305]);
    assert_eq!(whole.claim_all(&own, 305).await, posted);
    whole.broker.pool_delete(&a).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribed_queue_waits_for_older_replicas() {
    let (pools, q, plain) = (Pools::new(), queue("q"), queue("plain"));
    let (whole, _) = pools.start().await;
    let (catalogue, older) = (pools.catalogue(), other_replica(Schema::TRANSFER_HOLDS));
    let seen = catalogue.registry().await.unwrap();
    catalogue.component_join(&seen, "elsewhere", &older).await.unwrap().unwrap();
    whole.subscribe(&q, "pull:").await;
    whole.post(&plain, 1, 3_600).await;
    assert_eq!(whole.claim(&plain, 1, 300).await.len(), 1, "it keeps the migration from ending");
    let refused = whole.broker.queue_migrate(&q, to("b")).await.unwrap_err();
    assert!(refused.detail().contains("does not know records of form 15"), "{}", refused.detail());
    whole.broker.queue_migrate(&plain, to("b")).await.unwrap();
    let refused = whole.broker.subscription_create(&plain, new("pull:")).await.unwrap_err();
    assert!(refused.detail().contains("does not know records of form 15"), "{}", refused.detail());
}

/// The copies in the other pool of a migration outlive the pool that is gone.
#[tokio::test(flavor = "multi_thread")]
async fn removed_pool_leaves_copies_in_the_other_one() {
    let (pools, q) = (Pools::new(), queue("q"));
    let (whole, _) = pools.start().await;
    let (_, own) = whole.subscribe(&q, "pull:").await;
    whole.post_bodies(&q, 20, 3_600).await;
    assert_eq!(whole.claim(&own, 20, 3_000).await.len(), 20, "they stay where they are");
    whole.broker.queue_migrate(&q, to("b")).await.unwrap();
    let posted = whole.post_bodies(&q, 3, 3_600).await;
    let b = PoolChange { weight: Some(1), ..PoolChange::default() };
    whole.broker.pool_patch(&PoolName::new("b").unwrap(), b).await.unwrap();
    whole.broker.pool_delete_forced(&PoolName::new("a").unwrap()).await.unwrap();
    until("the slot is not recovered", async || whole.broker.queue_stats(&own).await.is_ok()).await;
    assert_eq!(whole.claim_all(&own, 3).await, posted);
    let more = whole.post_bodies(&q, 1, 3_600).await;
    assert_eq!(whole.claim_all(&own, 1).await, more);
}

/// One queue with a subscription through many lives of its broker.
struct History {
    pools: Pools,
    now: Whole,
    plan: Plan,
    q: QueueRef,
    own: QueueRef,
    acknowledged: BTreeSet<String>,
    /// The copies that were claimed and deleted, or may have been.
    taken: Vec<usize>,
    unsure: BTreeSet<usize>,
}

impl History {
    async fn begin() -> Self {
        let pools = Pools::new();
        let (now, plan) = pools.start().await;
        let q = queue("q");
        let (_, own) = now.subscribe(&q, "pull:").await;
        now.subscribe(&q, "queue:target").await;
        let (acknowledged, taken, unsure) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
        Self { pools, now, plan, q, own, acknowledged, taken, unsure }
    }

    async fn post(&mut self, posts: usize) {
        self.acknowledged.extend(post_some(&self.now, &self.q, posts).await);
    }

    /// Claims copies and deletes them.
    async fn take(&mut self, most: i64) {
        let claim = self.now.broker.claim_create(&self.own, super::terms(60), super::limit(most)).await;
        let Ok(Some((view, mut guard))) = claim else { return };
        guard.done();
        for message in &view.messages {
            let body: usize = std::str::from_utf8(&message.body).unwrap().parse().unwrap();
            assert!(!self.taken.contains(&body), "{body} is there again");
            match self.now.broker.message_delete(&self.own, message.id, Some(view.id)).await {
                Ok(()) => self.taken.push(body),
                Err(_) => drop(self.unsure.insert(body)),
            }
        }
    }

    async fn turn(&mut self, dice: &mut StdRng) {
        let pool = if dice.random() { "a" } else { "b" };
        drop(match dice.random() {
            true => self.now.broker.queue_migrate(&self.q, to(pool)).await,
            false => self.now.broker.migration_cancel(&self.q).await,
        });
    }

    async fn crash(&mut self, batches: usize, dice: &mut StdRng) {
        let fault = [Fault::NotSent, Fault::UnknownAfter][dice.random_range(0..2)];
        self.plan.next(&vec![fault; FOR_EVER]);
        self.plan.skip(batches);
        self.turn(dice).await;
        let posts = tokio::time::timeout(Duration::from_millis(100), post_some(&self.now, &self.q, 2)).await;
        self.acknowledged.extend(posts.unwrap_or_default());
        self.now.broker.stop().await;
        (self.now, self.plan) = self.pools.start().await;
    }

    /// Checks that each message of the queue has one copy in each subscription.
    async fn end(mut self) {
        self.now.arrived(&self.q).await;
        self.now.clock.advance(61_000);
        let kept = drain_set(&self.now, &self.q, "the queue").await;
        assert!(self.acknowledged.is_subset(&kept), "some are lost");
        let number = |body: &String| body.parse::<usize>().unwrap();
        let rest = self.now.drain_bodies(&self.own).await;
        self.taken.extend(rest.iter().map(number));
        let copies = BTreeSet::from_iter(self.taken.iter().copied());
        assert_eq!(copies.len(), self.taken.len(), "some are doubled");
        let missing: Vec<usize> = kept
            .iter()
            .map(number)
            .filter(|body| !copies.contains(body) && !self.unsure.contains(body))
            .collect();
        assert!(missing.is_empty(), "{missing:?} have no copy");
        let strange: Vec<&usize> = copies.iter().filter(|body| !kept.contains(&body.to_string())).collect();
        assert!(strange.is_empty(), "{strange:?} are copies of nothing");
        let arrived = self.now.claim_all(&queue("target"), kept.len()).await;
        assert_eq!(BTreeSet::from_iter(arrived), kept);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_migrations_of_subscriptions_keep_one_copy() {
    let mut dice = StdRng::seed_from_u64(settings::seed("subscription migrations"));
    for _ in 0..settings::number("ANGARIUM_SUBSCRIPTION_HISTORIES", 4) {
        let mut history = History::begin().await;
        history.post(60).await;
        for _ in 0..50 {
            match dice.random_range(0..20) {
                0..6 => history.post(dice.random_range(1..10)).await,
                6..12 => history.take(dice.random_range(1..=20)).await,
                12..17 => history.turn(&mut dice).await,
                _ => history.crash(dice.random_range(0..12), &mut dice).await,
            }
        }
        history.end().await;
    }
}
