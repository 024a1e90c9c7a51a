//! `angarium backup`, `verify` and `restore`: the contents of a restored service, and refusals.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{CommandResult, Program};
use crate::support::client::Client;
use crate::support::clock_step::SteppedClock;
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::held::wait_until;
use angarium_testbed::redis::{Redis, SYNCED};

const HOUR: i64 = 3_600_000;

/// A place for data directories and backups.
struct BackupPlace(TempDir);

impl BackupPlace {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("temporary directories have plain names").to_owned()
    }

    fn serve(&self, data: &str) -> Server {
        Server::start(&self.path(data))
    }

    fn backup(&self, server: &Server, name: &str) -> CommandResult {
        Program::new(Some(server.base())).run(&["backup", &self.text(name)])
    }

    fn restore(&self, name: &str, data: &str) -> CommandResult {
        Program::new(None).run(&["restore", &self.text(name), "--data", &self.text(data)])
    }

    fn verify(&self, name: &str) -> CommandResult {
        Program::new(None).run(&["verify", &self.text(name)])
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn is_done(ended: &CommandResult) {
    assert_eq!(ended.code, 0, "{ended:?}");
}

/// Calls SQS.
fn sqs(client: &Client, operation: &str, body: &Value) -> (StatusCode, Value) {
    let target = format!("AmazonSQS.{operation}");
    let headers = [("x-amz-target", target.as_str()), ("content-type", "application/x-amz-json-1.0")];
    let answer = client.send(Method::POST, "/", &headers, Some(body)).unwrap();
    let text = answer.text();
    (answer.status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

fn receive(client: &Client, url: &str) -> Option<String> {
    let (status, answer) = sqs(client, "ReceiveMessage", &json!({"QueueUrl": url, "VisibilityTimeout": 600}));
    assert_eq!(status, StatusCode::OK, "{answer}");
    Some(answer["Messages"][0]["ReceiptHandle"].as_str()?.to_owned())
}

/// Adds a second embedded pool, with a queue in it.
fn add_pool(client: &Client) {
    let made = client.put("/v2/pools/second", Some(&json!({"uri": "embedded:pools/.//second", "weight": 0})));
    assert_eq!(made.unwrap().status, StatusCode::CREATED);
    let flavor = client.put("/v2/flavors/slow", Some(&json!({"pool_list": ["second"]})));
    assert_eq!(flavor.unwrap().status, StatusCode::CREATED);
    let weight = client.patch("/v2/pools/second", &json!({"weight": 1}));
    assert_eq!(weight.unwrap().status, StatusCode::OK);
    let queue = client.put("/v2/queues/far", Some(&json!({"_flavor": "slow"})));
    assert_eq!(queue.unwrap().status, StatusCode::CREATED);
}

#[test]
fn restored_service_has_everything_of_the_moment() {
    let place = BackupPlace::new();
    let server = place.serve("data");
    let client = server.client();
    add_pool(&client);
    client.post_messages("orders", &[json!(1), json!(2), json!(3)]).unwrap();
    client.post_messages("far", &[json!("far")]).unwrap();
    let claim = client.claim("orders", 1, 600).unwrap().granted().unwrap();
    client.put("/v2/queues/fifo", Some(&json!({"_fifo": true}))).unwrap();
    let once = json!({"messages": [{"body": "once", "group": "a", "dedup_id": "1"}]});
    let first = client.post("/v2/queues/fifo/messages", &once).unwrap().posted_ids();
    let saved = place.backup(&server, "backup");
    is_done(&saved);
    assert!(saved.out.contains("is a backup: 2 stores"), "{}", saved.out);
    let whole = place.verify("backup");
    is_done(&whole);
    assert!(whole.out.contains("pools/second/entries 1 records"), "{}", whole.out);
    // The original continues: this is not in the backup.
    client.post_messages("orders", &[json!(4)]).unwrap();
    client.post_messages("far", &[json!("later")]).unwrap();
    assert!(server.terminate().success());
    is_done(&place.restore("backup", "restored"));
    let server = place.serve("restored");
    let client = server.client();
    let held = &claim.messages[0];
    let bodies: Vec<_> = client.claim("orders", 10, 60).unwrap().granted().unwrap().messages;
    assert_eq!(bodies.iter().map(|message| message.body.clone()).collect::<Vec<_>>(), [json!(2), json!(3)]);
    let gone = client.delete_message("orders", &held.id, Some(&claim.id)).unwrap();
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    let far = client.claim("far", 10, 60).unwrap().granted().unwrap();
    assert_eq!(far.messages.iter().map(|message| message.body.clone()).collect::<Vec<_>>(), [json!("far")]);
    // The id of deduplication is known, and new messages follow the others.
    assert_eq!(client.post("/v2/queues/fifo/messages", &once).unwrap().posted_ids(), first);
    assert_eq!(client.post_messages("orders", &[json!(5)]).unwrap().status, StatusCode::CREATED);
    // A second restore of the same backup, and a backup of a restored service.
    is_done(&place.backup(&server, "again"));
    assert!(server.terminate().success());
    is_done(&place.restore("again", "twice"));
    let last = place.serve("twice").client().claim("orders", 10, 60).unwrap().granted().unwrap();
    assert_eq!(last.messages.iter().map(|message| message.body.clone()).collect::<Vec<_>>(), [json!(5)]);
}

#[test]
fn receipts_of_a_lost_future_harm_nothing() {
    let place = BackupPlace::new();
    let server = place.serve("data");
    let client = server.client();
    let (_, made) = sqs(&client, "CreateQueue", &json!({"QueueName": "letters"}));
    let url = made["QueueUrl"].as_str().unwrap().to_owned();
    for body in ["before", "open"] {
        sqs(&client, "SendMessage", &json!({"QueueUrl": url, "MessageBody": body}));
    }
    let known = receive(&client, &url).unwrap();
    is_done(&place.backup(&server, "backup"));
    let of_known_message = receive(&client, &url).unwrap();
    sqs(&client, "SendMessage", &json!({"QueueUrl": url, "MessageBody": "after"}));
    let of_lost_message = receive(&client, &url).unwrap();
    let claim = client.post_messages("orders", &[json!(1)]).and_then(|_| client.claim("orders", 1, 600));
    let claim = claim.unwrap().granted().unwrap();
    assert!(server.terminate().success());
    is_done(&place.restore("backup", "restored"));
    let server = place.serve("restored");
    let client = server.client();
    // A receipt from before the moment is as good as it was.
    let delete =
        |handle: &str| sqs(&client, "DeleteMessage", &json!({"QueueUrl": url, "ReceiptHandle": handle}));
    assert_eq!(delete(&known).0, StatusCode::OK);
    assert!(delete(&of_lost_message).0.is_client_error(), "it was not received here");
    // The message is ready here. The holder of the other receipt does not take it from the new one.
    let mine = receive(&client, &url).unwrap();
    let extend = json!({"QueueUrl": url, "ReceiptHandle": of_known_message, "VisibilityTimeout": 0});
    let (status, _) = sqs(&client, "ChangeMessageVisibility", &extend);
    assert!(status.is_client_error(), "{status}");
    assert!(delete(&of_known_message).0.is_client_error(), "it was not received here");
    assert!(receive(&client, &url).is_none(), "a late receipt has made the message visible");
    assert_eq!(delete(&mine).0, StatusCode::OK);
    assert!(receive(&client, &url).is_none());
    let message = &claim.messages[0];
    let late = client.delete_message("orders", &message.id, Some(&claim.id)).unwrap();
    assert!(late.status == StatusCode::NO_CONTENT || late.status.is_client_error(), "{late:?}");
}

/// Makes a backup when the machine's clock is so far behind, with a message of one hour, 20 minutes old.
fn old_backup(place: &BackupPlace, hours: i64) -> String {
    let clock = SteppedClock::new(-hours * HOUR - HOUR / 3);
    let builder = ServerBuilder::new(&place.path("data")).through(&clock.command());
    let server = builder.start();
    let posted = server.client().post_messages("orders", &[json!("old")]).unwrap();
    assert_eq!(posted.status, StatusCode::CREATED);
    assert!(server.terminate().success());
    clock.set(-hours * HOUR);
    let server = builder.start();
    is_done(&place.backup(&server, "backup"));
    assert!(server.terminate().success());
    posted.posted_ids().remove(0)
}

fn age(client: &Client, id: &str) -> u64 {
    let message = client.get_message("orders", id).unwrap();
    assert_eq!(message.status, StatusCode::OK, "{}", message.text());
    message.json()["age"].as_u64().unwrap()
}

#[test]
fn messages_of_an_old_backup_keep_their_life() {
    for hours in [20, 240] {
        let place = BackupPlace::new();
        let id = old_backup(&place, hours);
        is_done(&place.restore("backup", "restored"));
        let server = place.serve("restored");
        let client = server.client();
        let first = age(&client, &id);
        assert!((1_200..1_260).contains(&first), "{hours}: {first}");
        let ready = client.get("/readyz").unwrap();
        assert!(ready.text().contains("restored from a backup"), "{}", ready.text());
        assert!(server.terminate().success());
        let server = place.serve("restored");
        assert!((1_200..1_320).contains(&age(&server.client(), &id)), "{hours}: after another start");
        let client = server.client();
        let claimed = client.claim("orders", 1, 60).unwrap().granted().unwrap();
        assert_eq!(claimed.messages[0].id, id);
        assert_eq!(client.release_claim("orders", &claimed.id).unwrap().status, StatusCode::NO_CONTENT);
        assert!(server.terminate().success());
        // An operator accepts the machine's clock, and with it the end of old messages.
        let server = ServerBuilder::new(&place.path("restored")).arg("--accept-clock").start();
        let is_gone = || server.client().get_message("orders", &id).unwrap().status == StatusCode::NOT_FOUND;
        wait_until("the message has expired", is_gone);
    }
}

/// Claims and releases a message, which becomes a dead letter at the next claim.
fn use_up(client: &Client, queue: &str) {
    let claim = client.claim(queue, 1, 60).unwrap().granted().unwrap();
    client.release_claim(queue, &claim.id).unwrap();
    assert!(client.claim(queue, 1, 60).unwrap().granted().is_none());
}

#[test]
fn restore_beside_other_pools_holds_transfers() {
    let (place, redis) = (BackupPlace::new(), Redis::start(SYNCED));
    let server = place.serve("data");
    let client = server.client();
    let is_made = |path: &str, body: &Value| {
        assert_eq!(client.put(path, Some(body)).unwrap().status, StatusCode::CREATED, "{path}");
    };
    is_made("/v2/pools/far", &json!({"uri": redis.uri(""), "weight": 1, "flavor": "far"}));
    is_made("/v2/flavors/far", &json!({"pool_list": ["far"]}));
    is_made("/v2/queues/dead", &json!({"_flavor": "far"}));
    is_made("/v2/queues/near", &json!({"_dead_letter_queue": "dead", "_max_claim_count": 1}));
    client.post_messages("near", &[json!(1)]).unwrap();
    let held = client
        .put("/v2/pools/default/hold", Some(&json!({"reason": "bad deploy", "claim": false, "post": true})));
    assert_eq!(held.unwrap().status, StatusCode::OK);
    is_done(&place.backup(&server, "backup"));
    assert!(server.terminate().success());
    let restored = place.restore("backup", "restored");
    is_done(&restored);
    assert!(restored.out.contains("far. So the transfers of all pools are held"), "{}", restored.out);
    let server = place.serve("restored");
    let client = server.client();
    let holds = client.get("/v2/admin/holds").unwrap().json();
    let shown = |pool: &str| {
        let all = holds["holds"].as_array().unwrap();
        all.iter().find(|hold| hold["pool"] == pool).unwrap_or_else(|| panic!("{holds}")).clone()
    };
    let (near, far) = (shown("default"), shown("far"));
    assert!(near["transfer"] == json!(true) && far["transfer"] == json!(true), "{holds}");
    assert!(near["post"] == json!(true) && near["reason"] == "bad deploy", "the hold before stays: {holds}");
    use_up(&client, "near");
    let in_transfer = || client.stats("near").unwrap().json()["messages"]["in_transfer"].clone();
    wait_until("the dead letter is marked", || in_transfer() == 1);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(in_transfer(), 1);
    for pool in ["default", "far"] {
        let released = client.delete(&format!("/v2/pools/{pool}/hold")).unwrap();
        assert_eq!(released.status, StatusCode::NO_CONTENT);
    }
    wait_until("the dead letter arrives", || client.claim("dead", 1, 60).unwrap().granted().is_some());
}

#[test]
fn damaged_backup_is_refused_and_leaves_nothing() {
    let place = BackupPlace::new();
    let server = place.serve("data");
    add_pool(&server.client());
    server.client().post_messages("far", &[json!("far"), json!("x".repeat(100_000))]).unwrap();
    server.client().claim("far", 1, 600).unwrap();
    is_done(&place.backup(&server, "backup"));
    drop(server);
    let whole = fs::read(place.path("backup/stream")).unwrap();
    let names = place.names();
    let mut named = 0;
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(place.path("backup/stream"), &damaged).unwrap();
        for ended in [place.verify("backup"), place.restore("backup", "restored")] {
            assert_eq!(ended.code, 1, "{at}: {ended:?}");
            named += usize::from(ended.err.contains("part ") && ended.err.contains("at byte "));
        }
        assert_eq!(place.names(), names, "{at}");
    }
    assert!(named > 60, "{named} name the place");
    fs::write(place.path("backup/stream"), &whole).unwrap();
    let cut = Program::new(None).feed(&["verify", "-"], &whole[..whole.len() - 3]);
    assert!(cut.code == 1 && cut.err.contains("cut short in the manifest"), "{cut:?}");
    let cut = Program::new(None).feed(&["restore", "-", "--data", &place.text("restored")], &whole[..5_000]);
    assert!(cut.code == 1 && cut.err.contains("cut short in"), "{cut:?}");
    assert_eq!(place.names(), names);
    // Both names of the option.
    let piped = ["restore", "-", "--data-dir", &place.text("restored")];
    is_done(&Program::new(None).feed(&piped, &whole));
    let taken = place.restore("backup", "restored");
    assert!(taken.code == 1 && taken.err.contains("is not empty"), "{taken:?}");
}

/// Posts messages of 25 MB in all.
fn fill(client: &Client) {
    for _ in 0..100 {
        let posted = client.post_messages("filling", &[json!("x".repeat(250_000))]).unwrap();
        assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
    }
}

/// Begins a backup and reads nothing of it.
fn unread_backup(server: &Server) -> TcpStream {
    let address = server.base().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "POST /v2/backup HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n").unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    stream
}

#[test]
fn second_backup_waits_for_the_end_of_the_first() {
    let place = BackupPlace::new();
    let server = place.serve("data");
    fill(&server.client());
    let unread = unread_backup(&server);
    let refused = place.backup(&server, "second");
    assert!(refused.code == 1 && refused.err.contains("another backup is being made"), "{refused:?}");
    assert_eq!(place.names(), ["data"]);
    drop(unread);
    let began = Instant::now();
    while place.backup(&server, "second").code != 0 {
        assert!(began.elapsed() < Duration::from_secs(120), "{}", server.last_lines());
    }
    is_done(&place.verify("second"));
    let taken = place.backup(&server, "second");
    assert!(taken.code == 2 && taken.err.contains("is not empty"), "{taken:?}");
}

#[test]
fn stopping_service_breaks_a_backup_off() {
    let place = BackupPlace::new();
    let server = place.serve("data");
    fill(&server.client());
    let mut unread = unread_backup(&server);
    let began = Instant::now();
    let reading = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(2));
        let mut rest = Vec::new();
        unread.read_to_end(&mut rest).unwrap();
        rest
    });
    assert!(server.terminate().success());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let rest = String::from_utf8_lossy(&reading.join().unwrap()).into_owned();
    assert!(rest.contains("the service stops; "), "{} bytes", rest.len());
}

