"""Tasks that move dead letters back to where they came from, or elsewhere: what they move, how they are listed and stopped."""

import base64
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from face import client, refused

sqs = client()


def make(name, **attributes):
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]


def arn(url):
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]


def policy(target):
    return json.dumps({"deadLetterTargetArn": arn(target), "maxReceiveCount": 1})


def receive(url, wait=0, **arguments):
    return sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=wait, **arguments).get("Messages", [])


def counts(url):
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return tuple(int(found[name]) for name in names)


def until(why, holds):
    deadline = time.time() + 40
    while not holds():
        assert time.time() < deadline, why
        time.sleep(0.05)


def kill(url, dead, bodies, **arguments):
    """Sends messages and has them die."""
    before = counts(dead)[0]
    for body in bodies:
        sqs.send_message(QueueUrl=url, MessageBody=body, **arguments)
    receive(url, VisibilityTimeout=0)
    until("they do not die", lambda: receive(url) == [] and counts(dead)[0] == before + len(bodies))


def task(source):
    return sqs.list_message_move_tasks(SourceArn=source)["Results"][0]


def ended(source, status="COMPLETED"):
    until(f"the task is not {status}", lambda: task(source)["Status"] not in ["RUNNING", "CANCELLING"])
    found = task(source)
    assert found["Status"] == status and "TaskHandle" not in found, found
    return found


def start(source, **arguments):
    return sqs.start_message_move_task(SourceArn=source, **arguments)["TaskHandle"]


def handle(**content):
    return base64.b64encode(json.dumps(content).encode()).decode()


dead = make("dead")
first, second, other = make("first", RedrivePolicy=policy(dead)), make("second", RedrivePolicy=policy(dead)), make("other")
source = arn(dead)

# Each message goes to where it came from, as a new one, and whoever waits there gets it.
kill(first, dead, ["a", "b", "c"])
kill(second, dead, ["d"], MessageAttributes={"n": {"DataType": "Number", "StringValue": "7"}})
waited = []
waiting = threading.Thread(target=lambda: waited.extend(receive(second, 20, AttributeNames=["All"], MessageAttributeNames=["All"])))
waiting.start()
time.sleep(0.5)
before = time.time()
started = start(source)
assert json.loads(base64.b64decode(started))["sourceArn"] == source
waiting.join()
assert time.time() - before < 15, "the task wakes who waits"
[got] = waited
assert (got["Body"], got["MessageAttributes"]["n"]["StringValue"]) == ("d", "7"), got
system = got["Attributes"]
assert system["ApproximateReceiveCount"] == "1" and "DeadLetterQueueSourceArn" not in system, system
assert abs(int(system["SentTimestamp"]) / 1000 - before) < 30
found = ended(source)
assert (found["ApproximateNumberOfMessagesMoved"], found["ApproximateNumberOfMessagesToMove"]) == (4, 4), found
assert found["SourceArn"] == source and "DestinationArn" not in found and "FailureReason" not in found, found
assert abs(found["StartedTimestamp"] / 1000 - before) < 30
back = receive(first)
assert [message["Body"] for message in back] == ["a", "b", "c"], back
assert counts(dead) == (0, 0)
for message in back:
    sqs.delete_message(QueueUrl=first, ReceiptHandle=message["ReceiptHandle"])

# Or all go to one queue, no faster than they may; one task at a time, and what is stopped stays where it is.
kill(first, dead, [str(number) for number in range(10)])
slow = start(source, DestinationArn=arn(other), MaxNumberOfMessagesPerSecond=1)
refused("InvalidParameterValue", sqs.start_message_move_task, SourceArn=source)
found = task(source)
assert (found["Status"], found["TaskHandle"], found["MaxNumberOfMessagesPerSecond"]) == ("RUNNING", slow, 1), found
assert found["DestinationArn"] == arn(other) and found["ApproximateNumberOfMessagesToMove"] == 10, found
until("the second one does not come", lambda: counts(other)[0] >= 2)
moved = sqs.cancel_message_move_task(TaskHandle=slow)["ApproximateNumberOfMessagesMoved"]
found = ended(source, "CANCELLED")
assert 1 <= moved <= found["ApproximateNumberOfMessagesMoved"] < 10, found
assert counts(other)[0] == found["ApproximateNumberOfMessagesMoved"] == 10 - counts(dead)[0], found
refused("ResourceNotFoundException", sqs.cancel_message_move_task, TaskHandle=slow)
sqs.purge_queue(QueueUrl=other)
left = counts(dead)[0]
start(source, DestinationArn=arn(other), MaxNumberOfMessagesPerSecond=500)
assert ended(source)["ApproximateNumberOfMessagesMoved"] == left
assert counts(other)[0] == left and counts(dead) == (0, 0)
statuses = [one["Status"] for one in sqs.list_message_move_tasks(SourceArn=source, MaxResults=10)["Results"]]
assert statuses == ["COMPLETED", "CANCELLED", "COMPLETED"], statuses

