//! `angarium queue hold` and `angarium queue release`.

use clap::Args;
use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::failure::Failure;
use super::printer::{Display, Printer};
use super::queue::path;
use super::remote::{ApiRequest, Remote, encoded};

#[derive(Args, Clone, Debug)]
pub(super) struct HoldArgs {
    /// Its name
    queue: String,
    /// Hold only the messages of this group
    #[arg(long)]
    group: Option<String>,
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
    fn sentence(&self, queue: &str, group: Option<&str>) -> String {
        let effects = [
            (self.claim, "no message can be claimed"),
            (self.post, "posts are refused"),
            (self.discard, "posts are dropped"),
        ];
        let effects: Vec<&str> =
            effects.into_iter().filter(|(is_set, _)| *is_set).map(|(_, text)| text).collect();
        let until = self.until.as_ref().map_or_else(
            || {
                let of_group = group.map(|group| format!(" --group {group}")).unwrap_or_default();
                format!("until `angarium queue release {queue}{of_group}`")
            },
            |until| format!("until {until}"),
        );
        format!("{} is held {until}: {}\n", name(queue, group), effects.join(", "))
    }
}

/// Holds a queue.
pub(super) fn hold(remote: &Remote, printer: &mut Printer, args: &HoldArgs) -> Result<(), Failure> {
    let HoldArgs { queue, group, reason, until, post, discard, allow_claims } = args;
    let group = group.as_deref();
    let mut body = json!({"claim": !allow_claims, "post": post, "discard": discard, "reason": reason});
    if let Some(until) = until {
        body["until"] = json!(until);
    }
    let reply = remote.call(ApiRequest::new(Method::PUT, hold_path(queue, group)).json(&body)?)?;
    let hold: Hold = reply.parse()?;
    let (people, json) = (hold.sentence(queue, group), reply.json_text()?);
    printer.show(&Display { people, json, plain: vec![queue.clone()] })
}

/// Ends the hold of a queue, or of one of its groups.
pub(super) fn release(
    remote: &Remote,
    printer: &mut Printer,
    queue: &str,
    group: Option<&str>,
) -> Result<(), Failure> {
    remote.delete(hold_path(queue, group))?;
    let mut released = json!({"name": queue});
    if let Some(group) = group {
        released["group"] = json!(group);
    }
    printer.done(&format!("{} is released", name(queue, group)), &released)
}

fn hold_path(queue: &str, group: Option<&str>) -> String {
    match group {
        Some(group) => format!("{}/groups/{}/hold", path(queue), encoded(group)),
        None => format!("{}/hold", path(queue)),
    }
}

fn name(queue: &str, group: Option<&str>) -> String {
    match group {
        Some(group) => format!("group {group} of queue {queue}"),
        None => format!("queue {queue}"),
    }
}
