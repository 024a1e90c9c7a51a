//! `angarium queue hold` and `angarium queue release`.

use clap::Args;
use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::failure::Failure;
use super::printer::{Display, Printer};
use super::queue::path;
use super::remote::{ApiRequest, Remote};

#[derive(Args, Clone, Debug)]
pub(super) struct HoldArgs {
    /// Its name
    queue: String,
    /// Why, in one line for the people who use the queue
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// When the hold ends by itself, as in 2030-01-05T08:00:00Z
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Refuse posts
    #[arg(long)]
    post: bool,
    /// Drop posts, which are answered as accepted; those of SQS are refused
    #[arg(long, conflicts_with = "post")]
    discard: bool,
    /// Let messages be claimed: only posts are held
    #[arg(long)]
    allow_claims: bool,
}

#[derive(Deserialize)]
struct Hold {
    claim: bool,
    post: bool,
    discard: bool,
    until: Option<String>,
}

impl Hold {
    fn sentence(&self, queue: &str) -> String {
        let effects = [
            (self.claim, "no message can be claimed"),
            (self.post, "posts are refused"),
            (self.discard, "posts are dropped"),
        ];
        let effects: Vec<&str> =
            effects.into_iter().filter(|(is_set, _)| *is_set).map(|(_, text)| text).collect();
        let until = self.until.as_ref().map_or_else(
            || format!("until `angarium queue release {queue}`"),
            |until| format!("until {until}"),
        );
        format!("queue {queue} is held {until}: {}\n", effects.join(", "))
    }
}

/// Holds a queue.
pub(super) fn hold(remote: &Remote, printer: &mut Printer, args: &HoldArgs) -> Result<(), Failure> {
    let HoldArgs { queue, reason, until, post, discard, allow_claims } = args;
    let mut body = json!({"claim": !allow_claims, "post": post, "discard": discard, "reason": reason});
    if let Some(until) = until {
        body["until"] = json!(until);
    }
    let reply = remote.call(ApiRequest::new(Method::PUT, format!("{}/hold", path(queue))).json(&body)?)?;
    let hold: Hold = reply.parse()?;
    let (people, json) = (hold.sentence(queue), reply.json_text()?);
    printer.show(&Display { people, json, plain: vec![queue.clone()] })
}

/// Ends the hold of a queue.
pub(super) fn release(remote: &Remote, printer: &mut Printer, queue: &str) -> Result<(), Failure> {
    remote.delete(format!("{}/hold", path(queue)))?;
    printer.done(&format!("queue {queue} is released"), &json!({"name": queue}))
}
