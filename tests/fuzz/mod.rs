//! Requests and settings that are nearly right, in great numbers: whatever they say, nothing panics, no request is
//! answered with a fault of the service, and a refusal states what is wrong where.
//!
//! Each run makes the same ones; more, or others: `ANGARIUM_FUZZ_ROUNDS=1000000 ANGARIUM_SEED=7 cargo test --release
//! --test it fuzz::`. What finds its way by coverage is in `fuzz/`, over the same inputs and the same judge.

mod depth;
pub mod judge;
mod mutation;
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
    let seeds = seeds::requests(&service.subscribe(seeds::SUBSCRIBED));
    check_all(&service, seeds);
}

#[test]
fn no_sqs_request_fails_the_service_and_answers_have_form() {
    check_all(&Service::start(), sqs_seeds::requests());
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
