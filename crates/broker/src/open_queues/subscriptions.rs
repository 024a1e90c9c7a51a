//! The queues of subscriptions, which a post to their source needs open.

use tokio_util::task::TaskTracker;

use angarium_catalogue::{QueueEntry, QueueRecord, SubscriptionRecord};
use angarium_core::error::{Error, Part};
use angarium_core::ids::{QueueId, SubscriptionId};
use angarium_core::names::QueueRef;
use angarium_core::quota::Amount;
use angarium_core::subscription::Subscription;
use angarium_core::time::Timestamp;
use angarium_storage::Totals;

use crate::open_queues::OpenQueues;
use crate::slot::backlog::{Backlog, StoredBacklog};
use crate::slot::delivery_pace::DeliveryPace;
use crate::slot::fill::{BegunFill, Fill};
use crate::slot::queue_handle::QueueHandle;
use crate::slot::slot_queue::SlotQueue;
use crate::slot::subscriptions::{FannedSubscription, KnownSubscription};
use crate::stores::queue_store::QueueStore;
use crate::stores::table::CHANGE_TRIES;
use crate::writer::notes::{FILL_KIND, FillProgress, OMISSIONS_KIND, OmissionsNote, read_fill_note};
use crate::writer::pending::settled;

impl OpenQueues {
    /// Opens the queues of subscriptions. If one is gone, the source learns its present subscriptions.
    pub(crate) async fn open_subscriptions(
        &self,
        source: &QueueHandle,
        subscriptions: &[FannedSubscription],
    ) -> Result<(), Error> {
        for at in source.unprepared(subscriptions) {
            match self.open(&source.slot().queue(&at)).await? {
                Some(open) => self.begin_fill(&open).await?,
                None => return self.reload_subscriptions(source).await,
            }
        }
        Ok(())
    }

    /// Begins to fill the queue of a subscription, if that is due: then posts to its source may bring copies. The source
    /// is open. The begin of the last pass over a gap is waited for.
    pub(crate) async fn begin_fill(&self, queue: &QueueHandle) -> Result<(), Error> {
        if !matches!(queue.fill(), Some(Fill::Due | Fill::Joining)) {
            return Ok(());
        }
        let (queue, named) = (queue.clone(), queue.in_slot());
        // An end that is being written is waited for, also when the caller is canceled: another one would be later.
        let begin = async move {
            let _gate = named.hold_gate().await;
            let Some(BegunFill { progress, outcome }) = queue.begin_fill()? else { return Ok(()) };
            settled(outcome).await?;
            queue.set_fill(progress);
            Ok(())
        };
        self.0.replica.carry_out(begin).await
    }

    /// Whether a subscription has not caught up with the messages that it missed. It continues while its queue is open.
    /// (The source of a new subscription is opened, and begins its fill.) The caller has fenced its pools.
    pub(crate) async fn is_behind(&self, at: &QueueRef, record: &QueueRecord) -> Result<bool, Error> {
        if record.as_subscription(&at.name)?.is_none() {
            return Ok(false);
        }
        let readers = TaskTracker::new();
        let store = self.0.stores.store_at(&record.placement()?, readers.token())?;
        Ok(omissions(record, &store).await?.span.is_some())
    }

    /// Reads the subscriptions of a queue again.
    pub(crate) async fn reload_subscriptions(&self, source: &QueueHandle) -> Result<(), Error> {
        let named = source.in_slot();
        let _gate = named.hold_gate().await;
        self.read_subscriptions(source).await
    }

    /// As `reload_subscriptions`, for a caller that holds the gate of the queue.
    pub(crate) async fn read_subscriptions(&self, source: &QueueHandle) -> Result<(), Error> {
        let (catalogue, slot) = (&self.0.replica.catalogue, source.slot());
        let found = catalogue.subscriptions(&slot.owned, source.at(), source.id()).await?;
        source.set_subscriptions(known(source.at(), found)?);
        Ok(())
    }
}

/// The change of a subscription's record. It returns whether it has changed anything.
pub(crate) type Amendment<'a> =
    &'a (dyn Fn(&mut Subscription, Timestamp) -> Result<bool, Error> + Send + Sync);

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AmendResult {
    /// There is no such subscription that lives.
    Missing,
    Unchanged,
    Changed,
}

/// A subscription that lives, for a change of its record.
pub(crate) struct RecordedSubscription {
    pub(crate) source: QueueHandle,
    pub(crate) entry: QueueEntry,
    pub(crate) subscription: Subscription,
    /// When it was read.
    pub(crate) now: Timestamp,
}

impl OpenQueues {
    /// Reads a subscription for a change; none if no such one lives. The caller holds the gates of its source and of its
    /// own queue.
    pub(crate) async fn recorded_subscription(
        &self,
        queue: &SlotQueue,
        own: &SlotQueue,
    ) -> Result<Option<RecordedSubscription>, Error> {
        let Some(source) = self.open_gated(queue).await? else { return Ok(None) };
        let Some(entry) = own.entry().await? else { return Ok(None) };
        let now = self.0.replica.clock.now();
        let found = entry.record.as_subscription(&own.at().name)?;
        let live = found.filter(|found| found.source == source.id() && found.is_live(now));
        Ok(live.map(|subscription| RecordedSubscription { source, entry, subscription, now }))
    }