#[test]
fn streamed_backup_is_the_stored_one() {
    let place = BackupPlace::new();
    let server = place.serve("data");
    server.client().post_messages("orders", &[json!(1)]).unwrap();
    let program = Program::new(Some(server.base()));
    let file = fs::File::create(place.path("stream")).unwrap();
    let ended = program.command(&["backup", "-"]).stdout(file).stderr(Stdio::inherit()).status().unwrap();
    assert!(ended.success());
    let bytes = fs::read(place.path("stream")).unwrap();
    is_done(&Program::new(None).feed(&["verify", "-"], &bytes));
    is_done(&Program::new(None).feed(&["restore", "-", "--data", &place.text("restored")], &bytes));
    let claimed = place.serve("restored").client().claim("orders", 1, 60).unwrap().granted().unwrap();
    assert_eq!(claimed.messages[0].body, json!(1));
}

#[test]
fn backup_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let place = BackupPlace::new();
    let server = place.serve("data");
    is_done(&place.backup(&server, "backup"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.path("backup")), 0o700);
    for file in ["stream", "manifest.json"] {
        assert_eq!(mode(&place.path("backup").join(file)), 0o600);
    }
    is_done(&place.restore("backup", "restored"));
    assert_eq!(mode(&place.path("restored")), 0o700);
}

