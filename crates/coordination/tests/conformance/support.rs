//! Commits and operations of the facts.

use std::sync::Arc;

use angarium_coordination::{CommitResult, Coordination, Fence, Mode, Op, TreeError};
use bytes::Bytes;

pub(super) type Tree = Arc<dyn Coordination>;

pub(super) async fn commit(tree: &Tree, ops: &[Op]) -> CommitResult {
    tree.commit(&[], ops).await.expect("nothing is in the way of this commit")
}

pub(super) async fn refused(tree: &Tree, fences: &[Fence], ops: &[Op]) -> TreeError {
    tree.commit(fences, ops).await.expect_err("this commit is refused")
}

pub(super) async fn version(tree: &Tree, path: &str) -> Option<u32> {
    tree.get(path).await.expect("the tree can be read").map(|node| node.version)
}

pub(super) fn create(path: impl Into<String>) -> Op {
    create_with(path, "")
}

pub(super) fn create_with(path: impl Into<String>, data: impl Into<Bytes>) -> Op {
    Op::create(path.into(), data.into())
}

pub(super) fn create_as(path: impl Into<String>, mode: Mode) -> Op {
    Op::Create { path: path.into(), data: Bytes::new(), mode }
}

pub(super) fn set(path: impl Into<String>, data: impl Into<Bytes>) -> Op {
    Op::Set { path: path.into(), data: data.into(), version: None }
}

pub(super) fn set_at(path: impl Into<String>, version: u32) -> Op {
    Op::Set { path: path.into(), data: Bytes::new(), version: Some(version) }
}

pub(super) fn delete(path: impl Into<String>) -> Op {
    Op::Delete { path: path.into() }
}

pub(super) fn fence(path: impl Into<String>, version: u32) -> Fence {
    Fence { path: path.into(), version }
}

/// Compares an error by pattern, because errors are not comparable.
macro_rules! assert_error {
    ($error:expr, $pattern:pat) => {
        let error = $error;
        assert!(matches!(error, $pattern), "{error:?} is not {}", stringify!($pattern));
        assert!(error.nothing_written());
    };
}
pub(super) use assert_error;
