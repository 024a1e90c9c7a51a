//! Encryption attributes of queues: SQS-managed encryption, or a key of KMS, but not both. They are only stored and
//! encrypt nothing: the operator of the pool decides whether bodies are encrypted on disk.

use std::collections::BTreeMap;

use super::fault::{Fault, Kind};
use super::queue_attributes::Attributes;
use angarium_core::attributes as keys;

/// The attribute with the id of a key.
pub const KEY: &str = "KmsMasterKeyId";
/// The attribute with the seconds for which a data key is reused.
pub const REUSE: &str = "KmsDataKeyReusePeriodSeconds";
/// The attribute of SQS-managed encryption.
pub const MANAGED: &str = "SqsManagedSseEnabled";
/// The default reuse period.
pub const REUSE_DEFAULT: &str = "300";

/// Parses a boolean attribute, in any case of letters.
pub fn is_true(value: &str) -> Option<bool> {
    value.to_ascii_lowercase().parse().ok()
}

/// Returns the metadata keys that setting these attributes changes in addition: a new value, or none to remove the key.
/// These changes precede the attributes themselves.
///
/// # Errors
///
/// `InvalidAttributeName` if both kinds of encryption are requested.
pub fn exclusions(attributes: &Attributes) -> Result<&'static [(&'static str, Option<bool>)], Fault> {
    let key = attributes.get(KEY).map(|key| !key.is_empty());
    let managed = attributes.get(MANAGED).and_then(|value| is_true(value));
    match (key, managed) {
        (Some(true), Some(true)) => {
            let why = "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS \
                       SSE or SQS SSE.";
            Err(Fault::new(Kind::InvalidAttributeName, why))
        }
        (Some(true), _) => Ok(&[(keys::MANAGED_SSE, Some(false))]),
        (Some(false), _) => Ok(&[(keys::KMS_REUSE, None)]),
        (None, Some(true)) => Ok(&[(keys::KMS_KEY, None), (keys::KMS_REUSE, None)]),
        (None, Some(false) | None) => Ok(&[]),
    }
}

/// Adds the defaults of attributes that the queue does not have.
pub fn complete(shown: &mut BTreeMap<&'static str, String>) {
    if shown.contains_key(KEY) {
        shown.entry(REUSE).or_insert_with(|| REUSE_DEFAULT.to_owned());
        shown.insert(MANAGED, "false".to_owned());
    } else {
        shown.entry(MANAGED).or_insert_with(|| "true".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_managed_encryption_exclude_each_other() {
        let of = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            exclusions(&pairs.collect()).map_err(|fault| fault.kind)
        };
        assert_eq!(of(&[(KEY, "alias/a"), (MANAGED, "True")]), Err(Kind::InvalidAttributeName));
        assert_eq!(of(&[(MANAGED, "true")]), Ok(&[(keys::KMS_KEY, None), (keys::KMS_REUSE, None)][..]));
        assert_eq!(of(&[(KEY, "")]), Ok(&[(keys::KMS_REUSE, None)][..]));
        assert_eq!(of(&[(KEY, "alias/a"), (MANAGED, "false")]), Ok(&[(keys::MANAGED_SSE, Some(false))][..]));
        let shown = |key: Option<&str>, managed: Option<&str>| {
            let key = key.map(|key| (KEY, key.to_owned()));
            let managed = managed.map(|managed| (MANAGED, managed.to_owned()));
            let mut shown: BTreeMap<_, _> = key.into_iter().chain(managed).collect();
            complete(&mut shown);
            shown.get(MANAGED).cloned()
        };
        assert_eq!(shown(None, None).as_deref(), Some("true"));
        assert_eq!(shown(None, Some("false")).as_deref(), Some("false"));
        assert_eq!(shown(Some("alias/a"), Some("true")).as_deref(), Some("false"));
    }
}
