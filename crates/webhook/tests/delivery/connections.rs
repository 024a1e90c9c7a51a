//! Connections that are used again, and connections that are dropped.

use std::sync::Arc;
use std::time::Duration;

use angarium_webhook::limits::ClientLimits;
use angarium_webhook::{CustomHeaders, EgressRules, SigningSecret, WebhookClient};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::sink::{Names, Sink, client, client_with, delivery, limits, read_request};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn client_of(limits: ClientLimits) -> WebhookClient {
    client_with(EgressRules::new(vec!["127.0.0.0/8".parse().unwrap()], Vec::new()), Names::default(), limits)
}

#[tokio::test]
async fn connection_is_reused_for_its_origin() {
    let (sink, other) = (Sink::answering(OK).await, Sink::answering(OK).await);
    let client = client();
    for _ in 0..5 {
        client.deliver(&delivery(&sink.url())).await.unwrap();
        client.deliver(&delivery(&other.url())).await.unwrap();
    }
    assert_eq!((sink.connections(), other.connections(), client.idle_connections()), (1, 1, 2));
}

#[tokio::test]
async fn connection_the_subscriber_closed_is_replaced() {
    for answer in [OK, "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"] {
        let sink = Sink::start("127.0.0.1", move |mut stream| async move {
            read_request(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
        })
        .await;
        let client = client();
        for _ in 0..3 {
            client.deliver(&delivery(&sink.url())).await.unwrap();
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(sink.connections(), 3);
    }
}

#[tokio::test]
async fn request_on_a_lost_idle_connection_is_sent_again() {
    // The second request of a connection is read and not answered.
    let sink = Sink::start("127.0.0.1", async |mut stream| {
        read_request(&mut stream).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
        read_request(&mut stream).await;
    })
    .await;
    let client = client();
    client.deliver(&delivery(&sink.url())).await.unwrap();
    client.deliver(&delivery(&sink.url())).await.unwrap();
    assert_eq!(sink.connections(), 2);
}

#[tokio::test]
async fn unasked_answer_is_not_taken_for_the_next_delivery() {
    let sent = Arc::new(Notify::new());
    let sender = Arc::clone(&sent);
    let sink = Sink::start("127.0.0.1", move |mut stream| {
        let sender = Arc::clone(&sender);
        async move {
            read_request(&mut stream).await;
            stream.write_all(OK.as_bytes()).await.unwrap();
            sleep(Duration::from_millis(20)).await;
            _ = stream.write_all(b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n").await;
            sender.notify_one();
            read_request(&mut stream).await;
        }
    })
    .await;
    let client = client();
    for _ in 0..2 {
        client.deliver(&delivery(&sink.url())).await.unwrap();
        sent.notified().await;
        // The runtime learns of the bytes.
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(sink.connections(), 2);
}

#[tokio::test]
async fn idle_connections_are_bounded_in_number_and_time() {
    let sinks = [Sink::answering(OK).await, Sink::answering(OK).await, Sink::answering(OK).await];
    let client = client_of(ClientLimits { idle_total: 2, idle: Duration::from_millis(300), ..limits() });
    for sink in &sinks {
        client.deliver(&delivery(&sink.url())).await.unwrap();
    }
    assert_eq!(client.idle_connections(), 2);
    sleep(Duration::from_millis(350)).await;
    client.close_expired();
    assert_eq!(client.idle_connections(), 0);

    let slow = Sink::start("127.0.0.1", async |mut stream| {
        read_request(&mut stream).await;
        sleep(Duration::from_millis(100)).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
        read_request(&mut stream).await;
    })
    .await;
    let client = client_of(ClientLimits { idle_per_origin: 1, ..limits() });
    let delivery = delivery(&slow.url());
    let outcomes = tokio::join!(client.deliver(&delivery), client.deliver(&delivery));
    assert!(outcomes.0.is_ok() && outcomes.1.is_ok());
    assert_eq!(client.idle_connections(), 1);
}

#[tokio::test]
async fn request_has_its_headers_once_and_two_signatures() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    let sink = Sink::start("127.0.0.1", move |mut stream| {
        let seen = Arc::clone(&seen);
        async move {
            let request = read_request(&mut stream).await.unwrap();
            seen.lock().push(request);
            stream.write_all(OK.as_bytes()).await.unwrap();
        }
    })
    .await;
    let mut delivery = delivery(&sink.url());
    delivery.headers =
        CustomHeaders::parse([("X-Token", "a"), ("x-token", "b"), ("User-Agent", "mine")]).unwrap();
    let second = SigningSecret::parse("whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=").unwrap();
    delivery.secrets.push(second.clone());
    client().deliver(&delivery).await.unwrap();

    let request = requests.lock().remove(0);
    let (header, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = header.lines().collect();
    assert_eq!(lines.remove(0), "POST /hook?key=1 HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: {}", sink.address);
    let second = second.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body.as_bytes());
    let signature = format!("webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= {second}");
    assert_eq!(
        lines,
        [
            "content-length: 20",
            "content-type: application/json",
            host.as_str(),
            "user-agent: mine",
            "webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek",
            signature.as_str(),
            "webhook-timestamp: 1614265330",
            "x-token: a",
            "x-token: b",
        ]
    );
    assert_eq!(body, "{\"test\": 2432232314}");
}
