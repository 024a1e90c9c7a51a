//! Calculations: rates, CPU per request and the cost ratio from the counts of a window, and medians over rounds. This
//! module never measures and never prints.

use std::time::Duration;

use serde::Serialize;

use super::generator::WindowResult;
use super::tally::{Verb, VerbTally};

/// Results of one window, or medians of several.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Answered requests per second.
    pub requests_per_second: f64,
    /// Messages per second that completed their workload: posted, or posted and claimed and deleted.
    pub messages_per_second: f64,
    /// CPU of the server per answered request in µs; none when its process is unknown or nothing was answered.
    pub server_us_per_request: Option<f64>,
    /// CPU of the generator per answered request in µs.
    pub generator_us_per_request: Option<f64>,
    /// Number of cores kept busy by the server.
    pub server_cores: Option<f64>,
    /// Number of cores kept busy by the generator. Near 1, the generator limits the rates, not the server.
    pub generator_cores: f64,
    /// Claims per second that found nothing.
    pub empty_claims_per_second: f64,
    /// Connections per second that the server closed between requests.
    pub reconnects_per_second: f64,
    /// Longest wait in µs of the requests that were unanswered at the end of the window. They are in no latency.
    pub longest_unanswered_us: f64,
    /// Latencies by kind of request, without kinds that were not sent.
    pub latency: Vec<Latency>,
}

/// Latencies of one kind of request, in µs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// `post`, `claim` or `delete`.
    pub request: &'static str,
    /// Max latency of 50 % of the requests.
    pub p50_us: f64,
    /// Max latency of 90 % of the requests.
    pub p90_us: f64,
    /// Max latency of 99 % of the requests.
    pub p99_us: f64,
    /// Max latency of 99.9 % of the requests.
    pub p999_us: f64,
    /// Max latency of all requests.
    pub max_us: f64,
}

/// Results of both servers in one round.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// The server under test.
    pub server: Figures,
    /// The empty server.
    pub ceiling: Option<Figures>,
    /// CPU per request of the server divided by that of the empty server.
    pub cost_ratio: Option<f64>,
}

impl Round {
    /// Combines the results of one round and calculates their ratio.
    pub fn new(server: Figures, ceiling: Option<Figures>) -> Self {
        let empty = ceiling.as_ref().and_then(|ceiling| ceiling.server_us_per_request);
        let cost_ratio = match (server.server_us_per_request, empty) {
            (Some(full), Some(empty)) if empty > 0.0 => Some(full / empty),
            _ => None,
        };
        Self { server, ceiling, cost_ratio }
    }
}

impl Figures {
    pub fn of(measured: &WindowResult) -> Self {
        let tally = &measured.tally;
        let requests = tally.requests();
        let seconds = measured.elapsed.as_secs_f64();
        Self {
            requests_per_second: requests as f64 / seconds,
            messages_per_second: tally.messages as f64 / seconds,
            server_us_per_request: measured.server_cpu.and_then(|cpu| micros_each(cpu, requests)),
            generator_us_per_request: micros_each(measured.generator_cpu, requests),
            server_cores: measured.server_cpu.map(|cpu| cpu.as_secs_f64() / seconds),
            generator_cores: measured.generator_cpu.as_secs_f64() / seconds,
            empty_claims_per_second: tally.empty_claims as f64 / seconds,
            reconnects_per_second: tally.reconnects as f64 / seconds,
            longest_unanswered_us: measured.longest_unanswered.as_secs_f64() * 1e6,
            latency: Verb::ALL.into_iter().filter_map(|verb| Latency::of(verb, tally.of(verb))).collect(),
        }
    }

    /// Returns the median of each value over the rounds, independently; none without rounds.
    pub fn median(rounds: &[&Self]) -> Option<Self> {
        let of = |figure: fn(&Self) -> f64| median(rounds.iter().map(|round| figure(round)));
        let some = |figure: fn(&Self) -> Option<f64>| median(rounds.iter().filter_map(|round| figure(round)));
        let latency = Verb::ALL.into_iter().filter_map(|verb| {
            let of_verb = rounds.iter().flat_map(|round| &round.latency);
            Latency::median(&of_verb.filter(|latency| latency.request == verb.name()).collect::<Vec<_>>())
        });
        Some(Self {
            requests_per_second: of(|round| round.requests_per_second)?,
            messages_per_second: of(|round| round.messages_per_second)?,
            server_us_per_request: some(|round| round.server_us_per_request),
            generator_us_per_request: some(|round| round.generator_us_per_request),
            server_cores: some(|round| round.server_cores),
            generator_cores: of(|round| round.generator_cores)?,
            empty_claims_per_second: of(|round| round.empty_claims_per_second)?,
            reconnects_per_second: of(|round| round.reconnects_per_second)?,
            longest_unanswered_us: of(|round| round.longest_unanswered_us)?,
            latency: latency.collect(),
        })
    }
}

