"""Queues in order of groups: what is sent, what comes in which order, what is sent twice, and what a handle is good for."""

import json
import time

from face import client, refused

sqs = client()


def make(name, **attributes):
    return sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true", **attributes})["QueueUrl"]


def send(url, body, group="g", **arguments):
    arguments.setdefault("MessageDeduplicationId", body)
    return sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group, **arguments)


def receive(url, count=10, **arguments):
    return sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=count, **arguments).get("Messages", [])


def bodies(messages):
    return [message["Body"] for message in messages]


def delete(url, *messages):
    for message in messages:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


# The kind of a queue is in its name and in an attribute, and stays.
refused("InvalidParameterValue", sqs.create_queue, QueueName="a.fifo")
refused("InvalidParameterValue", sqs.create_queue, QueueName="a", Attributes={"FifoQueue": "true"})
refused("InvalidAttributeName", sqs.create_queue, QueueName="a", Attributes={"FifoQueue": "false"})
refused("InvalidParameterValue", make, name=".fifo")
url = make("orders.fifo", FifoThroughputLimit="perQueue")
assert make("orders.fifo") == url
every = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
expected = {"FifoQueue": "true", "ContentBasedDeduplication": "false", "DeduplicationScope": "queue",
            "FifoThroughputLimit": "perQueue"}
assert expected.items() <= every.items(), every
sqs.set_queue_attributes(QueueUrl=url, Attributes={"FifoQueue": "true"})
refused("InvalidAttributeValue", sqs.set_queue_attributes, QueueUrl=url, Attributes={"FifoQueue": "false"})
refused("InvalidAttributeValue", make, name="b.fifo", FifoThroughputLimit="perMessageGroupId")
assert make("b.fifo", FifoThroughputLimit="perMessageGroupId", DeduplicationScope="messageGroup")
refused("InvalidAttributeValue", sqs.set_queue_attributes, QueueUrl=url,
        Attributes={"FifoThroughputLimit": "perMessageGroupId"})
changed = make("changed.fifo")
high = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
for value in [high, {"DeduplicationScope": "messageGroup"}, {"FifoThroughputLimit": "perMessageGroupId"}]:
    sqs.set_queue_attributes(QueueUrl=changed, Attributes=value)
    shown = sqs.get_queue_attributes(QueueUrl=changed, AttributeNames=list(high))["Attributes"]
    assert shown == high, shown
refused("InvalidAttributeValue", sqs.set_queue_attributes, QueueUrl=changed, Attributes={"DeduplicationScope": "queue"})
assert send(changed, "x", "a")["MessageId"] != send(changed, "x", "b")["MessageId"]
sqs.set_queue_attributes(QueueUrl=changed, Attributes={"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"})

# A message names its group, and what makes it one with another.
refused("MissingParameter", sqs.send_message, QueueUrl=url, MessageBody="x")
refused("InvalidParameterValue", sqs.send_message, QueueUrl=url, MessageBody="x", MessageGroupId="g")
refused("InvalidParameterValue", send, url=url, body="x", group="a b")
refused("InvalidParameterValue", send, url=url, body="x", DelaySeconds=1)
refused("InvalidParameterValue", sqs.send_message_batch, QueueUrl=url, Entries=[
    {"Id": "a", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "x"},
    {"Id": "b", "MessageBody": "y", "MessageDeduplicationId": "y"}])
assert receive(url) == []

# Groups keep their order, and give nothing while one of theirs is held.
numbers = [send(url, f"a{number}", "a", DelaySeconds=0)["SequenceNumber"] for number in range(3)]
numbers += [send(url, f"b{number}", "b")["SequenceNumber"] for number in range(2)]
assert numbers == sorted(numbers) and len(set(numbers)) == 5 and len(numbers[0]) == 20, numbers
[first] = receive(url, 1, AttributeNames=["All"])
assert first["Body"] == "a0"
system = first["Attributes"]
assert (system["MessageGroupId"], system["MessageDeduplicationId"]) == ("a", "a0"), system
assert system["SequenceNumber"] == numbers[0] and "ApproximateFirstReceiveTimestamp" in system, system
held = receive(url)
assert bodies(held) == ["b0", "b1"], held
assert receive(url) == []
sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=held[0]["ReceiptHandle"], VisibilityTimeout=0)
[again] = receive(url)
assert again["Body"] == "b0"
delete(url, first)
rest = receive(url)
assert bodies(rest) == ["a1", "a2"]
delete(url, *rest, again, held[1])
assert receive(url) == []

