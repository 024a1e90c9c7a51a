//! What one connection of HTTP/2 can make the service keep in memory, with all its streams.

use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use h2::client::SendRequest;
use http::{Request, StatusCode};
use serde_json::json;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use super::tls::{TlsFiles, connect};
use crate::support::server::Server;

const MIB: usize = 1 << 20;
/// The longest body of an SQS request.
const LONGEST: usize = 6 * MIB + MIB / 4;

/// A client of HTTP/2 on one connection, whose streams have a window of so many bytes.
async fn client(server: &Server, place: &TlsFiles, window: u32) -> SendRequest<Bytes> {
    let certificate = place.certificate_now();
    let stream = connect(server, &certificate, &[b"h2"]).await.unwrap();
    let mut client = h2::client::Builder::new();
    client.initial_window_size(window).initial_connection_window_size(16 << 20);
    let (client, connection) = client.handshake(stream).await.unwrap();
    TaskTracker::new().spawn(connection);
    client.ready().await.unwrap()
}

/// Sends bytes in pieces as the windows allow, and keeps the stream open; ends when the server does not want them.
async fn send(stream: &mut SendStream<Bytes>, mut left: usize, piece: usize) {
    let pieces = Bytes::from(vec![b' '; piece]);
    while left > 0 {
        stream.reserve_capacity(piece);
        let Some(Ok(granted)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { return };
        let bytes = granted.min(left).min(piece);
        if stream.send_data(pieces.slice(..bytes), false).is_err() {
            return;
        }
        left -= bytes;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_one_h2_connection_stay_within_a_quarter() {
    let place = TlsFiles::new();
    place.issue();
    let server = place.start_with(&["--max-body-bytes=33554432"]);
    let mut client = client(&server, &place, 65_535).await;
    let before = server.memory_at_rest();
    let tasks = TaskTracker::new();
    for _ in 0..40 {
        let head = Request::post("https://localhost/").header("x-amz-target", "AmazonSQS.SendMessage");
        let head = head.header("content-type", "application/x-amz-json-1.0").body(()).unwrap();
        client = client.ready().await.unwrap();
        let (answer, mut stream) = client.send_request(head, false).unwrap();
        tasks.spawn(async move {
            send(&mut stream, LONGEST - 1, 16 * 1024).await;
            // Kept open, so that the body stays unfinished.
            let _ = timeout(Duration::from_secs(10), answer).await;
        });
    }
    let mut most = 0;
    for _ in 0..40 {
        sleep(Duration::from_millis(100)).await;
        most = most.max(server.memory().saturating_sub(before));
    }
    assert!(most < 160 * MIB, "bodies of {} MiB took {} MiB", 40 * LONGEST / MIB, most / MIB);
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_to_closed_windows_stay_within_their_budget() {
    let place = TlsFiles::new();
    place.issue();
    let server = place.start_with(&["--max-unsent-bytes=33554432"]);
    let mut posting = client(&server, &place, 65_535).await;
    for _ in 0..20 {
        let head = Request::post("https://localhost/v2/queues/q/messages").body(()).unwrap();
        let body = json!({"messages": [{"body": "x".repeat(250_000)}]}).to_string();
        posting = posting.ready().await.unwrap();
        let (answer, mut stream) = posting.send_request(head, false).unwrap();
        stream.send_data(body.into(), true).unwrap();
        assert_eq!(answer.await.unwrap().status(), StatusCode::CREATED);
    }
    let before = server.memory_at_rest();
    let mut reading = client(&server, &place, 0).await;
    let mut answers = Vec::new();
    for _ in 0..60 {
        let head =
            Request::get("https://localhost/v2/queues/q/messages?limit=20&echo=true").body(()).unwrap();
        let Ok(mut ready) = reading.clone().ready().await else { break };
        let Ok((answer, _)) = ready.send_request(head, true) else { break };
        answers.push(answer);
        reading = ready;
        sleep(Duration::from_millis(30)).await;
    }
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 200 * MIB, "{} MiB", grown / MIB);
    assert!(reading.ready().await.is_err(), "the connection was cut");
}
