//! The broker as a whole, over the embedded tree and pool in a directory of its own. The test moves its clock; where
//! the time of tasks does not matter, tokio's clock is paused, so that background tasks cost no waiting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use uuid::Uuid;

use angarium_broker::{Broker, ClaimView};
use angarium_catalogue::{Catalogue, OwnedSlot};
use angarium_clock::Clock;
use angarium_cluster::replicas::Replica;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_core::claim::{ClaimLimit, ClaimTerms};
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits::Limits;
use angarium_core::message::{MessageTtl, NewMessage};
use angarium_core::names::{ProjectId, QueueName, QueueRef};
use angarium_core::error::Error;
use angarium_journal::Journal;
use angarium_storage::embedded::EmbeddedPool;

use crate::{MAX_WAIT, one_pool};

struct Whole {
    directory: TempDir,
    clock: Clock,
    catalogue: Catalogue,
    broker: Broker,
}

impl Whole {
    async fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory for the test");
        let clock = Clock::manual(1_700_000_000_000);
        let (catalogue, broker) = open(&directory, &clock).await;
        Self { directory, clock, catalogue, broker }
    }

    /// Stops the broker, closes the stores, and starts all of it again.
    async fn restart(self) -> Self {
        let Self { directory, clock, catalogue, broker } = self;
        broker.stop().await;
        drop((broker, catalogue));
        let (catalogue, broker) = open(&directory, &clock).await;
        Self { directory, clock, catalogue, broker }
    }

    fn advance(&self, seconds: u64) {
        self.clock.advance(seconds * 1_000);
    }

    async fn post(&self, at: &QueueRef, bodies: &[Bytes], ttl: i64) -> Vec<MessageId> {
        let ttl = Some(MessageTtl::new(ttl, "ttl", &Limits::ZAQAR).expect("a lawful ttl"));
        let new = |body: &Bytes| NewMessage { body: body.clone(), ttl, delay: None, ..NewMessage::default() };
        self.broker.messages_post(at, bodies.iter().map(new).collect(), None).await.expect("posted").ids
    }

    async fn claim(&self, at: &QueueRef, limit: i64, ttl: i64) -> Option<ClaimView> {
        let terms = ClaimTerms::new(Some(ttl), Some(60), &Limits::ZAQAR).expect("lawful terms");
        let limit = ClaimLimit::new(Some(limit), &Limits::ZAQAR).expect("a lawful limit");
        let claim = self.broker.claim_create(at, terms, limit).await.expect("the claim is answered");
        claim.map(|(view, mut handover)| {
            handover.done();
            view
        })
    }

    /// Returns the ids of a claim on all ready messages, up to 20.
    async fn claimed(&self, at: &QueueRef) -> Vec<MessageId> {
        self.claim(at, 20, 300).await.map_or_else(Vec::new, |claim| ids(&claim))
    }

    /// Claims until there is something to claim.
    async fn claim_in_time(&self, at: &QueueRef) -> ClaimView {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            if let Some(claim) = self.claim(at, 20, 300).await {
                return claim;
            }
            assert!(Instant::now() < deadline, "nothing to claim");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the attempts in the record of a claim.
    async fn attempts(&self, at: &QueueRef, claim: ClaimId) -> Vec<u32> {
        let slot = OwnedSlot::new(at.slot(), 0, 0);
        let found = self.catalogue.claims(&slot).await.expect("records are read");
        let (_, record) = found.claims.into_iter().find(|(id, _)| *id == claim).expect("the claim's record");
        record.messages.iter().map(|message| message.attempt).collect()
    }
}

async fn open(directory: &TempDir, clock: &Clock) -> (Catalogue, Broker) {
    let journal = Journal::open(&directory.path().join("journal"), clock).expect("the journal opens");
    let catalogue = Catalogue::new(Arc::new(EmbeddedTree::open(journal.clone()).await.unwrap()));
    let settings = one_pool(Arc::new(EmbeddedPool::new(journal)));
    let replica = Replica::new(Uuid::new_v4(), "host", "127.0.0.1:1");
    let broker = Broker::start(catalogue.clone(), &settings, replica, clock.clone(), Limits::ZAQAR).await;
    (catalogue, broker.expect("the broker starts"))
}

fn queue(project: &str, name: &str) -> QueueRef {
    let project = ProjectId::new(project).expect("a lawful project");
    QueueRef { project, name: QueueName::new(name).expect("a lawful name") }
}

fn ids(claim: &ClaimView) -> Vec<MessageId> {
    claim.messages.iter().map(|message| message.id).collect()
}

fn bodies(count: usize) -> Vec<Bytes> {
    (0..count).map(|number| Bytes::from(number.to_string())).collect()
}

