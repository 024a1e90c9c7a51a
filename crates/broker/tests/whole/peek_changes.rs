//! Peeks, explanations and dry runs between the steps of a random history change no answer of another request, no order,
//! no attempts, no statistics and no metric of the queue.

use std::collections::VecDeque;

use angarium_broker::{BodyExtent, MessageFilter, MessageSelection, MessageView, PeekFilter};
use angarium_core::access::Role;
use angarium_core::delay::Delay;
use angarium_core::error::Error;
use angarium_core::ids::{ClaimId, MessageId};
use angarium_core::limits::Limits;
use angarium_core::message::{MessageTtl, NewMessage};
use angarium_core::names::QueueRef;
use angarium_core::outcome::Keep;
use angarium_core::page::{PageLimit, PopCount};
use angarium_core::settle::{MessageState, Requeue, Retry};
use angarium_testbed::settings;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::groups::in_group;
use super::peek::peek_of;
use super::settle::{DONE, entry, fail, settle_one};
use super::tasks::dry_run;
use super::transfers::until;
use super::{Whole, limit, metadata, queue, terms, whole};

/// Steps of one history.
const STEPS: usize = 120;

/// A queue through a history, with the answers to its requests. Bodies are numbers, so that two queues can be compared.
struct History {
    whole: Whole,
    at: QueueRef,
    /// In a FIFO queue one: the turns of several depend on when each was read into memory.
    groups: &'static [&'static str],
    posted: Vec<MessageId>,
    claims: VecDeque<(ClaimId, Vec<MessageId>)>,
    answers: Vec<String>,
}

