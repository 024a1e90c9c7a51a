//! The nodes of a tree in a journal that no process serves, as they are stored.

use bytes::Bytes;

use super::stored;
use angarium_journal::{Space, View};

/// Paths and data of the nodes that are `depth` elements below the root and whose path begins with `prefix`, as far as they can
/// be read.
pub fn nodes(view: &View, depth: u8, prefix: &str) -> Vec<(String, Bytes)> {
    let key = [&[depth], prefix.as_bytes()].concat();
    let pairs = view.scan(Space::Tree, &key, &key).map_while(Result::ok);
    let node = |(key, value): (Bytes, Bytes)| {
        let path = String::from_utf8(key[1..].to_vec()).ok()?;
        Some((path, stored::decode(&value).ok()?.node.data))
    };
    pairs.filter_map(node).collect()
}
