//! `angarium queue hold`, `angarium pool hold`, `angarium project hold`, and `release` of each.

use clap::Args;
use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::failure::Failure;
use super::printer::{Display, Printer};
use super::remote::{ApiRequest, Remote};

#[derive(Args, Clone, Debug)]
pub(super) struct HoldArgs {
    /// Its name
    pub(super) name: String,
    /// Why, in one line for the people who meet the hold
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

/// A resource that can be held.
pub(super) struct Holdable<'a> {
    /// The command of its noun: `queue`, `pool` or `project`.
    pub(super) noun: &'static str,
    /// Its name.
    pub(super) name: &'a str,
    /// The group of the queue, if only that is meant.
    pub(super) group: Option<&'a str>,
    /// Its path.
    pub(super) path: String,
}

#[derive(Deserialize)]
struct Hold {
    claim: bool,
    post: bool,
    discard: bool,
    until: Option<String>,
}

impl Hold {
    fn sentence(&self, held: &Holdable<'_>) -> String {
        let Holdable { noun, name, group, .. } = held;
        let effects = [
            (self.claim, "no message can be claimed"),
            (self.post, "posts are refused"),
            (self.discard, "posts are dropped"),
        ];
        let effects: Vec<&str> =
            effects.into_iter().filter(|(is_set, _)| *is_set).map(|(_, text)| text).collect();
        let until = self.until.as_ref().map_or_else(
            || {
                let group = group.map(|group| format!(" --group {group}")).unwrap_or_default();
                format!("until `angarium {noun} release {name}{group}`")
            },
            |until| format!("until {until}"),
        );
        format!("{} is held {until}: {}\n", held.title(), effects.join(", "))
    }
}

impl Holdable<'_> {
    fn title(&self) -> String {
        let Self { noun, name, .. } = self;
        match self.group {
            Some(group) => format!("group {group} of {noun} {name}"),
            None => format!("{noun} {name}"),
        }
    }

    /// Holds it.
    pub(super) fn hold(
        &self,
        remote: &Remote,
        printer: &mut Printer,
        args: &HoldArgs,
    ) -> Result<(), Failure> {
        let HoldArgs { name, reason, until, post, discard, allow_claims } = args;
        let mut body = json!({"claim": !allow_claims, "post": post, "discard": discard, "reason": reason});
        if let Some(until) = until {
            body["until"] = json!(until);
        }
        let request = ApiRequest::new(Method::PUT, format!("{}/hold", self.path));
        let reply = remote.call(request.json(&body)?)?;
        let hold: Hold = reply.parse()?;
        let (people, json) = (hold.sentence(self), reply.json_text()?);
        printer.show(&Display { people, json, plain: vec![name.clone()] })
    }

    /// Ends its hold.
    pub(super) fn release(&self, remote: &Remote, printer: &mut Printer) -> Result<(), Failure> {
        remote.delete(format!("{}/hold", self.path))?;
        let mut released = json!({"name": self.name});
        if let Some(group) = self.group {
            released["group"] = json!(group);
        }
        printer.done(&format!("{} is released", self.title()), &released)
    }
}
