//! The requests to the server: the turns of `post`, `claim`, `cycle` and `drain`. This module never opens a connection
//! and never decides when to stop.

mod rest;
mod sqs;

use std::cell::RefCell;

use anyhow::Context;
use bytes::Bytes;
use clap::ValueEnum;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::Full;
use rand::SeedableRng;
use rand::distr::{Alphanumeric, SampleString};
use rand::rngs::StdRng;

use super::LoadArgs;
use super::connection::{BenchAnswer, BenchConnection, ConnectionFault, Target};
use super::tally::{Tally, Verb};
use rest::Rest;
use sqs::Sqs;

/// The requests of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Post a batch.
    Post,
    /// Claim a batch and keep it. If the claim returns nothing, fill the queue.
    Claim,
    /// Post a batch, claim as many, delete each under its claim.
    Cycle,
    /// Claim a batch and delete it. If the claim returns nothing, fill the queue.
    Drain,
}

impl Kind {
    /// Returns the name on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Post => "post",
            Self::Claim => "claim",
            Self::Cycle => "cycle",
            Self::Drain => "drain",
        }
    }
}

/// What the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// The REST API.
    Rest,
    /// Amazon SQS, AWS JSON 1.0.
    Sqs,
}

impl Protocol {
    /// Returns the name on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Sqs => "sqs",
        }
    }
}

type BenchRequest = Request<Full<Bytes>>;

/// The requests of one protocol. Queues are identified by number.
trait Dialect {
    /// Returns the requests that create a queue: first a check for the queue, if the response to the creation does not
    /// tell whether it existed, then the creation.
    fn create(&self, queue: usize) -> (Option<BenchRequest>, BenchRequest);

    /// Returns whether the first post creates a queue, so that no creation is needed.
    fn makes_queues_by_posts(&self) -> bool;

    /// Returns whether a queue was created, from the answer to the check and the status of the creation.
    fn is_new(&self, checked: Option<&BenchAnswer>, created: StatusCode) -> bool;

    /// Returns the deletion of a queue.
    fn remove(&self, queue: usize) -> BenchRequest;

    /// Returns the post of a batch.
    fn post(&self, queue: usize) -> BenchRequest;

    /// Returns the post of the max number of messages, and that number.
    fn fill(&self, queue: usize) -> (BenchRequest, u64);

    /// Returns the claim of a batch.
    fn claim(&self, queue: usize) -> BenchRequest;

    /// Returns the deletes for the answer to a claim; none when nothing was claimed.
    fn claimed(&self, queue: usize, answer: &BenchAnswer) -> anyhow::Result<Option<Vec<BenchRequest>>>;

    /// Returns the status of a success.
    fn expected(&self, verb: Verb) -> StatusCode;
}

/// The workload of a run.
pub struct Workload {
    kind: Kind,
    batch: usize,
    /// Number of messages that a delete removes.
    per_delete: u64,
    queues: usize,
    /// Whether the queues created by this run are deleted at its end.
    is_cleaned: bool,
    dialect: Box<dyn Dialect>,
}

impl Workload {
    /// Creates a workload over the requested number of queues, named `bench-0` onwards. The letters of the bodies are
    /// random, so that compression gains nothing, and the same in every run.
    pub fn new(kind: Kind, args: &LoadArgs, target: &Target) -> anyhow::Result<Self> {
        let dialect: Box<dyn Dialect> = match args.protocol {
            Protocol::Rest => Box::new(Rest::new(args, target)?),
            Protocol::Sqs => Box::new(Sqs::new(args, target)?),
        };
        let per_delete = if args.bulk { args.batch as u64 } else { 1 };
        let is_cleaned = !args.keep && !args.url.is_empty();
        Ok(Self { kind, batch: args.batch, per_delete, queues: args.queues, is_cleaned, dialect })
    }

    /// Returns the queue of a connection's n-th turn. Each connection walks over its own share of the queues. If there
    /// are fewer queues than connections, they share queues.
    pub fn queue_of(&self, connection: usize, turn: usize, connections: usize) -> usize {
        connection.wrapping_add(turn.wrapping_mul(connections)) % self.queues
    }

    /// Creates the missing queues and records them in `made`. Does nothing if posts create queues and none must be
    /// deleted at the end.
    pub async fn create(
        &self,
        connection: &mut BenchConnection,
        tally: &RefCell<Tally>,
        made: &mut Vec<usize>,
    ) -> Result<(), ConnectionFault> {
        if !self.is_cleaned && self.dialect.makes_queues_by_posts() {
            return Ok(());
        }
        for queue in 0..self.queues {
            let (check, create) = self.dialect.create(queue);
            let checked = match check {
                Some(check) => Some(connection.send(check).await?),
                None => None,
            };
            let created = connection.send(create).await?;
            if !created.status.is_success() {
                tally.borrow_mut().refuse(Verb::Post, created.status, &created.body);
            } else if self.dialect.is_new(checked.as_ref(), created.status) {
                made.push(queue);
            }
        }
        Ok(())
    }

    /// Deletes queues with their messages.
    pub async fn remove(
        &self,
        connection: &mut BenchConnection,
        tally: &RefCell<Tally>,
        queues: &[usize],
    ) -> Result<(), ConnectionFault> {
        for queue in queues {
            let removed = connection.send(self.dialect.remove(*queue)).await?;
            if !removed.status.is_success() {
                tally.borrow_mut().refuse(Verb::Delete, removed.status, &removed.body);
            }
        }
        Ok(())
    }

