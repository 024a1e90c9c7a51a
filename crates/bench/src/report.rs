//! The result: its conditions, the figures, the JSON document, the table and the verdict. This module never prints.

use std::fmt;

use anyhow::{bail, ensure};
use serde::Serialize;

use super::LoadArgs;
use super::figures::{Figures, Latency, Round, median};
use super::tally::Tally;

/// Max error texts in the report. Further errors are only counted.
const ERRORS_SHOWN: usize = 5;

/// The whole result of a run. Its fields are those of the JSON document.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of this program.
    version: &'static str,
    /// `post`, `claim`, `cycle` or `drain`.
    workload: &'static str,
    conditions: Conditions,
    /// Medians over the rounds.
    server: Option<Figures>,
    /// Medians over the rounds.
    ceiling: Option<Figures>,
    /// Median of the cost ratios of the rounds. Each is of two consecutive windows.
    cost_ratio: Option<f64>,
    /// Number of failed requests to both servers, warm-ups included.
    errors: u64,
    first_errors: Vec<String>,
    rounds: Vec<Round>,
}

/// Conditions of the measurement.
#[derive(Debug, Serialize)]
pub struct Conditions {
    protocol: &'static str,
    connections: usize,
    body_bytes: usize,
    batch: usize,
    queues: usize,
    /// Whether one request deleted all messages of a claim.
    bulk: bool,
    /// Messages posted before the first round.
    waiting: u64,
    /// Number of message groups in FIFO queues.
    groups: Option<u64>,
    seconds: u64,
    warmup_seconds: u64,
    rounds: usize,
    /// Number of cores that this program may use.
    cores: usize,
    /// Location of the tree of a started server.
    coordination: String,
    /// URLs of an existing server, whose settings are unknown here.
    urls: Vec<String>,
}

impl Conditions {
    /// Collects the conditions from the arguments and this machine.
    pub fn of(args: &LoadArgs) -> Self {
        Self {
            protocol: args.protocol.name(),
            connections: args.connections,
            body_bytes: args.body_bytes,
            batch: args.batch,
            queues: args.queues,
            bulk: args.bulk,
            waiting: args.waiting,
            groups: args.groups,
            seconds: args.seconds,
            warmup_seconds: args.warmup,
            rounds: args.rounds,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            coordination: args.coordination.clone(),
            urls: args.url.clone(),
        }
    }
}

impl Report {
    /// Creates a report without results.
    pub fn new(workload: &'static str, conditions: Conditions) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            workload,
            conditions,
            server: None,
            ceiling: None,
            cost_ratio: None,
            errors: 0,
            first_errors: Vec::new(),
            rounds: Vec::new(),
        }
    }

    /// Adds the errors of a window. `name` names the server.
    pub fn note_errors(&mut self, name: &str, tally: &Tally) {
        self.errors += tally.errors;
        let room = ERRORS_SHOWN.saturating_sub(self.first_errors.len());
        self.first_errors
            .extend(tally.first_errors.iter().take(room).map(|error| format!("{name}: {error}")));
    }

    pub fn add(&mut self, round: Round) {
        self.rounds.push(round);
    }

    /// Calculates the medians. Must be called once, after the last round.
    pub fn conclude(&mut self) {
        let servers: Vec<_> = self.rounds.iter().map(|round| &round.server).collect();
        let ceilings: Vec<_> = self.rounds.iter().filter_map(|round| round.ceiling.as_ref()).collect();
        self.server = Figures::median(&servers);
        self.ceiling = Figures::median(&ceilings);
        self.cost_ratio = median(self.rounds.iter().filter_map(|round| round.cost_ratio));
    }

    /// Returns an error with a text for the user, unless the run succeeded.
    pub fn verdict(&self, max_cost_ratio: Option<f64>) -> anyhow::Result<()> {
        ensure!(self.errors == 0, "{} requests failed", self.errors);
        let silent = self.rounds.iter().any(|round| round.server.requests_per_second == 0.0);
        ensure!(!silent, "no request was answered");
        match (max_cost_ratio, self.cost_ratio) {
            (None, _) => Ok(()),
            (Some(_), None) => bail!("the cost ratio could not be measured"),
            (Some(bar), Some(ratio)) if ratio > bar => {
                bail!("cost ratio {ratio:.2} is above the bar of {bar:.2}")
            }
            (Some(_), Some(_)) => Ok(()),
        }
    }
}

/// Formats the table.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is = &self.conditions;
        writeln!(
            f,
            "angarium {} bench {} ({}): {} connections, {}-byte bodies, batch {}, queues {}, waiting {}, \
             {} × {} s after {} s of warm-up, {} cores",
            self.version,
            self.workload,
            is.protocol,
            is.connections,
            is.body_bytes,
            is.batch,
            is.queues,
            is.waiting,
            is.rounds,
            is.seconds,
            is.warmup_seconds,
            is.cores
        )?;
        writeln!(f)?;
        self.write_figures(f)?;
        writeln!(f)?;
        self.write_latencies(f)?;
        if self.errors > 0 {
            writeln!(f, "\n{} errors, the first ones:", self.errors)?;
        }
        self.first_errors.iter().try_for_each(|error| writeln!(f, "  {error}"))
    }
}