impl History {
    async fn begin(is_fifo: bool) -> Self {
        let (whole, at) = (whole().await, queue("q"));
        let json = if is_fifo { r#"{"_fifo": true, "_keep": 600}"# } else { r#"{"_keep": 600}"# };
        whole.broker.queue_create(&at, metadata(json)).await.unwrap();
        let groups: &[&str] = if is_fifo { &["a"] } else { &["a", "b", "c"] };
        Self { whole, at, groups, posted: Vec::new(), claims: VecDeque::new(), answers: Vec::new() }
    }

    fn note<T>(&mut self, result: Result<T, Error>, show: impl FnOnce(T) -> String) {
        self.answers.push(result.map_or_else(|error| error.code().to_owned(), show));
    }

    /// Takes the step that these dice choose.
    async fn step(&mut self, dice: &mut StdRng) {
        let (chosen, number, second) =
            (dice.random_range(0..12), dice.random_range(0..1_000), dice.random_range(0..4));
        match chosen {
            0..=2 => self.post(number % 5 + 1, second).await,
            3..=5 => self.claim(number as i64 % 4 + 1).await,
            6 => self.release((second > 1).then_some(Delay::Seconds(5))).await,
            7 => self.settle(number, second).await,
            8 => self.delete(number).await,
            9 => self.requeue(number).await,
            10 => self.look().await,
            _ if second == 0 => self.pop().await,
            _ => self.advance(number as u64 * 10).await,
        }
    }

    async fn post(&mut self, count: usize, kind: usize) {
        let begun = self.posted.len();
        let ttl = Some(MessageTtl::new(1_209_600, "ttl", &Limits::ZAQAR).unwrap());
        let delay = (kind == 3).then_some(Delay::Seconds(7));
        let message = |number: usize| {
            let body = format!("{number}").into();
            let group = in_group(self.groups[number % self.groups.len()], "").group;
            NewMessage { body, ttl, delay, group, keep: Some(Keep::stored(600)), ..NewMessage::default() }
        };
        let messages = (begun..begun + count).map(message).collect();
        self.posted.extend(self.whole.broker.messages_post(&self.at, messages, None).await.unwrap().ids);
    }

    async fn claim(&mut self, messages: i64) {
        let claim = self.whole.broker.claim_create(&self.at, terms(43_200), limit(messages)).await;
        let claim = claim.map(|claim| {
            claim.map(|(view, mut guard)| {
                guard.done();
                view
            })
        });
        if let Ok(Some(view)) = &claim {
            self.claims.push_back((view.id, view.messages.iter().map(|message| message.id).collect()));
        }
        self.note(claim, |view| view.map_or_else(String::new, |view| views(&view.messages)));
    }

    async fn release(&mut self, delay: Option<Delay>) {
        let Some((claim, _)) = self.claims.pop_front() else { return };
        let released = self.whole.broker.release_later(&self.at, claim, delay).await;
        self.note(released, |()| "released".to_owned());
    }

    async fn settle(&mut self, number: usize, kind: usize) {
        let Some((claim, held)) = self.claims.front() else { return };
        let verdict =
            [DONE, fail("no", Retry::Never), fail("no", Retry::After(3)), fail("no", Retry::Backoff)][kind]
                .clone();
        let entry = entry(held[number % held.len()], verdict);
        let settled = settle_one(&self.whole.broker, &self.at, *claim, entry).await;
        self.note(settled, |settled| settled.state.as_str().to_owned());
    }

    async fn delete(&mut self, number: usize) {
        let Some((claim, held)) = self.claims.back() else { return };
        let id = held[number % held.len()];
        let deleted = self.whole.broker.message_delete(&self.at, id, Some(*claim)).await;
        self.note(deleted, |()| "deleted".to_owned());
    }

    async fn requeue(&mut self, number: usize) {
        let Some(id) = self.posted.get(number % self.posted.len().max(1)).copied() else { return };
        let when = Requeue::At(Delay::Seconds(0));
        let requeued = self.whole.broker.message_requeue(&self.at, id, when).await;
        self.note(requeued, |()| "requeued".to_owned());
    }

    /// Moves the clock, and waits until the background task has made the due messages ready: otherwise the next claim
    /// depends on its ticks.
    async fn advance(&self, millis: u64) {
        self.whole.clock.advance(millis);
        let is_due = |message: &MessageView| message.delay.is_some_and(|delay| delay.seconds == 0);
        until("due messages become ready", async || !self.listed().await.unwrap().iter().any(is_due)).await;
    }

    /// Returns all messages that are not kept.
    async fn listed(&self) -> Result<Vec<MessageView>, Error> {
        let limit = PageLimit::new(Some(20), Limits::ZAQAR.messages_page).unwrap();
        let (mut after, mut found) = (MessageId::ZERO, Vec::new());
        loop {
            let filter =
                MessageFilter { after, limit, not_of: None, includes_claimed: true, includes_delayed: true };
            let page = self.whole.broker.messages_list(&self.at, &filter).await?;
            let Some(next) = page.next else { return Ok(found) };
            after = next;
            found.extend(page.messages);
        }
    }

    async fn look(&mut self) {
        let listed = self.listed().await;
        self.note(listed, |listed| views(&listed));
        self.count().await;
    }

    async fn count(&mut self) {
        let stats = self.whole.broker.queue_stats(&self.at).await;
        self.note(stats, |stats| {
            format!("{} {} {} {} {}", stats.claimed, stats.free, stats.delayed, stats.in_transfer, stats.kept)
        });
    }

    /// Releases all claims, then claims each message once, in their order.
    async fn drain(&mut self) {
        while !self.claims.is_empty() {
            self.release(None).await;
        }
        self.advance(60_000).await;
        self.look().await;
        loop {
            let claims = self.claims.len();
            self.claim(3).await;
            if self.claims.len() == claims {
                return;
            }
            if self.groups.len() == 1 {
                // The next message of the group follows a deletion.
                let (claim, held) = self.claims.pop_back().unwrap();
                for id in held {
                    self.whole.broker.message_delete(&self.at, id, Some(claim)).await.unwrap();
                }
            }
        }
    }

    async fn pop(&mut self) {
        let count = PopCount::new(1, &Limits::ZAQAR).unwrap();
        let popped = self.whole.broker.messages_pop(&self.at, count).await;
        self.note(popped, |popped| views(&popped));
    }

    /// Inspects the queue up to three times, by requests that these dice choose.
    async fn inspect(&self, dice: &mut StdRng) {
        for _ in 0..dice.random_range(0..4) {
            match dice.random_range(0..6) {
                0..=2 => self.peek(dice).await,
                3 => drop(self.whole.broker.queue_explain(&self.at, 20_000, Role::Admin).await.unwrap()),
                4 => self.explain_message(dice).await,
                _ => drop(dry_run(&self.whole, &self.at, selection(dice)).await.unwrap()),
            }
        }
    }

    async fn peek(&self, dice: &mut StdRng) {
        let body = [BodyExtent::None, BodyExtent::Head, BodyExtent::Whole][dice.random_range(0..3)];
        let filter = PeekFilter { body, ..peek_of(selection(dice)) };
        self.whole.broker.messages_peek(&self.at, &filter).await.unwrap();
    }

    /// Explains any message that was posted: one that is gone is not found.
    async fn explain_message(&self, dice: &mut StdRng) {
        let Some(last) = self.posted.len().checked_sub(1) else { return };
        let explained = self
            .whole
            .broker
            .message_explain(&self.at, self.posted[dice.random_range(0..=last)], Role::Admin)
            .await;
        assert!(matches!(explained, Ok(_) | Err(Error::NotFound { .. })), "{explained:?}");
    }

    /// The lines of the queue on the page of metrics.
    async fn metrics(&self) -> Vec<String> {
        let page = self.whole.broker.metrics_page().await;
        let mut lines: Vec<String> =
            page.lines().filter(|line| line.contains("queue=\"q\"")).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// The counters of the queue among its metrics. The others follow the pool after a tick of a background task.
    async fn counters(&self) -> Vec<String> {
        self.metrics().await.into_iter().filter(|line| line.contains("_total{")).collect()
    }

    /// What the queue is explained by, without what differs between two services.
    async fn explanation(&self) -> String {
        let explained = self.whole.broker.queue_explain(&self.at, 20_000, Role::Admin).await.unwrap();
        format!("{} {:?}", explained.says, explained.counts)
    }
}

/// Returns conditions that these dice choose.
fn selection(dice: &mut StdRng) -> MessageSelection {
    let states = MessageState::ALL.into_iter().filter(|_| dice.random_bool(0.4)).collect();
    let group = dice.random_bool(0.3).then(|| in_group("a", "").group).flatten();
    let contains = dice.random_bool(0.3).then(|| "1".to_owned());
    MessageSelection { states, group, contains, ..MessageSelection::default() }
}

fn views(messages: &[MessageView]) -> String {
    let one = |message: &MessageView| {
        let body = String::from_utf8_lossy(&message.body).into_owned();
        format!("{body}:{}:{}", message.attempts, message.state.as_str())
    };
    messages.iter().map(one).collect::<Vec<_>>().join(",")
}

#[tokio::test(flavor = "multi_thread")]
async fn inspections_between_steps_change_no_other_answer() {
    let mut seeds = StdRng::seed_from_u64(settings::seed("peeks"));
    for history in 0..settings::number("ANGARIUM_PEEK_HISTORIES", 6) {
        let is_fifo = history % 2 == 1;
        let (seed, mut looks) = (seeds.random::<u64>(), StdRng::seed_from_u64(history));
        let (mut plain, mut looked_at) = (History::begin(is_fifo).await, History::begin(is_fifo).await);
        let (mut one, mut other) = (StdRng::seed_from_u64(seed), StdRng::seed_from_u64(seed));
        for step in 0..STEPS {
            plain.step(&mut one).await;
            plain.count().await;
            looked_at.inspect(&mut looks).await;
            looked_at.step(&mut other).await;
            looked_at.inspect(&mut looks).await;
            looked_at.count().await;
            assert_eq!(looked_at.answers, plain.answers, "seed {seed}, step {step}");
            plain.answers.clear();
            looked_at.answers.clear();
        }
        assert_eq!(looked_at.explanation().await, plain.explanation().await, "seed {seed}");
        assert_eq!(looked_at.counters().await, plain.counters().await, "seed {seed}");
        assert!(!plain.counters().await.is_empty());
        until("the metrics are the same", async || looked_at.metrics().await == plain.metrics().await).await;
        plain.drain().await;
        looked_at.drain().await;
        assert_eq!(looked_at.answers, plain.answers, "seed {seed}: order and attempts at the end");
        assert!(plain.answers.len() > 2);
    }
}
