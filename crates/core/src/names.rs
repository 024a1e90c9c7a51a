//! Names of projects, queues, pools and flavors, each checked when it is made.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, InvalidPart};
use crate::ids::{Slot, SubscriptionId};
use crate::limits;

/// The tenant that owns queues: free text of 1 to 256 bytes. `X-Project-Id` in REST.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProjectId(Arc<str>);

/// The name of a queue: 1 to 80 of the ASCII letters, digits, `_`, `-` and `.`, but neither `.` nor `..`.
///
/// Zaqar accepts `.` and `..`; but HTTP clients remove them from a URL before they send the request, so such a queue
/// could be created and never reached.
///
/// The queue of a subscription has the name of its source, `~` and the id of the subscription. Only the service makes
/// such names: [`QueueName::new`] refuses them. A topic has its name and `~`, so it is never taken for a queue.
///
/// Stored forms and peers have the text of [`QueueName::as_str`]. Users see the [`Display`](fmt::Display) form: the name of
/// a topic without its mark, and for the queue of a subscription `SOURCE/ID`, as the command line reads it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueName(Arc<str>);

/// Between the name of a source and the id of its subscription, in the name of the subscription's queue; and behind the
/// name of a topic.
const MARK: char = '~';

/// What a name of the catalogue is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// A queue of its own.
    Queue,
    /// A topic: a queue that keeps nothing for itself.
    Topic,
    /// The queue of a subscription.
    Subscription,
}

/// How the name of a queue ends whose messages are in order of groups, as in SQS.
pub const FIFO_SUFFIX: &str = ".fifo";

/// The name of a pool, with the alphabet of a queue name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolName(Arc<str>);

/// The name of a flavor, with the alphabet of a queue name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlavorName(Arc<str>);

/// A queue as its clients address it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct QueueRef {
    /// Its tenant.
    pub project: ProjectId,
    /// Its name within the project.
    pub name: QueueName,
}

impl QueueRef {
    /// The slot of the queue. The queue of a subscription is in the slot of its source.
    pub fn slot(&self) -> Slot {
        Slot::of(&self.project, &self.name)
    }

    /// The queue of a subscription to this queue.
    pub fn of_subscription(&self, id: SubscriptionId) -> Self {
        Self { project: self.project.clone(), name: self.name.of_subscription(id) }
    }

    /// The queue of this topic's name, or the topic of this queue's name; see [`QueueName::namesake`].
    pub fn namesake(&self) -> Option<Self> {
        Some(Self { project: self.project.clone(), name: self.name.namesake()? })
    }

    /// The source of a subscription's queue; none for another queue.
    pub fn source(&self) -> Option<Self> {
        self.name.subscription()?;
        Some(Self { project: self.project.clone(), name: self.name.of_source() })
    }
}

/// The keys `project` and `name` of a queue in a record.
pub mod address {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    use super::{ProjectId, QueueName, QueueRef};

    #[derive(Serialize, Deserialize)]
    struct Address<'a> {
        project: Cow<'a, str>,
        name: Cow<'a, str>,
    }

    /// Writes both keys.
    pub fn serialize<S: Serializer>(at: &QueueRef, serializer: S) -> Result<S::Ok, S::Error> {
        Address { project: at.project.as_str().into(), name: at.name.as_str().into() }.serialize(serializer)
    }

    /// Reads and checks both keys.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<QueueRef, D::Error> {
        let address = Address::deserialize(deserializer)?;
        Ok(QueueRef {
            project: ProjectId::new(&address.project).map_err(de::Error::custom)?,
            name: QueueName::stored(&address.name).map_err(de::Error::custom)?,
        })
    }
}

impl ProjectId {
    /// The project of requests that name none, in the form of an SQS account.
    pub const DEFAULT: &'static str = "000000000000";

    /// Checks a project id. An empty one is the default project.
    pub fn new(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Ok(Self(Self::DEFAULT.into()));
        }
        if text.len() > limits::PROJECT_BYTES {
            let why = format!("project ids have at max {} bytes", limits::PROJECT_BYTES);
            return Err(Error::invalid(InvalidPart::Name, "X-Project-Id", why));
        }
        Ok(Self(text.into()))
    }

    /// Checks a project id that a request names in another place than a header: only ids that the header `X-Project-Id`
    /// can have. HTTP removes blanks at the ends of a header, and allows no control character in it but a tab.
    pub fn named(text: &str, field: &'static str) -> Result<Self, Error> {
        let is_blank = |char: char| matches!(char, ' ' | '\t');
        let is_control = |byte: u8| byte.is_ascii_control() && byte != b'\t';
        if text.is_empty() || text.trim_matches(is_blank) != text || text.bytes().any(is_control) {
            let why = "it is a project id, as in the header X-Project-Id: neither empty, nor with a blank at an end, nor \
                       with a control character";
            return Err(Error::invalid(InvalidPart::Name, field, why));
        }
        Self::new(text)
    }
}

