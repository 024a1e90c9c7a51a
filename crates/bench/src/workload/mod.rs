//! Owns what is asked of the server: the turns of `post`, `claim`, `cycle` and `drain`. Never opens a connection and never
//! decides when to stop.

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

/// Which requests make one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Post a batch.
    Post,
    /// Claim a batch and keep it. A connection that finds nothing posts what there is to claim.
    Claim,
    /// Post a batch, claim as many, delete each under its claim.
    Cycle,
    /// Claim a batch and delete it. A connection that finds nothing posts what there is to claim.
    Drain,
}

impl Kind {
    /// The word on the command line and in the report.
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
    /// The word on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Sqs => "sqs",
        }
    }
}

type BenchRequest = Request<Full<Bytes>>;

/// The requests of one protocol. Queues are known by number.
trait Dialect {
    /// What must be asked once, before anything else, for a queue to be there: first the question whether it is, if the answer to
    /// the other does not tell.
    fn create(&self, queue: usize) -> (Option<BenchRequest>, BenchRequest);

    /// Whether a queue is made by the first post to it, so that nothing need be asked before.
    fn makes_queues_by_posts(&self) -> bool;

    /// Whether a queue was made, by the answer to the look and the status of the creation.
    fn is_new(&self, looked: Option<&BenchAnswer>, created: StatusCode) -> bool;

    /// Deletes a queue.
    fn remove(&self, queue: usize) -> BenchRequest;

    /// A post of a batch.
    fn post(&self, queue: usize) -> BenchRequest;

    /// A post of as many messages as one takes, and their number.
    fn fill(&self, queue: usize) -> (BenchRequest, u64);

    /// A claim of a batch.
    fn claim(&self, queue: usize) -> BenchRequest;

    /// What the deletes of a claim need to know of its answer; none when nothing was claimed.
    fn claimed(&self, queue: usize, answer: &BenchAnswer) -> anyhow::Result<Option<Vec<BenchRequest>>>;

    /// The status of a success.
    fn expected(&self, verb: Verb) -> StatusCode;
}

/// The requests of a run.
pub struct Workload {
    kind: Kind,
    batch: usize,
    /// Messages that a delete removes.
    per_delete: u64,
    queues: usize,
    /// Whether it must be known which queues this run makes: they are deleted at its end.
    is_cleaned: bool,
    dialect: Box<dyn Dialect>,
}

impl Workload {
    /// Turns over as many queues as are asked for, named `bench-0` onwards. The letters of the bodies are random, so that a
    /// compressing store gains nothing, and the same in every run.
    pub fn new(kind: Kind, args: &LoadArgs, target: &Target) -> anyhow::Result<Self> {
        let dialect: Box<dyn Dialect> = match args.protocol {
            Protocol::Rest => Box::new(Rest::new(args, target)?),
            Protocol::Sqs => Box::new(Sqs::new(args, target)?),
        };
        let per_delete = if args.bulk { args.batch as u64 } else { 1 };
        let is_cleaned = !args.keep && !args.url.is_empty();
        Ok(Self { kind, batch: args.batch, per_delete, queues: args.queues, is_cleaned, dialect })
    }

    /// The queue of a connection's n-th turn: each connection walks over its own share of the queues, and shares them
    /// when there are fewer queues than connections.
    pub fn queue_of(&self, connection: usize, turn: usize, connections: usize) -> usize {
        connection.wrapping_add(turn.wrapping_mul(connections)) % self.queues
    }

    /// Makes the queues that are not there, where posts do not or they are to be deleted at the end, and notes in `made` which those are.
    pub async fn create(
        &self,
        line: &mut BenchConnection,
        tally: &RefCell<Tally>,
        made: &mut Vec<usize>,
    ) -> Result<(), ConnectionFault> {
        if !self.is_cleaned && self.dialect.makes_queues_by_posts() {
            return Ok(());
        }
        for queue in 0..self.queues {
            let (look, create) = self.dialect.create(queue);
            let looked = match look {
                Some(look) => Some(line.ask(look).await?),
                None => None,
            };
            let created = line.ask(create).await?;
            if !created.status.is_success() {
                tally.borrow_mut().refuse(Verb::Post, created.status, &created.body);
            } else if self.dialect.is_new(looked.as_ref(), created.status) {
                made.push(queue);
            }
        }
        Ok(())
    }

