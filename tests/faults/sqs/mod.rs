//! Owns the round in which replicas are killed and frozen under clients of SQS: what was acknowledged is there, each message of a
//! FIFO queue once and in its order, and no handle is good for what another consumer holds.

mod client;
mod load;
mod order;

use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use client::Sqs;
use load::{FIFO, Load, QUEUES, note_delete, note_receive};

use super::cluster::{Fault, strike};
use super::crash::assert_kept;
use super::history::{History, Outcome, Record};
use super::verdict::judge;
use crate::support::cluster::{Cluster, REPLICAS};
use angarium_testbed::held::wait_until;
use angarium_testbed::settings;

/// The drain's consumers are none of the load's.
const FIRST_CONSUMER: u32 = 1000;
/// Longer than any receive of the load hides its messages.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Receives and deletes all that is left, as soon as no process hides it any more.
fn drain(base: &str, history: &History) {
    let client = Sqs::new(base);
    history.begin_drain();
    for (consumer, queue) in (FIRST_CONSUMER..).zip(QUEUES) {
        let mut last = Instant::now();
        while client.count(queue) != Some(0) {
            assert!(last.elapsed() < MAX_WAIT, "{:?} messages of {queue} never come", client.count(queue));
            let start = history.now();
            let reply = client.receive(queue, 10, 600, 1);
            for message in note_receive(history, queue, consumer, 600, start, &reply) {
                last = Instant::now();
                // On a busy machine a request is refused now and then. The message stays hidden until it is deleted.
                wait_until("the delete has an outcome", || {
                    let start = history.now();
                    let reply = client.delete(queue, &message.handle);
                    note_delete(history, &message.id, &message.handle, start, &reply);
                    Outcome::of(&reply) != Outcome::Unknown
                });
            }
        }
    }
}

/// What is known of the queues of one kind. Deletes are looked up by what they delete.
fn part(record: &Record, is_fifo: bool) -> Record {
    let mut part = record.clone();
    part.posts.retain(|post| (post.queue == FIFO) == is_fifo);
    part.grants.retain(|grant| (grant.queue == FIFO) == is_fifo);
    part.lost_grants.retain(|lost| (lost.queue == FIFO) == is_fifo);
    part
}

#[test]
fn sqs_clients_lose_nothing_and_groups_stay_ordered() {
    let (seed, rounds) = (settings::seed("sqs"), settings::number("ANGARIUM_SQS_ROUNDS", 1));
    let mut dice = StdRng::seed_from_u64(seed);
    let mut cluster = Cluster::start();
    let (history, base) = (History::new(), cluster.balancer.base());
    for queue in QUEUES {
        assert_eq!(Sqs::new(&base).create(queue).expect("it answers").status, 200);
    }
    let mut own_dice = StdRng::from_rng(&mut dice);
    Load::new(&base, &history).run_while(&mut dice, || {
        for _ in 0..rounds {
            for fault in [Fault::Kill, Fault::Freeze] {
                thread::sleep(Duration::from_secs(1));
                strike(&mut cluster, fault, own_dice.random_range(0..REPLICAS), &mut own_dice);
                cluster.await_calm();
                history.calmed();
            }
        }
    });
    drain(&base, &history);
    let record = history.record();
    let mut standard = judge(&part(&record, false));
    // There an old handle is good for as long as its message is (SQS).
    eprintln!("standard: {} deletes by old handles", standard.late_deletes.drain(..).count());
    assert_kept("sqs, standard", rounds, &standard);
    let fifo = judge(&part(&record, true));
    assert_kept("sqs, FIFO", rounds, &fifo);
    // What was sent again with its id came once.
    assert_eq!(fifo.duplicates, 0, "{fifo}");
    // How many come late while their message is there still is left to chance; none of them may have worked (see above).
    eprintln!("FIFO: {} late deletes refused", order::refused_late(&record));
    let overtaken = order::overtaken(&record);
    assert!(overtaken.is_empty(), "{} overtaken: {:#?}", overtaken.len(), &overtaken[..1]);
}