#[tokio::test(start_paused = true)]
async fn expired_claim_frees_its_messages_and_counts_as_an_attempt() {
    let (whole, at) = (Whole::start().await, queue("p", "q"));
    let posted = whole.post(&at, &bodies(3), 3_600).await;
    let first = whole.claim(&at, 2, 60).await.expect("there are three");
    assert_eq!(whole.attempts(&at, first.id).await, [1, 1]);
    whole.advance(61);
    assert_eq!(whole.claimed(&at).await, posted[2..]);
    let second = whole.claim_in_time(&at).await;
    assert_eq!(ids(&second), posted[..2]);
    assert_eq!(whole.attempts(&at, second.id).await, [2, 2]);
    let ended = whole.broker.message_delete(&at, posted[0], Some(first.id)).await;
    assert!(matches!(ended, Err(Error::ClaimEnded(_))), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn claim_lives_up_to_its_deadline() {
    let (whole, at) = (Whole::start().await, queue("p", "q"));
    let posted = whole.post(&at, &bodies(1), 3_600).await;
    let claim = whole.claim(&at, 1, 60).await.expect("there is one");
    whole.advance(59);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(whole.claimed(&at).await, []);
    whole.broker.message_delete(&at, posted[0], Some(claim.id)).await.expect("the claim is live");
}

#[tokio::test(start_paused = true)]
async fn grace_lengthens_the_life_of_claimed_messages() {
    let (whole, at) = (Whole::start().await, queue("p", "q"));
    let posted = whole.post(&at, &bodies(1), 60).await;
    let claim = whole.claim(&at, 1, 100).await.expect("there is one");
    assert_eq!(claim.messages[0].ttl, 160);
    whole.advance(101);
    let again = whole.claim_in_time(&at).await;
    assert_eq!((ids(&again), again.messages[0].ttl), (posted.clone(), 360));
    whole.broker.claim_release(&at, again.id).await.expect("released");
    whole.advance(361);
    assert_eq!(whole.claimed(&at).await, []);
    let gone = whole.broker.message_get(&at, posted[0]).await;
    assert!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn released_messages_come_first_and_in_order() {
    let (whole, at) = (Whole::start().await, queue("p", "q"));
    let posted = whole.post(&at, &bodies(10), 3_600).await;
    let (first, second) = (whole.claim(&at, 3, 60).await.unwrap(), whole.claim(&at, 3, 60).await.unwrap());
    whole.broker.claim_release(&at, second.id).await.expect("released");
    whole.broker.claim_release(&at, first.id).await.expect("released");
    assert_eq!(whole.claimed(&at).await, posted);
}

#[tokio::test(start_paused = true)]
async fn backlog_beyond_the_window_drains_in_order_and_completely() {
    let (whole, at) = (Whole::start().await, queue("p", "q"));
    let large = Bytes::from(vec![b'1'; 100_000]);
    let mut posted = whole.post(&at, &bodies(3_000), 3_600).await;
    posted.extend(whole.post(&at, &vec![large; 25], 3_600).await);
    posted.extend(whole.post(&at, &bodies(2_000), 3_600).await);
    let whole = whole.restart().await;
    posted.extend(whole.post(&at, &bodies(100), 3_600).await);
    let mut drained = Vec::new();
    while let Some(claim) = whole.claim(&at, 20, 3_600).await {
        drained.extend(ids(&claim));
        // Deleted messages count as claimed too.
        if drained.len() % 3 == 0 {
            let deleted = whole.broker.message_delete(&at, claim.messages[0].id, Some(claim.id)).await;
            deleted.expect("the claim is live");
        }
    }
    assert!(drained == posted, "{} drained of {}", drained.len(), posted.len());
}

#[tokio::test(start_paused = true)]
async fn bodies_match_their_posts() {
    let (whole, at) = (Whole::start().await, queue("p", "q"));
    let sent = bodies(20);
    whole.post(&at, &sent, 3_600).await;
    for _ in 0..2 {
        let claim = whole.claim(&at, 20, 60).await.expect("there are twenty");
        assert_eq!(claim.messages.iter().map(|message| message.body.clone()).collect::<Vec<_>>(), sent);
        // The second time they are read from the pool.
        whole.broker.claim_release(&at, claim.id).await.expect("released");
    }
}

#[tokio::test(start_paused = true)]
async fn queues_of_two_projects_with_one_name_are_two_queues() {
    let whole = Whole::start().await;
    let (mine, theirs) = (queue("mine", "q"), queue("theirs", "q"));
    let posted = whole.post(&mine, &bodies(2), 3_600).await;
    assert_eq!(whole.claimed(&theirs).await, []);
    let others = whole.post(&theirs, &bodies(1), 3_600).await;
    whole.broker.message_delete(&theirs, posted[0], None).await.expect("an unknown id is no error");
    assert_eq!(whole.claimed(&theirs).await, others);
    assert_eq!(whole.claimed(&mine).await, posted);
}

#[tokio::test(start_paused = true)]
async fn restart_keeps_claims_and_their_attempts() {
    let (whole, at) = (Whole::start().await, queue("p", "q"));
    let posted = whole.post(&at, &bodies(4), 3_600).await;
    let claim = whole.claim(&at, 3, 600).await.expect("there are four");
    let whole = whole.restart().await;
    assert_eq!(whole.claimed(&at).await, posted[3..]);
    let refused = whole.broker.message_delete(&at, posted[0], None).await;
    assert!(matches!(refused, Err(Error::Claimed(_))), "{refused:?}");
    whole.broker.message_delete(&at, posted[1], Some(claim.id)).await.expect("the claim is live");
    whole.broker.claim_release(&at, claim.id).await.expect("released");
    let again = whole.claim(&at, 20, 600).await.expect("two are back");
    assert_eq!(ids(&again), [posted[0], posted[2]]);
    assert_eq!(whole.attempts(&at, again.id).await, [2, 2]);
}

#[tokio::test(start_paused = true)]
async fn claim_expired_while_down_ends_at_next_use() {
    let (whole, at) = (Whole::start().await, queue("p", "q"));
    let posted = whole.post(&at, &bodies(2), 3_600).await;
    whole.claim(&at, 2, 60).await.expect("there are two");
    whole.advance(61);
    let whole = whole.restart().await;
    // The restart itself may have kept the holder from renewing, so the holder has two more seconds.
    assert!(whole.claimed(&at).await.is_empty());
    whole.advance(2);
    assert_eq!(ids(&whole.claim_in_time(&at).await), posted);
}

#[tokio::test(start_paused = true)]
async fn deletes_and_posts_survive_a_restart() {
    let (whole, at) = (Whole::start().await, queue("p", "q"));
    let posted = whole.post(&at, &bodies(3), 3_600).await;
    whole.broker.message_delete(&at, posted[1], None).await.expect("deleted");
    let whole = whole.restart().await;
    let later = whole.post(&at, &bodies(1), 3_600).await;
    assert!(later[0] > posted[2]);
    assert_eq!(whole.claimed(&at).await, [posted[0], posted[2], later[0]]);
}

#[tokio::test(start_paused = true)]
async fn abandoned_claim_is_released_uncounted() {
    let (whole, at) = (Whole::start().await, queue("p", "q"));
    let posted = whole.post(&at, &bodies(2), 3_600).await;
    let (terms, limit) = (
        ClaimTerms::new(None, None, &Limits::ZAQAR).unwrap(),
        ClaimLimit::new(None, &Limits::ZAQAR).unwrap(),
    );
    // Polled once and dropped.
    let left = tokio::time::timeout(Duration::ZERO, whole.broker.claim_create(&at, terms, limit)).await;
    assert!(left.is_err(), "answered at once");
    let claim = whole.claim_in_time(&at).await;
    assert_eq!(ids(&claim), posted);
    assert_eq!(whole.attempts(&at, claim.id).await, [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn claimed_and_free_messages_add_up() {
    let (whole, at) = (Whole::start().await, queue("p", "q"));
    let posted = whole.post(&at, &bodies(5), 3_600).await;
    let claim = whole.claim(&at, 2, 60).await.expect("there are five");
    let stats = whole.broker.queue_stats(&at).await.expect("counted");
    assert_eq!((stats.claimed, stats.free), (2, 3));
    whole.broker.message_delete(&at, posted[0], Some(claim.id)).await.expect("the claim is live");
    whole.broker.message_delete(&at, posted[4], None).await.expect("it is free");
    let stats = whole.broker.queue_stats(&at).await.expect("counted");
    assert_eq!((stats.claimed, stats.free), (1, 2));
    assert_eq!(stats.oldest.map(|oldest| oldest.id), Some(posted[1]));
    assert_eq!(stats.newest.map(|newest| newest.id), Some(posted[3]));
}

/// A claim that found only expired messages waited forever for a page that no task read.
#[tokio::test]
async fn expired_backlog_does_not_hold_claims_up() {
    let (whole, at) = (Whole::start().await, queue("p", "q"));
    whole.post(&at, &bodies(1), 60).await;
    assert_eq!(whole.claimed(&at).await.len(), 1, "now the window reaches to the end of the queue");
    whole.post(&at, &bodies(5_000), 60).await;
    let live = whole.post(&at, &bodies(2), 3_600).await;
    whole.advance(61);
    let claim = tokio::time::timeout(MAX_WAIT, whole.claim(&at, 20, 60)).await.expect("an answer");
    assert_eq!(claim.map(|claim| ids(&claim)), Some(live));
}
