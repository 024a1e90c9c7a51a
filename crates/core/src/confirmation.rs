//! The confirmation of a webhook: its subscriber agrees to get the messages, or not, by a request with the headers of
//! Zaqar's signed URLs. The service has sent them to the address of the webhook alone.
//!
//! ```text
//!              SubscriptionConfirmation ─▶ PUT …/confirm {"confirmed": true}
//! unconfirmed ─────────────────────────────────────────────────────────────▶ confirmed
//!      ▲                                                                        │
//!      └──────────── UnsubscribeConfirmation ◀─ PUT …/confirm {"confirmed": false}
//! ```

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rand::RngCore;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Sha256;

use crate::ids::SubscriptionId;
use crate::names::QueueRef;
use crate::time::Timestamp;
use crate::webhook::{TEMPLATE_PART, WebhookOptions};

/// The method of a request that confirms.
const METHOD: &str = "PUT";
/// Characters of a signature: hexadecimal digits of a SHA-256.
const SIGNATURE_CHARS: usize = 64;
/// Characters of a time of expiry, as `2026-11-30T06:00:00`: UTC without its mark.
const EXPIRY_CHARS: usize = 19;

/// Who may confirm a new webhook. Without a rule none needs a confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmationRule {
    /// The subscriber by signed headers, and each member of the project (Zaqar).
    Project,
    /// The subscriber by signed headers, and administrators.
    Subscriber,
}

/// The key by which the headers for one subscription are signed.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfirmationKey([u8; 32]);

impl ConfirmationKey {
    /// Makes a random key.
    pub fn random(random: &mut dyn RngCore) -> Self {
        let mut bytes = [0; 32];
        random.fill_bytes(&mut bytes);
        Self(bytes)
    }

    fn mac(&self, url: &ConfirmationUrl<'_>, expires: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        // The separator is a backslash and the letter, as in Zaqar.
        let ConfirmationUrl { at, .. } = url;
        mac.update(format!(r"{}\n{METHOD}\n{}\n{expires}", url.path(), at.project.as_str()).as_bytes());
        mac
    }
}

impl fmt::Debug for ConfirmationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfirmationKey")
    }
}

impl Serialize for ConfirmationKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(self.0))
    }
}

impl<'de> Deserialize<'de> for ConfirmationKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| serde::de::Error::custom("a key of confirmations has 32 bytes"))
    }
}

/// The kind of a request by which the service asks a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmationKind {
    /// Whether it wants the messages.
    Subscribe,
    /// Whether it wants them again: it gets none any more.
    Unsubscribe,
}

/// The confirmation of a webhook. One without any was created when none was needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmation {
    key: ConfirmationKey,
    is_confirmed: bool,
    /// Number of the last request to the subscriber.
    number: u32,
    /// Its kind, until the subscriber has answered it or it has failed for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due: Option<ConfirmationKind>,
}

impl Confirmation {
    /// That of a webhook which is to be asked.
    pub fn asking(key: ConfirmationKey) -> Self {
        Self { key, is_confirmed: false, number: 1, due: Some(ConfirmationKind::Subscribe) }
    }

    /// That of a webhook which gets no messages and is not asked.
    pub fn withdrawn(key: ConfirmationKey) -> Self {
        Self { key, is_confirmed: false, number: 0, due: None }
    }

    /// The same behind a former confirmation of the webhook: its requests are others than those of the former.
    #[must_use]
    pub fn behind(self, former: &Self) -> Self {
        Self { number: self.number.saturating_add(former.number), ..self }
    }

    /// Whether the webhook gets messages.
    pub fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// The request that is to be sent, if there is one.
    pub fn due(&self) -> Option<DueConfirmation> {
        self.due.map(|kind| DueConfirmation { kind, number: self.number })
    }

    /// Confirms it. Returns whether that is a change.
    pub fn confirm(&mut self) -> bool {
        self.due = None;
        !std::mem::replace(&mut self.is_confirmed, true)
    }

    /// Withdraws the confirmation, and asks the subscriber if it `asks`. Returns whether that is a change.
    pub fn withdraw(&mut self, asks: bool) -> bool {
        let was_confirmed = std::mem::replace(&mut self.is_confirmed, false);
        if was_confirmed && asks {
            self.ask(ConfirmationKind::Unsubscribe);
        }
        was_confirmed
    }

