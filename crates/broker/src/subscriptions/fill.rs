//! Filling the queues of subscriptions with the messages that wait in their sources, page by page: of new subscriptions
//! ([`crate::slot::fill`]), and of suspended ones that have room again ([`crate::slot::gaps`]).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use angarium_core::envelope::Envelope;
use angarium_core::error::Error;
use angarium_core::ids::{MessageId, SubscriptionId};
use angarium_core::maps::HashMap;
use angarium_core::message::Message;
use angarium_core::names::QueueRef;
use angarium_core::subscription::filtered_body;
use angarium_filter::MessageView;

use crate::limits;
use crate::messages::pool_page::{EntriesById, PoolPage};
use crate::slot::backlog::amount_of;
use crate::slot::fan_out::WorkPauses;
use crate::slot::fill::{BegunFill, Fill, FillPage};
use crate::slot::gaps::{BegunPass, position};
use crate::slot::queue_handle::QueueHandle;
use crate::slot::slot_queue::SlotQueue;
use crate::slot::state::Slot;
use crate::stores::queue_store::PageBound;
use crate::subscriptions::Subscriptions;
use crate::writer::change::Change;
use crate::writer::notes::FillProgress;
use crate::writer::pending::settled;

/// The pages under way that take long, by their source.
type SlowFills = HashMap<QueueRef, JoinHandle<bool>>;

impl Subscriptions {
    /// Fills the queues of subscriptions until the service stops.
    pub(crate) async fn fill_queues(&self) {
        let mut pause = limits::FILL_TICK;
        let mut slow = SlowFills::default();
        // One page of each in turn, so that a long fill delays no other, nor the end of the service.
        while self.0.replica.sleep_tick(pause).await {
            pause = if self.fill_round(&mut slow).await { Duration::ZERO } else { limits::FILL_TICK };
        }
    }

    /// Begins to fill the queue of a subscription, if it is to be filled. When that fails, it begins with the next post.
    pub(in crate::subscriptions) async fn begin_fill(&self, source: &SlotQueue, id: SubscriptionId) {
        if let Err(error) = self.try_begin_fill(source, id).await {
            let subject = format_args!("subscription {id} of queue {}", source.at().name);
            self.0.replica.task_failed("begin to fill the queue of a subscription", subject, &error);
        }
    }

    async fn try_begin_fill(&self, source: &SlotQueue, id: SubscriptionId) -> Result<(), Error> {
        let own = source.slot().queue(&source.at().of_subscription(id));
        match self.0.open_queues.open(&own).await? {
            Some(own) => self.0.open_queues.begin_fill(&own).await,
            None => Ok(()),
        }
    }

    /// Copies a page for each subscription that is to be filled. Returns whether there is more to copy at once. A page that
    /// takes long continues beside the others: its pool may hang.
    async fn fill_round(&self, slow: &mut SlowFills) -> bool {
        slow.retain(|_, fill| !fill.is_finished());
        let mut is_more = false;
        for slot in self.0.slots.owned() {
            for (at, ids) in slot.fills() {
                if slow.contains_key(&at) {
                    continue;
                }
                let wait = if slow.is_empty() { limits::FILL_WAIT } else { limits::FILL_WAIT_BESIDE };
                let (subscriptions, slot, source) = (self.clone(), Arc::clone(&slot), at.clone());
                let fill = async move { subscriptions.fill_source(&slot, &source, ids).await };
                let mut fill = self.0.replica.tasks.spawn(fill);
                match timeout(wait, &mut fill).await {
                    Ok(more) => is_more |= more.unwrap_or(false),
                    Err(_) => _ = slow.insert(at, fill),
                }
            }
        }
        is_more
    }

    /// Copies a page for each of these subscriptions of a queue. Returns whether there is more to copy.
    async fn fill_source(&self, slot: &Arc<Slot>, at: &QueueRef, ids: Vec<SubscriptionId>) -> bool {
        let mut is_more = false;
        for id in ids {
            match self.fill_some(slot, at, id).await {
                Ok(more) => is_more |= more,
                Err(error) => {
                    let subject = format_args!("subscription {id} of queue {}", at.name);
                    self.0.replica.task_failed("fill the queue of a subscription", subject, &error);
                }
            }
        }
        is_more
    }

