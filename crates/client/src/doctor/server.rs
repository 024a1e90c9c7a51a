//! Checks of a server from outside: whether it answers, is ready, accepts the token, has the same version and the same
//! time, and whether its pools and queues work.

use http::header::{DATE, SERVER};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use serde::Deserialize;

use super::{Check, Verdict, queues, subscriptions};
use crate::caller::{CallerArgs, Origin};
use crate::failure::Failure;
use crate::health::{self, PoolHealth};
use crate::remote::{Remote, Reply};

/// Seconds of difference between two clocks above which the check warns. Claims and ids tolerate more; a person who
/// compares logs does not.
const CLOCK_SECONDS: i64 = 5;

/// The response of `/readyz`.
#[derive(Default, Deserialize)]
struct Readiness {
    warnings: Vec<String>,
}

/// Runs all checks of the caller's server, and of the queues with these names if there are any.
pub(super) fn checks(caller: &CallerArgs, names: &[String]) -> Result<Vec<Check>, Failure> {
    let (context, origin) = caller.resolve()?;
    let remote = caller.remote()?;
    let from = match origin {
        Origin::Flag => "named by --url or ANGARIUM_URL".to_owned(),
        Origin::Context(name) => format!("of context {name}"),
        Origin::Default => "the usual one: none is named".to_owned(),
    };
    let mut checks = vec![Check::ok("server", format!("{}, {from}", context.url))];
    let alive = match remote.get("/livez") {
        Ok(reply) => {
            checks.push(Check::ok("reach", "it answers and can go on"));
            Some(reply)
        }
        Err(failure @ Failure::Unreachable { .. }) => {
            let advice =
                "is it running (`angarium serve`), is the URL right, does a firewall or TLS stand between?";
            checks.push(Check::wrong("reach", failure.to_string(), advice));
            return Ok(checks);
        }
        Err(failure @ Failure::Unavailable(_)) => {
            let advice =
                "its store accepts no writes any more: look at its log and disk, then start it again";
            checks.push(Check::wrong("reach", failure.to_string(), advice));
            None
        }
        Err(failure) => {
            let advice = "does the URL name an Angarium, without a path behind it?";
            checks.push(Check::wrong("reach", failure.to_string(), advice));
            return Ok(checks);
        }
    };
    checks.push(ready(&remote));
    checks.extend(alive.iter().flat_map(|reply| [version(reply), clock(reply, Timestamp::now())]));
    let access = access(&remote);
    let is_accepted = access.verdict == Verdict::Ok;
    checks.push(access);
    checks.extend(pools(&remote));
    if is_accepted {
        checks.extend(queues::checks(&remote, names));
        checks.extend(subscriptions::checks(&remote, names));
    }
    Ok(checks)
}

fn ready(remote: &Remote) -> Check {
    match remote.get("/readyz") {
        Ok(reply) => {
            // An older server returns no warnings.
            let Readiness { warnings } = reply.parse().unwrap_or_default();
            if warnings.is_empty() {
                return Check::ok("ready", "posts and claims are served");
            }
            Check::warning("ready", warnings.join("; "), "posts and claims are served; look at its log")
        }
        Err(failure) => {
            let advice = "is there a pool, and room on its disk (`angarium pool list`)? Look at its log and at ZooKeeper";
            Check::wrong("ready", failure.to_string(), advice)
        }
    }
}

fn version(reply: &Reply) -> Check {
    const OWN: &str = env!("CARGO_PKG_VERSION");
    let named = reply.headers.get(SERVER).and_then(|server| server.to_str().ok());
    match named.and_then(|server| server.strip_prefix("angarium/")) {
        None => Check::skipped("version", format!("this is {OWN}; the server does not say which it is")),
        Some(OWN) => Check::ok("version", format!("both are {OWN}")),
        Some(other) => {
            let found = format!("this is {OWN}, the server is {other}");
            Check::warning("version", found, "use the client of the server's version")
        }
    }
}

fn clock(reply: &Reply, now: Timestamp) -> Check {
    let date = reply.headers.get(DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
    let Some(date) = date else { return Check::skipped("clock", "the server does not say the time") };
    match now.as_second() - date.as_second() {
        seconds if seconds.abs() <= CLOCK_SECONDS => Check::ok("clock", format!("{seconds} s apart")),
        seconds => {
            let found = format!(
                "this machine is {} s {}",
                seconds.abs(),
                if seconds > 0 { "ahead" } else { "behind" }
            );
            Check::warning("clock", found, "let both machines take their time from NTP")
        }
    }
}

/// Checks that the server accepts the project and the token.
fn access(remote: &Remote) -> Check {
    match remote.get("/v2/queues?limit=1") {
        Ok(_) => Check::ok("access", "queues of the project can be listed"),
        Err(Failure::Refused(refusal)) if refusal.is_of_access() => {
            let advice = "are --project and --token, or those of the context, the right ones?";
            Check::wrong("access", refusal.to_string(), advice)
        }
        Err(failure) => {
            let advice = "does the URL name an Angarium of this version?";
            Check::wrong("access", failure.to_string(), advice)
        }
    }
}

fn pools(remote: &Remote) -> Vec<Check> {
    match remote.get("/v2/health").and_then(|reply| health::pools(&reply)) {
        Ok(pools) if pools.is_empty() => {
            vec![Check::wrong("pools", "there is none", "register one: `angarium pool create`")]
        }
        Ok(pools) => pools.iter().map(|(name, health)| pool(name, health)).collect(),
        Err(failure) => vec![Check::skipped("pools", failure.to_string())],
    }
}

fn pool(name: &str, health: &PoolHealth) -> Check {
    let name = format!("pool {name}");
    let why = health.description.as_deref().unwrap_or("the server does not say why");
    match (health.storage_reachable, health.writable) {
        (false, _) => {
            let advice = "its queues wait for it: look at that storage, and at its URI";
            Check::wrong(&name, format!("it is not reached: {why}"), advice)
        }
        (true, Some(false)) => {
            let advice = "posts to its queues are refused: make room, and look at the log";
            Check::wrong(&name, format!("it accepts no writes: {why}"), advice)
        }
        (true, Some(true) | None) => Check::ok(&name, "it is reached"),
    }
}
