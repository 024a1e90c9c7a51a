//! Checks of SQS metadata keys that are set through REST: a value that SQS would refuse is refused here too, so that a
//! policy has the same meaning in both protocols. `angarium_core::attributes` checks values whose form alone matters
//! (numbers, booleans, names).

use serde_json::value::RawValue;

use super::{policy, redrive, tags};
use angarium_core::attributes as keys;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::limits;
use angarium_core::patch::Change;
use angarium_core::queue::Metadata;

/// Checks the metadata of a queue that is created through REST.
///
/// # Errors
///
/// [`Error::Invalid`], with the key and the part that is not understood.
pub fn check_metadata(metadata: &Metadata) -> Result<(), Error> {
    metadata.own().iter().try_for_each(|(key, value)| check(key, value))
}

/// Checks a change of queue metadata through REST. Stored values that it does not change are not checked.
///
/// # Errors
///
/// As [`check_metadata`].
pub fn check_changes(changes: &[Change]) -> Result<(), Error> {
    changes.iter().try_for_each(|change| match change {
        Change::Add(key, value) | Change::Replace(key, value) => check(key, value),
        Change::Remove(_) | Change::Expect(..) => Ok(()),
    })
}

fn check(key: &str, value: &RawValue) -> Result<(), Error> {
    let text = value.get();
    if text == "null" {
        return Ok(());
    }
    let checked = match key {
        keys::POLICY if text.len() > limits::SQS_POLICY_BYTES => {
            Err(format!("it has {} bytes and may have {}", text.len(), limits::SQS_POLICY_BYTES))
        }
        keys::POLICY => policy::check(text).map(drop),
        keys::REDRIVE_ALLOW => redrive::check_allow(text),
        keys::TAGS => tags::check_text(text),
        _ => Ok(()),
    };
    checked.map_err(|why| Error::invalid(InvalidPart::Body, key, why.chars().take(400).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use angarium_core::limits::Limits;

    fn refusal(key: &str, value: &Value) -> Option<String> {
        let text = json!({key: value}).to_string();
        let metadata = Metadata::new(RawValue::from_string(text).unwrap(), &Limits::ZAQAR).unwrap();
        let whole = check_metadata(&metadata).err().map(|error| error.to_string());
        let value = RawValue::from_string(value.to_string()).unwrap();
        for change in [Change::Add(key.to_owned(), value.clone()), Change::Replace(key.to_owned(), value)] {
            let changed = check_changes(&[Change::Remove(key.to_owned()), change]);
            assert_eq!(changed.err().map(|error| error.to_string()), whole);
        }
        whole
    }

    fn statement(principal: &Value) -> Value {
        json!({"Statement": [{"Effect": "Deny", "Principal": principal, "Action": "sqs:*", "Resource": "*"}]})
    }

    #[test]
    fn lawful_values_pass() {
        for (key, value) in [
            (keys::POLICY, statement(&json!("*"))),
            (keys::POLICY, json!(null)),
            (keys::REDRIVE_ALLOW, json!({"redrivePermission": "denyAll"})),
            (
                keys::REDRIVE_ALLOW,
                json!({"redrivePermission": "byQueue", "sourceQueueArns": ["arn:aws:sqs:us-east-1:000000000000:q"]}),
            ),
            (keys::TAGS, json!({"team": "a b"})),
            ("policy", json!({"free": "metadata"})),
        ] {
            assert_eq!(refusal(key, &value), None, "{key}");
        }
    }

    #[test]
    fn values_refused_by_sqs_are_refused_by_name() {
        let many: serde_json::Map<String, Value> = (0..51).map(|tag| (tag.to_string(), json!("x"))).collect();
        let arns = vec!["arn:aws:sqs:us-east-1:000000000000:q"; limits::SQS_SOURCES + 1];
        for (key, value, part) in [
            (keys::POLICY, json!({}), "Statement"),
            (keys::POLICY, statement(&json!({"Service": "sns.amazonaws.com"})), "Principal"),
            (keys::POLICY, json!({"Statement": [], "Id": "x".repeat(9_000)}), "8192"),
            (keys::REDRIVE_ALLOW, json!({}), "redrivePermission"),
            (keys::REDRIVE_ALLOW, json!({"redrivePermission": "everybody"}), "redrivePermission"),
            (keys::REDRIVE_ALLOW, json!({"redrivePermission": "byQueue"}), "sourceQueueArns"),
            (keys::REDRIVE_ALLOW, json!({"redrivePermission": "byQueue", "sourceQueueArns": arns}), "10"),
            (keys::REDRIVE_ALLOW, json!({"redrivePermission": "byQueue", "sourceQueueArns": ["q"]}), "ARN"),
            (
                keys::REDRIVE_ALLOW,
                json!({"redrivePermission": "allowAll", "sourceQueueArns": ["arn:aws:sqs:r:1:q"]}),
                "sourceQueueArns",
            ),
            (keys::TAGS, json!({"aws:mine": "x"}), "aws:mine"),
            (keys::TAGS, json!({"team": 7}), "string"),
            (keys::TAGS, Value::Object(many), "50"),
        ] {
            let refused = refusal(key, &value).unwrap_or_default();
            assert!(refused.starts_with(key) && refused.contains(part), "{value}: {refused}");
        }
    }
}
