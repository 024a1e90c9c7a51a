//! The numbers of messages in the queues of a page. Only the owner of a slot knows its claimed messages, so each owner
//! is asked once, for all of its queues on the page.
//!
//! A page has at most [`core_limits::PAGE_MAX`] queues, of which [`limits::COUNT_AT_ONCE`] are read at once. An open
//! queue costs one read of its pool, and one more for the age of its oldest message. A closed queue is read as it is
//! stored ([`crate::open_queues::closed`]) and stays closed; a due delayed message of it counts as delayed until the
//! background task has opened the queue ([`crate::counting::background`]). A queue is left out if it is not counted
//! within [`limits::HEALTH_DEADLINE`], or within the part of it that belongs to its group.

use crate::counting::Counts;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::debug;
use uuid::Uuid;

use crate::limits;
use crate::slot::figure_sums::Contents;
use crate::slot::gauge::QueueGauge;
use crate::slot::migration::still;
use crate::slot::state::Slot;
use angarium_catalogue::SlotOwner;
use angarium_cluster::peer_client::{COUNTS, CountsRequest, CountsResponse, QueueAddress, QueueCounts};
use angarium_core::error::{Error, Part};
use angarium_core::limits as core_limits;
use angarium_core::maps::HashMap;
use angarium_core::names::QueueRef;
use angarium_core::time::Timestamp;
use angarium_storage::Direction;

/// Attempts to count a queue that is opened or closed meanwhile.
const LOOKS: usize = 4;

/// The queues of a page that one replica serves, with their positions on the page.
#[derive(Default)]
struct ReplicaQueues {
    /// The owner; none for this replica.
    owner: Option<SlotOwner>,
    places: Vec<usize>,
    queues: Vec<QueueRef>,
}

impl Counts {
    /// Counts the messages of each of these queues, at most a page of them. The count is none for a missing queue, and
    /// for one whose owner or pool does not answer in time.
    pub(crate) async fn queue_counts(&self, queues: Vec<QueueRef>) -> Vec<Option<QueueCounts>> {
        let mut counts = vec![None; queues.len()];
        let mut shares: HashMap<Option<Uuid>, ReplicaQueues> = HashMap::default();
        for (place, at) in queues.into_iter().enumerate() {
            let owner = self.0.slots.elsewhere(&at);
            let share = shares.entry(owner.as_ref().map(|owner| owner.instance)).or_default();
            share.owner = owner;
            share.places.push(place);
            share.queues.push(at);
        }
        let answers = shares.into_values().map(async |ReplicaQueues { owner, places, queues }| {
            let counted = match owner {
                None => self.counts_of_own(&queues, limits::HEALTH_DEADLINE).await,
                Some(owner) => self.fetch_counts(&owner, &queues).await,
            };
            (places, counted)
        });
        for (places, counted) in join_all(answers).await {
            places.into_iter().zip(counted).for_each(|(place, found)| counts[place] = found);
        }
        counts
    }

    /// Counts, for another replica, the messages of queues that are served here.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] for more queues than a page has.
    pub async fn local_counts(&self, question: CountsRequest) -> Result<CountsResponse, Error> {
        let bound = core_limits::PAGE_MAX;
        if question.queues.len() > bound {
            return Err(Error::TooMany { what: "queues in a question", bound });
        }
        let queues = question.queues.iter().map(QueueAddress::queue).collect::<Result<Vec<_>, _>>()?;
        Ok(CountsResponse { queues: self.counts_of_own(&queues, limits::COUNTS_ANSWER).await })
    }

    async fn fetch_counts(&self, owner: &SlotOwner, queues: &[QueueRef]) -> Vec<Option<QueueCounts>> {
        let ask = async {
            let question = CountsRequest { queues: queues.iter().map(QueueAddress::from).collect() };
            self.0.slots.peer_client()?.ask::<CountsResponse>(&owner.address, COUNTS, &question).await
        };
        match timeout(limits::HEALTH_DEADLINE, ask).await {
            Ok(Ok(CountsResponse { queues })) => queues,
            Ok(Err(error)) => {
                debug!(replica = %owner.address, %error, "queues of replica not counted");
                Vec::new()
            }
            Err(_) => {
                debug!(replica = %owner.address, "queues of replica not counted in time");
                Vec::new()
            }
        }
    }

