//! All paths of the tree. They are stored on disk and in ZooKeeper, and never change.
//!
//! | path | data |
//! |---|---|
//! | `/meta/system` | [`super::System`] |
//! | `/meta/peer-secret` | the shared secret of replicas without certificates, as text; exists while there may be some |
//! | `/meta/receipts` | `{key, since, earlier}`: the key of the receipts, and the ones before |
//! | `/meta/seal` | the data key, sealed under a key that is not in the tree; exists once secrets are sealed |
//! | `/meta/import` | `{}`; exists during an import, until `/meta/system` replaces it |
//! | `/meta/components/replica/{host}-{number}` | [`super::Component`]; ephemeral |
//! | `/meta/pools/{pool}` | [`angarium_core::pool::Pool`] |
//! | `/meta/flavors/{flavor}` | [`angarium_core::flavor::Flavor`] |
//! | `/meta/holds` | `{}`; set with every change below it; it and its two directories are created with the first hold |
//! | `/meta/holds/pools/{pool}` | the hold of a pool |
//! | `/meta/holds/projects/{project}` | the hold of a project |
//! | `/meta/balance` | [`super::BalanceRecord`]; created with the first one |
//! | `/meta/slots/{hh}` | `{instance, nonce}`; its version is the fence, its last transaction the epoch |
//! | `/meta/slots/{hh}/owner` | `{instance, address}`; ephemeral |
//! | `/queues/{hh}/{project}/{queue}` | [`super::QueueRecord`]: the catalogue |
//! | `/queues/{hh}/{project}/{topic}%7e` | [`super::QueueRecord`] of a topic |
//! | `/queues/{hh}/{project}/{source}%7e{id}` | [`super::QueueRecord`] of a subscription's queue |
//! | `/run/{hh}/claims/{bucket}/{claim id}` | [`super::ClaimRecord`] |
//! | `/run/{hh}/dropped/{queue id}` | `{placement}`: a deleted queue that may still have data |
//! | `/run/{hh}/holds/{project}:{queue}` | the hold of a queue; the directory is created with the first one |
//! | `/run/{hh}/group_holds/{project}:{queue}` | the holds of the groups of a queue; likewise |
//! | `/run/{hh}/pauses` | recent acts that must not be repeated at once; created with the first one |
//! | `/run/{hh}/tasks/{queue id}` | [`super::MoveTasks`] of a queue; the directory is created with the first one |
//! | `/run/clock` | like `/run/time`; written to read the clock of the tree, its time is not used |
//! | `/run/time` | `{time}`: the last recorded tree time, which all replicas continue from |
//! | `/run/writers` | used by the tree in ZooKeeper: `closed` in a tree that is closed to other clients |
//! | `/run/writers/{session}` | likewise: number of a session's last commit; ephemeral |
//!
//! The data of `/meta/peer-secret`, `/meta/receipts`, of pools and of the queues of subscriptions is a sealed value, once
//! `/meta/seal` exists: see [`super::sealed_tree`].
//!
//! `{hh}` are the two hex digits of a slot, `{bucket}` those of one of 64 directories.

use angarium_core::hold::HoldTarget;
use angarium_core::ids::{ClaimId, QueueId, Slot};
use angarium_core::names::{FlavorName, PoolName, ProjectId, QueueKind, QueueRef};

pub(super) const META: &str = "/meta";
pub(super) const SYSTEM: &str = "/meta/system";
pub(super) const PEER_SECRET: &str = "/meta/peer-secret";
pub(super) const RECEIPTS: &str = "/meta/receipts";
pub(super) const SEAL: &str = "/meta/seal";
pub(super) const IMPORT: &str = "/meta/import";
pub(super) const COMPONENTS: &str = "/meta/components";
pub(super) const REPLICAS: &str = "/meta/components/replica";
pub(super) const POOLS: &str = "/meta/pools";
pub(super) const FLAVORS: &str = "/meta/flavors";
pub(super) const HOLDS: &str = "/meta/holds";
pub(super) const POOL_HOLDS: &str = "/meta/holds/pools";
pub(super) const PROJECT_HOLDS: &str = "/meta/holds/projects";
pub(super) const BALANCE: &str = "/meta/balance";
pub(super) const SLOTS: &str = "/meta/slots";
pub(super) const OWNER: &str = "owner";
pub(super) const QUEUES: &str = "/queues";
pub(super) const RUN: &str = "/run";
pub(super) const TIME: &str = "/run/time";
pub(super) const CLOCK: &str = "/run/clock";
/// Used by the tree in ZooKeeper itself.
const WRITERS: &str = "/run/writers";
/// The directories above all other nodes.
pub(super) const ROOTS: [&str; 3] = [META, QUEUES, RUN];

