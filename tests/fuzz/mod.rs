//! Requests and settings that are nearly right, in great numbers: whatever they say, nothing panics, no request is
//! answered with a fault of the service, and a refusal states what is wrong where.
//!
//! Each run makes the same ones; more, or others: `ANGARIUM_FUZZ_ROUNDS=1000000 ANGARIUM_SEED=7 cargo test --release
//! --test it fuzz::`. What finds its way by coverage is in `fuzz/`, over the same inputs and the same judge.

mod backup_seeds;
pub mod backups;
mod depth;
pub mod judge;
mod mutation;
mod sealed;
mod seeds;
mod settings;
mod sqs_seeds;

use judge::Service;
use mutation::Mutator;

use angarium_testbed::settings::number;

/// Inputs of a run. A request takes some milliseconds in a debug build.
const ROUNDS: u64 = 2_000;
const SEED: u64 = 20_261_121;

fn mutator(seeds: Vec<Vec<u8>>) -> (Mutator, u64) {
    (Mutator::new(seeds, number("ANGARIUM_SEED", SEED)), number("ANGARIUM_FUZZ_ROUNDS", ROUNDS))
}

#[test]
fn no_rest_request_fails_the_service_and_refusals_are_named() {
    let service = Service::start();
    let topic = service.subscribe_to_topic(seeds::TOPIC);
    let seeds = seeds::requests(&service.subscribe(seeds::SUBSCRIBED), &topic);
    check_all(&service, seeds);
}

#[test]
fn no_sqs_request_fails_the_service_and_answers_have_form() {
    check_all(&Service::start(), sqs_seeds::requests());
}

#[test]
fn sealed_bytes_open_unchanged_or_not_at_all() {
    let judge = sealed::Judge::new();
    let seeds = judge.seeds();
    seeds.iter().for_each(|seed| judge.check(seed));
    let (mut mutator, rounds) = mutator(seeds);
    // These cost microseconds.
    (0..rounds * 10).for_each(|_| judge.check(&mutator.next()));
}

fn check_all(service: &Service, seeds: Vec<Vec<u8>>) {
    assert!(seeds.len() > 30, "there are operations");
    // What is right is taken, so that what is nearly right gets far.
    let taken = seeds.iter().filter_map(|seed| service.check(seed)).filter(|status| *status < 400).count();
    assert!(taken * 2 > seeds.len(), "only {taken} of {} seeds are taken", seeds.len());
    let (mut mutator, rounds) = mutator(seeds);
    let statuses: Vec<u16> = (0..rounds).filter_map(|_| service.check(&mutator.next())).collect();
    let of = |class: u16| statuses.iter().filter(|status| **status / 100 == class).count() as u64;
    assert!(of(2) > rounds / 20 && of(4) > rounds / 20, "{} taken, {} refused", of(2), of(4));
    service.check_alive();
}

#[test]
fn backup_is_read_or_refused_with_a_reason() {
    let seeds = backup_seeds::backups();
    assert!(seeds.iter().all(|seed| backups::check(seed)), "the seeds are whole");
    let (mut mutator, rounds) = mutator(seeds);
    let whole = (0..rounds).filter(|_| backups::check(&mutator.next())).count() as u64;
    assert!(whole < rounds / 2, "{whole} of {rounds} are whole");
}