#[test]
fn backup_of_sealed_tree_needs_its_keys() {
    let place = BackupPlace::new();
    fs::write(place.path("keys"), "2026-11 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
    let sealed =
        |data: &str| ServerBuilder::new(&place.path(data)).arg("--secret-key-file").arg(place.path("keys"));
    let server = sealed("data").start();
    let posted = server.client().post_messages("q", &[json!(1)]).unwrap().posted_ids();
    is_done(&place.backup(&server, "backup"));
    let refused = place.restore("backup", "without");
    assert!(refused.code == 1 && refused.err.contains("2026-11"), "{refused:?}");
    assert_eq!(place.names(), ["backup", "data", "keys"]);
    let (backup, data, keys) = (place.text("backup"), place.text("restored"), place.text("keys"));
    let words = ["restore", &backup, "--data", &data, "--secret-key-file", &keys];
    is_done(&Program::new(None).run(&words));
    // The time of the messages continues at the first start that succeeds, not at these.
    let refused = ServerBuilder::new(&place.path("restored")).start_refused();
    assert!(refused.contains("2026-11"), "{refused}");
    is_done(&Program::new(None).run(&["tree", "export", &place.text("tree"), "--data", &data]));
    is_done(&Program::new(None).run(&["tree", "seal", "--data", &data, "--secret-key-file", &keys]));
    let clock = SteppedClock::new(20 * HOUR);
    let later = sealed("restored").through(&clock.command()).start();
    let claim = later.client().claim("q", 1, 60).unwrap().granted().unwrap();
    assert_eq!(claim.messages[0].id, posted[0]);
}

#[test]
fn restore_removes_only_its_own_directory() {
    let place = BackupPlace::new();
    is_done(&place.backup(&place.serve("data"), "backup"));
    let other = place.path("restored.unfinished");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("kept"), "").unwrap();
    let refused = place.restore("backup", "restored");
    assert!(refused.code == 1 && refused.err.contains("another one is running"), "{refused:?}");
    assert!(other.join("kept").exists());
    fs::remove_dir_all(&other).unwrap();
    // Of two restores at once the first one is undisturbed.
    let ended = std::thread::scope(|scope| {
        let restores = [(), ()].map(|()| scope.spawn(|| place.restore("backup", "restored")));
        restores.map(|restore| restore.join().unwrap())
    });
    assert_eq!(ended.iter().filter(|ended| ended.code == 0).count(), 1, "{ended:?}");
    assert_eq!(place.names(), ["backup", "data", "restored"]);
    assert!(place.serve("restored").client().get("/readyz").unwrap().status.is_success());
}

