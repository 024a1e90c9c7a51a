//! `angarium queue explain`: a sentence about what a claim of a queue gets now.

use serde::Deserialize;

use super::caller::CallerArgs;
use super::failure::Failure;
use super::printer::Display;
use super::queue::path;
use super::remote::Remote;
use super::screen;

#[derive(Deserialize)]
struct Explanation {
    says: String,
}

/// Shows the sentence about a queue; as JSON the whole explanation.
pub fn explain(caller: &CallerArgs, remote: &Remote, queue: &str) -> Result<(), Failure> {
    let reply = remote.get(format!("{}/explain", path(queue)))?;
    let Explanation { says } = reply.parse()?;
    let people = format!("{}\n", screen::lines(&says));
    caller.printer().show(&Display { people, json: reply.json_text()?, plain: vec![says] })
}