impl Latency {
    fn of(verb: Verb, answered: &VerbTally) -> Option<Self> {
        let latency = &answered.latency;
        if latency.is_empty() {
            return None;
        }
        let at = |quantile| latency.value_at_quantile(quantile) as f64;
        Some(Self {
            request: verb.name(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: latency.max() as f64,
        })
    }

    fn median(rounds: &[&Self]) -> Option<Self> {
        let of = |figure: fn(&Self) -> f64| median(rounds.iter().map(|round| figure(round)));
        Some(Self {
            request: rounds.first()?.request,
            p50_us: of(|round| round.p50_us)?,
            p90_us: of(|round| round.p90_us)?,
            p99_us: of(|round| round.p99_us)?,
            p999_us: of(|round| round.p999_us)?,
            max_us: of(|round| round.max_us)?,
        })
    }
}

/// Returns the median: the middle value, or the mean of the two middle values; none without values.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(values[values.len() / 2 - 1], upper))
}

fn micros_each(cpu: Duration, requests: u64) -> Option<f64> {
    (requests > 0).then(|| cpu.as_secs_f64() * 1e6 / requests as f64)
}

#[cfg(test)]
pub mod tests {
    use super::super::connection::BenchAnswer;
    use super::super::tally::Tally;
    use super::*;
    use bytes::Bytes;
    use http::StatusCode;

    /// Returns a window of two seconds with `requests` posts and the server's CPU in ms.
    pub fn measured(requests: u64, server_ms: Option<u64>) -> WindowResult {
        let mut tally = Tally::new();
        tally.open_window();
        for micros in 1..=requests {
            let took = Duration::from_micros(micros);
            let answer = BenchAnswer { status: StatusCode::CREATED, body: Bytes::new(), took };
            tally.count(Verb::Post, &answer);
            tally.count_messages(10);
        }
        WindowResult {
            elapsed: Duration::from_secs(2),
            longest_unanswered: Duration::from_micros(9),
            tally,
            generator_cpu: Duration::from_millis(10),
            server_cpu: server_ms.map(Duration::from_millis),
        }
    }

    #[test]
    fn a_window_becomes_rates_and_costs() {
        let figures = Figures::of(&measured(1000, Some(20)));
        assert_eq!(figures.requests_per_second, 500.0);
        assert_eq!(figures.messages_per_second, 5000.0);
        assert_eq!(figures.server_us_per_request, Some(20.0));
        assert_eq!(figures.generator_us_per_request, Some(10.0));
        assert_eq!(figures.server_cores, Some(0.01));
        assert_eq!(figures.latency.len(), 1);
        assert_eq!((figures.latency[0].p50_us, figures.latency[0].p999_us), (500.0, 999.0));
    }

    #[test]
    fn nothing_answered_costs_nothing_known() {
        let figures = Figures::of(&measured(0, Some(20)));
        assert_eq!(figures.server_us_per_request, None);
        assert_eq!(figures.requests_per_second, 0.0);
        assert!(figures.latency.is_empty());
    }

    #[test]
    fn the_ratio_is_server_over_ceiling() {
        let (full, empty) = (Figures::of(&measured(1000, Some(35))), Figures::of(&measured(1000, Some(10))));
        assert_eq!(Round::new(full.clone(), Some(empty)).cost_ratio, Some(3.5));
        assert_eq!(Round::new(full.clone(), None).cost_ratio, None);
        let unknown = Figures::of(&measured(1000, Some(0)));
        assert_eq!(Round::new(full, Some(unknown)).cost_ratio, None);
    }

    #[test]
    fn medians_are_taken_figure_by_figure() {
        let rounds =
            [(100, 9), (300, 3), (200, 60)].map(|(count, ms)| Figures::of(&measured(count, Some(ms))));
        let median = Figures::median(&rounds.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(median.requests_per_second, 100.0);
        assert_eq!(median.server_us_per_request, Some(90.0));
        assert_eq!(median.latency[0].max_us, 200.0);
        assert!(Figures::median(&[]).is_none());
    }

    #[test]
    fn an_even_number_of_rounds_has_its_median_between_two() {
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median([7.0].into_iter()), Some(7.0));
        assert_eq!(median(std::iter::empty()), None);
    }
}