    /// Copies a page of the messages that wait. Returns whether there is more to copy.
    async fn fill_some(&self, slot: &Arc<Slot>, at: &QueueRef, id: SubscriptionId) -> Result<bool, Error> {
        let source = self.0.open_queues.open_if_there(&slot.queue(at)).await?;
        let own = self.0.open_queues.open_if_there(&slot.queue(&at.of_subscription(id))).await?;
        let (Some(source), Some(own)) = (source, own) else {
            slot.note_filled(at, id);
            return Ok(false);
        };
        // One that is not confirmed is filled from its confirmation on.
        let all = source.subscriptions().ok_or_else(|| source.closed())?;
        if all.iter().any(|known| known.id() == id && !known.subscription.is_confirmed()) {
            return Ok(false);
        }
        if let Some(outcome) = own.count_again()? {
            settled(outcome).await?;
            return Ok(false);
        }
        self.0.open_queues.begin_fill(&own).await?;
        match own.fill() {
            Some(Fill::Running(progress)) if !own.has_fill_room(progress) => Ok(false),
            Some(Fill::Running(progress)) => {
                source.watch_removals();
                let filled = self.fill_page(&source, &own, id, progress).await;
                source.forget_removals();
                filled
            }
            Some(Fill::Due | Fill::Joining) => Ok(false),
            None if self.begin_pass(&own).await? => Ok(true),
            None => {
                slot.note_filled(at, id);
                Ok(false)
            }
        }
    }

    /// Begins the next pass over the gap of a suspended subscription. Returns false when nothing is to be copied now.
    async fn begin_pass(&self, own: &QueueHandle) -> Result<bool, Error> {
        let (own, named) = (own.clone(), own.in_slot());
        // Posts to the source may wait for it, also when the caller is canceled.
        let begin = async move {
            let _gate = named.hold_gate().await;
            let Some(BegunPass { begun, recent }) = own.begin_pass()? else { return Ok(false) };
            let BegunFill { progress, outcome } = begun;
            settled(outcome).await.inspect_err(|_| own.cancel_pass(recent))?;
            own.set_fill(progress);
            Ok(true)
        };
        self.0.replica.carry_out(begin).await
    }

    async fn fill_page(
        &self,
        source: &QueueHandle,
        own: &QueueHandle,
        id: SubscriptionId,
        progress: FillProgress,
    ) -> Result<bool, Error> {
        let all = source.subscriptions().ok_or_else(|| source.closed())?;
        let Some(known) = all.iter().find(|known| known.id() == id) else { return Ok(false) };
        if source.migration().is_some() {
            // Messages before the end may still be on their way to the older pool.
            settled(source.submit(Change::remove_copied(Vec::new()))?).await?;
        }
        let FilledPage { messages, next } = self.read_page(source, progress).await?;
        let (now, retention) = (self.0.replica.clock.now(), source.retention());
        let is_wanted = |message: &Message| {
            let (envelope, body) = Envelope::split(message.body.clone());
            let body: Bytes = filtered_body(body);
            known.accepts(&MessageView::new(&envelope.attributes, &body))
                && !retention.is_some_and(|retention| message.header.is_expired(now, retention))
                && progress.covers(position(&message.header))
        };
        let mut pauses = WorkPauses::begin();
        let mut wanted = Vec::new();
        for message in &messages {
            if is_wanted(message) {
                wanted.push(message);
            }
            pauses.pause().await;
        }
        let terms = own.copy_terms(source.at(), &known.subscription, now);
        let terms = terms.ok_or_else(|| own.closed())?;
        let copied = wanted
            .into_iter()
            .filter_map(|message| Some((message.header.id, terms.waiting_copy(message, id)?)));
        let (messages, copies): (Vec<MessageId>, Vec<Message>) = copied.unzip();
        let progress = FillProgress { after: next, ..progress };
        let mut page = FillPage { source: source.clone(), copies, messages, progress };
        if !own.fit_fill(&mut page) {
            return Ok(false);
        }
        let room = loop {
            match self.0.quotas.reserve(&source.at().project, amount_of(&page.copies)).await {
                Ok(room) => break room,
                // Some of them may have room.
                Err(Error::OverQuota { .. }) if page.copies.len() > 1 => page.keep(page.copies.len() / 2),
                Err(error) => return Err(error),
            }
        };
        let Some(BegunFill { progress, outcome }) = own.submit_fill(page, room)? else { return Ok(false) };
        settled(outcome).await.inspect_err(|_| own.cancel_page())?;
        own.set_fill(progress);
        Ok(true)
    }

    /// Reads the next messages of the source, up to the end of the fill. The pool is read twice: a message that becomes
    /// ready or scheduled while it is read is in one of the two pages.
    async fn read_page(&self, source: &QueueHandle, progress: FillProgress) -> Result<FilledPage, Error> {
        let most = PageBound { messages: limits::MOVE_MESSAGES, bytes: limits::MOVE_BYTES };
        let (mut messages, mut next) = (Vec::new(), progress.end);
        for _ in 0..2 {
            let store = source.store()?;
            let page =
                PoolPage::read(&store, source.id(), EntriesById::NotKept, progress.after, most).await?;
            next = page.end.map_or(next, |end| end.min(next));
            messages.extend(page.messages);
        }
        messages.sort_by_key(|message| message.header.id);
        messages.dedup_by_key(|message| message.header.id);
        messages.retain(|message| message.header.id <= next);
        Ok(FilledPage { messages, next })
    }
}

/// Messages of the source, and the id up to which these are all.
struct FilledPage {
    messages: Vec<Message>,
    next: MessageId,
}
