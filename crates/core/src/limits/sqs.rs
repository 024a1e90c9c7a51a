//! Bounds of what a request of SQS may name.

/// Parts of the name of a parameter of the query protocol, with dots between them. The longest that an operation has is
/// `SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringListValue.1`, with seven.
pub const SQS_NAME_PARTS: usize = 8;
/// Parameters of a request of the query protocol beside those of the entries of a batch: attributes, tags (two each), those
/// of a signature in the URL.
pub const SQS_PARAMETERS: usize = 256;
/// Parameters of each entry of a batch: its own five, and ten attributes with three to five each.
pub const SQS_ENTRY_PARAMETERS: usize = 64;
/// Characters of a value or a name that an error repeats: a receipt handle, or a redrive policy, whole.
pub const SQS_SHOWN_CHARS: usize = 1_024;
/// Bytes of the message of an error.
pub const SQS_ERROR_BYTES: usize = 4_096;
/// Characters of the header `X-Amzn-Trace-Id` that becomes a part of a message. AWS X-Ray needs about a hundred, and load
/// balancers add fields; a longer one is left out.
pub const SQS_TRACE_CHARS: usize = 1_024;
/// Characters of the name of a region, which has lower-case letters, digits and hyphens.
pub const SQS_REGION_CHARS: usize = 32;
/// Names in a list, attributes of a queue: far more than there are. A receive keeps its lists while it waits, and compares
/// them with each attribute of each message.
pub const SQS_NAMES: usize = 256;
/// Bytes of the body of a request that receives messages: lists of names. It is in memory while the receive waits.
pub const SQS_RECEIVE_BYTES: usize = 16 * 1024;
/// Bytes of the body of any request that sends no message: a policy and fifty tags, with each character written as an
/// escape; or the handles of the largest batch.
pub const SQS_CONTROL_BYTES: usize = 256 * 1024;
