//! Certificates of subscribers.

use std::sync::Arc;

use angarium_webhook::error::UnreachableCause;
use angarium_webhook::{DeliveryError, EgressRules, WebhookClient};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

use crate::sink::{Names, Sink, delivery, limits};

/// Starts a subscriber with a certificate of its own for `good.test`.
async fn secure_sink() -> (Sink, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(vec!["good.test".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate.clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let sink = Sink::start("127.0.0.1", move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut part = [0; 4096];
            while stream.read(&mut part).await.is_ok_and(|bytes| bytes > 0) {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            }
        }
    })
    .await;
    (sink, certificate)
}

fn client(trusted: &CertificateDer<'static>) -> WebhookClient {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let rules = EgressRules::new(vec!["127.0.0.0/8".parse().unwrap()], Vec::new());
    let names = Names::answering(&[&["127.0.0.1"]]);
    WebhookClient::new(rules, roots, limits(), Arc::new(names)).unwrap()
}

#[tokio::test]
async fn trusted_certificate_is_accepted_and_the_connection_reused() {
    let (sink, certificate) = secure_sink().await;
    let client = client(&certificate);
    let url = format!("https://good.test:{}/", sink.address.port());
    for _ in 0..3 {
        client.deliver(&delivery(&url)).await.unwrap();
    }
    assert_eq!(sink.connections(), 1);
}

#[tokio::test]
async fn certificate_of_another_name_or_issuer_is_refused() {
    let (sink, certificate) = secure_sink().await;
    let (_, stranger) = secure_sink().await;
    for (host, trusted) in [("bad.test", &certificate), ("127.0.0.1", &certificate), ("good.test", &stranger)]
    {
        let url = format!("https://{host}:{}/", sink.address.port());
        let error = client(trusted).deliver(&delivery(&url)).await.unwrap_err();
        assert_eq!(error, DeliveryError::Unreachable(UnreachableCause::Certificate), "{host}");
    }
}

#[tokio::test]
async fn plain_subscriber_fails_the_handshake() {
    let sink = Sink::start("127.0.0.1", async |mut stream| {
        _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        _ = stream.read(&mut [0; 4096]).await;
    })
    .await;
    let (_, certificate) = secure_sink().await;
    let url = format!("https://{}/", sink.address);
    let error = client(&certificate).deliver(&delivery(&url)).await.unwrap_err();
    assert_eq!(error, DeliveryError::Unreachable(UnreachableCause::Tls));
}
