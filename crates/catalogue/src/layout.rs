//! Every path of the tree, in one place. They are on disk and in ZooKeeper, and never change.
//!
//! | path | data |
//! |---|---|
//! | `/meta/system` | [`super::System`] |
//! | `/meta/peer-secret` | text that replicas show each other |
//! | `/meta/receipts` | `{key}`: what receipts are made with |
//! | `/meta/import` | `{}`; there while a tree is put in from a file: until `/meta/system` is made in its place |
//! | `/meta/components/replica/{host}-{number}` | [`super::Component`]; ephemeral |
//! | `/meta/pools/{pool}` | [`angarium_core::pool::Pool`] |
//! | `/meta/flavors/{flavor}` | [`angarium_core::flavor::Flavor`] |
//! | `/meta/slots/{hh}` | `{instance, nonce}`; its version is the fence, its modifying transaction the epoch |
//! | `/meta/slots/{hh}/owner` | `{instance, address}`; ephemeral |
//! | `/queues/{hh}/{project}/{queue}` | [`super::QueueRecord`]: the catalogue |
//! | `/run/{hh}/claims/{bucket}/{claim id}` | [`super::ClaimRecord`] |
//! | `/run/{hh}/dropped/{queue id}` | `{placement}`: a deleted queue of which something may be left |
//! | `/run/{hh}/pauses` | acts: what was done lately that is not to be done again at once; since the first one |
//! | `/run/{hh}/tasks/{queue id}` | [`super::MoveTasks`]: those that move a queue's messages away; the directory since the first one |
//! | `/run/clock` | as `/run/time`; written for the time of the write alone |
//! | `/run/time` | `{time}`: how far tree time had come, which all replicas go by |
//! | `/run/writers/{session}` | of the tree in ZooKeeper itself: the number of a session's last commit; ephemeral |
//!
//! `{hh}` are the two hex digits of a slot, `{bucket}` those of one of 64 directories.

use angarium_core::ids::{ClaimId, QueueId, Slot};
use angarium_core::names::{FlavorName, PoolName, ProjectId, QueueRef};

pub(super) const META: &str = "/meta";
pub(super) const SYSTEM: &str = "/meta/system";
pub(super) const PEER_SECRET: &str = "/meta/peer-secret";
pub(super) const RECEIPTS: &str = "/meta/receipts";
pub(super) const IMPORT: &str = "/meta/import";
pub(super) const COMPONENTS: &str = "/meta/components";
pub(super) const REPLICAS: &str = "/meta/components/replica";
pub(super) const POOLS: &str = "/meta/pools";
pub(super) const FLAVORS: &str = "/meta/flavors";
pub(super) const SLOTS: &str = "/meta/slots";
pub(super) const OWNER: &str = "owner";
pub(super) const QUEUES: &str = "/queues";
pub(super) const RUN: &str = "/run";
pub(super) const TIME: &str = "/run/time";
pub(super) const CLOCK: &str = "/run/clock";
/// Of the tree in ZooKeeper itself.
const WRITERS: &str = "/run/writers";
/// What all others are below.
pub(super) const ROOTS: [&str; 3] = [META, QUEUES, RUN];

/// Whether a node is of an installation wherever that is: not of a process, nor made in each tree.
pub(super) fn outlives(path: &str) -> bool {
    let below = |directory: &str| path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/'));
    let is_root = |root: &&str| path == *root || below(root).is_some();
    let is_up = below(COMPONENTS).is_some_and(|kind| kind.contains('/'));
    let is_owner = below(SLOTS).is_some_and(|slot| slot.contains('/'));
    let is_writer = path == WRITERS || below(WRITERS).is_some();
    // The secret is recreated where there is none.
    let is_made = [SYSTEM, IMPORT, PEER_SECRET].contains(&path);
    ROOTS.iter().any(is_root) && !is_up && !is_owner && !is_writer && !is_made
}

/// Whether a node states who serves a slot.
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

/// A node of the registry, by its name.
pub(super) fn replica(name: &str) -> String {
    format!("{REPLICAS}/{name}")
}

/// The node of a host, to which a number is added.
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

pub(super) fn slot_tasks(slot: Slot) -> String {
    format!("{RUN}/{slot}/tasks")
}

pub(super) fn tasks(slot: Slot, queue: QueueId) -> String {
    format!("{RUN}/{slot}/tasks/{queue}")
}

/// Free text as one path element: what is not a letter, digit, `_` or `-` becomes `%` and two hex digits, and
/// so does a dot that begins an element, since `.` and `..` are no elements.
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

/// The text of an escaped element; none when it is not one.
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

    use super::*;

    #[test]
    fn leading_dots_are_escaped() {
        assert_eq!(escape("..a.b"), "%2e.a.b");
        assert_eq!(escape("."), "%2e");
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
