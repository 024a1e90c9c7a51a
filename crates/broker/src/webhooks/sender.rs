//! The seam to the network: one attempt to deliver one message to a webhook.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use angarium_core::confirmation::ConfirmationRule;
use angarium_core::error::Error;
use angarium_core::ids::{MessageId, SubscriptionId};
use angarium_core::names::ProjectId;
use angarium_core::outcome::Reason;
use angarium_core::time::Timestamp;
use angarium_core::webhook::{WebhookSecret, WebhookUrl};

/// The address of a subscriber, with the values that each request to it has.
#[derive(Clone, Debug)]
pub struct WebhookTarget {
    /// The address.
    pub url: WebhookUrl,
    /// Names and values of further headers.
    pub headers: Vec<(String, String)>,
    /// The request has a signature with each.
    pub secrets: Vec<WebhookSecret>,
}

/// The id of a request, by which a subscriber recognises a repeated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WebhookId {
    /// That of a message in the queue of the subscription.
    Message(MessageId),
    /// That of a request whether the subscriber wants messages: the subscription and the number of the request.
    Confirmation(SubscriptionId, u32),
}

impl fmt::Display for WebhookId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(id) => id.fmt(f),
            Self::Confirmation(id, number) => write!(f, "{id}-{number}"),
        }
    }
}

/// The confirmation of new webhooks.
#[derive(Clone, Debug, Default)]
pub struct ConfirmationTerms {
    /// Who may confirm one. None when no webhook needs it.
    pub rule: Option<ConfirmationRule>,
    /// The address of the service for subscribers, without a slash at its end, if it is known.
    pub service: Option<String>,
}

/// A message in the form in which it is sent.
#[derive(Clone, Debug)]
pub struct WebhookMessage {
    /// The account of the subscription. Accounts share what the sender has.
    pub account: ProjectId,
    /// Its id, the same in each attempt.
    pub id: WebhookId,
    /// When the attempt began.
    pub sent: Timestamp,
    /// The media type of `body`.
    pub content_type: &'static str,
    /// The body of the request.
    pub body: Bytes,
}

/// The cause for which an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WebhookFailureKind {
    /// The subscriber answered that it does not take the message.
    Refused,
    /// The subscriber answered that it does not take messages now.
    Unavailable,
    /// There was no connection, or it ended before the answer.
    Unreachable,
    /// There was no answer in time.
    TimedOut,
    /// The service may not connect to the address.
    Forbidden,
}

impl WebhookFailureKind {
    /// The value of its label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed_out",
            Self::Forbidden => "forbidden",
        }
    }
}

/// A failed attempt.
#[derive(Clone, Debug)]
pub struct WebhookFailure {
    /// Its cause.
    pub kind: WebhookFailureKind,
    /// The cause in words, with the status if there was an answer. It has no text of the subscriber.
    pub reason: String,
    /// The beginning of the answer; empty without one.
    pub answer: String,
    /// How long the subscriber does not want another request.
    pub retry_after: Option<Duration>,
}

impl WebhookFailure {
    /// Returns the cause with the beginning of the answer.
    pub(in crate::webhooks) fn with_answer(&self) -> Option<Reason> {
        match self.answer.as_str() {
            "" => Reason::cut(&self.reason),
            answer => Reason::cut(&format!("{}: {answer}", self.reason)),
        }
    }

    /// Returns the cause without text of the subscriber.
    pub(in crate::webhooks) fn without_answer(&self) -> Option<Reason> {
        Reason::cut(&self.reason)
    }
}

/// Sends messages to webhooks. It refuses addresses that the service may not reach.
#[async_trait]
pub trait WebhookSender: fmt::Debug + Send + Sync + 'static {
    /// Checks an address, its headers and its secrets, as far as that is possible without a connection.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], which names the defect.
    fn check(&self, target: &WebhookTarget) -> Result<(), Error>;

    /// The confirmation of new webhooks.
    fn confirmation(&self) -> ConfirmationTerms {
        ConfirmationTerms::default()
    }

    /// Sends a message once. It ends within the sender's own deadline, and dropping the future ends the attempt.
    async fn send(&self, target: &WebhookTarget, message: WebhookMessage) -> Result<(), WebhookFailure>;
}