impl QueueName {
    /// Checks the name of a queue.
    pub fn new(text: &str) -> Result<Self, Error> {
        word(text, "queue_name", limits::QUEUE_NAME_CHARS).map(Self)
    }

    /// Checks the name of a topic: 1 to 64 characters of the alphabet of queues.
    pub fn topic(text: &str) -> Result<Self, Error> {
        let name = word(text, "topic_name", limits::CREATED_NAME_CHARS)?;
        Ok(Self(format!("{name}{MARK}").into()))
    }

    /// Reads a name that the service has made or checked: that of a queue, a topic, or a subscription's queue.
    pub fn stored(text: &str) -> Result<Self, Error> {
        let Some((source, id)) = text.rsplit_once(MARK) else { return Self::new(text) };
        if id.is_empty() {
            return Self::topic(source);
        }
        let wrong = |_| Error::invalid(InvalidPart::Name, "queue_name", "no subscription has this id");
        let source = source.strip_suffix(MARK).map_or_else(|| Self::new(source), Self::topic)?;
        Ok(source.of_subscription(id.parse().map_err(wrong)?))
    }

    /// The name of the queue of a subscription to this queue or topic.
    pub fn of_subscription(&self, id: SubscriptionId) -> Self {
        Self(format!("{}{MARK}{}", self.of_source().0, id.0).into())
    }

    /// The subscription whose queue it is; none for other queues.
    pub fn subscription(&self) -> Option<SubscriptionId> {
        self.0.rsplit_once(MARK).and_then(|(_, id)| id.parse().ok())
    }

    /// The kind of queue that has the name.
    pub fn kind(&self) -> QueueKind {
        match self.0.rsplit_once(MARK) {
            None => QueueKind::Queue,
            Some((_, "")) => QueueKind::Topic,
            Some(_) => QueueKind::Subscription,
        }
    }

    /// Whether it is the name of a topic.
    pub fn is_topic(&self) -> bool {
        self.kind() == QueueKind::Topic
    }

    /// The name as clients give it, without the subscription.
    pub fn source(&self) -> &str {
        self.0.split_once(MARK).map_or(&*self.0, |(source, _)| source)
    }

    /// The name of its source for the queue of a subscription; its own for another queue.
    pub fn of_source(&self) -> Self {
        match (self.kind(), self.0.rsplit_once(MARK)) {
            (QueueKind::Subscription, Some((source, _))) => Self(source.into()),
            _ => self.clone(),
        }
    }

    /// The name of the topic that a queue excludes, or of the queue that a topic excludes: only one of the two may
    /// exist. None for the queue of a subscription, and for a name that is too long for a topic.
    pub fn namesake(&self) -> Option<Self> {
        match self.kind() {
            QueueKind::Queue => Self::topic(&self.0).ok(),
            QueueKind::Topic => Some(Self(self.source().into())),
            QueueKind::Subscription => None,
        }
    }

    /// Whether the name states a FIFO queue.
    pub fn is_fifo(&self) -> bool {
        self.source().ends_with(FIFO_SUFFIX)
    }

    /// Checks that Zaqar's API may create the name: at most 64 characters.
    pub fn check_creatable(&self) -> Result<(), Error> {
        word(&self.0, "queue_name", limits::CREATED_NAME_CHARS).map(drop)
    }
}

impl PoolName {
    /// Checks the name of a pool.
    pub fn new(text: &str) -> Result<Self, Error> {
        word(text, "pool", limits::CREATED_NAME_CHARS).map(Self)
    }
}

impl FlavorName {
    /// Checks the name of a flavor.
    pub fn new(text: &str) -> Result<Self, Error> {
        word(text, "flavor", limits::CREATED_NAME_CHARS).map(Self)
    }
}

fn word(text: &str, field: &'static str, max: usize) -> Result<Arc<str>, Error> {
    let fits = (1..=max).contains(&text.len());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if !fits || !text.bytes().all(plain) {
        let why = format!("names have 1 to {max} ASCII letters, digits, underscores, dashes or dots");
        return Err(Error::invalid(InvalidPart::Name, field, why));
    }
    if matches!(text, "." | "..") {
        return Err(Error::invalid(InvalidPart::Name, field, "'.' and '..' cannot be addressed in a URL"));
    }
    Ok(text.into())
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.source())?;
        self.subscription().map_or(Ok(()), |id| write!(f, "/{id}"))
    }
}

