//! Accounts and regions: what SQS calls a project, how a queue is named in a URL and in an ARN, and back.
//!
//! The account is the project. In another region than the service's own the project is `ACCOUNT@REGION`, so that one queue
//! name in two regions is two queues, as in SQS.

use super::decode::shown;
use super::fault::{Fault, Kind};
use crate::domain::names::{ProjectId, QueueName, QueueRef};
use crate::domain::region::{Accounts, Regions};

/// Who asks, and where.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The account.
    pub account: String,
    /// The region.
    pub region: String,
    /// What the messages say that it sends: the id of its key, or else the account.
    pub sender: String,
}

/// The names of queues, in the service's own region and others.
#[derive(Clone, Debug)]
pub struct Places {
    /// The region of projects that name none.
    pub region: String,
    /// The regions that requests may be for beside it.
    pub regions: Regions,
}

impl Places {
    /// The project of an account in a region that is served. An account that is itself the project of another one in some
    /// region is refused: one project would have two names.
    pub fn project(&self, account: &str, region: &str) -> Result<ProjectId, Fault> {
        if !self.regions.contains(&self.region, region) {
            let why = format!("The region {:?} is not served here (--sqs-regions).", shown(region));
            return Err(Fault::new(Kind::AccessDenied, why));
        }
        if self.accounts().split(account).1.is_some() {
            let why = format!(
                "{:?} is no account: it names a region, and the region is that of the request (--sqs-regions).",
                shown(account)
            );
            return Err(Fault::new(Kind::AccessDenied, why));
        }
        let project = if region == self.region { account.to_owned() } else { format!("{account}@{region}") };
        Ok(ProjectId::new(&project)?)
    }

    /// The ARN of a queue.
    pub fn arn(&self, queue: &QueueRef) -> String {
        let (account, region) = self.split(&queue.project);
        format!("arn:aws:sqs:{region}:{account}:{}", queue.name)
    }

    /// The queue of an ARN; none when it is not one.
    pub fn of_arn(&self, arn: &str) -> Option<QueueRef> {
        let mut parts = arn.splitn(6, ':');
        let is_sqs = parts.next()? == "arn" && parts.next()?.starts_with("aws") && parts.next()? == "sqs";
        let (region, account, name) = (parts.next()?, parts.next()?, parts.next()?);
        if !is_sqs || region.is_empty() || account.is_empty() {
            return None;
        }
        Some(QueueRef { project: self.project(account, region).ok()?, name: QueueName::new(name).ok()? })
    }

    /// How projects belong to accounts.
    pub fn accounts(&self) -> Accounts {
        self.regions.accounts(&self.region)
    }

    /// Account and region of a project.
    pub fn split<'a>(&'a self, project: &'a ProjectId) -> (&'a str, &'a str) {
        let (account, region) = self.accounts().split(project.as_str());
        (account, region.unwrap_or(&self.region))
    }
}

/// The account and the name at the end of the URL of a queue, whatever is before them; only the name when there is no more.
pub fn of_url(url: &str) -> Option<(Option<String>, String)> {
    let path = url.split(['?', '#']).next()?.trim_end_matches('/');
    let path =
        path.split_once("://").map_or(path, |(_, rest)| rest.split_once('/').map_or("", |(_, path)| path));
    let mut segments = path.rsplit('/').filter(|segment| !segment.is_empty()).map(decoded);
    let name = segments.next()??;
    match segments.next() {
        Some(account) => Some((Some(account?), name)),
        None => Some((None, name)),
    }
}

/// A segment of a path without its escapes.
fn decoded(segment: &str) -> Option<String> {
    // A plus is a plus in a path.
    let pair = format!("v={}", segment.replace('+', "%2B"));
    let (_, value) = form_urlencoded::parse(pair.as_bytes()).next()?;
    (!value.contains('\u{fffd}')).then(|| value.into_owned())
}

/// The URL of a queue below `base`.
pub fn url(base: &str, account: &str, name: &QueueName) -> String {
    let account: String = form_urlencoded::byte_serialize(account.as_bytes()).collect();
    format!("{base}/{}/{name}", account.replace('+', "%20"))
}

/// The name that a request gives a queue.
pub fn name(text: &str) -> Result<QueueName, Fault> {
    QueueName::new(text).map_err(|_| {
        Fault::new(
            Kind::InvalidParameterValue,
            format!(
                "Value {text:?} for parameter QueueName is invalid. Reason: It has 1 to 80 letters, digits, hyphens or \
                 underscores."
            ),
        )
    })
}

/// Whether a segment of a path is the number of an account.
pub fn is_account(segment: &str) -> bool {
    segment.len() == 12 && segment.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        Places { region: "us-east-1".into(), regions: Regions::Any }
    }

    #[test]
    fn of_a_url_the_last_two_segments_count() {
        let queue = |account: &str| Some((Some(account.to_owned()), "q".to_owned()));
        for url in [
            "http://localhost:8888/000000000000/q",
            "https://sqs.eu-west-1.amazonaws.com/000000000000/q/",
            "http://h/queue/eu-west-1/000000000000/q?Action=SendMessage",
            "/000000000000/q",
            "000000000000/q",
        ] {
            assert_eq!(of_url(url), queue("000000000000"), "{url}");
        }
        assert_eq!(of_url("http://h/two%20words/q"), queue("two words"));
        assert_eq!(of_url("q"), Some((None, "q".to_owned())));
        for none in ["", "/", "http://h", "http://h/"] {
            assert_eq!(of_url(none), None, "{none}");
        }
        let queue = QueueName::new("q").unwrap();
        assert_eq!(of_url(&url("http://h", "a+b c/d", &queue)), Some((Some("a+b c/d".into()), "q".into())));
    }

    #[test]
    fn an_arn_names_the_queue_that_it_was_made_of() {
        for (project, arn) in [
            ("000000000000", "arn:aws:sqs:us-east-1:000000000000:q"),
            ("123456789012@eu-west-1", "arn:aws:sqs:eu-west-1:123456789012:q"),
        ] {
            let queue =
                QueueRef { project: ProjectId::new(project).unwrap(), name: QueueName::new("q").unwrap() };
            assert_eq!(places().arn(&queue), arn);
            assert_eq!(places().of_arn(arn), Some(queue));
        }
        for bad in ["", "q", "arn:aws:sns:us-east-1:1:q", "arn:aws:sqs:us-east-1:1:", "arn:aws:sqs::1:q"] {
            assert_eq!(places().of_arn(bad), None, "{bad}");
        }
    }
}
