//! Names of the queue attributes that a user may set. A key with an underscore that is none of them is a misspelling,
//! and the server would store it without effect.

use super::failure::Failure;
use angarium_settings::spelling::nearest;

/// Reserved keys: those of Zaqar and of the server, and those stored for the SQS endpoint. A test compares them with
/// the server's list.
pub const KNOWN: &[&str] = &[
    "_content_based_deduplication",
    "_dead_letter_queue",
    "_dead_letter_queue_messages_ttl",
    "_deduplication_scope",
    "_default_message_delay",
    "_default_message_ttl",
    "_default_receive_wait",
    "_default_visibility_timeout",
    "_durability",
    "_enable_encrypt_messages",
    "_fifo",
    "_fifo_throughput_limit",
    "_flavor",
    "_kms_data_key_reuse_period",
    "_kms_master_key_id",
    "_max_claim_count",
    "_max_messages_post_size",
    "_policy",
    "_redrive_allow",
    "_sqs_managed_sse",
    "_tags",
];

/// Refuses keys that start with an underscore and are no attribute.
pub fn check<'a>(mut keys: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
    let Some(key) = keys.find(|key| key.starts_with('_') && !KNOWN.contains(key)) else { return Ok(()) };
    let similar = nearest(key, KNOWN.iter().copied());
    let hint = similar.map_or_else(String::new, |known| format!("; did you mean `{known}`?"));
    Err(Failure::Usage(format!(
        "there is no attribute `{key}`{hint}\n  keys that begin with an underscore are attributes; \
         --allow-unknown sets it all the same, and it has no effect"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_attribute_is_refused_with_hint() {
        let refused = |key: &str| check([key].into_iter()).unwrap_err().to_string();
        assert!(refused("_defualt_message_ttl").contains("did you mean `_default_message_ttl`?"));
        assert!(refused("_max_claims_count").contains("did you mean `_max_claim_count`?"));
        assert!(!refused("_zebra").contains("did you mean"));
        assert!(check(["team", "x_y", "_fifo"].into_iter()).is_ok());
    }
}