macro_rules! text {
    ($($name:ident),*) => {$(
        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    )*};
}

text!(ProjectId, QueueName, PoolName, FlavorName);

macro_rules! shown_as_stored {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

shown_as_stored!(ProjectId, PoolName, FlavorName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_names_have_zaqars_alphabet_and_the_length_of_sqs() {
        for good in ["a", "A-Z_0.9", &"x".repeat(64), "...", ".a"] {
            assert!(QueueName::new(good).unwrap().check_creatable().is_ok(), "{good}");
        }
        assert!(QueueName::new(&"x".repeat(80)).unwrap().check_creatable().is_err());
        for bad in ["", &"x".repeat(81), "a b", "a/b", "ä", "a\0", ".", ".."] {
            assert!(QueueName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn name_of_subscription_is_refused_from_clients() {
        let source = QueueName::new("orders.fifo").unwrap();
        let id: SubscriptionId = "0a00000000000000000000000000000b".parse().unwrap();
        assert_eq!(id.to_string(), "0a000000-0000-0000-0000-00000000000b");
        let name = source.of_subscription(id);
        assert_eq!(name.as_str(), "orders.fifo~0a00000000000000000000000000000b");
        assert_eq!(name.to_string(), "orders.fifo/0a000000-0000-0000-0000-00000000000b");
        assert_eq!(source.to_string(), "orders.fifo");
        assert_eq!((name.subscription(), name.source(), name.is_fifo()), (Some(id), "orders.fifo", true));
        assert_eq!((source.subscription(), source.source()), (None, "orders.fifo"));
        assert_eq!((name.of_source(), source.of_source()), (source.clone(), source.clone()));
        assert!(QueueName::new(name.as_str()).is_err());
        assert_eq!(QueueName::stored(name.as_str()).unwrap(), name);
        let project = ProjectId::new("p").unwrap();
        assert_eq!(Slot::of(&project, &name), Slot::of(&project, &source));
        let queue = QueueRef { project, name: source };
        assert_eq!((queue.of_subscription(id).source(), queue.source()), (Some(queue.clone()), None));
        for wrong in ["q~1", "~0a00000000000000000000000000000b", "q~0a~0b", "~", "q~~", "q~~1"] {
            assert!(QueueName::stored(wrong).is_err(), "{wrong}");
        }
        let deep = "q~~~0a00000000000000000000000000000b";
        assert!(QueueName::stored(deep).is_err());
    }

    #[test]
    fn topic_is_no_queue_and_shares_its_slot() {
        let (topic, queue) = (QueueName::topic("news.fifo").unwrap(), QueueName::new("news.fifo").unwrap());
        assert_eq!((topic.as_str(), topic.to_string()), ("news.fifo~", "news.fifo".to_owned()));
        assert_eq!((topic.kind(), queue.kind()), (QueueKind::Topic, QueueKind::Queue));
        assert_eq!((topic.namesake(), queue.namesake()), (Some(queue.clone()), Some(topic.clone())));
        assert_eq!(
            (topic.source(), topic.of_source(), topic.subscription()),
            ("news.fifo", topic.clone(), None)
        );
        assert!(topic.is_fifo());
        let id: SubscriptionId = "0a00000000000000000000000000000b".parse().unwrap();
        let own = topic.of_subscription(id);
        assert_eq!(own.as_str(), "news.fifo~~0a00000000000000000000000000000b");
        assert_eq!(own.to_string(), "news.fifo/0a000000-0000-0000-0000-00000000000b");
        assert_eq!((own.kind(), own.subscription()), (QueueKind::Subscription, Some(id)));
        assert_eq!((own.source(), own.of_source(), own.namesake()), ("news.fifo", topic.clone(), None));
        for name in [&topic, &own] {
            assert_eq!(QueueName::stored(name.as_str()).unwrap(), *name);
            assert!(QueueName::new(name.as_str()).is_err());
        }
        let project = ProjectId::new("p").unwrap();
        assert_eq!(Slot::of(&project, &topic), Slot::of(&project, &queue));
        assert!(QueueName::topic(&"x".repeat(65)).is_err());
        assert_eq!(QueueName::new(&"x".repeat(65)).unwrap().namesake(), None);
    }

    #[test]
    fn an_absent_project_is_the_default_one() {
        assert_eq!(ProjectId::new("").unwrap().as_str(), ProjectId::DEFAULT);
        assert!(ProjectId::new(&"p".repeat(256)).is_ok());
        assert!(ProjectId::new(&"p".repeat(257)).is_err());
    }
}
