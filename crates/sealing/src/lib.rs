//! Seals secrets that are stored in the tree, with keys that are not.
//!
//! ```text
//! key of a file ──seals──▶ data key: one per installation ──seals──▶ values of nodes
//! --secret-key-file        /meta/seal                                /meta/pools/fast, …
//! ```
//!
//! Values stay as they are when the key of the file is replaced: only the data key is sealed again. A value opens at its
//! own path of its own installation only. This crate reads the file and knows no tree: its callers choose the
//! secrets.

#![warn(missing_docs)]

mod cipher;
mod data_key;
mod key_file;

pub use data_key::{DataKey, KeyError, SealedDataKey, is_sealed};
pub use key_file::{KeyFileError, KeyRing, SecretKey};
