//! The requests of Amazon SQS in AWS JSON 1.0, unsigned. With groups, the queues are FIFO queues.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::Write;

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::Full;
use serde::Deserialize;

use super::{BenchAnswer, BenchRequest, Dialect, LoadArgs, Target, Verb, template, texts};

/// Error type in the answer to the check for a missing queue.
const MISSING: &[u8] = b"#QueueDoesNotExist";
/// Max messages of a batch (SQS).
const MAX_BATCH: usize = 10;
/// Account of the queues: that of requests without credentials.
const ACCOUNT: &str = "000000000000";

pub(super) struct Sqs {
    batch: usize,
    /// Number of message groups in FIFO queues.
    groups: Option<u64>,
    is_bulk: bool,
    /// Names of the queues, and their URLs as JSON strings.
    queues: Vec<(String, String)>,
    /// Message bodies, as many as the max of a batch.
    bodies: Vec<String>,
    /// Number of messages posted to FIFO queues. It selects the group and makes the deduplication id unique.
    posted: Cell<u64>,
    /// Random id that distinguishes this run from others.
    run: u128,
    /// A request without its operation and its body.
    template: BenchRequest,
}

/// The part of the answer to a receive that the deletes need.
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
    /// Builds the requests. Bodies are texts of the requested length.
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
            bodies: texts(MAX_BATCH, args.body_bytes),
            posted: Cell::new(0),
            run: uuid::Uuid::new_v4().as_u128(),
            template: template(Method::POST, target, Some("application/x-amz-json-1.0"), Bytes::new())?,
        })
    }

    fn request(&self, operation: &'static str, body: String) -> BenchRequest {
        let mut request = self.template.clone();
        let headers = request.headers_mut();
        headers.insert(HeaderName::from_static("x-amz-target"), HeaderValue::from_static(operation));
        *request.body_mut() = Full::new(Bytes::from(body));
        request
    }

    /// Returns the members of a message's entry, except its id.
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
            return self.request("AmazonSQS.SendMessage", format!(r#"{{"QueueUrl":{url},{entry}}}"#));
        }
        let entries: Vec<_> = self.bodies[..messages]
            .iter()
            .enumerate()
            .map(|(number, body)| format!(r#"{{"Id":"{number}",{}}}"#, self.entry(body)))
            .collect();
        let entries = entries.join(",");
        self.request("AmazonSQS.SendMessageBatch", format!(r#"{{"QueueUrl":{url},"Entries":[{entries}]}}"#))
    }

    fn deletes(&self, queue: usize, handles: &[String]) -> Vec<BenchRequest> {
        let url = &self.queues[queue].1;
        if self.is_bulk {
            let entry = |(number, handle)| format!(r#"{{"Id":"{number}","ReceiptHandle":"{handle}"}}"#);
            let entries = handles.iter().enumerate().map(entry).collect::<Vec<_>>().join(",");
            let body = format!(r#"{{"QueueUrl":{url},"Entries":[{entries}]}}"#);
            return vec![self.request("AmazonSQS.DeleteMessageBatch", body)];
        }
        let delete = |handle| {
            self.request(
                "AmazonSQS.DeleteMessage",
                format!(r#"{{"QueueUrl":{url},"ReceiptHandle":"{handle}"}}"#),
            )
        };
        handles.iter().map(delete).collect()
    }
}

impl Dialect for Sqs {
    fn create(&self, queue: usize) -> (Option<BenchRequest>, BenchRequest) {
        let name = &self.queues[queue].0;
        let check = self.request("AmazonSQS.GetQueueUrl", format!(r#"{{"QueueName":"{name}"}}"#));
        let fifo = if self.groups.is_some() { r#","Attributes":{"FifoQueue":"true"}"# } else { "" };
        (Some(check), self.request("AmazonSQS.CreateQueue", format!(r#"{{"QueueName":"{name}"{fifo}}}"#)))
    }

    fn makes_queues_by_posts(&self) -> bool {
        false
    }

    fn is_new(&self, checked: Option<&BenchAnswer>, _: StatusCode) -> bool {
        // Temporary refusals have the same status, so the error type decides.
        checked.is_some_and(|checked| {
            checked.status.is_client_error()
                && checked.body.windows(MISSING.len()).any(|part| part == MISSING)
        })
    }

    fn remove(&self, queue: usize) -> BenchRequest {
        let url = &self.queues[queue].1;
        self.request("AmazonSQS.DeleteQueue", format!(r#"{{"QueueUrl":{url}}}"#))
    }

    fn post(&self, queue: usize) -> BenchRequest {
        self.send(queue, self.batch)
    }

    fn fill(&self, queue: usize) -> (BenchRequest, u64) {
        (self.send(queue, MAX_BATCH), MAX_BATCH as u64)
    }

    fn claim(&self, queue: usize) -> BenchRequest {
        let (url, batch) = (&self.queues[queue].1, self.batch);
        self.request(
            "AmazonSQS.ReceiveMessage",
            format!(r#"{{"QueueUrl":{url},"MaxNumberOfMessages":{batch}}}"#),
        )
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

    async fn body(request: BenchRequest) -> Value {
        serde_json::from_slice(&request.into_body().collect().await.unwrap().to_bytes()).unwrap()
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