# What is sent twice is there once, also after it was received and deleted.
once = send(url, "once", MessageDeduplicationId="id")
twice = send(url, "twice", MessageDeduplicationId="id")
assert (once["MessageId"], once["SequenceNumber"]) == (twice["MessageId"], twice["SequenceNumber"])
got = receive(url)
assert bodies(got) == ["once"]
delete(url, *got)
assert send(url, "again", MessageDeduplicationId="id")["MessageId"] == once["MessageId"]
assert receive(url) == []
content = make("content.fifo", ContentBasedDeduplication="true")
ids = [sqs.send_message(QueueUrl=content, MessageBody=body, MessageGroupId="g",
                        MessageAttributes={"n": {"DataType": "Number", "StringValue": str(number)}})["MessageId"]
       for number, body in enumerate(["same", "same", "other"])]
assert ids[0] == ids[1] != ids[2]
grouped = make("grouped.fifo", DeduplicationScope="messageGroup")
assert send(grouped, "x", "a")["MessageId"] != send(grouped, "x", "b")["MessageId"]
answer = sqs.send_message_batch(QueueUrl=url, Entries=[
    {"Id": str(number), "MessageBody": str(number), "MessageGroupId": "g", "MessageDeduplicationId": str(number)}
    for number in range(10)])
assert len({sent["SequenceNumber"] for sent in answer["Successful"]}) == 10, answer
got = receive(url)
assert bodies(got) == [str(number) for number in range(10)]
delete(url, *got)

# A handle is good for as long as its receive.
send(url, "late")
[got] = receive(url, VisibilityTimeout=1)
[again] = receive(url, WaitTimeSeconds=10)
assert again["Body"] == "late"
refused("InvalidParameterValue", sqs.delete_message, QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
refused("InvalidParameterValue", sqs.change_message_visibility, QueueUrl=url, VisibilityTimeout=5,
        ReceiptHandle=got["ReceiptHandle"])
delete(url, again)
delete(url, again)

# A receive that is repeated under its name is the same one, until something is done with its messages.
for body in ["r1", "r2", "r3"]:
    send(url, body)
named = {"ReceiveRequestAttemptId": "attempt-1", "VisibilityTimeout": 8}


def handles(messages):
    return [(message["Body"], message["ReceiptHandle"]) for message in messages]


held = receive(url, 2, **named)
assert bodies(held) == ["r1", "r2"]
time.sleep(5)
assert handles(receive(url, 2, **named)) == handles(held)
assert receive(url, 2, ReceiveRequestAttemptId="attempt-2") == []
time.sleep(5)
assert handles(receive(url, **named)) == handles(held), "their time began anew"
refused("InvalidParameterValue", receive, url=url, ReceiveRequestAttemptId="a b")
refused("InvalidParameterValue", receive, url=url, ReceiveRequestAttemptId="x" * 129)
delete(url, held[0])
assert receive(url, **named) == [], "one is deleted, and the other blocks its group"
sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=held[1]["ReceiptHandle"], VisibilityTimeout=0)
again = receive(url, **named)
assert bodies(again) == ["r2", "r3"] and again[0]["ReceiptHandle"] != held[1]["ReceiptHandle"], again
sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=again[0]["ReceiptHandle"], VisibilityTimeout=30)
assert receive(url, **named) == [], "one has another time"
delete(url, *again)

# Dead letters of such a queue go to such a queue, and free their group.
dead, plain = make("dead.fifo"), sqs.create_queue(QueueName="plain")["QueueUrl"]
arn = {to: sqs.get_queue_attributes(QueueUrl=to, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
       for to in [dead, plain]}
policy = {to: json.dumps({"deadLetterTargetArn": arn[to], "maxReceiveCount": 1}) for to in [dead, plain]}
refused("InvalidParameterValue", sqs.set_queue_attributes, QueueUrl=url, Attributes={"RedrivePolicy": policy[plain]})
refused("InvalidParameterValue", sqs.set_queue_attributes, QueueUrl=plain, Attributes={"RedrivePolicy": policy[dead]})
sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy[dead]})
poison = send(url, "poison")
send(url, "next")
assert bodies(receive(url, 1, VisibilityTimeout=0)) == ["poison"]
deadline = time.time() + 20
freed = []
while not freed and time.time() < deadline:
    freed = receive(url, WaitTimeSeconds=1)
assert bodies(freed) == ["next"], freed
[got] = receive(dead, WaitTimeSeconds=20, AttributeNames=["All"])
assert (got["Body"], got["MessageId"]) == ("poison", poison["MessageId"]), got

# On a standard queue a group is a word that comes back, and an id of deduplication is none.
sqs.send_message(QueueUrl=plain, MessageBody="x", MessageGroupId="tenant")
[got] = receive(plain, AttributeNames=["MessageGroupId"])
assert got["Attributes"] == {"MessageGroupId": "tenant"}, got
refused("InvalidParameterValue", sqs.send_message, QueueUrl=plain, MessageBody="x", MessageDeduplicationId="y")
refused("InvalidParameterValue", receive, url=plain, ReceiveRequestAttemptId="attempt-1")
