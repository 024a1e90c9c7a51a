//! What becomes of callers when Keystone is away, slow, wrong, or asked too much.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::json;

use super::{DEMO, PLACES, assert_code, builder, code, guarded, own_token, secret};
use crate::support::identity::{Behaviour, IdentityService, SERVICE_PASSWORD};
use crate::support::server::Server;
use angarium_testbed::held::wait_until;

#[test]
fn keystone_away_is_503_and_known_tokens_pass() {
    let mut guarded = guarded(&["--keystone-cache-time", "3600"]);
    let (known, new) = (guarded.member(), guarded.member());
    assert_eq!(guarded.client(&known).get("/v2/queues").unwrap().status, StatusCode::OK);
    guarded.identity.stop();
    for token in [&*new, "gAAAAABunknown", &known.to_lowercase()] {
        let answer = guarded.client(token).get("/v2/queues").unwrap();
        assert_code(&answer, 503, "unavailable");
        assert!(
            answer.headers.contains_key("retry-after") && !answer.headers.contains_key("www-authenticate")
        );
        assert!(answer.text().contains("Keystone") && answer.json()["nothing_written"] == true);
    }
    assert_eq!(guarded.client(&known).create_queue("q").unwrap().status, StatusCode::CREATED);
    wait_until("it is logged", || guarded.server.last_lines().contains("keystone cannot be used"));
    assert_eq!(guarded.server.last_lines().matches(" ERROR ").count(), 0, "{}", guarded.server.last_lines());
    guarded.identity.start_again();
    assert_eq!(guarded.client(&new).get("/v2/queues").unwrap().status, StatusCode::OK);
    assert_eq!(guarded.figure("angarium_keystone_lookups_total{result=\"failed\"}"), 3.0);
}

#[test]
fn hanging_keystone_takes_no_place_of_others() {
    let (identity, data) = (IdentityService::start(), tempfile::tempdir().unwrap());
    let tokens = data.path().join("tokens.toml");
    std::fs::write(&tokens, own_token("own", "mine", "member")).unwrap();
    let settings = ["--max-requests", "4", "--keystone-timeout", "6"];
    let builder = settings.iter().fold(builder(&identity, &data), |builder, setting| builder.arg(*setting));
    let server = builder.arg("--tokens").arg(&tokens).start();
    let known = server.client().with_header("X-Auth-Token", &identity.token(DEMO, &["member"]));
    assert_eq!(known.get("/v2/queues").unwrap().status, StatusCode::OK);
    identity.set_behaviour(Behaviour::Hanging);
    let began = Instant::now();
    let hung: Vec<_> = (0..40)
        .map(|number| {
            let client = server.client().with_header("X-Auth-Token", &format!("gAAAAAB{number}"));
            thread::spawn(move || code(&client.get("/v2/queues").unwrap()))
        })
        .collect();
    wait_until("Keystone hangs", || identity.asked().at_once >= PLACES);
    let own = server.client().with_header("X-Auth-Token", "own");
    for _ in 0..10 {
        for client in [&known, &own] {
            assert_eq!(client.get("/v2/queues").unwrap().status, StatusCode::OK);
        }
    }
    assert_eq!(identity.asked().at_once, PLACES, "{:?}", identity.asked());
    let answers: Vec<_> = hung.into_iter().map(|answer| answer.join().unwrap()).collect();
    // Keystone was not asked about the others.
    let count = |word: &str| answers.iter().filter(|answer| **answer == (503, word.to_owned())).count();
    assert!(
        count("unavailable") >= PLACES && count("unavailable") + count("overloaded") == 40,
        "{answers:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    wait_until("it is logged", || server.last_lines().contains("keystone look-ups congested"));
    identity.set_behaviour(Behaviour::Well);
    let later = server.client().with_header("X-Auth-Token", &identity.token(DEMO, &["member"]));
    assert_eq!(later.get("/v2/queues").unwrap().status, StatusCode::OK);
}

/// Sends a request with a token, and leaves once it waits.
fn ask_and_leave(server: &Server, token: &str) {
    let address: SocketAddr = server.base().strip_prefix("http://").unwrap().parse().unwrap();
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "GET /v2/queues HTTP/1.1\r\nhost: localhost\r\nx-auth-token: {token}\r\n\r\n")
        .unwrap();
    thread::sleep(Duration::from_millis(30));
}

