"""Three replicas are one service to SQS: what one is told, the others know, whoever owns the queue."""

import sys
import threading

import boto3
from botocore.config import Config

from face import refused

bases = sys.argv[1].split(",")
config = Config(retries={"total_max_attempts": 1})
clients = [boto3.client("sqs", region_name="us-east-1", endpoint_url=base, config=config) for base in bases]
names = [f"queue-{number}" for number in range(12)]
for number, name in enumerate(names):
    made, sent, got = (clients[(number + step) % 3] for step in range(3))
    url = made.create_queue(QueueName=name)["QueueUrl"]
    assert url.startswith(bases[number % 3]), "it is the address that was asked"
    assert sent.get_queue_url(QueueName=name)["QueueUrl"].endswith(f"/{name}")
    entries = [{"Id": str(entry), "MessageBody": f"{name} {entry}"} for entry in range(10)]
    assert len(sent.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 10
    messages = got.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])["Messages"]
    assert [message["Body"] for message in messages] == [entry["MessageBody"] for entry in entries]
    assert messages[0]["Attributes"]["SenderId"] == "000000000000", messages[0]
    handles = [message["ReceiptHandle"] for message in messages]
    made.change_message_visibility(QueueUrl=url, ReceiptHandle=handles[0], VisibilityTimeout=0)
    [again] = sent.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert again["Body"] == f"{name} 0"
    for handle in handles[:5]:
        got.delete_message(QueueUrl=url, ReceiptHandle=handle)
    refused("ReceiptHandleIsInvalid", got.delete_message, QueueUrl=url, ReceiptHandle="no handle")
for client in clients:
    assert len(client.list_queues()["QueueUrls"]) == 12
    refused("AWS.SimpleQueueService.NonExistentQueue", client.send_message, MessageBody="x",
            QueueUrl=f"{bases[0]}/000000000000/nothing")

# The URL of a queue says its region to each of them.
west = boto3.client("sqs", region_name="eu-west-1", endpoint_url=bases[0], config=config)
for number, name in enumerate(names):
    url = west.create_queue(QueueName=name)["QueueUrl"]
    assert url == f"{bases[0]}/queue/eu-west-1/000000000000/{name}", url
    sent, got = (clients[(number + step) % 3] for step in range(2))
    sent.send_message(QueueUrl=url, MessageBody="regional")
    [message] = got.receive_message(QueueUrl=url)["Messages"]
    got.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

# A long poll at one replica hears of what is sent at another one.
for number in range(3):
    waited = []
    url = clients[0].create_queue(QueueName=f"polled-{number}")["QueueUrl"]
    poll = threading.Thread(target=lambda: waited.extend(
        clients[number].receive_message(QueueUrl=url, WaitTimeSeconds=20).get("Messages", [])))
    poll.start()
    clients[(number + 1) % 3].send_message(QueueUrl=url, MessageBody="x" * 900_000)
    poll.join()
    assert len(waited) == 1 and len(waited[0]["Body"]) == 900_000
