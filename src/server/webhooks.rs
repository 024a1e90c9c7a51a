//! The sender of webhooks: gives the messages of the broker to the client of HTTP.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::HeaderValue;
use thiserror::Error as ThisError;

use crate::config::webhooks::WebhookSettings;
use angarium_broker::{
    ConfirmationTerms, WebhookFailure, WebhookFailureKind, WebhookMessage, WebhookSender, WebhookTarget,
};
use angarium_core::error::{Error, InvalidPart};
use angarium_webhook::client::system_roots;
use angarium_webhook::headers::HeaderError;
use angarium_webhook::limits::ClientLimits;
use angarium_webhook::resolver::SystemResolver;
use angarium_webhook::{
    CustomHeaders, Delivery, DeliveryError, DeliveryId, EgressRules, SigningSecret, WebhookClient, WebhookUrl,
};

/// The TLS client cannot be created.
#[derive(Debug, ThisError)]
#[error("cannot prepare TLS for webhooks: {0}")]
pub struct WebhooksError(String);

/// Sends messages to webhooks over HTTP.
pub(super) struct HttpWebhooks {
    client: WebhookClient,
    /// Connections without a request are closed after this time.
    idle: Duration,
    confirmation: ConfirmationTerms,
}

impl HttpWebhooks {
    /// Makes a sender that reaches public addresses and those of the settings, but no listener of this service.
    pub(super) fn new(settings: &WebhookSettings, listeners: Vec<SocketAddr>) -> Result<Self, WebhooksError> {
        let defaults = ClientLimits::default();
        let exchange = settings.webhook_timeout;
        let limits = ClientLimits { exchange, connect: defaults.connect.min(exchange), ..defaults };
        let rules = EgressRules::new(settings.webhook_allow.clone(), listeners);
        let client = WebhookClient::new(rules, system_roots(), limits, Arc::new(SystemResolver::default()));
        let client = client.map_err(|error| WebhooksError(error.to_string()))?;
        let confirmation = ConfirmationTerms {
            rule: settings.webhook_confirmation.rule(),
            service: settings.webhook_confirmation_url.clone(),
        };
        Ok(Self { client, idle: limits.idle, confirmation })
    }

    /// Closes connections without requests, until it is dropped.
    pub(super) async fn close_idle(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.idle).await;
            self.client.close_expired();
        }
    }
}

impl fmt::Debug for HttpWebhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpWebhooks").finish_non_exhaustive()
    }
}

#[async_trait]
impl WebhookSender for HttpWebhooks {
    fn check(&self, target: &WebhookTarget) -> Result<(), Error> {
        let wrong = |part: &str, why: String| Error::invalid(InvalidPart::Limit, part, why);
        let url =
            WebhookUrl::parse(target.url.as_str()).map_err(|error| wrong("subscriber", error.to_string()))?;
        self.client.rules().check_literal(&url).map_err(|error| {
            let why = format!("{error}: it is not public, or the service listens there (--webhook-allow)");
            wrong("subscriber", why)
        })?;
        headers(target).map_err(|error| wrong("options.post_headers", error.to_string()))?;
        secrets(target).map_err(|error| wrong("secrets", error))?;
        Ok(())
    }

    fn confirmation(&self) -> ConfirmationTerms {
        self.confirmation.clone()
    }

    async fn send(&self, target: &WebhookTarget, message: WebhookMessage) -> Result<(), WebhookFailure> {
        // A later version may have checked it by other rules.
        let delivery = delivery(target, message).map_err(|reason| WebhookFailure {
            kind: WebhookFailureKind::Forbidden,
            reason,
            answer: String::new(),
            retry_after: None,
        })?;
        self.client.deliver(&delivery).await.map(drop).map_err(failure)
    }
}

fn headers(target: &WebhookTarget) -> Result<CustomHeaders, HeaderError> {
    CustomHeaders::parse(target.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

fn secrets(target: &WebhookTarget) -> Result<Vec<SigningSecret>, String> {
    let read = |text: &str| SigningSecret::parse(text).map_err(|error| error.to_string());
    target.secrets.iter().map(|secret| read(secret.as_str())).collect()
}

fn delivery(target: &WebhookTarget, message: WebhookMessage) -> Result<Delivery, String> {
    Ok(Delivery {
        url: WebhookUrl::parse(target.url.as_str()).map_err(|error| error.to_string())?,
        account: message.account.to_string(),
        id: DeliveryId::parse(&message.id.to_string()).map_err(|error| error.to_string())?,
        timestamp: message.sent.as_millis() / 1_000,
        headers: headers(target).map_err(|error| error.to_string())?,
        content_type: HeaderValue::from_static(message.content_type),
        body: message.body,
        secrets: secrets(target)?,
    })
}

fn failure(error: DeliveryError) -> WebhookFailure {
    let kind = match error {
        DeliveryError::Refused { .. } => WebhookFailureKind::Refused,
        DeliveryError::Unavailable { .. } => WebhookFailureKind::Unavailable,
        DeliveryError::Unreachable(_) => WebhookFailureKind::Unreachable,
        DeliveryError::TimedOut(_) => WebhookFailureKind::TimedOut,
        DeliveryError::Forbidden { .. } => WebhookFailureKind::Forbidden,
    };
    let answer = error.answer().unwrap_or_default().to_owned();
    WebhookFailure { kind, reason: error.to_string(), answer, retry_after: error.retry_after() }
}
