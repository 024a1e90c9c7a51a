//! The members of requests and answers of SQS, by AWS's names.

use angarium_core::limits;

/// A member of a body.
#[derive(Clone, Copy)]
pub struct Member {
    pub name: &'static str,
    pub shape: Shape,
    pub is_required: bool,
    /// The value in the example: plain text for [`Shape::Text`], JSON for any other; empty when the example lacks this
    /// member.
    pub example: &'static str,
    pub description: &'static str,
}

/// The type of a member.
#[derive(Clone, Copy)]
pub enum Shape {
    Text,
    /// A whole number within these bounds.
    Whole(u32, u32),
    /// A whole number that is not negative.
    Count,
    Truth,
    Texts,
    TextMap,
    /// Milliseconds since 1970.
    Time,
    /// A list of values of this schema.
    List(&'static str),
    /// Values of this schema, by name.
    Map(&'static str),
}

/// Creates a member that may be absent.
pub const fn may(
    name: &'static str,
    shape: Shape,
    example: &'static str,
    description: &'static str,
) -> Member {
    Member { name, shape, is_required: false, example, description }
}

/// Creates a member that is always present.
pub const fn must(
    name: &'static str,
    shape: Shape,
    example: &'static str,
    description: &'static str,
) -> Member {
    Member { is_required: true, ..may(name, shape, example, description) }
}

use Shape::{List, Map, Text, TextMap, Truth, Whole};

pub const URL: &str = "http://127.0.0.1:8888/000000000000/orders";
pub const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:orders";
pub const DEAD_ARN: &str = "arn:aws:sqs:us-east-1:000000000000:orders-failed";
const HANDLE: &str = "AQEBzWwaftRI0KuVm4tP";
const TASK: &str = "eyJ0YXNrSWQiOiJkYzE2NWU1MiJ9";
const MESSAGE_ID: &str = "019ab1c2-5f07-7d3e-8a41-3c5d7e9f1b20";
const MD5: &str = "5d41402abc4b2a76b9719d911017c592";

pub const QUEUE: Member = must("QueueUrl", Text, URL, "The URL of the queue.");
pub const QUEUE_NAME: Member =
    must("QueueName", Text, "orders", "The name of the queue; that of a FIFO queue ends in `.fifo`.");
pub const NEXT: Member = may(
    "NextToken",
    Text,
    "",
    "Where the next page begins. Present when `MaxResults` was given and there may be more.",
);
pub const PAGE_TOKEN: Member = may("NextToken", Text, "", "The token of the page before.");
pub const MAX_RESULTS: Member = may("MaxResults", Whole(1, 1_000), "100", "At most this many.");
pub const RECEIPT: Member = must("ReceiptHandle", Text, HANDLE, "The receipt handle of the message.");
pub const VISIBILITY: Member = must(
    "VisibilityTimeout",
    Whole(limits::VISIBILITY.0, limits::VISIBILITY.1),
    "60",
    "Seconds until others can receive the message; 0 releases it at once.",
);
const ENTRY_ID: Member = must("Id", Text, "first", "What the result of this entry is named by.");
pub const DELAY: Member = may(
    "DelaySeconds",
    Whole(0, 900),
    "",
    "Seconds until the message can be received; the attribute of the queue when absent.",
);
pub const MESSAGE_ATTRIBUTES: Member =
    may("MessageAttributes", Map("MessageAttributeValue"), "", "Up to 10 attributes of the message.");
pub const SYSTEM_ATTRIBUTES: Member =
    may("MessageSystemAttributes", Map("MessageAttributeValue"), "", "Only `AWSTraceHeader`.");
pub const GROUP: Member =
    may("MessageGroupId", Text, "", "The group of the message; needed in a FIFO queue.");
pub const DEDUP: Member =
    may("MessageDeduplicationId", Text, "", "The deduplication id of the message, in a FIFO queue.");
pub const BODY: Member = must("MessageBody", Text, "hello", "The message.");
pub const MESSAGE: Member = must("MessageId", Text, MESSAGE_ID, "The id of the message.");
pub const BODY_MD5: Member = must("MD5OfMessageBody", Text, MD5, "The MD5 of the body.");
pub const ATTRIBUTES_MD5: Member =
    may("MD5OfMessageAttributes", Text, "", "The MD5 of the attributes, if there are any.");
pub const SYSTEM_MD5: Member =
    may("MD5OfMessageSystemAttributes", Text, "", "The MD5 of the system attributes, if there are any.");
pub const SEQUENCE: Member = may("SequenceNumber", Text, "", "The place of the message in a FIFO queue.");
pub const FAILED: Member =
    must("Failed", List("BatchResultErrorEntry"), "[]", "The entries that were refused.");
pub const TASK_HANDLE: Member = must("TaskHandle", Text, TASK, "The handle of the task.");
pub const MOVED: Member =
    must("ApproximateNumberOfMessagesMoved", Shape::Count, "120", "Messages that the task has moved.");
pub const ATTRIBUTE_NAMES: &str = "The attributes to show, or `All`.";
pub const QUEUE_ATTRIBUTES: &str = "Attributes of the queue by their names, each as text: `DelaySeconds`, `MaximumMessageSize`, \
    `MessageRetentionPeriod`, `VisibilityTimeout`, `ReceiveMessageWaitTimeSeconds`, `RedrivePolicy`, `RedriveAllowPolicy`, \
    `Policy`, `KmsMasterKeyId`, `KmsDataKeyReusePeriodSeconds`, `SqsManagedSseEnabled`, and of a FIFO queue `FifoQueue`, \
    `ContentBasedDeduplication`, `DeduplicationScope`, `FifoThroughputLimit`.";

/// The schemas of values in bodies: their names, their descriptions and their members.
pub const OTHER_SCHEMAS: &[(&str, &str, &[Member])] = &[
    (
        "SqsError",
        "An error of SQS.",
        &[
            must("__type", Text, "", "The kind of error: a namespace, `#` and AWS's name."),
            may("message", Text, "", "The reason, for a person."),
        ],
    ),
    (
        "MessageAttributeValue",
        "An attribute of a message.",
        &[
            must(
                "DataType",
                Text,
                "",
                "`String`, `Number` or `Binary`, and a label of your own behind a dot.",
            ),
            may("StringValue", Text, "", "The value of a text or a number."),
            may("BinaryValue", Text, "", "The value in base64, if it is bytes."),
        ],
    ),
    (
        "ReceivedMessage",
        "A message that a receive hands out.",
        &[
            MESSAGE,
            RECEIPT,
            must("MD5OfBody", Text, "", "The MD5 of the body."),
            must("Body", Text, "", "The message."),
            may("Attributes", TextMap, "", "The system attributes that were asked for."),
            ATTRIBUTES_MD5,
            may("MessageAttributes", Map("MessageAttributeValue"), "", "The attributes that were asked for."),
        ],
    ),
    (
        "BatchResultErrorEntry",
        "An entry of a batch that was refused.",
        &[
            ENTRY_ID,
            must("SenderFault", Truth, "", "Whether the entry is wrong."),
            must("Code", Text, "", "The kind of error."),
            may("Message", Text, "", "The reason, for a person."),
        ],
    ),
    (
        "SendMessageBatchRequestEntry",
        "A message of a batch.",
        &[ENTRY_ID, BODY, DELAY, MESSAGE_ATTRIBUTES, SYSTEM_ATTRIBUTES, GROUP, DEDUP],
    ),
    (
        "SendMessageBatchResultEntry",
        "A message of a batch that was sent.",
        &[ENTRY_ID, MESSAGE, BODY_MD5, ATTRIBUTES_MD5, SYSTEM_MD5, SEQUENCE],
    ),
    ("DeleteMessageBatchRequestEntry", "A message to delete.", &[ENTRY_ID, RECEIPT]),
    ("DeleteMessageBatchResultEntry", "A message that was deleted.", &[ENTRY_ID]),
    (
        "ChangeMessageVisibilityBatchRequestEntry",
        "A message whose visibility changes.",
        &[ENTRY_ID, RECEIPT, Member { is_required: false, ..VISIBILITY }],
    ),
    ("ChangeMessageVisibilityBatchResultEntry", "A message whose visibility was changed.", &[ENTRY_ID]),
    (
        "ListMessageMoveTasksResultEntry",
        "A task that moves messages.",
        &[
            may("TaskHandle", Text, "", "The handle of the task, while it runs."),
            must("Status", Text, "", "`RUNNING`, `COMPLETED`, `CANCELLING`, `CANCELLED` or `FAILED`."),
            must("SourceArn", Text, "", "The queue that the messages leave."),
            may(
                "DestinationArn",
                Text,
                "",
                "The queue that they go to; absent when each returns to its own.",
            ),
            may(
                "MaxNumberOfMessagesPerSecond",
                Whole(1, 500),
                "",
                "Messages a second that the task moves at most.",
            ),
            MOVED,
            must("ApproximateNumberOfMessagesToMove", Shape::Count, "", "Messages that there were to move."),
            may("FailureReason", Text, "", "Why the task failed."),
            must("StartedTimestamp", Shape::Time, "", "When the task began, in milliseconds since 1970."),
        ],
    ),
];