/// Returns whether an export includes a node: it belongs to no process, and it is not created in every tree.
pub(super) fn outlives(path: &str) -> bool {
    let below = |directory: &str| path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/'));
    let is_root = |root: &&str| path == *root || below(root).is_some();
    let is_up = below(COMPONENTS).is_some_and(|kind| kind.contains('/'));
    let is_owner = below(SLOTS).is_some_and(|slot| slot.contains('/'));
    let is_writer = path == WRITERS || below(WRITERS).is_some();
    // The secret is created again where it is needed.
    let is_made = [SYSTEM, IMPORT, PEER_SECRET].contains(&path);
    ROOTS.iter().any(is_root) && !is_up && !is_owner && !is_writer && !is_made
}

/// Whether a node is the record of a pool.
fn is_pool(path: &str) -> bool {
    path.strip_prefix(POOLS).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether the data of a node has secrets: passwords in the URIs of pools, the secret of older replicas, the key of the
/// receipts, and the secrets, headers and addresses of webhooks.
pub(super) fn is_secret(path: &str) -> bool {
    if let Some(queue) = path.strip_prefix(QUEUES) {
        let mut elements = queue.split('/').skip(3);
        return elements.next().is_some_and(|element| kind(element) == QueueKind::Subscription);
    }
    path.starts_with(META) && (path == PEER_SECRET || path == RECEIPTS || is_pool(path))
}

/// Returns whether a node is that of a slot or below it.
pub(super) fn is_slot(path: &str) -> bool {
    path.strip_prefix(SLOTS).is_some_and(|rest| rest.starts_with('/'))
}

pub(super) fn pool(name: &PoolName) -> String {
    format!("{POOLS}/{}", escape(name.as_str()))
}

pub(super) fn flavor(name: &FlavorName) -> String {
    format!("{FLAVORS}/{}", escape(name.as_str()))
}

pub(super) fn slot(slot: Slot) -> String {
    format!("{SLOTS}/{slot}")
}

/// Returns the path of a node of the registry.
pub(super) fn replica(name: &str) -> String {
    format!("{REPLICAS}/{name}")
}

/// Returns the path of a numbered node of a host, without its number.
pub(super) fn replica_of(host: &str) -> String {
    format!("{REPLICAS}/{}-", escape(host))
}

pub(super) fn owner(slot: Slot) -> String {
    format!("{SLOTS}/{slot}/{OWNER}")
}

pub(super) fn slot_queues(slot: Slot) -> String {
    format!("{QUEUES}/{slot}")
}

pub(super) fn project(slot: Slot, project: &ProjectId) -> String {
    format!("{QUEUES}/{slot}/{}", escape(project.as_str()))
}

pub(super) fn queue(slot: Slot, queue: &QueueRef) -> String {
    format!("{}/{}", project(slot, &queue.project), escape(queue.name.as_str()))
}

/// Between the name of a source and the id of its subscription, and behind the name of a topic, in the name of a node.
const MARK: &str = "%7e";

/// Returns how the names of the nodes of a queue's subscriptions begin.
pub(super) fn subscription_prefix(queue: &QueueRef) -> String {
    [&escape(queue.name.of_source().as_str()), MARK].concat()
}

/// The kind of queue whose node has this name.
pub(super) fn kind(element: &str) -> QueueKind {
    if element.ends_with(MARK) {
        QueueKind::Topic
    } else if element.contains(MARK) {
        QueueKind::Subscription
    } else {
        QueueKind::Queue
    }
}

pub(super) fn slot_run(slot: Slot) -> String {
    format!("{RUN}/{slot}")
}

pub(super) fn slot_claims(slot: Slot) -> String {
    format!("{RUN}/{slot}/claims")
}

pub(super) fn bucket(slot: Slot, bucket: u8) -> String {
    format!("{RUN}/{slot}/claims/{bucket:02x}")
}

pub(super) fn claim(slot: Slot, claim: ClaimId) -> String {
    format!("{RUN}/{slot}/claims/{:02x}/{claim}", claim.bucket())
}

pub(super) fn pauses(slot: Slot) -> String {
    format!("{RUN}/{slot}/pauses")
}

pub(super) fn slot_dropped(slot: Slot) -> String {
    format!("{RUN}/{slot}/dropped")
}

pub(super) fn dropped(slot: Slot, queue: QueueId) -> String {
    format!("{RUN}/{slot}/dropped/{queue}")
}

pub(super) fn slot_holds(slot: Slot) -> String {
    format!("{RUN}/{slot}/holds")
}

pub(super) fn hold(slot: Slot, queue: &QueueRef) -> String {
    format!("{}/{}", slot_holds(slot), address_of(queue))
}

pub(super) fn slot_group_holds(slot: Slot) -> String {
    format!("{RUN}/{slot}/group_holds")
}

pub(super) fn group_holds(slot: Slot, queue: &QueueRef) -> String {
    format!("{}/{}", slot_group_holds(slot), address_of(queue))
}

fn address_of(queue: &QueueRef) -> String {
    format!("{}:{}", escape(queue.project.as_str()), escape(queue.name.as_str()))
}

pub(super) fn shared_hold(target: &HoldTarget) -> String {
    let directory = match target {
        HoldTarget::Pool(_) => POOL_HOLDS,
        HoldTarget::Project(_) => PROJECT_HOLDS,
    };
    format!("{directory}/{}", escape(target.name()))
}

pub(super) fn slot_tasks(slot: Slot) -> String {
    format!("{RUN}/{slot}/tasks")
}

pub(super) fn tasks(slot: Slot, queue: QueueId) -> String {
    format!("{RUN}/{slot}/tasks/{queue}")
}

/// Encodes free text as one path element. Every byte except letters, digits, `_`, `-` and `.` becomes `%` and two hex
/// digits; a leading dot too, because `.` and `..` are no valid elements.
pub(super) fn escape(text: &str) -> String {
    let mut element = String::with_capacity(text.len());
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'_' | b'-' => element.push(byte as char),
            b'.' if index > 0 => element.push('.'),
            byte if byte.is_ascii_alphanumeric() => element.push(byte as char),
            byte => element.push_str(&format!("%{byte:02x}")),
        }
    }
    element
}