#[test]
fn leaving_client_makes_no_room_for_look_ups() {
    let guarded = guarded(&["--keystone-timeout", "60"]);
    guarded.identity.set_behaviour(Behaviour::Hanging);
    for number in 0..3 * PLACES {
        ask_and_leave(&guarded.server, &format!("gAAAAAB{number}"));
    }
    wait_until("Keystone is asked as much as may be", || guarded.asked() >= PLACES);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(guarded.asked(), PLACES, "Keystone works on all that it was asked");
}

#[test]
fn waits_for_keystone_count_for_their_address() {
    let guarded =
        guarded(&["--max-requests-per-address=2", "--trusted-proxy=127.0.0.1", "--keystone-timeout=4"]);
    let known = guarded.member();
    assert_eq!(guarded.client(&known).get("/v2/queues").unwrap().status, StatusCode::OK);
    guarded.identity.set_behaviour(Behaviour::Hanging);
    let ask = |client: &str, number: usize| {
        let asking = guarded.client(&format!("gAAAAAB{number}")).with_header("X-Forwarded-For", client);
        thread::spawn(move || code(&asking.get("/v2/queues").unwrap()))
    };
    let waiting = [ask("203.0.113.1", 1), ask("203.0.113.1", 2)];
    wait_until("both wait", || guarded.identity.asked().at_once == 2);
    assert_eq!(ask("203.0.113.1", 3).join().unwrap(), (503, "overloaded".to_owned()));
    assert_eq!(guarded.identity.asked().at_once, 2);
    let other = ask("203.0.113.2", 4);
    wait_until("another address may wait", || guarded.identity.asked().at_once == 3);
    for answer in waiting.into_iter().chain([other]) {
        assert_eq!(answer.join().unwrap(), (503, "unavailable".to_owned()));
    }
}

#[test]
fn valid_own_token_is_used_while_its_renewal_hangs() {
    let guarded = guarded(&["--keystone-cache-time", "0", "--keystone-timeout", "60"]);
    guarded.identity.set_service_life(Duration::from_secs(50));
    let client = guarded.client(&guarded.member());
    assert_eq!(client.get("/v2/queues").unwrap().status, StatusCode::OK);
    guarded.identity.hang_logins(true);
    let began = Instant::now();
    for _ in 0..3 {
        assert_eq!(client.get("/v2/queues").unwrap().status, StatusCode::OK);
    }
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    wait_until("one renewal is under way", || guarded.identity.asked().logins == 2);
}

#[test]
fn forbidden_validation_is_no_outage() {
    let guarded = guarded(&["--keystone-cache-time", "0"]);
    let member = guarded.client(&guarded.member());
    assert_eq!(member.get("/v2/queues").unwrap().status, StatusCode::OK);
    for number in 0..3 {
        guarded.identity.set_behaviour(Behaviour::Canned(403, Vec::new(), String::new()));
        let answer = guarded.client(&format!("gAAAAAB{number}")).get("/v2/queues").unwrap();
        assert_code(&answer, 503, "unavailable");
        guarded.identity.set_behaviour(Behaviour::Well);
        assert_eq!(member.get("/v2/queues").unwrap().status, StatusCode::OK);
    }
    assert_eq!(guarded.identity.asked().logins, 1, "another token of the same user changes nothing");
    wait_until("it is logged", || {
        guarded.server.last_lines().contains("keystone user may not validate tokens")
    });
    let lines = guarded.server.last_lines();
    assert_eq!(lines.matches("keystone user may not validate tokens").count(), 1, "{lines}");
    assert!(!lines.contains("keystone cannot be used"), "{lines}");
}