    /// Deletes queues with their messages.
    pub async fn remove(
        &self,
        line: &mut BenchConnection,
        tally: &RefCell<Tally>,
        queues: &[usize],
    ) -> Result<(), ConnectionFault> {
        for queue in queues {
            let removed = line.ask(self.dialect.remove(*queue)).await?;
            if !removed.status.is_success() {
                tally.borrow_mut().refuse(Verb::Delete, removed.status, &removed.body);
            }
        }
        Ok(())
    }

    /// Posts as many messages as one request takes; how many that were.
    pub async fn fill(
        &self,
        line: &mut BenchConnection,
        queue: usize,
        tally: &RefCell<Tally>,
    ) -> Result<u64, ConnectionFault> {
        let (ask, messages) = self.dialect.fill(queue);
        let answer = line.ask(ask).await?;
        let is_done = self.expect(Verb::Post, &answer, tally);
        Ok(if is_done { messages } else { 0 })
    }

    /// Asks the requests of one turn on `line`, each counted in `tally`. An unexpected status ends the turn.
    pub async fn turn(
        &self,
        line: &mut BenchConnection,
        queue: usize,
        tally: &RefCell<Tally>,
    ) -> Result<(), ConnectionFault> {
        if matches!(self.kind, Kind::Post | Kind::Cycle) {
            let answer = line.ask(self.dialect.post(queue)).await?;
            if !self.expect(Verb::Post, &answer, tally) {
                return Ok(());
            }
        }
        match self.kind {
            Kind::Post => {
                tally.borrow_mut().count_messages(self.batch as u64);
                Ok(())
            }
            Kind::Claim => self.claim_and_keep(line, queue, tally).await,
            Kind::Cycle | Kind::Drain => self.claim_and_delete(line, queue, tally).await,
        }
    }

    async fn claim_and_keep(
        &self,
        line: &mut BenchConnection,
        queue: usize,
        tally: &RefCell<Tally>,
    ) -> Result<(), ConnectionFault> {
        if self.claim(line, queue, tally).await?.is_some() {
            tally.borrow_mut().count_messages(self.batch as u64);
        }
        Ok(())
    }

    async fn claim_and_delete(
        &self,
        line: &mut BenchConnection,
        queue: usize,
        tally: &RefCell<Tally>,
    ) -> Result<(), ConnectionFault> {
        let deletes = self.claim(line, queue, tally).await?;
        for ask in deletes.into_iter().flatten() {
            let answer = line.ask(ask).await?;
            if self.expect(Verb::Delete, &answer, tally) {
                tally.borrow_mut().count_messages(self.per_delete);
            }
        }
        Ok(())
    }

    /// The deletes of what was claimed; none where nothing was, and the queue is filled then unless the turn posts anyway.
    async fn claim(
        &self,
        line: &mut BenchConnection,
        queue: usize,
        tally: &RefCell<Tally>,
    ) -> Result<Option<Vec<BenchRequest>>, ConnectionFault> {
        let answer = line.ask(self.dialect.claim(queue)).await?;
        match self.dialect.claimed(queue, &answer) {
            Ok(None) => {
                tally.borrow_mut().count_empty_claim();
                match self.kind {
                    Kind::Claim | Kind::Drain => {
                        self.fill(line, queue, tally).await?;
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

    /// Counts the answer, as an answer or as an error; true when it is the one hoped for.
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

/// Texts of as many letters, different from each other.
fn texts(count: usize, letters: usize) -> Vec<String> {
    let mut random = StdRng::seed_from_u64(0);
    (0..count).map(|_| Alphanumeric.sample_string(&mut random, letters)).collect()
}

fn aimed(template: &BenchRequest, uri: &Uri) -> BenchRequest {
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
