//! Checks the keys of queue metadata that a user sets. A key with an underscore that is no attribute is a misspelling,
//! and the server would store it without effect.

use super::failure::Failure;
use angarium_core::attributes::KEYS;
use angarium_settings::spelling::nearest;

/// Refuses keys that start with an underscore and are no attribute.
pub fn check<'a>(mut keys: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
    let Some(key) = keys.find(|key| key.starts_with('_') && !KEYS.contains(key)) else { return Ok(()) };
    let similar = nearest(key, KEYS.iter().copied());
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
