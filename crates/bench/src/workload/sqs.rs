//! Owns the requests of Amazon SQS in AWS JSON 1.0, unsigned. With groups the queues are FIFO ones.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::Write;

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::Full;
use serde::Deserialize;

use super::{BenchAnswer, BenchRequest, Dialect, LoadArgs, Target, Verb, template, texts};

/// What the error of a look states that finds no queue.
const MISSING: &[u8] = b"#QueueDoesNotExist";
/// The most messages that a batch may have (SQS).
const MOST: usize = 10;
/// The account of the queues: that of requests without credentials.
const ACCOUNT: &str = "000000000000";

pub(super) struct Sqs {
    batch: usize,
    /// Over how many groups messages are spread, in FIFO queues.
    groups: Option<u64>,
    is_bulk: bool,
    /// The queues' names, and their URLs as JSON strings.
    queues: Vec<(String, String)>,
    /// Bodies of messages, as many as a batch may have.
    bodies: Vec<String>,
    /// Counts the messages of FIFO queues: their groups in turn, and what tells them apart.
    posted: Cell<u64>,
    /// Tells this run from others.
    run: u128,
    /// A request without its operation and its body.
    template: BenchRequest,
}

/// The part of an answer to a receive that the deletes need.
#[derive(Deserialize)]
struct ReceiveReply<'a> {
    #[serde(borrow, rename = "Messages", default)]
    messages: Vec<ReceivedMessage<'a>>,
}

#[derive(Deserialize)]
struct ReceivedMessage<'a> {
    #[serde(borrow, rename = "ReceiptHandle")]
    handle: Cow<'a, str>,
}

impl Sqs {
    /// Bodies are texts of as many letters as are asked for.
    pub(super) fn new(args: &LoadArgs, target: &Target) -> anyhow::Result<Self> {
        let suffix = if args.groups.is_some() { ".fifo" } else { "" };
        let host = target.authority.to_str()?;
        let queues = (0..args.queues).map(|number| {
            let name = format!("bench-{number}{suffix}");
            let url = serde_json::Value::from(format!("http://{host}/{ACCOUNT}/{name}"));
            (name, url.to_string())
        });
        Ok(Self {
            batch: args.batch,
            groups: args.groups,
            is_bulk: args.bulk,
            queues: queues.collect(),
            bodies: texts(MOST, args.body_bytes),
            posted: Cell::new(0),
            run: uuid::Uuid::new_v4().as_u128(),
            template: template(Method::POST, target, Some("application/x-amz-json-1.0"), Bytes::new())?,
        })
    }

    fn ask(&self, operation: &'static str, body: String) -> BenchRequest {
        let mut request = self.template.clone();
        let headers = request.headers_mut();
        headers.insert(HeaderName::from_static("x-amz-target"), HeaderValue::from_static(operation));
        *request.body_mut() = Full::new(Bytes::from(body));
        request
    }

