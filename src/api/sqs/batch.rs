//! Batches: the rules for a whole batch, and the results of its entries.

use serde::Serialize;

use super::fault::{Fault, Kind};
use super::lists::BoundedList;
use super::operation::Operation;
use angarium_core::limits;

/// The parsed entries of a batch, up to the largest number that a setting can allow.
pub type Entries<T> = BoundedList<T, { limits::SQS_BATCH_MAX }>;

/// What became of the entries of a batch.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Results<T> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    successful: Vec<T>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<BatchFailure>,
}

/// An entry with only its id: it was done.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct BatchSuccess {
    id: String,
}

impl BatchSuccess {
    /// Creates the result of a successful entry.
    pub fn new(id: String) -> Self {
        Self { id }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct BatchFailure {
    id: String,
    sender_fault: bool,
    code: String,
    message: String,
}

impl<T> Results<T> {
    /// Creates the results of entries, each with its id.
    pub fn new(entries: impl IntoIterator<Item = (String, Result<T, Fault>)>) -> Self {
        let (mut successful, mut failed) = (Vec::new(), Vec::new());
        for (id, result) in entries {
            match result {
                Ok(done) => successful.push(done),
                Err(fault) => {
                    let form = fault.kind.form();
                    let sender_fault = form.side() == "Sender";
                    failed.push(BatchFailure { id, sender_fault, code: form.code(), message: fault.message });
                }
            }
        }
        Self { successful, failed }
    }
}

/// Returns the entries of a batch of this operation: at least one and at most `most`.
pub fn entries<T>(operation: Operation, asked: Option<Entries<T>>, most: usize) -> Result<Vec<T>, Fault> {
    let asked = asked.ok_or_else(|| Fault::missing("Entries"))?;
    let count = asked.len();
    if count == 0 {
        let why = format!("There should be at least one {}RequestEntry in the request.", operation.name());
        return Err(Fault::new(Kind::EmptyBatchRequest, why));
    }
    let too_many = |count| {
        let why = format!("Maximum number of entries per request are {most}. You have sent {count}.");
        Fault::new(Kind::TooManyEntriesInBatchRequest, why)
    };
    if count > most {
        return Err(too_many(count));
    }
    asked.whole().map_err(too_many)
}

/// Checks the ids of a batch of this operation: each entry has a valid id, and no two are equal.
pub fn check_ids<'a>(
    operation: Operation,
    ids: impl Iterator<Item = Option<&'a String>>,
) -> Result<(), Fault> {
    let mut seen = std::collections::BTreeSet::new();
    for (place, id) in (1..).zip(ids) {
        let id = id.ok_or_else(|| missing_of(operation, place, "Id"))?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !(1..=limits::SQS_ID_CHARS).contains(&id.len()) || !id.bytes().all(plain) {
            let why = "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at \
                       most 80 letters long.";
            return Err(Fault::new(Kind::InvalidBatchEntryId, why));
        }
        if !seen.insert(id) {
            return Err(Fault::new(Kind::BatchEntryIdsNotDistinct, format!("Id {id} repeated.")));
        }
    }
    Ok(())
}

/// Returns the error for an entry without a required member. `place` counts from 1.
pub fn missing_of(operation: Operation, place: usize, member: &str) -> Fault {
    Fault::missing(&format!("{}RequestEntry.{place}.{member}", operation.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(count: usize, most: usize) -> Result<usize, Fault> {
        let text = format!("[{}]", vec!["{}"; count].join(","));
        let asked: Entries<serde_json::Value> = serde_json::from_str(&text).unwrap();
        entries(Operation::SendMessageBatch, Some(asked), most).map(|entries| entries.len())
    }

    #[test]
    fn batch_has_entries_and_no_more_than_allowed() {
        assert_eq!(read(10, 10).unwrap(), 10);
        assert_eq!(read(0, 10).unwrap_err().kind, Kind::EmptyBatchRequest);
        assert_eq!(read(500, 500).unwrap(), 500);
        for (count, most) in [(11, 10), (501, 500), (100_000, 10)] {
            let refused = read(count, most).unwrap_err();
            assert_eq!(refused.kind, Kind::TooManyEntriesInBatchRequest);
            assert!(refused.message.ends_with(&format!("sent {count}.")), "{}", refused.message);
        }
    }
}
