//! Paths of the tree. They are exactly what ZooKeeper accepts, so no path works on one tree and fails on the other.

use super::TreeError;

/// Max elements of a path. The product uses six; the embedded tree stores the depth in one byte of its keys.
const MAX_DEPTH: usize = 64;

/// Max bytes of a path. The product's longest path has less than 1,200: a project and a queue of free text, escaped.
const MAX_BYTES: usize = 4_096;

/// Checks an absolute path: `/`, or elements that are neither empty, `.` nor `..`, without control characters.
pub(super) fn check(path: &str) -> Result<(), TreeError> {
    if path == "/" {
        return Ok(());
    }
    let Some(rest) = path.strip_prefix('/') else {
        return Err(TreeError::Bounds("a path begins with a slash"));
    };
    if rest.split('/').any(|element| matches!(element, "" | "." | "..")) {
        return Err(TreeError::Bounds("a path element is empty, '.' or '..'"));
    }
    if path.len() > MAX_BYTES {
        return Err(TreeError::Bounds("a path has more than 4,096 bytes"));
    }
    if depth(path) > MAX_DEPTH {
        return Err(TreeError::Bounds("a path has more than 64 elements"));
    }
    if rest.chars().any(|c| c.is_control() || ('\u{e000}'..='\u{f8ff}').contains(&c) || c >= '\u{fff0}') {
        return Err(TreeError::Bounds("a path has a character that ZooKeeper refuses"));
    }
    Ok(())
}

/// Returns the path of the parent; none for the root.
pub(super) fn parent(path: &str) -> Option<&str> {
    match path.rsplit_once('/') {
        Some(("", "")) | None => None,
        Some(("", _)) => Some("/"),
        Some((parent, _)) => Some(parent),
    }
}

/// Returns the number of elements of the path.
pub(super) fn depth(path: &str) -> usize {
    if path == "/" { 0 } else { path.matches('/').count() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_zookeeper_refuses_are_refused() {
        for good in ["/", "/a", "/a/b%2f", "/…"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in
            ["", "a", "/a/", "//a", "/.", "/a/..", "/a\0", "/\u{85}", "/\u{e000}", "/\u{f8ff}", "/\u{ffff}"]
        {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn parents_end_at_the_root() {
        assert_eq!(parent("/a/b"), Some("/a"));
        assert_eq!(parent("/a"), Some("/"));
        assert_eq!(parent("/"), None);
        assert_eq!((depth("/"), depth("/a"), depth("/a/b")), (0, 1, 2));
    }
}
