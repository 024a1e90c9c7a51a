//! The size of the header of a request, which is the same whatever version of HTTP carries it.

/// With a request whose header is longer than it may be: how, in words for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderExcess {
    /// It has more bytes than the bound.
    Bytes {
        /// Those of the header.
        found: usize,
        /// The maximum.
        bound: usize,
    },
    /// It has more fields than the bound.
    Fields {
        /// Those of the header.
        found: usize,
        /// The maximum.
        bound: usize,
    },
}
