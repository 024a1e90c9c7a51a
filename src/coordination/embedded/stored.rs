//! How the tree lies in the journal. These forms are on disk and never change; new ones get new tags.
//!
//! | key | value |
//! |---|---|
//! | depth (1 byte), path | version, transaction, children (4 + 8 + 4 bytes, big endian), data |
//! | `ff` `transaction` | number of the last commit (8 bytes, big endian) |
//!
//! With the depth in front, the children of a node are exactly the keys with one more depth and its path.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{Node, TreeError, path};

/// Depths stop far below this tag.
pub(super) const TRANSACTION_KEY: &[u8] = b"\xfftransaction";

const HEAD: usize = 16;

pub(super) fn node_key(path: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + path.len());
    key.put_u8(depth_tag(path::depth(path)));
    key.put_slice(path.as_bytes());
    key.freeze()
}

pub(super) fn children_prefix(path: &str) -> Vec<u8> {
    let mut prefix = vec![depth_tag(path::depth(path) + 1)];
    prefix.extend_from_slice(path.as_bytes());
    if path != "/" {
        prefix.push(b'/');
    }
    prefix
}

fn depth_tag(depth: usize) -> u8 {
    u8::try_from(depth).expect("paths are checked to have at most 64 elements")
}

pub(super) fn encode(node: &Node) -> Bytes {
    let mut value = BytesMut::with_capacity(HEAD + node.data.len());
    value.put_u32(node.version);
    value.put_u64(node.modified);
    value.put_u32(node.children);
    value.put_slice(&node.data);
    value.freeze()
}

pub(super) fn decode(value: &Bytes) -> Result<Node, TreeError> {
    let mut rest = value.clone();
    if rest.len() < HEAD {
        return Err(TreeError::NotSent("a node of the tree is damaged".into()));
    }
    let (version, modified, children) = (rest.get_u32(), rest.get_u64(), rest.get_u32());
    Ok(Node { data: rest, version, modified, children })
}

pub(super) fn decode_transaction(value: Option<&[u8]>) -> Result<u64, TreeError> {
    let Some(value) = value else { return Ok(0) };
    let bytes = value.try_into().map_err(|_| TreeError::NotSent("the tree's counter is damaged".into()))?;
    Ok(u64::from_be_bytes(bytes))
}