    /// Changes a subscription in the tree, then in memory. The caller holds the gate of its source.
    pub(crate) async fn amend_subscription(
        &self,
        queue: &SlotQueue,
        id: SubscriptionId,
        amend: Amendment<'_>,
    ) -> Result<AmendResult, Error> {
        let (slot, catalogue) = (queue.slot(), &self.0.replica.catalogue);
        let own = slot.queue(&queue.at().of_subscription(id));
        let _own_gate = own.hold_gate().await;
        for _ in 0..CHANGE_TRIES {
            let Some(recorded) = self.recorded_subscription(queue, &own).await? else {
                return Ok(AmendResult::Missing);
            };
            let RecordedSubscription { source, mut entry, mut subscription, now } = recorded;
            if !amend(&mut subscription, now)? {
                return Ok(AmendResult::Unchanged);
            }
            entry.record.subscription = Some(SubscriptionRecord::from(&subscription));
            let known = KnownSubscription::new(queue.at(), subscription)?;
            let set = catalogue.queue_set(&slot.owned, own.at(), &entry).await;
            if slot.note_placed(set)? {
                source.enter_subscription(known)?;
                return Ok(AmendResult::Changed);
            }
        }
        Err(changed_each_time())
    }
}

/// The error of a change that others were quicker than, each time.
pub(crate) fn changed_each_time() -> Error {
    Error::unavailable(Part::Coordination, "the subscription changed each time")
}

/// Reads the filters of stored subscriptions. A filter that this version does not understand makes the queue unavailable:
/// whichever messages it took for accepted, it would be wrong about some.
pub(in crate::open_queues) fn known(
    source: &QueueRef,
    found: Vec<Subscription>,
) -> Result<Vec<KnownSubscription>, Error> {
    let damaged = |error| Error::unavailable(Part::Coordination, error);
    found
        .into_iter()
        .map(|subscription| KnownSubscription::new(source, subscription).map_err(damaged))
        .collect()
}

/// The queue of a subscription that is being opened: its source, its waiting copies, the rest of its fill, and its
/// pace.
#[derive(Default)]
pub(in crate::open_queues) struct OpenedSubscription {
    pub(in crate::open_queues) source: Option<QueueId>,
    pub(in crate::open_queues) backlog: Option<Backlog>,
    pub(in crate::open_queues) fill: Option<Fill>,
    pub(in crate::open_queues) delivery_pace: DeliveryPace,
}

impl OpenedSubscription {
    /// Reads the notes of the queue. `totals`: those of its pool.
    pub(in crate::open_queues) async fn read(
        at: &QueueRef,
        record: &QueueRecord,
        totals: &Totals,
        store: &QueueStore,
    ) -> Result<Self, Error> {
        let Some(subscription) = record.as_subscription(&at.name)? else { return Ok(Self::default()) };
        let damaged = |error| Error::unavailable(Part::Coordination, error);
        let bounds = subscription.options.bounds().map_err(damaged)?;
        let omissions = omissions(record, store).await?;
        // Only a subscription that was suspended has another one.
        let may_have_fill = record.is_from_oldest() || omissions.span.is_some();
        let fill = if may_have_fill { Self::fill(record, store).await? } else { None };
        let rest = match fill {
            None if record.is_from_oldest() => Some(Fill::Due),
            None => None,
            Some(progress) => Fill::rest(progress),
        };
        let stored = Amount { messages: totals.messages, bytes: totals.bytes };
        let source_keeps = !at.name.of_source().is_topic();
        let backlog = Backlog::new(bounds, StoredBacklog { stored, omissions, fill, source_keeps });
        let delivery_pace = DeliveryPace::of(&subscription);
        Ok(Self { source: Some(subscription.source), backlog: Some(backlog), fill: rest, delivery_pace })
    }

    async fn fill(record: &QueueRecord, store: &QueueStore) -> Result<Option<FillProgress>, Error> {
        let damaged = || Error::unavailable(Part::Storage, "the note of a fill has another form");
        let notes = store.notes_of_each(record.id, FILL_KIND).await?;
        let read = notes.iter().map(|note| read_fill_note(note).ok_or_else(damaged));
        let read: Vec<FillProgress> = read.collect::<Result<_, Error>>()?;
        Ok(read.into_iter().reduce(FillProgress::later))
    }
}

/// Reads the messages that a subscription did not get.
async fn omissions(record: &QueueRecord, store: &QueueStore) -> Result<OmissionsNote, Error> {
    let noted = store.notes_of_each(record.id, OMISSIONS_KIND).await?;
    let read = noted.iter().filter_map(OmissionsNote::read).reduce(OmissionsNote::later);
    Ok(read.unwrap_or_default())
}