    /// The members of a message's entry but its id.
    fn entry(&self, body: &str) -> String {
        let mut entry = format!(r#""MessageBody":"{body}""#);
        if let Some(groups) = self.groups {
            let number = self.posted.replace(self.posted.get().wrapping_add(1));
            let (group, run) = (number % groups, self.run);
            write!(entry, r#","MessageGroupId":"group-{group}","MessageDeduplicationId":"{run:x}-{number}""#)
                .expect("a string takes all that is written");
        }
        entry
    }

    fn send(&self, queue: usize, messages: usize) -> BenchRequest {
        let url = &self.queues[queue].1;
        if messages == 1 {
            let entry = self.entry(&self.bodies[0]);
            return self.ask("AmazonSQS.SendMessage", format!(r#"{{"QueueUrl":{url},{entry}}}"#));
        }
        let entries: Vec<_> = self.bodies[..messages]
            .iter()
            .enumerate()
            .map(|(number, body)| format!(r#"{{"Id":"{number}",{}}}"#, self.entry(body)))
            .collect();
        let entries = entries.join(",");
        self.ask("AmazonSQS.SendMessageBatch", format!(r#"{{"QueueUrl":{url},"Entries":[{entries}]}}"#))
    }

    fn deletes(&self, queue: usize, handles: &[String]) -> Vec<BenchRequest> {
        let url = &self.queues[queue].1;
        if self.is_bulk {
            let entry = |(number, handle)| format!(r#"{{"Id":"{number}","ReceiptHandle":"{handle}"}}"#);
            let entries = handles.iter().enumerate().map(entry).collect::<Vec<_>>().join(",");
            let body = format!(r#"{{"QueueUrl":{url},"Entries":[{entries}]}}"#);
            return vec![self.ask("AmazonSQS.DeleteMessageBatch", body)];
        }
        let delete = |handle| {
            self.ask("AmazonSQS.DeleteMessage", format!(r#"{{"QueueUrl":{url},"ReceiptHandle":"{handle}"}}"#))
        };
        handles.iter().map(delete).collect()
    }
}

impl Dialect for Sqs {
    fn create(&self, queue: usize) -> (Option<BenchRequest>, BenchRequest) {
        let name = &self.queues[queue].0;
        let look = self.ask("AmazonSQS.GetQueueUrl", format!(r#"{{"QueueName":"{name}"}}"#));
        let fifo = if self.groups.is_some() { r#","Attributes":{"FifoQueue":"true"}"# } else { "" };
        (Some(look), self.ask("AmazonSQS.CreateQueue", format!(r#"{{"QueueName":"{name}"{fifo}}}"#)))
    }

    fn makes_queues_by_posts(&self) -> bool {
        false
    }

    fn is_new(&self, looked: Option<&BenchAnswer>, _: StatusCode) -> bool {
        // Refusals for the moment have the same status.
        looked.is_some_and(|looked| {
            looked.status.is_client_error() && looked.body.windows(MISSING.len()).any(|part| part == MISSING)
        })
    }

    fn remove(&self, queue: usize) -> BenchRequest {
        let url = &self.queues[queue].1;
        self.ask("AmazonSQS.DeleteQueue", format!(r#"{{"QueueUrl":{url}}}"#))
    }

    fn post(&self, queue: usize) -> BenchRequest {
        self.send(queue, self.batch)
    }

    fn fill(&self, queue: usize) -> (BenchRequest, u64) {
        (self.send(queue, MOST), MOST as u64)
    }

    fn claim(&self, queue: usize) -> BenchRequest {
        let (url, batch) = (&self.queues[queue].1, self.batch);
        self.ask("AmazonSQS.ReceiveMessage", format!(r#"{{"QueueUrl":{url},"MaxNumberOfMessages":{batch}}}"#))
    }

    fn claimed(&self, queue: usize, answer: &BenchAnswer) -> anyhow::Result<Option<Vec<BenchRequest>>> {
        let received: ReceiveReply<'_> =
            serde_json::from_slice(&answer.body).context("answer not understood")?;
        let handles: Vec<_> =
            received.messages.into_iter().map(|message| message.handle.into_owned()).collect();
        Ok(if handles.is_empty() { None } else { Some(self.deletes(queue, &handles)) })
    }

    fn expected(&self, _verb: Verb) -> StatusCode {
        StatusCode::OK
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load_args;
    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    fn sqs(arguments: &str) -> Sqs {
        let args = load_args(&format!("cycle --protocol sqs {arguments}")).unwrap();
        Sqs::new(&args, &Target::parse("http://127.0.0.1:1").unwrap()).unwrap()
    }

    async fn body(ask: BenchRequest) -> Value {
        serde_json::from_slice(&ask.into_body().collect().await.unwrap().to_bytes()).unwrap()
    }

    fn answer(body: &'static [u8]) -> BenchAnswer {
        BenchAnswer { status: StatusCode::OK, body: Bytes::from_static(body), took: Duration::ZERO }
    }

    #[tokio::test]
    async fn a_batch_of_one_is_a_send_and_more_are_a_batch() {
        let one = body(sqs("--body-bytes 256").post(0)).await;
        assert_eq!(one["MessageBody"].as_str().unwrap().len(), 256);
        assert_eq!(one["QueueUrl"], "http://127.0.0.1:1/000000000000/bench-0");
        let many = body(sqs("--batch 3").post(0)).await;
        assert_eq!(many["Entries"].as_array().unwrap().len(), 3);
    }

    #[tokio::test]
    async fn messages_of_fifo_queues_take_turns_over_the_groups() {
        let sqs = sqs("--groups 2");
        let posted = [body(sqs.post(0)).await, body(sqs.post(0)).await, body(sqs.post(0)).await];
        let groups = posted.each_ref().map(|one| one["MessageGroupId"].clone());
        assert_eq!(groups, [json!("group-0"), json!("group-1"), json!("group-0")]);
        assert_ne!(posted[0]["MessageDeduplicationId"], posted[2]["MessageDeduplicationId"]);
        assert_eq!(body(sqs.create(0).1).await["Attributes"]["FifoQueue"], "true");
    }

    #[tokio::test]
    async fn received_messages_are_deleted_each_or_together() {
        let received = answer(br#"{"Messages":[{"ReceiptHandle":"a","Body":"x"},{"ReceiptHandle":"b"}]}"#);
        let each = sqs("--batch 2").claimed(0, &received).unwrap().unwrap();
        assert_eq!(body(each.into_iter().next_back().unwrap()).await["ReceiptHandle"], "b");
        let mut together = sqs("--batch 2 --bulk").claimed(0, &received).unwrap().unwrap();
        assert_eq!(together.len(), 1);
        assert_eq!(body(together.remove(0)).await["Entries"][1]["ReceiptHandle"], "b");
        assert!(sqs("").claimed(0, &answer(b"{}")).unwrap().is_none());
    }
}