    /// Posts the max number of messages in one request, and returns that number; 0 on failure.
    pub async fn fill(
        &self,
        connection: &mut BenchConnection,
        queue: usize,
        tally: &RefCell<Tally>,
    ) -> Result<u64, ConnectionFault> {
        let (request, messages) = self.dialect.fill(queue);
        let answer = connection.send(request).await?;
        let is_done = self.expect(Verb::Post, &answer, tally);
        Ok(if is_done { messages } else { 0 })
    }

    /// Sends the requests of one turn on `connection` and counts each in `tally`. An unexpected status ends the turn.
    pub async fn turn(
        &self,
        connection: &mut BenchConnection,
        queue: usize,
        tally: &RefCell<Tally>,
    ) -> Result<(), ConnectionFault> {
        if matches!(self.kind, Kind::Post | Kind::Cycle) {
            let answer = connection.send(self.dialect.post(queue)).await?;
            if !self.expect(Verb::Post, &answer, tally) {
                return Ok(());
            }
        }
        match self.kind {
            Kind::Post => {
                tally.borrow_mut().count_messages(self.batch as u64);
                Ok(())
            }
            Kind::Claim => self.claim_and_keep(connection, queue, tally).await,
            Kind::Cycle | Kind::Drain => self.claim_and_delete(connection, queue, tally).await,
        }
    }

    async fn claim_and_keep(
        &self,
        connection: &mut BenchConnection,
        queue: usize,
        tally: &RefCell<Tally>,
    ) -> Result<(), ConnectionFault> {
        if self.claim(connection, queue, tally).await?.is_some() {
            tally.borrow_mut().count_messages(self.batch as u64);
        }
        Ok(())
    }

    async fn claim_and_delete(
        &self,
        connection: &mut BenchConnection,
        queue: usize,
        tally: &RefCell<Tally>,
    ) -> Result<(), ConnectionFault> {
        let deletes = self.claim(connection, queue, tally).await?;
        for request in deletes.into_iter().flatten() {
            let answer = connection.send(request).await?;
            if self.expect(Verb::Delete, &answer, tally) {
                tally.borrow_mut().count_messages(self.per_delete);
            }
        }
        Ok(())
    }

    /// Claims a batch and returns its deletes. Returns none when nothing was claimed; then it fills the queue, unless
    /// the turn posts anyway.
    async fn claim(
        &self,
        connection: &mut BenchConnection,
        queue: usize,
        tally: &RefCell<Tally>,
    ) -> Result<Option<Vec<BenchRequest>>, ConnectionFault> {
        let answer = connection.send(self.dialect.claim(queue)).await?;
        match self.dialect.claimed(queue, &answer) {
            Ok(None) => {
                tally.borrow_mut().count_empty_claim();
                match self.kind {
                    Kind::Claim | Kind::Drain => {
                        self.fill(connection, queue, tally).await?;
                    }
                    Kind::Post | Kind::Cycle => tally.borrow_mut().count(Verb::Claim, &answer),
                }
                Ok(None)
            }
            Ok(deletes) => Ok(deletes.filter(|_| self.expect(Verb::Claim, &answer, tally))),
            Err(error) => {
                if self.expect(Verb::Claim, &answer, tally) {
                    tally.borrow_mut().fail(format!("claim: {error:#}"));
                }
                Ok(None)
            }
        }
    }

    /// Counts the answer as a success or as an error. Returns whether it has the expected status.
    fn expect(&self, verb: Verb, answer: &BenchAnswer, tally: &RefCell<Tally>) -> bool {
        let mut tally = tally.borrow_mut();
        let is_expected = answer.status == self.dialect.expected(verb);
        if is_expected {
            tally.count(verb, answer);
        } else {
            tally.refuse(verb, answer.status, &answer.body);
        }
        is_expected
    }
}

/// Returns `count` different texts of this number of letters.
fn texts(count: usize, letters: usize) -> Vec<String> {
    let mut random = StdRng::seed_from_u64(0);
    (0..count).map(|_| Alphanumeric.sample_string(&mut random, letters)).collect()
}

fn with_uri(template: &BenchRequest, uri: &Uri) -> BenchRequest {
    let mut request = template.clone();
    *request.uri_mut() = uri.clone();
    request
}

fn template(
    method: Method,
    target: &Target,
    content: Option<&'static str>,
    body: impl Into<Bytes>,
) -> anyhow::Result<BenchRequest> {
    let mut request = Request::new(Full::new(body.into()));
    *request.method_mut() = method;
    *request.uri_mut() = Uri::try_from("/").context("the root is a path")?;
    let headers = request.headers_mut();
    headers.insert(header::HOST, target.authority.clone());
    if let Some(content) = content {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content));
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_args;

    #[test]
    fn connections_spread_over_queues_and_share_few() {
        let target = Target::parse("http://127.0.0.1:1").unwrap();
        let workload = |queues| {
            let args = load_args(&format!("cycle --queues {queues}")).unwrap();
            Workload::new(Kind::Cycle, &args, &target).unwrap()
        };
        let ten = workload(10);
        let mut seen: Vec<_> =
            (0..5).flat_map(|turn| [0, 1].map(|connection| ten.queue_of(connection, turn, 2))).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        assert_eq!(workload(3).queue_of(64, 0, 65), 1);
    }
}