#[test]
fn restore_of_clear_tree_with_keys_names_the_seal() {
    let place = BackupPlace::new();
    fs::write(place.path("keys"), "2026-11 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
    is_done(&place.backup(&place.serve("data"), "backup"));
    let restored = place.restore("backup", "without");
    assert!(restored.code == 0 && !restored.out.contains("tree seal"), "{restored:?}");
    let (backup, data, keys) = (place.text("backup"), place.text("restored"), place.text("keys"));
    let words = ["restore", &backup, "--data", &data, "--secret-key-file", &keys];
    let restored = Program::new(None).run(&words);
    assert!(restored.code == 0 && restored.out.contains("angarium tree seal"), "{restored:?}");
}

#[test]
fn backups_are_counted_by_outcome() {
    let place = BackupPlace::new();
    let server = place.serve("data");
    fill(&server.client());
    let page = || server.client().get("/metrics").unwrap().text();
    let shows = |line: &str| page().lines().any(|shown| shown == line);
    assert!(shows("angarium_backups_running 0") && shows("angarium_backup_last_success_timestamp_seconds 0"));
    let unread = unread_backup(&server);
    wait_until("it runs", || shows("angarium_backups_running 1"));
    drop(unread);
    wait_until("it is broken off", || shows("angarium_backups_total{outcome=\"broken_off\"} 1"));
    is_done(&place.backup(&server, "backup"));
    wait_until("it is written", || shows("angarium_backups_total{outcome=\"written\"} 1"));
    assert!(
        shows("angarium_backups_running 0") && !shows("angarium_backup_last_success_timestamp_seconds 0")
    );
    let bytes = fs::metadata(place.path("backup/stream")).unwrap().len();
    let sent =
        page().lines().find_map(|line| line.strip_prefix("angarium_backup_bytes_total ")?.parse().ok());
    assert!(sent.is_some_and(|sent: u64| sent >= bytes), "{sent:?} of {bytes}");
}
