//! Owns the end of a history: everything that is still there is claimed or read, so that what is missing
//! can be told from what is held by a claim that no process gave back. It never judges.

use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

use http::StatusCode;

use super::history::{Grant, History, Moment, Outcome, Record};
use super::load::QUEUES;
use crate::support::client::Client;

/// Longer than any drain: what the drain has claimed it claims only once.
const TTL: u64 = 43_200;
const LIMIT: usize = 20;
/// The drain's consumers are none of the load's.
const FIRST_CONSUMER: u32 = 1000;
/// A claim with less than this left is not asked to prove itself.
const STILL_LIVE: Duration = Duration::from_secs(10);
/// A session may still turn out to be lost after the last fault, or on a busy machine at any time: then a request is answered 503
/// until another session has begun, and what it may have claimed is given back. No request after the other may fail for longer
/// than this.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Forwards arrive far sooner, also after the last fault.
const TRANSFER_WAIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);
/// Messages of a purged queue that no claim gave that are asked for, per drain: the last ones, which a later claim may hold.
const PURGED_SAMPLE: usize = 5_000;
/// Deleted messages that are asked for again, per drain.
const GONE_SAMPLE: usize = 500;

/// Claims all free messages, reads all held ones, deletes by their claims those whose claim still lives,
/// and asks for some that were deleted.
pub fn drain(client: &Client, history: &History) {
    await_transfers(client);
    history.begin_drain();
    for (consumer, queue) in (FIRST_CONSUMER..).zip(QUEUES) {
        claim_all(client, history, consumer, queue);
    }
    let record = history.record();
    let queue_of = queues(&record);
    // Purged ones are nowhere, or will be found to be back.
    let purged = |id: &&str| record.purges.iter().any(|purge| purge.queue == queue_of[*id]);
    let (purged, held): (Vec<&str>, Vec<&str>) = held(&record).into_iter().partition(purged);
    for id in held.into_iter().chain(purged.into_iter().rev().take(PURGED_SAMPLE)) {
        look_at(client, history, queue_of[id], id);
    }
    for (id, grant) in still_leased(&record, history.now()) {
        let start = history.now();
        let reply = client.delete_message(grant.queue, id, Some(&grant.claim));
        history.deleted(id, &grant.claim, start, &reply);
    }
    let deleted = record.deletes.iter().rev().filter(|delete| delete.outcome == Outcome::Acked);
    for delete in deleted.take(GONE_SAMPLE) {
        look_at(client, history, queue_of[delete.id.as_str()], &delete.id);
    }
}

/// Claims until there is nothing left, or more came than was ever posted: then a message was returned twice, and
/// the verdict will say so.
fn claim_all(client: &Client, history: &History, consumer: u32, queue: &'static str) {
    let record = history.record();
    let mut expected: usize = record.posts.iter().filter(|p| p.queue == queue).map(|p| p.tags.len()).sum();
    let mut failing: Option<Instant> = None;
    loop {
        let start = history.now();
        let answer = client.claim(queue, LIMIT, TTL).expect("the server stays up during the drain");
        if answer.status == StatusCode::SERVICE_UNAVAILABLE
            && failing.get_or_insert_with(Instant::now).elapsed() < MAX_WAIT
        {
            history.grant_lost(queue, start);
            thread::sleep(PAUSE);
            continue;
        }
        assert!(answer.status.is_success(), "the drain's claim failed: {}", answer.text());
        failing = None;
        let Some(claim) = answer.granted() else { return };
        history.granted(queue, consumer, TTL, start, &claim);
        if claim.messages.is_empty() || claim.messages.len() > expected {
            return;
        }
        expected -= claim.messages.len();
    }
}

/// Waits until no message is in transfer between the queues.
fn await_transfers(client: &Client) {
    let begun = Instant::now();
    let in_transfer = |queue: &&str| {
        let answer = client.stats(queue).expect("the server stays up during the drain");
        answer.status != StatusCode::OK || answer.json()["messages"]["in_transfer"].as_u64() != Some(0)
    };
    while QUEUES.iter().any(in_transfer) {
        assert!(begun.elapsed() < TRANSFER_WAIT, "messages stay in transfer");
        thread::sleep(PAUSE);
    }
}

fn look_at(client: &Client, history: &History, queue: &'static str, id: &str) {
    let begun = Instant::now();
    loop {
        let start = history.now();
        let answer = client.get_message(queue, id).expect("the server stays up during the drain");
        match answer.status {
            StatusCode::OK => return history.sighted(queue, start, answer.message()),
            StatusCode::NOT_FOUND => return,
            StatusCode::SERVICE_UNAVAILABLE if begun.elapsed() < MAX_WAIT => thread::sleep(PAUSE),
            _ => panic!("a read of message {id} failed: {answer:?}"),
        }
    }
}

/// The queue of each id that was ever acknowledged or granted.
fn queues(record: &Record) -> HashMap<&str, &'static str> {
    let posted = record.posts.iter().flat_map(|post| post.ids.iter().map(|id| (id.as_str(), post.queue)));
    let granted = record
        .grants
        .iter()
        .flat_map(|grant| grant.messages.iter().map(|message| (message.id.as_str(), grant.queue)));
    granted.chain(posted).collect()
}

/// Acknowledged messages that the drain did not get and no process has deleted: claims must hold them.
fn held(record: &Record) -> Vec<&str> {
    let drained = record.grants.iter().filter(|grant| grant.consumer >= FIRST_CONSUMER);
    let mut accounted: HashSet<&str> =
        drained.flat_map(|grant| grant.messages.iter().map(|message| message.id.as_str())).collect();
    let deleted = record.deletes.iter().filter(|delete| delete.outcome == Outcome::Acked);
    accounted.extend(deleted.map(|delete| delete.id.as_str()));
    let posted = record.posts.iter().flat_map(|post| &post.ids).map(String::as_str);
    posted.filter(|id| !accounted.contains(id)).collect()
}

/// Messages with the grant of the load that certainly still holds them.
fn still_leased(record: &Record, now: Moment) -> Vec<(&str, &Grant)> {
    let released: HashSet<&str> = record.releases.iter().map(|release| release.claim.as_str()).collect();
    let touched: HashSet<&str> = record.deletes.iter().map(|delete| delete.id.as_str()).collect();
    record
        .grants
        .iter()
        .filter(|grant| grant.consumer < FIRST_CONSUMER && !released.contains(grant.claim.as_str()))
        .filter(|grant| grant.span.start + grant.ttl > now + STILL_LIVE)
        .flat_map(|grant| grant.messages.iter().map(move |message| (message.id.as_str(), grant)))
        .filter(|(id, _)| !touched.contains(id))
        .collect()
}
