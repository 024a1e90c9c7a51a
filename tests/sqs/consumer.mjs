// The JavaScript SDK and sqs-consumer: what they send and check by themselves must be right.
import assert from "node:assert";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.SQS_JS}/`);
const { SQSClient, CreateQueueCommand, SendMessageCommand, SendMessageBatchCommand, ReceiveMessageCommand,
  DeleteMessageCommand, GetQueueUrlCommand, QueueDoesNotExist } = require("@aws-sdk/client-sqs");
const { Consumer } = require("sqs-consumer");

const credentials = { accessKeyId: "AKIDEXAMPLE", secretAccessKey: "secret" };
const sqs = new SQSClient({ endpoint: process.argv[2], region: process.env.AWS_DEFAULT_REGION, credentials, maxAttempts: 1 });
const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: "js" }));

// It checks the checksums of bodies.
const attributes = { n: { DataType: "Binary", BinaryValue: new Uint8Array([1, 2]) } };
await sqs.send(new SendMessageCommand({ QueueUrl, MessageBody: "\u00e4", MessageAttributes: attributes }));
const { Messages } = await sqs.send(new ReceiveMessageCommand({ QueueUrl, MessageAttributeNames: ["All"] }));
assert.equal(Messages[0].Body, "\u00e4");
assert.deepEqual([...Messages[0].MessageAttributes.n.BinaryValue], [1, 2]);
await sqs.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: Messages[0].ReceiptHandle }));
await assert.rejects(sqs.send(new GetQueueUrlCommand({ QueueName: "nothing" })), QueueDoesNotExist);

// Ten messages are handled and deleted.
const Entries = [...Array(10).keys()].map((number) => ({ Id: String(number), MessageBody: String(number) }));
await sqs.send(new SendMessageBatchCommand({ QueueUrl, Entries }));
const seen = [];
await new Promise((done, failed) => {
  const handleMessage = async (message) => {
    seen.push(Number(message.Body));
    return message;
  };
  const consumer = Consumer.create({ queueUrl: QueueUrl, sqs, batchSize: 10, handleMessage });
  for (const event of ["error", "processing_error"]) consumer.on(event, failed);
  consumer.on("response_processed", () => seen.length === 10 && (consumer.stop(), done()));
  consumer.start();
});
assert.deepEqual(seen.sort((one, other) => one - other), [...Array(10).keys()]);
const { Messages: left } = await sqs.send(new ReceiveMessageCommand({ QueueUrl }));
assert.equal(left, undefined);
process.exit(0);
