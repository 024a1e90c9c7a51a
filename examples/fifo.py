"""Order by account with a FIFO queue: while one payment of an account is in work, no other consumer gets the next one.

    python3 fifo.py URL
"""

import sys

import boto3

sqs = boto3.client("sqs", endpoint_url=sys.argv[1], region_name="us-east-1", aws_access_key_id="any",
                   aws_secret_access_key="any")
url = sqs.create_queue(QueueName="payments.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]

for number, (account, amount) in enumerate([("alice", 1), ("alice", 2), ("bob", 3), ("alice", 4)]):
    sqs.send_message(QueueUrl=url, MessageBody=str(amount), MessageGroupId=account, MessageDeduplicationId=str(number))
# A repeated send has no effect: its deduplication id is known for five minutes.
sqs.send_message(QueueUrl=url, MessageBody="1", MessageGroupId="alice", MessageDeduplicationId="0")


def receive(count=1):
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=count, WaitTimeSeconds=1,
                                 MessageSystemAttributeNames=["MessageGroupId"])
    return [(message["Attributes"]["MessageGroupId"], message["Body"], message["ReceiptHandle"])
            for message in answer.get("Messages", [])]


[(group, body, handle)] = receive()
assert (group, body) == ("alice", "1")
# Alice is blocked until her first payment is deleted; Bob is not.
assert [message[:2] for message in receive(10)] == [("bob", "3")]
sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
assert [message[:2] for message in receive(10)] == [("alice", "2"), ("alice", "4")]
print("fifo.py: in order")
