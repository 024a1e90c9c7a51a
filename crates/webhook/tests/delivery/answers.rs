//! The meaning of each status.

use std::time::Duration;

use angarium_webhook::error::UnreachableCause;
use angarium_webhook::{Accepted, DeliveryError};
use http::StatusCode;

use crate::sink::{Sink, client, delivery};

async fn outcome(answer: String) -> Result<Accepted, DeliveryError> {
    let sink = Sink::answering(answer).await;
    client().deliver(&delivery(&sink.url())).await
}

#[tokio::test]
async fn every_status_has_its_outcome() {
    let client = client();
    for code in 200..=999_u16 {
        let body = if matches!(code, 204 | 304) { "" } else { "why" };
        let sink =
            Sink::answering(format!("HTTP/1.1 {code} X\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
                .await;
        let outcome = client.deliver(&delivery(&sink.url())).await;
        let status = StatusCode::from_u16(code).unwrap();
        let answer = body.to_owned();
        let expected = match code {
            200..=299 => Ok(Accepted { status }),
            408 | 425 | 429 | 500..=599 => {
                Err(DeliveryError::Unavailable { status, answer, retry_after: None })
            }
            _ => Err(DeliveryError::Refused { status, answer }),
        };
        assert_eq!(outcome, expected);
    }
}

#[tokio::test]
async fn redirect_is_refused_and_not_followed() {
    let target = Sink::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    for code in [301, 302, 303, 307, 308] {
        let answer = format!("HTTP/1.1 {code} X\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", target.url());
        let error = outcome(answer).await.unwrap_err();
        assert!(matches!(error, DeliveryError::Refused { status, .. } if status.as_u16() == code), "{error}");
    }
    assert_eq!(target.connections(), 0);
}

#[tokio::test]
async fn retry_after_is_read_and_bounded() {
    let hour = Duration::from_secs(3600);
    for (value, expected) in [
        ("7", Some(Duration::from_secs(7))),
        ("0", Some(Duration::ZERO)),
        ("3601", Some(hour)),
        ("99999999999999999999999999", Some(hour)),
        // 90 s after the time of the delivery, 1614265330.
        ("Thu, 25 Feb 2021 15:03:40 GMT", Some(Duration::from_secs(90))),
        ("Thu, 25 Feb 2021 15:00:00 GMT", Some(Duration::ZERO)),
        ("Sun, 25 Feb 2120 15:00:00 GMT", Some(hour)),
        ("-1", None),
        ("+1", None),
        ("soon", None),
        ("", None),
    ] {
        let answer = format!("HTTP/1.1 429 X\r\nretry-after: {value}\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(outcome(answer).await.unwrap_err().retry_after(), expected, "{value:?}");
    }
}

#[tokio::test]
async fn answer_is_cut_at_1024_bytes() {
    let body = "é".repeat(2000);
    let answer = format!("HTTP/1.1 500 X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    assert_eq!(outcome(answer).await.unwrap_err().answer().unwrap(), "é".repeat(512));
}

#[tokio::test]
async fn unusable_answers_are_invalid() {
    for answer in
        ["SSH-2.0-OpenSSH\r\n\r\n", "HTTP/9.9 200 OK\r\n\r\n", "\0\0\0\0\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n"]
    {
        let error = outcome(answer.to_owned()).await.unwrap_err();
        assert_eq!(error, DeliveryError::Unreachable(UnreachableCause::InvalidAnswer), "{answer:?}");
    }
}

#[tokio::test]
async fn broken_body_keeps_the_status() {
    let sink = Sink::start("127.0.0.1", async |mut stream| {
        use tokio::io::AsyncWriteExt as _;
        crate::sink::read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 500 X\r\ncontent-length: 100\r\n\r\npart").await.unwrap();
    })
    .await;
    let error = client().deliver(&delivery(&sink.url())).await.unwrap_err();
    assert!(
        matches!(&error, DeliveryError::Unavailable { status, answer, .. } if status.as_u16() == 500 && answer == "part"),
        "{error}"
    );
}