# A message that nobody moved there has no way back, and one whose queue is gone neither.
sqs.send_message(QueueUrl=dead, MessageBody="nobody's")
start(source)
assert ended(source, "FAILED")["FailureReason"] == "CouldNotDetermineMessageSource"
assert counts(dead) == (1, 0)
sqs.purge_queue(QueueUrl=dead)
kill(second, dead, ["orphan"])
sqs.delete_queue(QueueUrl=second)
start(source)
assert ended(source, "FAILED")["FailureReason"] == "AWS.SimpleQueueService.NonExistentQueue"
start(source, DestinationArn=arn(other))
ended(source)

# A task of nothing is over at once, and what is listed is bounded.
for _ in range(10):
    start(source)
    ended(source)
assert len(sqs.list_message_move_tasks(SourceArn=source, MaxResults=10)["Results"]) == 10
assert sqs.list_message_move_tasks(SourceArn=arn(other)).get("Results", []) == []

# What is wrong is told as AWS tells it.
fifo = make("dead.fifo", FifoQueue="true")
missing = source + "-missing"
for wrong in [{"SourceArn": arn(other)}, {"SourceArn": source, "DestinationArn": source}, {"SourceArn": "x"},
              {"SourceArn": source, "DestinationArn": arn(fifo)}, {"SourceArn": source, "MaxNumberOfMessagesPerSecond": 501}]:
    refused("InvalidParameterValue", sqs.start_message_move_task, **wrong)
for wrong in [{"SourceArn": missing}, {"SourceArn": source, "DestinationArn": missing}]:
    answer = refused("ResourceNotFoundException", sqs.start_message_move_task, **wrong)
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 404, answer
refused("ResourceNotFoundException", sqs.list_message_move_tasks, SourceArn=missing)
refused("InvalidParameterValue", sqs.list_message_move_tasks, SourceArn=source, MaxResults=11)
refused("InvalidParameterValue", sqs.cancel_message_move_task, TaskHandle="no handle")
for lost in [handle(taskId=json.loads(base64.b64decode(slow))["taskId"], sourceArn=missing),
             handle(taskId="5e7a4f63-0000-0000-0000-000000000000", sourceArn=source), handle(taskId="x", sourceArn=source)]:
    refused("ResourceNotFoundException", sqs.cancel_message_move_task, TaskHandle=lost)

# Queues in order of groups keep the order.
ordered = make("ordered.fifo", FifoQueue="true", RedrivePolicy=policy(fifo))
kill(ordered, fifo, ["x"], MessageGroupId="g", MessageDeduplicationId="x")
kill(ordered, fifo, ["y"], MessageGroupId="g", MessageDeduplicationId="y")
kill(ordered, fifo, ["z"], MessageGroupId="h", MessageDeduplicationId="z")
start(arn(fifo))
assert ended(arn(fifo))["ApproximateNumberOfMessagesMoved"] == 3
bodies = [message["Body"] for message in receive(ordered)]
assert sorted(bodies) == ["x", "y", "z"] and bodies.index("x") < bodies.index("y"), bodies

# Among more queues than one look takes, those whose dead letters go somewhere are found.
with ThreadPoolExecutor(8) as makers:
    list(makers.map(lambda number: make(f"many-{number}"), range(1_100)))
last = make("zz-last", RedrivePolicy=policy(other))
assert sqs.list_dead_letter_source_queues(QueueUrl=other)["queueUrls"] == [last]
start(arn(other))
