//! The stored form of the tree. These forms are on disk and never change; new forms get new tags.
//!
//! | key | value |
//! |---|---|
//! | depth (1 byte), path | version, transaction, children (4 + 8 + 4 bytes, big endian), time, data |
//! | `fe`, path | empty; one per ephemeral node, so that the next session finds them |
//! | `ff` `transaction` | number of the last commit (8 bytes, big endian) |
//!
//! The two highest bits of children are flags: `80` means that the time follows (8 bytes, milliseconds since the Unix
//! epoch; older nodes have none), `40` means that the node is ephemeral.
//!
//! Because the depth is first, the children of a node are exactly the keys with the next depth and the node's path as
//! prefix.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{Node, TreeError, path};
use angarium_core::time::Timestamp;

/// Key of the transaction counter. All depths are far below this tag.
pub(super) const TRANSACTION_KEY: &[u8] = b"\xfftransaction";

/// Tag of ephemeral nodes: below the tag of the counter, and above every depth.
const EPHEMERAL_TAG: u8 = 0xfe;

const HEAD: usize = 16;
const IS_TIMED: u32 = 1 << 31;
const IS_EPHEMERAL: u32 = 1 << 30;

#[derive(Clone)]
pub(super) struct StoredNode {
    pub(super) node: Node,
    pub(super) is_ephemeral: bool,
}

pub(super) fn ephemeral_key(path: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + path.len());
    key.put_u8(EPHEMERAL_TAG);
    key.put_slice(path.as_bytes());
    key.freeze()
}

pub(super) fn ephemeral_prefix() -> [u8; 1] {
    [EPHEMERAL_TAG]
}

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

pub(super) fn encode(stored: &StoredNode) -> Bytes {
    let StoredNode { node, is_ephemeral } = stored;
    let mut value = BytesMut::with_capacity(HEAD + 8 + node.data.len());
    value.put_u32(node.version);
    value.put_u64(node.modified);
    value.put_u32(node.children | IS_TIMED | if *is_ephemeral { IS_EPHEMERAL } else { 0 });
    value.put_u64(node.time.as_millis());
    value.put_slice(&node.data);
    value.freeze()
}

pub(super) fn decode(value: &Bytes) -> Result<StoredNode, TreeError> {
    let damaged = || TreeError::Damaged("a node of the tree is damaged".into());
    let mut rest = value.clone();
    if rest.len() < HEAD {
        return Err(damaged());
    }
    let (version, modified, marked) = (rest.get_u32(), rest.get_u64(), rest.get_u32());
    let time = match marked & IS_TIMED {
        0 => 0,
        _ => rest.try_get_u64().map_err(|_| damaged())?,
    };
    let children = marked & !(IS_TIMED | IS_EPHEMERAL);
    let node = Node { data: rest, version, modified, children, time: Timestamp::from_millis(time) };
    Ok(StoredNode { node, is_ephemeral: marked & IS_EPHEMERAL != 0 })
}

pub(super) fn decode_transaction(value: Option<&[u8]>) -> Result<u64, TreeError> {
    let Some(value) = value else { return Ok(0) };
    let bytes = value.try_into().map_err(|_| TreeError::Damaged("the tree's counter is damaged".into()))?;
    Ok(u64::from_be_bytes(bytes))
}