    /// Asks the subscriber, again if it was asked before.
    pub fn ask(&mut self, kind: ConfirmationKind) {
        self.number = self.number.saturating_add(1);
        self.due = Some(kind);
    }

    /// Notes that no further attempt of a request is to be made. Returns whether that is a change: it is none when another
    /// one is due by now.
    pub fn asked(&mut self, request: DueConfirmation) -> bool {
        let is_it = self.due() == Some(request);
        if is_it {
            self.due = None;
        }
        is_it
    }

    /// Whether a signature proves that its sender was asked.
    pub fn is_proven(&self, url: &ConfirmationUrl<'_>, shown: &UrlSignature, now: Timestamp) -> bool {
        let UrlSignature { signature, expires, is_live_until, methods, paths } = shown;
        let mac = self.key.mac(url, expires);
        now < *is_live_until
            && methods == METHOD
            && *paths == url.path()
            && mac.verify_slice(signature).is_ok()
    }
}

/// A request to a subscriber that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueConfirmation {
    /// Its kind.
    pub kind: ConfirmationKind,
    /// Its number in the subscription: repeated attempts have the same.
    pub number: u32,
}

/// The place of a confirmation in the API.
#[derive(Clone, Copy, Debug)]
pub struct ConfirmationUrl<'a> {
    /// The queue or the topic.
    pub at: &'a QueueRef,
    /// Its subscription.
    pub id: SubscriptionId,
}

impl ConfirmationUrl<'_> {
    /// The path.
    pub fn path(&self) -> String {
        let kind = if self.at.name.is_topic() { "topics" } else { "queues" };
        format!("/v2/{kind}/{}/subscriptions/{}/confirm", self.at.name.source(), self.id)
    }
}

/// The headers of a signed URL, as a sender shows them. They prove nothing until they are checked with the key.
#[derive(Clone, Debug)]
pub struct UrlSignature {
    signature: [u8; 32],
    expires: String,
    is_live_until: Timestamp,
    methods: String,
    paths: String,
}

impl UrlSignature {
    /// Reads the values of `URL-Signature`, `URL-Expires`, `URL-Methods` and `URL-Paths`; none if no signature has such
    /// ones.
    pub fn read(signature: &str, expires: &str, methods: &str, paths: &str) -> Option<Self> {
        if signature.len() != SIGNATURE_CHARS || expires.len() != EXPIRY_CHARS {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(signature.as_bytes().chunks(2)) {
            let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        let is_live_until = Timestamp::from_calendar(&format!("{expires}Z"))?;
        let (expires, methods, paths) = (expires.to_owned(), methods.to_owned(), paths.to_owned());
        Some(Self { signature: bytes, expires, is_live_until, methods, paths })
    }
}

/// The content of a request to a subscriber.
#[derive(Clone, Debug)]
pub struct ConfirmationText<'a> {
    /// The place of the confirmation.
    pub url: ConfirmationUrl<'a>,
    /// The address of the service for subscribers, if it is known.
    pub service: Option<&'a str>,
    /// When the headers expire.
    pub expires: Timestamp,
    /// The kind of the request.
    pub kind: ConfirmationKind,
}

/// The form of such a request: Zaqar's keys, and the id.
#[derive(Serialize)]
struct ConfirmationBody<'a> {
    #[serde(rename = "Message_Type")]
    kind: &'static str,
    #[serde(rename = "Message")]
    message: String,
    #[serde(rename = "URL-Signature")]
    signature: String,
    #[serde(rename = "URL-Methods")]
    methods: &'static str,
    #[serde(rename = "URL-Paths")]
    paths: &'a str,
    #[serde(rename = "X-Project-ID")]
    project: &'a str,
    #[serde(rename = "URL-Expires")]
    expires: &'a str,
    #[serde(rename = "SubscribeBody")]
    subscribe: AnswerBody,
    #[serde(rename = "UnsubscribeBody")]
    unsubscribe: AnswerBody,
    #[serde(rename = "WSGISubscribeURL", skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    queue_name: &'a str,
    subscription_id: String,
}

#[derive(Serialize)]
struct AnswerBody {
    confirmed: bool,
}

