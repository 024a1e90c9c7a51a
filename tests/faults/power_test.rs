//! Owns the tests of what the product may say before its disk has answered: nothing. Power cuts under load,
//! syncs that do not return, and syncs that fail. It never looks at how the product stores anything.

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::crash::{assert_kept, kill_under_load};
use super::powercut::PowerCut;
use super::rollback::Survival;
use crate::support::client::{Answer, Client, Reply};
use crate::support::server::Server;
use angarium_testbed::settings;

/// How long a closed gate must hold every answer back.
const SILENCE: Duration = Duration::from_millis(400);
/// How soon after the gate has opened each answer must be there.
const RELIEF: Duration = Duration::from_secs(20);
const QUEUE: &str = "letters";

type Request = Box<dyn FnOnce(&Client) -> Reply + Send>;

#[test]
fn power_cut_under_load_loses_nothing_acknowledged() {
    let (seed, rounds) = (settings::seed("power cut"), settings::number("ANGARIUM_POWERCUT_ROUNDS", 3));
    let cut = PowerCut::new();
    let verdict = kill_under_load(&cut.server(), rounds, seed, |round, dice| {
        let survival =
            [Survival::Nothing, Survival::Prefix, Survival::PrefixOfEachFile][(round % 3) as usize];
        let damage = cut.strike(survival, dice);
        eprintln!("power cut {round}: {survival:?} of the unsynced survives, {damage:?}");
        assert!(damage.syncs > 0, "the shim saw no sync: does the product sync without libc?");
    });
    assert_kept("power cut", rounds, &verdict);
}

#[test]
fn answers_follow_their_sync() {
    let cut = PowerCut::new();
    let server = cut.server().start();
    let client = server.client();
    expect(client.create_queue(QUEUE), StatusCode::CREATED);
    expect(
        client.post_messages(QUEUE, &[json!("to be deleted"), json!("to be claimed")]),
        StatusCode::CREATED,
    );
    let claim = expect(client.claim(QUEUE, 1, 60), StatusCode::CREATED).granted().expect("two are waiting");

    let message = claim.messages[0].id.clone();
    let delete = move |client: &Client| client.delete_message(QUEUE, &message, Some(&claim.id));
    // One by one: behind the blocked sync of another request an answer that needs none would wait too.
    for (name, status, request) in [
        (
            "post",
            StatusCode::CREATED,
            Box::new(|c: &Client| c.post_messages(QUEUE, &[json!("new")])) as Request,
        ),
        ("claim", StatusCode::CREATED, Box::new(|c: &Client| c.claim(QUEUE, 1, 60))),
        ("delete", StatusCode::NO_CONTENT, Box::new(delete)),
    ] {
        cut.close_gate();
        let answer = ask(&server, request);
        let early = answer.recv_timeout(SILENCE);
        assert!(early.is_err(), "the {name} was answered before its sync: {early:?}");
        cut.open_gate();
        match answer.recv_timeout(RELIEF) {
            Ok(reply) => drop(expect(reply, status)),
            Err(_) => panic!("no answer to the {name} after its sync\n{}", server.last_lines()),
        }
    }
}

#[test]
fn failed_sync_is_never_acknowledged() {
    let cut = PowerCut::new();
    let server = cut.server().start();
    let client = server.client();
    expect(client.create_queue(QUEUE), StatusCode::CREATED);
    let bodies: Vec<Value> = (0..5).map(|number| json!({"number": number})).collect();
    let ids = expect(client.post_messages(QUEUE, &bodies), StatusCode::CREATED).posted_ids();
    assert_eq!(ids.len(), bodies.len());

    cut.fail_syncs();
    for attempt in 0..3 {
        let unsynced = json!({"attempt": attempt});
        expect(client.post_messages(QUEUE, &[unsynced]), StatusCode::SERVICE_UNAVAILABLE);
    }
    server.kill9();
    cut.mend_syncs();
    let mut dice = rand::SeedableRng::seed_from_u64(0);
    cut.strike(Survival::Nothing, &mut dice);

    let server = cut.server().start();
    let client = server.client();
    for (id, body) in ids.iter().zip(&bodies) {
        let message = expect(client.get_message(QUEUE, id), StatusCode::OK).message();
        assert_eq!((&message.id, &message.body), (id, body));
    }
    expect(client.post_messages(QUEUE, &[json!("works again")]), StatusCode::CREATED);
}

/// Sends a request on a connection of its own, without waiting for the answer.
fn ask(server: &Server, request: Request) -> Receiver<Reply> {
    let (client, (answered, answer)) = (server.client(), channel());
    // No process listens any more when the test has failed already.
    thread::spawn(move || drop(answered.send(request(&client))));
    answer
}

fn expect(reply: Reply, status: StatusCode) -> Answer {
    let answer = reply.expect("the server is up");
    assert_eq!(answer.status, status, "{}", answer.text());
    answer
}
