//! Owns the tests of backups under load: each backup is restored beside the others and judged by the history up to its
//! moment; and a service that is killed while it writes one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::distr::{Alphanumeric, SampleString};
use rand::rngs::StdRng;
use serde_json::Value;
use tempfile::TempDir;

use super::crash::{assert_kept, create_queues};
use super::drain::drain;
use super::history::{Grant, History, LostGrant, Outcome, Record, Span};
use super::load::Load;
use super::small_disk::SmallDisk;
use super::verdict::judge;
use crate::support::server::ServerBuilder;
use angarium_testbed::held::START;
use angarium_testbed::settings;

const MIB: u64 = 1 << 20;
/// Pause between two backups.
const PAUSE: Duration = Duration::from_millis(400);

/// Runs a command of the program.
fn program(args: &[&str], url: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_angarium"));
    command.args(args).env("ANGARIUM_URL", url).stdin(Stdio::null());
    command.output().expect("the built program can be started")
}

/// Runs a command that must succeed, and returns its output.
fn done(args: &[&str], url: &str) -> String {
    let ended = program(args, url);
    let [out, err] = [&ended.stdout, &ended.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(ended.status.success(), "{args:?}: {out}{err}");
    out
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}

/// Returns the history as it was at one moment of `taken`: what ended before is certain, what began later has not
/// happened, and of the rest either may be true.
fn before(record: Record, taken: Span) -> Record {
    let began = |span: &Span| span.start < taken.end;
    let is_certain = |span: &Span| span.end < taken.start;
    let outcome = |outcome: Outcome, span: &Span| match outcome {
        Outcome::Acked if !is_certain(span) => Outcome::Unknown,
        outcome => outcome,
    };
    let mut cut = record;
    cut.posts.retain(|post| began(&post.span));
    for post in &mut cut.posts {
        post.outcome = outcome(post.outcome, &post.span);
        if post.outcome != Outcome::Acked {
            post.ids.clear();
        }
    }
    cut.deletes.retain(|delete| began(&delete.span));
    cut.deletes.iter_mut().for_each(|delete| delete.outcome = outcome(delete.outcome, &delete.span));
    cut.purges.retain(|purge| began(&purge.span));
    cut.purges.iter_mut().for_each(|purge| purge.outcome = outcome(purge.outcome, &purge.span));
    cut.releases.retain(|release| began(&release.span));
    cut.releases.iter_mut().for_each(|release| release.outcome = outcome(release.outcome, &release.span));
    cut.lost_grants.retain(|lost| began(&lost.span));
    cut.sightings.retain(|sighting| is_certain(&sighting.span));
    let (certain, open): (Vec<_>, Vec<_>) =
        cut.grants.into_iter().filter(|grant| began(&grant.span)).partition(|grant| is_certain(&grant.span));
    cut.grants = certain;
    let lost = |grant: Grant| LostGrant { queue: grant.queue, span: grant.span, latest: grant.span.end };
    let lost = open.into_iter().map(lost);
    cut.lost_grants.extend(lost);
    cut
}

#[test]
fn backups_under_load_are_whole_and_of_one_moment() {
    let (seed, rounds) = (settings::seed("backup"), settings::number("ANGARIUM_BACKUP_ROUNDS", 10));
    let mut dice = StdRng::seed_from_u64(seed);
    let dir = TempDir::new().expect("a temporary directory");
    let path = |name: &str, round: u64| dir.path().join(format!("{name}-{round}"));
    let server = ServerBuilder::new(&dir.path().join("data")).start();
    let (history, mut load) = (History::new(), Load::new());
    create_queues(&server.client(), false);
    let (mut taken, mut stops, base) = (Vec::new(), Vec::new(), server.base().to_owned());
    load.run_while(&base, &history, &mut dice, || {
        for round in 0..rounds {
            thread::sleep(PAUSE);
            let start = history.now();
            let facts = done(&["backup", text(&path("backup", round)), "-o", "json"], &base);
            taken.push(history.span_from(start));
            let facts: Value = serde_json::from_str(&facts).expect("it is JSON");
            stops.push(facts["stopped_us"].as_u64().expect("it is measured"));
            eprintln!("backup {round}: {facts}");
        }
        server.kill9();
    });
    stops.sort_unstable();
    // A busy machine prolongs some of them.
    assert!(stops[stops.len() / 2] < 50_000, "commits were stopped for {stops:?} us");
    for (round, taken) in (0..rounds).zip(taken) {
        done(&["restore", text(&path("backup", round)), "--data", text(&path("restored", round))], "");
        let server = ServerBuilder::new(&path("restored", round)).start();
        let restored = history.continued(before(history.record(), taken));
        drain(&server.client(), &restored);
        assert_kept("backup", round, &judge(&restored.record()));
        assert!(server.terminate().success());
    }
}

#[test]
fn killed_service_leaves_no_backup_and_all_data() {
    let dir = TempDir::new().expect("a temporary directory");
    let builder = ServerBuilder::new(&dir.path().join("data"));
    let (history, mut load) = (History::new(), Load::new());
    let mut dice = StdRng::seed_from_u64(settings::seed("killed backup"));
    let server = builder.start();
    create_queues(&server.client(), false);
    let filling = serde_json::json!("x".repeat(200_000));
    for _ in 0..200 {
        let posted = server.client().post_messages("filling", std::slice::from_ref(&filling));
        assert_eq!(posted.expect("the server is up").status, 201);
    }
    let target = dir.path().join("backup");
    let base = server.base().to_owned();
    load.run_while(&base, &history, &mut dice, || {
        thread::sleep(PAUSE);
        let mut stream = Command::new(env!("CARGO_BIN_EXE_angarium"));
        stream.args(["backup", text(&target)]).env("ANGARIUM_URL", &base);
        let mut stream = stream.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        while unfinished(dir.path()).is_none_or(|stream| stream.metadata().map_or(0, |file| file.len()) == 0)
        {
            assert!(stream.try_wait().expect("it is our child").is_none() || target.exists());
            if target.exists() {
                break;
            }
        }
        server.kill9();
        let ended = stream.wait().expect("it is our child");
        // The kill may come when the last byte is on its way.
        assert_eq!(ended.success(), target.exists(), "{ended:?}");
    });
    if !target.exists() {
        let refused = program(&["verify", text(&target)], "");
        assert!(!refused.status.success());
        assert_eq!(unfinished(dir.path()), None, "the unfinished backup is removed");
    }
    let server = builder.start();
    drain(&server.client(), &history);
    assert_kept("killed backup", 1, &judge(&history.record()));
}

#[test]
fn backup_ends_near_the_reserve_and_posts_continue() {
    let disk = SmallDisk::new(400);
    let server = disk.server().arg(format!("--reserve={}", 128 * MIB)).start();
    let client = server.client();
    let post = || {
        let body = serde_json::json!(Alphanumeric.sample_string(&mut rand::rng(), 250_000));
        let posted = client.post_messages("filling", &[body]).expect("the server is up");
        assert_eq!(posted.status, 201, "{}", posted.text());
    };
    (0..120).for_each(|_| post());
    // A client that reads nothing, and a disk that fills meanwhile.
    let address = server.base().strip_prefix("http://").expect("it is clear text");
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "POST /v2/backup HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n")
        .expect("it reads");
    stream.read_exact(&mut [0; 12]).expect("it answers");
    disk.fill(160 * MIB);
    thread::sleep(Duration::from_secs(1));
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("it is open");
    let (mut rest, begun) = (Vec::new(), Instant::now());
    loop {
        // The connection stays open behind the answer.
        let _ = stream.read_to_end(&mut rest);
        let text = String::from_utf8_lossy(&rest);
        let reason = text.find("the disk is near its reserve").map(|at| &text[at..]).unwrap_or_default();
        if reason.contains("bytes were written, up to part journal/") {
            break;
        }
        // On a busy machine the service may write nothing for a while.
        assert!(begun.elapsed() < START, "{} bytes", rest.len());
    }
    post();
    let refused = client.post("/v2/backup", &serde_json::json!({})).expect("the server is up");
    assert_eq!(refused.status, 503, "{}", refused.text());
    disk.empty();
    let dir = TempDir::new().expect("a temporary directory");
    done(&["backup", text(&dir.path().join("backup"))], server.base());
    done(&["verify", text(&dir.path().join("backup"))], "");
}

/// The stream of a backup in progress.
fn unfinished(parent: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(parent).expect("the directory is there");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let mut found = paths.filter(|path| path.to_string_lossy().contains("backup.unfinished-"));
    Some(found.next()?.join("stream"))
}