    async fn counts_of_own(&self, queues: &[QueueRef], most: Duration) -> Vec<Option<QueueCounts>> {
        let (began, chunks) = (Instant::now(), queues.chunks(limits::COUNT_AT_ONCE));
        // Each group has its part of the time, so that a pool that does not answer hides only queues of its group.
        let rounds = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
        let mut counts = Vec::with_capacity(queues.len());
        for (round, some) in (1..).zip(chunks) {
            let deadline = began + most * round / rounds;
            let counted = some.iter().map(async |at| {
                let counted = timeout_at(deadline, self.count_local_queue(at)).await.ok()?;
                let told = |error: &Error| debug!(%error, queue = %at.name, "queue not counted");
                counted.inspect_err(told).ok().flatten()
            });
            counts.extend(join_all(counted).await);
        }
        counts
    }

    async fn count_local_queue(&self, at: &QueueRef) -> Result<Option<QueueCounts>, Error> {
        let slot = self.0.slots.slot(at).await?;
        let counts = self.count_queue_in(&slot, at).await;
        self.0.slots.confirm(&slot, counts)
    }

    async fn count_queue_in(&self, slot: &Arc<Slot>, at: &QueueRef) -> Result<Option<QueueCounts>, Error> {
        // The queue may be opened during each attempt, and closed again.
        for _ in 0..LOOKS {
            if let Some(counts) = self.count_open(slot, at).await? {
                return Ok(Some(counts));
            }
            let Some(record) = self.0.replica.catalogue.queue(&slot.owned, at).await? else {
                return Ok(None);
            };
            let read = self.0.open_queues.read_closed(slot, record.id, &record.placement()?).await?;
            let is_due = read.next_ready.is_some_and(|next| next <= self.0.replica.clock.now());
            if !slot.is_open(at) {
                if is_due {
                    slot.look_again(at);
                }
                return Ok(Some(stored_counts(&read.contents, self.0.replica.clock.now())));
            }
        }
        Err(Error::unavailable(Part::Storage, "the queue is opened and closed again and again"))
    }

    /// Counts an open queue. Returns none when the queue is not open.
    async fn count_open(&self, slot: &Arc<Slot>, at: &QueueRef) -> Result<Option<QueueCounts>, Error> {
        let migration = slot.migration(at);
        let _still = still(migration.as_deref()).await;
        let Some(gauge) = slot.gauge(at, self.0.replica.clock.now())? else { return Ok(None) };
        let QueueGauge { id, store, claimed, oldest, posted_per_minute, removed_per_minute } = gauge;
        let totals = store.totals(id).await?;
        let oldest = match totals.ready() {
            0 => None,
            _ => store.milestone(id, oldest, Direction::Up, &self.0.replica.clock).await?,
        };
        let Contents { ready, claimed, delayed, in_transfer, kept, .. } = Contents::of(&totals, claimed);
        Ok(Some(QueueCounts {
            ready,
            delayed,
            claimed,
            in_transfer,
            kept,
            oldest_age: oldest.map(|oldest| oldest.age),
            posted_per_minute,
            removed_per_minute,
        }))
    }
}

/// Returns the numbers of a closed queue. Its rates are zero: nothing is posted or removed.
fn stored_counts(contents: &Contents, now: Timestamp) -> QueueCounts {
    QueueCounts {
        ready: contents.ready,
        delayed: contents.delayed,
        claimed: contents.claimed,
        in_transfer: contents.in_transfer,
        kept: contents.kept,
        oldest_age: contents.oldest.map(|oldest| now.seconds_since(oldest)),
        posted_per_minute: 0,
        removed_per_minute: 0,
    }
}