impl Report {
    fn write_figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<26}{:>12}{:>12}", "", "server", "ceiling")?;
        let mut row = |name: &str, digits: usize, figure: fn(&Figures) -> Option<f64>| {
            let [server, ceiling] = [&self.server, &self.ceiling]
                .map(|figures| figures.as_ref().and_then(figure))
                .map(|figure| figure.map_or("-".to_owned(), |figure| grouped(figure, digits)));
            writeln!(f, "{name:<26}{server:>12}{ceiling:>12}")
        };
        row("requests/s", 0, |figures| Some(figures.requests_per_second))?;
        row("messages/s", 0, |figures| Some(figures.messages_per_second))?;
        row("server µs CPU/request", 2, |figures| figures.server_us_per_request)?;
        row("generator µs CPU/request", 2, |figures| figures.generator_us_per_request)?;
        row("server cores busy", 2, |figures| figures.server_cores)?;
        row("generator cores busy", 2, |figures| Some(figures.generator_cores))?;
        row("empty claims/s", 0, |figures| Some(figures.empty_claims_per_second))?;
        row("reconnects/s", 1, |figures| Some(figures.reconnects_per_second))?;
        row("longest unanswered µs", 0, |figures| Some(figures.longest_unanswered_us))?;
        let ratio = self.cost_ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        writeln!(f, "{:<26}{ratio:>12}", "cost ratio")
    }

    fn write_latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["p50", "p90", "p99", "p99.9", "max"];
        write!(f, "{:<26}", "latency µs")?;
        heads.iter().try_for_each(|head| write!(f, "{head:>12}"))?;
        writeln!(f)?;
        for (name, figures) in [("server", &self.server), ("ceiling", &self.ceiling)] {
            for latency in figures.iter().flat_map(|figures| &figures.latency) {
                write_latency(f, name, latency)?;
            }
        }
        Ok(())
    }
}

fn write_latency(f: &mut fmt::Formatter<'_>, name: &str, latency: &Latency) -> fmt::Result {
    write!(f, "{:<26}", format!("{name} {}", latency.request))?;
    let values = [latency.p50_us, latency.p90_us, latency.p99_us, latency.p999_us, latency.max_us];
    values.iter().try_for_each(|value| write!(f, "{:>12}", grouped(*value, 0)))?;
    writeln!(f)
}

/// Formats a number with a blank between thousands.
fn grouped(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(' ');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::measured;
    use super::*;

    fn report(requests: u64, server_ms: u64, ceiling_ms: u64) -> Report {
        let conditions = Conditions {
            protocol: "rest",
            connections: 64,
            body_bytes: 200,
            batch: 1,
            queues: 1,
            bulk: false,
            waiting: 0,
            groups: None,
            seconds: 2,
            warmup_seconds: 1,
            rounds: 1,
            cores: 2,
            coordination: "embedded".to_owned(),
            urls: Vec::new(),
        };
        let mut report = Report::new("post", conditions);
        let full = Figures::of(&measured(requests, Some(server_ms)));
        report.add(Round::new(full, Some(Figures::of(&measured(1000, Some(ceiling_ms))))));
        report.conclude();
        report
    }

    #[test]
    fn a_ratio_above_the_bar_fails_and_one_at_the_bar_does_not() {
        let report = report(1000, 35, 10);
        assert!(report.verdict(None).is_ok());
        assert!(report.verdict(Some(3.5)).is_ok());
        let error = report.verdict(Some(3.4)).unwrap_err().to_string();
        assert_eq!(error, "cost ratio 3.50 is above the bar of 3.40");
    }

    #[test]
    fn a_bar_without_a_ratio_fails() {
        assert!(report(1000, 35, 0).verdict(Some(3.5)).is_err());
    }

    #[test]
    fn errors_and_silence_fail() {
        let mut with_errors = report(1000, 10, 10);
        let mut tally = Tally::new();
        tally.fail("request: reset".into());
        with_errors.note_errors("server", &tally);
        assert!(with_errors.verdict(None).is_err());
        assert!(with_errors.to_string().contains("server: request: reset"));
        assert!(report(0, 10, 10).verdict(None).is_err());
    }

    #[test]
    fn the_document_holds_figures_and_conditions() {
        let document = serde_json::to_value(report(1000, 35, 10)).unwrap();
        assert_eq!(document["conditions"]["connections"], 64);
        assert_eq!(document["cost_ratio"], 3.5);
        assert_eq!(document["server"]["requests_per_second"], 500.0);
        assert_eq!(document["ceiling"]["latency"][0]["request"], "post");
        assert_eq!(document["rounds"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(1_234_567.0, 0), "1 234 567");
        assert_eq!(grouped(999.5, 2), "999.50");
        assert_eq!(grouped(12345.678, 1), "12 345.7");
        assert_eq!(grouped(0.0, 0), "0");
    }
}