#[test]
fn refused_new_own_token_is_no_outage() {
    let guarded = guarded(&["--keystone-cache-time", "0"]);
    let member = guarded.client(&guarded.member());
    assert_eq!(member.get("/v2/queues").unwrap().status, StatusCode::OK);
    guarded.identity.set_behaviour(Behaviour::Canned(401, Vec::new(), String::new()));
    for number in 0..3 {
        let answer = guarded.client(&format!("gAAAAAB{number}")).get("/v2/queues").unwrap();
        assert_code(&answer, 503, "unavailable");
        assert!(answer.text().contains("refuses this service"), "{}", answer.text());
    }
    assert_eq!(guarded.identity.asked().logins, 2, "one new token is enough to know");
    wait_until("it is logged", || guarded.server.last_lines().contains("keystone refuses the service"));
    guarded.identity.set_behaviour(Behaviour::Well);
    assert_eq!(member.get("/v2/queues").unwrap().status, StatusCode::OK);
    assert_eq!(guarded.figure("angarium_keystone_lookups_total{result=\"not_allowed\"}"), 3.0);
    assert_eq!(guarded.figure("angarium_keystone_lookups_total{result=\"failed\"}"), 0.0);
    let lines = guarded.server.last_lines();
    assert!(!lines.contains("keystone cannot be used"), "{lines}");
}

#[test]
fn thousand_bad_tokens_are_few_look_ups_at_once() {
    // No look-up times out on a slow machine: this test is about their number.
    let guarded = guarded(&["--keystone-timeout", "60"]);
    let began = Instant::now();
    let member = guarded.member();
    assert_eq!(guarded.client(&member).get("/v2/queues").unwrap().status, StatusCode::OK);
    guarded.identity.set_behaviour(Behaviour::Slow(Duration::from_millis(5)));
    let before = guarded.server.memory_at_rest();
    let guessing: Vec<_> = (0..50)
        .map(|thread| {
            let client = guarded.server.client();
            thread::spawn(move || {
                for number in 0..20 {
                    let token = format!("gAAAAAB{thread}-{number}-{}", "x".repeat(2_000));
                    let headers = [("X-Auth-Token", &*token)];
                    let answer = client.send(Method::GET, "/v2/queues", &headers, None).unwrap();
                    assert_code(&answer, 401, "unauthenticated");
                }
            })
        })
        .collect();
    guessing.into_iter().for_each(|thread| thread.join().unwrap());
    let asked = guarded.identity.asked();
    assert!(asked.at_once <= PLACES && asked.validations == 1_001, "{asked:?}");
    let grown = guarded.server.memory_at_rest().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes");
    assert_eq!(guarded.client(&member).get("/v2/queues").unwrap().status, StatusCode::OK);
    assert_eq!(guarded.figure("angarium_keystone_lookups_total{result=\"refused\"}"), 1_000.0);
    assert_eq!(guarded.figure("angarium_authentication_failures_total{reason=\"unknown_token\"}"), 1_000.0);
    let lines = guarded.server.last_lines();
    let intervals = 1 + began.elapsed().as_secs() / 10;
    let logged = lines.matches("authentication failed").count() as u64;
    assert!(
        (1..=intervals).contains(&logged) && !lines.contains("gAAAAA"),
        "{logged} of {intervals}: {lines}"
    );
}

#[test]
fn one_token_is_looked_up_once_for_all() {
    let guarded = guarded(&[]);
    let token = guarded.member();
    guarded.identity.set_behaviour(Behaviour::Slow(Duration::from_millis(700)));
    let asking: Vec<_> = (0..40)
        .map(|_| {
            let client = guarded.client(&token);
            thread::spawn(move || client.get("/v2/queues").unwrap().status)
        })
        .collect();
    assert!(asking.into_iter().all(|thread| thread.join().unwrap() == StatusCode::OK));
    assert_eq!(guarded.asked(), 1);
    guarded.identity.set_behaviour(Behaviour::Well);
    assert_eq!(guarded.figure("angarium_keystone_lookups_total{result=\"valid\"}"), 2.0);
}

