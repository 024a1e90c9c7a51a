//! The description of each SQS operation in the document.

use super::members::Shape::{List, Text, TextMap, Texts, Whole};
use super::members::{
    ARN, ATTRIBUTE_NAMES, ATTRIBUTES_MD5, BODY, BODY_MD5, DEAD_ARN, DEDUP, DELAY, FAILED, GROUP, MAX_RESULTS,
    MESSAGE, MESSAGE_ATTRIBUTES, MOVED, Member, NEXT, PAGE_TOKEN, QUEUE, QUEUE_ATTRIBUTES, QUEUE_NAME,
    RECEIPT, SEQUENCE, SYSTEM_ATTRIBUTES, SYSTEM_MD5, TASK_HANDLE, VISIBILITY, may, must,
};
use crate::api::sqs::Operation;
use angarium_core::limits;

/// The description of an operation.
pub struct Contents {
    pub summary: &'static str,
    pub description: &'static str,
    pub request: &'static [Member],
    /// The meaning of success.
    pub done: &'static str,
    /// The members of the answer; empty when it only states success.
    pub answer: &'static [Member],
}

/// Returns the description of an operation.
#[expect(clippy::too_many_lines, reason = "a table, with a row for each operation")]
pub const fn contents(operation: Operation) -> Contents {
    match operation {
        Operation::AddPermission => {
            const {
                Contents {
                    summary: "Allow others to use a queue",
                    description: "The statement is added to the policy of the queue.",
                    request: &[
                        QUEUE,
                        must("Label", Text, "billing", "The name of the statement."),
                        must("AWSAccountIds", Texts, r#"["111111111111"]"#, "The accounts that it is for."),
                        must("Actions", Texts, r#"["SendMessage"]"#, "The operations that it allows."),
                    ],
                    done: "The policy has the statement.",
                    answer: &[],
                }
            }
        }
        Operation::CancelMessageMoveTask => {
            const {
                Contents {
                    summary: "Cancel a message move task",
                    description: "Messages that were moved stay where they are.",
                    request: &[TASK_HANDLE],
                    done: "The task is canceled.",
                    answer: &[MOVED],
                }
            }
        }
        Operation::ChangeMessageVisibility => {
            const {
                Contents {
                    summary: "Change the visibility timeout of a message",
                    description: "",
                    request: &[QUEUE, RECEIPT, VISIBILITY],
                    done: "It is changed.",
                    answer: &[],
                }
            }
        }
        Operation::ChangeMessageVisibilityBatch => {
            const {
                Contents {
                    summary: "Change the visibility timeouts of several messages",
                    description: "Each entry has a result of its own.",
                    request: &[
                        QUEUE,
                        must(
                            "Entries",
                            List("ChangeMessageVisibilityBatchRequestEntry"),
                            r#"[{"Id": "first", "ReceiptHandle": "AQEBzWwaftRI0KuVm4tP", "VisibilityTimeout": 60}]"#,
                            "The messages.",
                        ),
                    ],
                    done: "The result of each entry.",
                    answer: &[
                        must(
                            "Successful",
                            List("ChangeMessageVisibilityBatchResultEntry"),
                            r#"[{"Id": "first"}]"#,
                            "The entries that were carried out.",
                        ),
                        FAILED,
                    ],
                }
            }
        }
        Operation::CreateQueue => {
            const {
                Contents {
                    summary: "Create a queue with SQS attributes",
                    description: "A queue that exists must have the same attributes.",
                    request: &[
                        QUEUE_NAME,
                        may("Attributes", TextMap, r#"{"VisibilityTimeout": "60"}"#, QUEUE_ATTRIBUTES),
                        may("tags", TextMap, "", "Tags of the queue."),
                    ],
                    done: "The queue exists.",
                    answer: &[QUEUE],
                }
            }
        }
        Operation::DeleteMessage => {
            const {
                Contents {
                    summary: "Delete a received message",
                    description: "A message that does not exist counts as deleted.",
                    request: &[QUEUE, RECEIPT],
                    done: "It is deleted.",
                    answer: &[],
                }
            }
        }
        Operation::DeleteMessageBatch => {
            const {
                Contents {
                    summary: "Delete several received messages",
                    description: "Each entry has a result of its own.",
                    request: &[
                        QUEUE,
                        must(
                            "Entries",
                            List("DeleteMessageBatchRequestEntry"),
                            r#"[{"Id": "first", "ReceiptHandle": "AQEBzWwaftRI0KuVm4tP"}]"#,
                            "The messages.",
                        ),
                    ],
                    done: "The result of each entry.",
                    answer: &[
                        must(
                            "Successful",
                            List("DeleteMessageBatchResultEntry"),
                            r#"[{"Id": "first"}]"#,
                            "The entries that were carried out.",
                        ),
                        FAILED,
                    ],
                }
            }
        }
        Operation::DeleteQueue => {
            const {
                Contents {
                    summary: "Delete a queue by its URL",
                    description: "All its messages are deleted too.",
                    request: &[QUEUE],
                    done: "It is deleted.",
                    answer: &[],
                }
            }
        }
        Operation::GetQueueAttributes => {
            const {
                Contents {
                    summary: "Get the SQS attributes of a queue",
                    description: "",
                    request: &[QUEUE, may("AttributeNames", Texts, r#"["All"]"#, ATTRIBUTE_NAMES)],
                    done: "The attributes.",
                    answer: &[may(
                        "Attributes",
                        TextMap,
                        r#"{"VisibilityTimeout": "60", "ApproximateNumberOfMessages": "3"}"#,
                        "The attributes that were asked for, each as text.",
                    )],
                }
            }
        }
        Operation::GetQueueUrl => {
            const {
                Contents {
                    summary: "Get the URL of a queue",
                    description: "",
                    request: &[
                        QUEUE_NAME,
                        may(
                            "QueueOwnerAWSAccountId",
                            Text,
                            "",
                            "The account that the queue is of; that of the caller when absent.",
                        ),
                    ],
                    done: "The URL.",
                    answer: &[QUEUE],
                }
            }
        }
        Operation::ListDeadLetterSourceQueues => {
            const {
                Contents {
                    summary: "List the sources of a dead-letter queue",
                    description: "",
                    request: &[QUEUE, MAX_RESULTS, PAGE_TOKEN],
                    done: "A page of them.",
                    answer: &[
                        must(
                            "queueUrls",
                            Texts,
                            r#"["http://127.0.0.1:8888/000000000000/orders"]"#,
                            "The URLs of the queues.",
                        ),
                        NEXT,
                    ],
                }
            }
        }
        Operation::ListMessageMoveTasks => {
            const {
                Contents {
                    summary: "List the message move tasks of a queue",
                    description: "The newest is first.",
                    request: &[
                        must("SourceArn", Text, DEAD_ARN, "The queue that the messages leave."),
                        may("MaxResults", Whole(1, 10), "1", "At most this many; 1 when absent."),
                    ],
                    done: "The tasks.",
                    answer: &[may(
                        "Results",
                        List("ListMessageMoveTasksResultEntry"),
                        r#"[{"Status": "COMPLETED", "SourceArn": "arn:aws:sqs:us-east-1:000000000000:orders-failed", "ApproximateNumberOfMessagesMoved": 120, "ApproximateNumberOfMessagesToMove": 120, "StartedTimestamp": 1795330958000}]"#,
                        "The tasks.",
                    )],
                }
            }
        }
        Operation::ListQueueTags => {
            const {
                Contents {
                    summary: "List the tags of a queue",
                    description: "",
                    request: &[QUEUE],
                    done: "The tags.",
                    answer: &[may("Tags", TextMap, r#"{"team": "billing"}"#, "The tags.")],
                }
            }
        }
        Operation::ListQueues => {
            const {
                Contents {
                    summary: "List the URLs of queues",
                    description: "The queues of the account are in the order of their names.",
                    request: &[
                        may("QueueNamePrefix", Text, "ord", "What the names begin with."),
                        MAX_RESULTS,
                        PAGE_TOKEN,
                    ],
                    done: "A page of them.",
                    answer: &[
                        may(
                            "QueueUrls",
                            Texts,
                            r#"["http://127.0.0.1:8888/000000000000/orders"]"#,
                            "The URLs of the queues.",
                        ),
                        NEXT,
                    ],
                }
            }
        }
        Operation::PurgeQueue => {
            const {
                Contents {
                    summary: "Purge a queue by its URL",
                    description: "All its messages are removed, received or not.",
                    request: &[QUEUE],
                    done: "They are gone.",
                    answer: &[],
                }
            }
        }
        Operation::ReceiveMessage => {
            const {
                Contents {
                    summary: "Receive messages",
                    description: "No other receive gets them before their visibility timeouts expire.",
                    request: &[
                        QUEUE,
                        may("MaxNumberOfMessages", Whole(1, 10), "10", "At most this many; 1 when absent."),
                        may(
                            "WaitTimeSeconds",
                            Whole(0, 20),
                            "20",
                            "Seconds to wait for the first message; the attribute of the queue when absent.",
                        ),
                        may(
                            "VisibilityTimeout",
                            Whole(limits::VISIBILITY.0, limits::VISIBILITY.1),
                            "",
                            "Seconds for which the messages are hidden; the attribute of the queue when absent.",
                        ),
                        may("MessageSystemAttributeNames", Texts, r#"["All"]"#, ATTRIBUTE_NAMES),
                        may(
                            "AttributeNames",
                            Texts,
                            "",
                            "As `MessageSystemAttributeNames`, for older clients.",
                        ),
                        may("MessageAttributeNames", Texts, "", ATTRIBUTE_NAMES),
                        may(
                            "ReceiveRequestAttemptId",
                            Text,
                            "",
                            "In a FIFO queue: a repeated receive with the same one gets the same messages.",
                        ),
                    ],
                    done: "The messages, if there are any.",
                    answer: &[may(
                        "Messages",
                        List("ReceivedMessage"),
                        r#"[{"MessageId": "019ab1c2-5f07-7d3e-8a41-3c5d7e9f1b20", "ReceiptHandle": "AQEBzWwaftRI0KuVm4tP", "MD5OfBody": "5d41402abc4b2a76b9719d911017c592", "Body": "hello"}]"#,
                        "The messages, oldest first. Absent when there are none.",
                    )],
                }
            }
        }
        Operation::RemovePermission => {
            const {
                Contents {
                    summary: "Remove a permission from a queue",
                    description: "",
                    request: &[QUEUE, must("Label", Text, "billing", "The name of the statement.")],
                    done: "The policy is without the statement.",
                    answer: &[],
                }
            }
        }
        Operation::SendMessage => {
            const {
                Contents {
                    summary: "Send a message",
                    description: "It is on disk when the request is answered, unless the queue asks for less.",
                    request: &[QUEUE, BODY, DELAY, MESSAGE_ATTRIBUTES, SYSTEM_ATTRIBUTES, GROUP, DEDUP],
                    done: "It is sent.",
                    answer: &[MESSAGE, BODY_MD5, ATTRIBUTES_MD5, SYSTEM_MD5, SEQUENCE],
                }
            }
        }
        Operation::SendMessageBatch => {
            const {
                Contents {
                    summary: "Send several messages",
                    description: "Each entry has a result of its own.",
                    request: &[
                        QUEUE,
                        must(
                            "Entries",
                            List("SendMessageBatchRequestEntry"),
                            r#"[{"Id": "first", "MessageBody": "hello"}]"#,
                            "The messages.",
                        ),
                    ],
                    done: "The result of each entry.",
                    answer: &[
                        must(
                            "Successful",
                            List("SendMessageBatchResultEntry"),
                            r#"[{"Id": "first", "MessageId": "019ab1c2-5f07-7d3e-8a41-3c5d7e9f1b20", "MD5OfMessageBody": "5d41402abc4b2a76b9719d911017c592"}]"#,
                            "The entries that were carried out.",
                        ),
                        FAILED,
                    ],
                }
            }
        }
        Operation::SetQueueAttributes => {
            const {
                Contents {
                    summary: "Set SQS attributes of a queue",
                    description: "All of them are set or none.",
                    request: &[
                        QUEUE,
                        must("Attributes", TextMap, r#"{"VisibilityTimeout": "60"}"#, QUEUE_ATTRIBUTES),
                    ],
                    done: "They are set.",
                    answer: &[],
                }
            }
        }
        Operation::StartMessageMoveTask => {
            const {
                Contents {
                    summary: "Move messages back from a dead-letter queue",
                    description: "The task continues by itself.",
                    request: &[
                        must(
                            "SourceArn",
                            Text,
                            DEAD_ARN,
                            "The queue that the messages leave: one that takes dead letters.",
                        ),
                        may(
                            "DestinationArn",
                            Text,
                            ARN,
                            "The queue that they go to; each returns to its own when absent.",
                        ),
                        may(
                            "MaxNumberOfMessagesPerSecond",
                            Whole(1, 500),
                            "",
                            "Messages a second that the task moves at most.",
                        ),
                    ],
                    done: "The task has begun.",
                    answer: &[TASK_HANDLE],
                }
            }
        }
        Operation::TagQueue => {
            const {
                Contents {
                    summary: "Set tags of a queue",
                    description: "",
                    request: &[
                        QUEUE,
                        must("Tags", TextMap, r#"{"team": "billing"}"#, "The tags to add or replace."),
                    ],
                    done: "The queue has the tags.",
                    answer: &[],
                }
            }
        }
        Operation::UntagQueue => {
            const {
                Contents {
                    summary: "Remove tags from a queue",
                    description: "",
                    request: &[
                        QUEUE,
                        must("TagKeys", Texts, r#"["team"]"#, "The names of the tags to remove."),
                    ],
                    done: "The queue is without the tags.",
                    answer: &[],
                }
            }
        }
    }
}
