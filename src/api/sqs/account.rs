//! Accounts and regions: the mapping between an account of SQS and a project, and between a queue, its URL and its ARN.
//!
//! The account is the project. In another region than the service's own the project is `ACCOUNT@REGION`, so that one queue
//! name in two regions is two queues, as in SQS.

use super::decode::shown;
use super::fault::{Fault, Kind};
use angarium_core::names::{ProjectId, QueueName, QueueRef};
use angarium_core::region::{Accounts, Regions};

/// The account and the region of a caller.
#[derive(Clone, Debug)]
pub struct Caller {
    pub account: String,
    pub region: String,
}

/// The parts of a queue URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The region, if the URL names one.
    pub region: Option<String>,
    /// The account, if the URL has more than a name.
    pub account: Option<String>,
    /// The name of the queue, unchecked.
    pub name: String,
}

/// The rule for the name of a standard queue.
pub const NAME: &str = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length";

/// The path segment before the region, in a URL that names a region.
const REGIONAL: &str = "queue";

/// Names of queues in the region of the service and in other regions.
#[derive(Clone, Debug)]
pub struct RegionalQueues {
    /// The region of projects that name none.
    pub region: String,
    /// Other regions that requests may name.
    pub regions: Regions,
}

impl RegionalQueues {
    /// Returns the project of an account in a served region. Refuses an account that is itself the project of another
    /// account in some region, because one project would have two names.
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

    /// Returns the URL of a queue below `base`. The URL names the region unless it is the region of the service.
    pub fn url(&self, base: &str, queue: &QueueRef) -> String {
        let (account, region) = self.split(&queue.project);
        let account: String = form_urlencoded::byte_serialize(account.as_bytes()).collect();
        let regional = if region == self.region { String::new() } else { format!("/{REGIONAL}/{region}") };
        format!("{base}{regional}/{}/{}", account.replace('+', "%20"), queue.name)
    }

    /// Returns the ARN of a queue.
    pub fn arn(&self, queue: &QueueRef) -> String {
        let (account, region) = self.split(&queue.project);
        format!("arn:aws:sqs:{region}:{account}:{}", queue.name)
    }

    /// Returns the queue of an ARN; none for any other text.
    pub fn of_arn(&self, arn: &str) -> Option<QueueRef> {
        let mut parts = arn.splitn(6, ':');
        let is_sqs = parts.next()? == "arn" && parts.next()?.starts_with("aws") && parts.next()? == "sqs";
        let (region, account, name) = (parts.next()?, parts.next()?, parts.next()?);
        if !is_sqs || region.is_empty() || account.is_empty() {
            return None;
        }
        Some(QueueRef { project: self.project(account, region).ok()?, name: QueueName::new(name).ok()? })
    }

    /// Returns the mapping of projects to accounts.
    pub fn accounts(&self) -> Accounts {
        self.regions.accounts(&self.region)
    }

    /// Returns the account and the region of a project.
    pub fn split<'a>(&'a self, project: &'a ProjectId) -> (&'a str, &'a str) {
        let (account, region) = self.accounts().split(project.as_str());
        (account, region.unwrap_or(&self.region))
    }
}

/// Parses the URL of a queue: its path ends in `/queue/REGION/ACCOUNT/NAME`, `/ACCOUNT/NAME` or the name alone, after
/// any prefix.
pub fn of_url(url: &str) -> Option<Address> {
    let path = url.split(['?', '#']).next()?.trim_end_matches('/');
    let path =
        path.split_once("://").map_or(path, |(_, rest)| rest.split_once('/').map_or("", |(_, path)| path));
    let mut segments = path.rsplit('/').filter(|segment| !segment.is_empty()).map(decoded);
    let name = segments.next()??;
    let account = match segments.next() {
        Some(account) => Some(account?),
        None => None,
    };
    let region = segments.next().flatten();
    let region = region.filter(|_| segments.next().flatten().as_deref() == Some(REGIONAL));
    Some(Address { region, account, name })
}

/// Decodes the escapes of a path segment.
fn decoded(segment: &str) -> Option<String> {
    // In a path, a plus sign is no space.
    let pair = format!("v={}", segment.replace('+', "%2B"));
    let (_, value) = form_urlencoded::parse(pair.as_bytes()).next()?;
    (!value.contains('\u{fffd}')).then(|| value.into_owned())
}

/// Parses the queue name of a request.
pub fn name(text: &str) -> Result<QueueName, Fault> {
    QueueName::new(text).map_err(|_| wrong_name(text, NAME))
}

/// Returns the error for an invalid queue name.
pub fn wrong_name(text: &str, why: &str) -> Fault {
    Fault::parameter("QueueName", text, why)
}

/// Whether a path segment is the number of an account.
pub fn is_account(segment: &str) -> bool {
    segment.len() == 12 && segment.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> RegionalQueues {
        RegionalQueues { region: "us-east-1".into(), regions: Regions::Any }
    }

    #[test]
    fn of_a_url_the_last_two_segments_count() {
        let of = |region: Option<&str>, account: &str| {
            let region = region.map(str::to_owned);
            Some(Address { region, account: Some(account.to_owned()), name: "q".to_owned() })
        };
        let queue = |account: &str| of(None, account);
        for url in [
            "http://localhost:8888/000000000000/q",
            "https://sqs.eu-west-1.amazonaws.com/000000000000/q/",
            "http://h/eu-west-1/000000000000/q?Action=SendMessage",
            "/000000000000/q",
            "000000000000/q",
        ] {
            assert_eq!(of_url(url), queue("000000000000"), "{url}");
        }
        assert_eq!(of_url("http://h/two%20words/q"), queue("two words"));
        assert_eq!(of_url("q"), Some(Address { region: None, account: None, name: "q".to_owned() }));
        for url in
            ["http://h/queue/eu-west-1/000000000000/q?Action=x", "/below/queue/eu-west-1/000000000000/q/"]
        {
            assert_eq!(of_url(url), of(Some("eu-west-1"), "000000000000"), "{url}");
        }
        for none in ["", "/", "http://h", "http://h/"] {
            assert_eq!(of_url(none), None, "{none}");
        }
    }

    #[test]
    fn url_of_another_region_names_it() {
        for (project, url, address) in [
            ("a+b c/d", "http://h/a%2Bb%20c%2Fd/q", (None, "a+b c/d")),
            ("123456789012", "http://h/123456789012/q", (None, "123456789012")),
            (
                "123456789012@eu-west-1",
                "http://h/queue/eu-west-1/123456789012/q",
                (Some("eu-west-1"), "123456789012"),
            ),
        ] {
            let queue =
                QueueRef { project: ProjectId::new(project).unwrap(), name: QueueName::new("q").unwrap() };
            assert_eq!(places().url("http://h", &queue), url);
            let (region, account) = (address.0.map(str::to_owned), Some(address.1.to_owned()));
            assert_eq!(of_url(url), Some(Address { region, account, name: "q".to_owned() }));
        }
    }

    #[test]
    fn arn_names_its_queue() {
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
