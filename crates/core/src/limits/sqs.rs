//! Bounds of SQS requests.

/// Max parts, separated by dots, of the name of a parameter of the query protocol. The longest name of an operation has
/// seven: `SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringListValue.1`.
pub const SQS_NAME_PARTS: usize = 8;
/// Max parameters of a request of the query protocol, without those of batch entries: attributes, tags (two each), and
/// the parameters of a signature in the URL.
pub const SQS_PARAMETERS: usize = 256;
/// Max parameters of each entry of a batch: five of its own, and ten attributes with three to five each.
pub const SQS_ENTRY_PARAMETERS: usize = 64;
/// Max characters of a value or name that an error repeats: enough for a whole receipt handle or redrive policy.
pub const SQS_SHOWN_CHARS: usize = 1_024;
/// Max bytes of the message of an error.
pub const SQS_ERROR_BYTES: usize = 4_096;
/// Max characters of the header `X-Amzn-Trace-Id` that is stored with a message. AWS X-Ray needs about a hundred, and
/// load balancers add fields; a longer header is left out.
pub const SQS_TRACE_CHARS: usize = 1_024;
/// Max characters of the name of a region, which has lower-case letters, digits and hyphens.
pub const SQS_REGION_CHARS: usize = 32;
/// Max names in a list of attributes: far more than a queue has. A receive keeps its lists while it waits, and compares
/// them with each attribute of each message.
pub const SQS_NAMES: usize = 256;
/// Max bytes of the body of a request that receives messages: lists of names. The body is in memory while the receive
/// waits.
pub const SQS_RECEIVE_BYTES: usize = 16 * 1024;
/// Max bytes of the body of any request that sends no message: a policy and fifty tags with each character written as
/// an escape, or the handles of the largest batch.
pub const SQS_CONTROL_BYTES: usize = 256 * 1024;