/// Decodes an escaped element; none when it is not one.
pub(super) fn unescape(element: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(element.len());
    let mut rest = element.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use angarium_core::names::QueueName;

    use super::*;

    #[test]
    fn leading_dots_are_escaped() {
        assert_eq!(escape("..a.b"), "%2e.a.b");
        assert_eq!(escape("."), "%2e");
    }

    #[test]
    fn nodes_of_subscriptions_begin_with_their_source() {
        for name in ["q", "..a.b", "orders.fifo"] {
            let project = ProjectId::new("p").unwrap();
            for source in [QueueName::new(name).unwrap(), QueueName::topic(name).unwrap()] {
                let source = QueueRef { project: project.clone(), name: source };
                let own = source.name.of_subscription("0a00000000000000000000000000000b".parse().unwrap());
                let (source_node, own) = (escape(source.name.as_str()), escape(own.as_str()));
                assert!(own.starts_with(&subscription_prefix(&source)), "{own}");
                assert_eq!((kind(&source_node), kind(&own)), (source.name.kind(), QueueKind::Subscription));
            }
        }
    }

    #[test]
    fn process_nodes_are_ephemeral() {
        for path in [
            "/meta",
            "/meta/pools/fast",
            "/meta/components/replica",
            "/meta/slots/0f",
            "/queues/0f/acme/q",
            "/run/0f/tasks/1",
        ] {
            assert!(outlives(path), "{path}");
        }
        for path in [
            "/meta/system",
            "/meta/peer-secret",
            "/meta/components/replica/host-1",
            "/meta/slots/0f/owner",
            "/run/writers/1",
            "/other",
        ] {
            assert!(!outlives(path), "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_text_survives_as_a_path_element(text in "\\PC{1,40}") {
            let element = escape(&text);
            prop_assert!(element.is_ascii() && !element.contains('/') && element != "." && element != "..");
            prop_assert_eq!(unescape(&element), Some(text));
        }
    }
}
