//! Batches: the rules for all of one, and the results of its entries.

use serde::Serialize;

use super::fault::{Fault, Kind};
use crate::domain::limits;

/// What became of the entries of a batch.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Results<T> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    successful: Vec<T>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<Failed>,
}

/// An entry with only its id: it was done.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Done {
    id: String,
}

impl Done {
    /// This entry was done.
    pub fn new(id: String) -> Self {
        Self { id }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Failed {
    id: String,
    sender_fault: bool,
    code: String,
    message: String,
}

impl<T> Results<T> {
    /// The results of entries, each with its id.
    pub fn new(entries: impl IntoIterator<Item = (String, Result<T, Fault>)>) -> Self {
        let (mut successful, mut failed) = (Vec::new(), Vec::new());
        for (id, result) in entries {
            match result {
                Ok(done) => successful.push(done),
                Err(fault) => {
                    let form = fault.kind.form();
                    let sender_fault = form.side() == "Sender";
                    failed.push(Failed { id, sender_fault, code: form.code(), message: fault.message });
                }
            }
        }
        Self { successful, failed }
    }
}

/// Checks the ids of all entries of a batch: there are some and no more than `most`, each is lawful, no two are the same.
pub fn check_ids<'a>(ids: impl Iterator<Item = &'a str> + Clone, most: usize) -> Result<(), Fault> {
    let count = ids.clone().count();
    if count == 0 {
        let why = "There should be at least one entry in the request.";
        return Err(Fault::new(Kind::EmptyBatchRequest, why));
    }
    if count > most {
        let why = format!("Maximum number of entries per request are {most}. You have sent {count}.");
        return Err(Fault::new(Kind::TooManyEntriesInBatchRequest, why));
    }
    let mut seen = std::collections::BTreeSet::new();
    for id in ids {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !(1..=limits::SQS_ID_CHARS).contains(&id.len()) || !id.bytes().all(plain) {
            let why = "The id of an entry has 1 to 80 letters, digits, hyphens and underscores.";
            return Err(Fault::new(Kind::InvalidBatchEntryId, why));
        }
        if !seen.insert(id) {
            return Err(Fault::new(Kind::BatchEntryIdsNotDistinct, format!("Id {id} repeated.")));
        }
    }
    Ok(())
}
