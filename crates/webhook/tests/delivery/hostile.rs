//! Subscribers that send too much, too slowly, or nothing.

use std::time::Duration;

use angarium_webhook::DeliveryError;
use angarium_webhook::error::{Phase, UnreachableCause};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::sink::{Names, Sink, client, client_with, delivery, limits, read_request};

/// Starts a subscriber that sends `first`, then `rest` for ever, each after a pause.
async fn flood(first: &'static str, rest: &'static str, pause: Duration) -> Sink {
    Sink::start("127.0.0.1", move |mut stream| async move {
        read_request(&mut stream).await;
        if stream.write_all(first.as_bytes()).await.is_err() {
            return;
        }
        while stream.write_all(rest.as_bytes()).await.is_ok() {
            sleep(pause).await;
        }
    })
    .await
}

#[tokio::test]
async fn silent_subscriber_times_out() {
    let sink = flood("", "", Duration::from_secs(60)).await;
    let began = Instant::now();
    let error = client().deliver(&delivery(&sink.url())).await.unwrap_err();
    assert_eq!(error, DeliveryError::TimedOut(Phase::Answer));
    assert!(began.elapsed() < Duration::from_secs(6));
}

#[tokio::test]
async fn slow_header_times_out() {
    let sink = flood("HTTP/1.1 200 OK\r\n", "a", Duration::from_millis(50)).await;
    let error = client().deliver(&delivery(&sink.url())).await.unwrap_err();
    assert_eq!(error, DeliveryError::TimedOut(Phase::Answer));
}

#[tokio::test]
async fn slow_body_keeps_the_status_and_not_the_connection() {
    let client = client();
    let sink = flood("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n", "a", Duration::from_millis(100)).await;
    let began = Instant::now();
    assert!(client.deliver(&delivery(&sink.url())).await.is_ok());
    assert!(began.elapsed() < Duration::from_millis(2500), "the answer has its own deadline");
    assert_eq!(client.idle_connections(), 0);
}

#[tokio::test]
async fn endless_body_is_dropped() {
    let client = client();
    let block = "x".repeat(64 * 1024).leak();
    let sink = flood("HTTP/1.1 500 X\r\ncontent-length: 1073741824\r\n\r\n", block, Duration::ZERO).await;
    let error = client.deliver(&delivery(&sink.url())).await.unwrap_err();
    assert_eq!(error.answer().unwrap(), "x".repeat(1024));
    assert_eq!(client.idle_connections(), 0);
}

#[tokio::test]
async fn endless_headers_and_interim_answers_are_refused() {
    let long = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(1000)).leak();
    let many_chunks = "1;extension=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n";
    for (first, rest) in [
        ("HTTP/1.1 200 OK\r\n", "a: b\r\n"),
        (long, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
        ("", "HTTP/1.1 100 Continue\r\n\r\n"),
        ("", "HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n"),
    ] {
        let sink = flood(first, rest.repeat(100).leak(), Duration::ZERO).await;
        let error = client().deliver(&delivery(&sink.url())).await.unwrap_err();
        assert_eq!(error, DeliveryError::Unreachable(UnreachableCause::InvalidAnswer), "{rest:?}");
    }
    let sink = flood(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        many_chunks.repeat(100).leak(),
        Duration::ZERO,
    )
    .await;
    let client = client();
    assert!(client.deliver(&delivery(&sink.url())).await.is_ok());
    assert_eq!(client.idle_connections(), 0);
}

#[tokio::test]
async fn closed_and_reset_connections_are_lost() {
    let close = Sink::start("127.0.0.1", async |mut stream| drop(read_request(&mut stream).await)).await;
    let reset = Sink::start("127.0.0.1", async |mut stream| {
        read_request(&mut stream).await;
        stream.set_zero_linger().unwrap();
    })
    .await;
    for sink in [close, reset] {
        let error = client().deliver(&delivery(&sink.url())).await.unwrap_err();
        assert_eq!(error, DeliveryError::Unreachable(UnreachableCause::ConnectionLost));
        assert_eq!(sink.connections(), 1, "a delivery on a new connection is not repeated");
    }
}

#[tokio::test]
async fn closed_port_refuses_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let error = client().deliver(&delivery(&url)).await.unwrap_err();
    assert_eq!(error, DeliveryError::Unreachable(UnreachableCause::ConnectionRefused));
}

#[tokio::test]
async fn silent_handshake_times_out() {
    let sink = Sink::start("127.0.0.1", async |_stream| sleep(Duration::from_secs(60)).await).await;
    let url = format!("https://{}/", sink.address);
    let error = client().deliver(&delivery(&url)).await.unwrap_err();
    assert_eq!(error, DeliveryError::TimedOut(Phase::Tls));
}

#[tokio::test]
async fn unknown_name_is_unreachable() {
    for names in [Names::default(), Names::answering(&[&[]])] {
        let client = client_with(angarium_webhook::EgressRules::default(), names, limits());
        let error = client.deliver(&delivery("http://nowhere.test/")).await.unwrap_err();
        assert_eq!(error, DeliveryError::Unreachable(UnreachableCause::Name));
    }
}