#[test]
fn hostile_answers_let_none_in() {
    let guarded = guarded(&["--keystone-timeout", "1"]);
    let good = json!({"token": {
        "expires_at": "2100-01-01T00:00:00.000000Z", "project": {"id": "p"}, "roles": [{"name": "admin"}],
    }})
    .to_string();
    let canned = |status, body: String| Behaviour::Canned(status, Vec::new(), body);
    let other = vec![("x-subject-token", "gAAAAABother".to_owned())];
    let elsewhere = vec![("location", guarded.identity.url())];
    let faults = [
        Behaviour::Endless,
        Behaviour::Canned(200, other, good.clone()),
        Behaviour::Canned(302, elsewhere, good.clone()),
        canned(200, format!("{}{good}", " ".repeat(1 << 20))),
        canned(200, format!("{{\"token\": {}", "[".repeat(100_000))),
        canned(200, good.replace("2100", "some")),
        canned(200, good.replace("expires_at", "expires")),
        canned(200, good[..good.len() - 2].to_owned()),
        canned(200, String::new()),
        canned(200, "<html>".to_owned()),
        canned(200, "{\"token\": null}".to_owned()),
        canned(201, good.clone()),
        canned(204, String::new()),
        canned(400, String::new()),
        canned(403, String::new()),
        canned(429, String::new()),
        canned(500, good.clone()),
        canned(503, String::new()),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let said: String = format!("{fault:?}").chars().take(80).collect();
        guarded.identity.set_behaviour(fault);
        let began = Instant::now();
        let answer = guarded.client(&format!("gAAAAAB{number}")).get("/v2/queues").unwrap();
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{said}: {}", answer.text());
        assert!(began.elapsed() < Duration::from_secs(30), "{said}");
    }
    // The same answer without a fault is taken; what failed before was not remembered.
    guarded.identity.set_behaviour(canned(200, good));
    assert_eq!(guarded.client("gAAAAAB0").get("/v2/pools").unwrap().status, StatusCode::OK);
}

#[test]
fn own_token_is_fetched_again_when_it_ends() {
    let guarded = guarded(&["--keystone-cache-time", "0"]);
    let client = guarded.client(&guarded.member());
    let works = || assert_eq!(client.get("/v2/queues").unwrap().status, StatusCode::OK);
    works();
    works();
    assert_eq!(guarded.identity.asked().logins, 1);
    // Keystone's keys have changed.
    guarded.identity.forget_service_tokens();
    guarded.identity.set_service_life(Duration::from_secs(50));
    works();
    assert_eq!(guarded.identity.asked().logins, 2);
    // One that expires within a minute is replaced before it does, in the background.
    works();
    wait_until("it is replaced", || guarded.identity.asked().logins == 3);
    // One that cannot be replaced is used to its end.
    guarded.identity.refuse_password(true);
    wait_until("the renewal is refused", || {
        works();
        guarded.identity.asked().logins == 4
    });
    thread::sleep(Duration::from_millis(300));
    works();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(guarded.identity.asked().logins, 4, "refused credentials are not tried again at once");
    guarded.identity.forget_service_tokens();
    assert_code(&client.get("/v2/queues").unwrap(), 503, "unavailable");
    assert_eq!(guarded.identity.asked().logins, 4);
}

#[test]
fn refused_credentials_are_not_tried_again_at_once() {
    let guarded = guarded(&[]);
    guarded.identity.refuse_password(true);
    for number in 0..20 {
        let answer = guarded.client(&format!("gAAAAAB{number}")).get("/v2/queues").unwrap();
        assert_code(&answer, 503, "unavailable");
    }
    assert_eq!((guarded.identity.asked().logins, guarded.asked()), (1, 0));
    let lines = guarded.server.last_lines();
    assert!(
        lines.contains("refuses the service's credentials") && !lines.contains(SERVICE_PASSWORD),
        "{lines}"
    );
    secret(&guarded.data, "another");
    guarded.server.hang_up();
    wait_until("the new secret is tried", || {
        let answer = guarded.client("gAAAAABx").get("/v2/queues").unwrap();
        assert_code(&answer, 503, "unavailable");
        guarded.identity.asked().logins == 2
    });
    // It is read again when it changes.
    guarded.identity.refuse_password(false);
    secret(&guarded.data, SERVICE_PASSWORD);
    let member = guarded.client(&guarded.member());
    wait_until("the right secret is tried", || member.get("/v2/queues").unwrap().status == StatusCode::OK);
}
