//! A listing of the stored nodes of a tree in a journal that no process serves.

use bytes::Bytes;

use super::stored;
use angarium_journal::{Space, View};

/// Returns paths and data of the nodes at `depth` elements below the root whose path begins with `prefix`. Stops at the
/// first node that cannot be read.
pub fn nodes(view: &View, depth: u8, prefix: &str) -> Vec<(String, Bytes)> {
    let key = [&[depth], prefix.as_bytes()].concat();
    let pairs = view.scan(Space::Tree, &key, &key).map_while(Result::ok);
    let node = |(key, value): (Bytes, Bytes)| {
        let path = String::from_utf8(key[1..].to_vec()).ok()?;
        Some((path, stored::decode(&value).ok()?.node.data))
    };
    pairs.filter_map(node).collect()
}