impl ConfirmationText<'_> {
    /// Returns the body of the request, JSON, in the template if the options have one.
    pub fn content(&self, confirmation: &Confirmation, options: &WebhookOptions) -> Option<Bytes> {
        let ConfirmationUrl { at, id } = self.url;
        let (path, name) = (self.url.path(), at.name.source());
        let calendar = self.expires.calendar();
        let expires = calendar.strip_suffix('Z').unwrap_or(&calendar);
        let source = if at.name.is_topic() { "topic" } else { "queue" };
        let (kind, message) = match self.kind {
            ConfirmationKind::Subscribe => {
                ("SubscriptionConfirmation", format!("You have chosen to subscribe to the {source}: {name}"))
            }
            ConfirmationKind::Unsubscribe => (
                "UnsubscribeConfirmation",
                format!(
                    "You have unsubscribed successfully to the {source}: {name}, you can resubscribe it by using confirmed=True."
                ),
            ),
        };
        let signature = confirmation.key.mac(&self.url, expires).finalize().into_bytes();
        let body = ConfirmationBody {
            kind,
            message,
            signature: signature.iter().map(|byte| format!("{byte:02x}")).collect(),
            methods: METHOD,
            paths: &path,
            project: at.project.as_str(),
            expires,
            subscribe: AnswerBody { confirmed: true },
            unsubscribe: AnswerBody { confirmed: false },
            address: self.service.map(|service| format!("{service}{path}")),
            queue_name: name,
            subscription_id: id.to_string(),
        };
        let text = serde_json::to_string(&body).ok()?;
        // A template without the place would hide the request, and let the member of a project write all of it.
        let template = options.template.as_ref().filter(|template| template.contains(TEMPLATE_PART));
        Some(template.map_or_else(|| text.clone(), |template| template.replace(TEMPLATE_PART, &text)).into())
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::*;
    use crate::ids::QueueId;
    use crate::names::{ProjectId, QueueName};

    const NOW: Timestamp = Timestamp::from_millis(1_780_000_000_000);

    fn queue(project: &str, name: QueueName) -> QueueRef {
        QueueRef { project: ProjectId::new(project).unwrap(), name }
    }

    fn options(text: &str) -> WebhookOptions {
        WebhookOptions::read(&RawValue::from_string(text.to_owned()).unwrap()).unwrap()
    }

    fn asking() -> Confirmation {
        Confirmation::asking(ConfirmationKey::random(&mut StdRng::seed_from_u64(7)))
    }

    fn text<'a>(at: &'a QueueRef, expires: Timestamp) -> ConfirmationText<'a> {
        let url = ConfirmationUrl { at, id: SubscriptionId(QueueId::from_bytes([1; 16])) };
        ConfirmationText { url, service: None, expires, kind: ConfirmationKind::Subscribe }
    }

    fn body(text: &ConfirmationText<'_>, confirmation: &Confirmation) -> Value {
        serde_json::from_slice(&text.content(confirmation, &options("{}")).unwrap()).unwrap()
    }

    fn shown(body: &Value) -> UrlSignature {
        let part = |key: &str| body[key].as_str().unwrap();
        UrlSignature::read(part("URL-Signature"), part("URL-Expires"), part("URL-Methods"), part("URL-Paths"))
            .unwrap()
    }

    #[test]
    fn sent_headers_prove_until_they_expire() {
        let at = queue("p", QueueName::new("orders").unwrap());
        let (text, confirmation) = (text(&at, NOW.plus_seconds(60)), asking());
        let body = body(&text, &confirmation);
        assert_eq!(body["Message_Type"], "SubscriptionConfirmation");
        assert_eq!((&body["X-Project-ID"], &body["URL-Methods"]), (&"p".into(), &"PUT".into()));
        assert_eq!(body["URL-Paths"], text.url.path().as_str());
        assert_eq!(body["UnsubscribeBody"]["confirmed"], false);
        let shown = shown(&body);
        assert!(confirmation.is_proven(&text.url, &shown, NOW));
        assert!(!confirmation.is_proven(&text.url, &shown, NOW.plus_seconds(61)), "it has expired");
        let other = Confirmation::asking(ConfirmationKey::random(&mut StdRng::seed_from_u64(8)));
        assert!(!other.is_proven(&text.url, &shown, NOW), "it is of another key");
    }

    #[test]
    fn headers_prove_nothing_elsewhere() {
        let orders = queue("p", QueueName::new("orders").unwrap());
        let (text, confirmation) = (text(&orders, NOW.plus_seconds(60)), asking());
        let body = body(&text, &confirmation);
        let foreign = [
            queue("other", QueueName::new("orders").unwrap()),
            queue("p", QueueName::new("order").unwrap()),
            queue("p", QueueName::topic("orders").unwrap()),
        ];
        for at in &foreign {
            let url = ConfirmationUrl { at, ..text.url };
            assert!(!confirmation.is_proven(&url, &shown(&body), NOW), "{at:?}");
        }
        for (key, value) in [
            ("URL-Expires", "9999-12-30T22:00:00"),
            ("URL-Methods", "GET"),
            ("URL-Paths", "/v2/queues"),
            ("URL-Signature", &"0".repeat(64)),
        ] {
            let mut forged = body.clone();
            forged[key] = value.into();
            assert!(!confirmation.is_proven(&text.url, &shown(&forged), NOW), "{key}");
        }
    }

    #[test]
    fn malformed_headers_are_no_signature() {
        let (hex, date) = ("0a".repeat(32), "2026-11-30T06:00:00");
        assert!(UrlSignature::read(&hex, date, "PUT", "/").is_some());
        for (signature, expires) in [
            ("", date),
            (&hex[1..], date),
            (&"+1".repeat(32), date),
            (&"é".repeat(32), date),
            (&hex, ""),
            (&hex, "2026-11-30T06:00:0Z"),
            (&hex, "2026-13-30T06:00:00"),
            (&hex, "2026-11-30T06:00:00Z"),
        ] {
            assert!(UrlSignature::read(signature, expires, "PUT", "/").is_none(), "{signature} {expires}");
        }
    }

    #[test]
    fn signature_matches_zaqar() {
        // hmac.new(bytes(32), rb'/v2/queues/q/subscriptions/01…01/confirm\nPUT\np\n2026-11-30T06:00:00', sha256)
        let at = queue("p", QueueName::new("q").unwrap());
        let url = text(&at, NOW).url;
        let mac = ConfirmationKey([0; 32]).mac(&url, "2026-11-30T06:00:00").finalize().into_bytes();
        let hex: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "8c6e7c44a33e50fef90f4cb645c6eafe5849c1528030f36af8f4db945f78c4d0");
    }

    #[test]
    fn request_is_named_and_in_the_template() {
        let at = queue("p", QueueName::topic("alerts").unwrap());
        let asked =
            ConfirmationText { service: Some("https://queue.example"), ..text(&at, Timestamp::NEVER) };
        let template = options(r#"{"post_data": "{\"payload\": \"$zaqar_message$\"}"}"#);
        let body: Value = serde_json::from_slice(&asked.content(&asking(), &template).unwrap()).unwrap();
        let body = &body["payload"];
        assert_eq!(body["WSGISubscribeURL"], format!("https://queue.example{}", asked.url.path()));
        assert_eq!(
            (&body["queue_name"], &body["URL-Expires"]),
            (&"alerts".into(), &"9999-12-30T22:00:00".into())
        );
        assert!(asked.url.path().starts_with("/v2/topics/alerts/"));
    }

    #[test]
    fn states_follow_the_answers() {
        let mut confirmation = asking();
        let first = confirmation.due().unwrap();
        assert!(!confirmation.is_confirmed());
        confirmation.ask(ConfirmationKind::Subscribe);
        assert!(!confirmation.asked(first), "a later request is due");
        let second = confirmation.due().unwrap();
        assert!(second.number > first.number && confirmation.asked(second) && confirmation.due().is_none());
        assert!(confirmation.confirm() && confirmation.is_confirmed() && !confirmation.confirm());
        assert!(confirmation.withdraw(true) && !confirmation.is_confirmed());
        assert_eq!(confirmation.due().unwrap().kind, ConfirmationKind::Unsubscribe);
        assert!(!confirmation.withdraw(true));
        let stored = serde_json::to_string(&confirmation).unwrap();
        assert_eq!(serde_json::from_str::<Confirmation>(&stored).unwrap(), confirmation);
        assert!(!format!("{confirmation:?}").contains('['), "the key is not shown");
    }
}
