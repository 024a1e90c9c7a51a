"""How late deadlines are met, and whether a dead letter is there when the receive is answered that has moved it.

Machines may be busy with something else: medians are looked at, with room, and a round that says nothing is made again.
"""

import json
import statistics
import sys
import threading
import time

from face import client

sqs = client()


ROUNDS = 6


def make(name, **attributes):
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]


def receive(url, **arguments):
    return sqs.receive_message(QueueUrl=url, **arguments).get("Messages", [])


def lateness(count, begin, turn):
    """Of `count` messages, each of its own queue: seconds that it came later than it was due."""
    late = [None] * count

    def one(number):
        url = make(f"{begin.__name__}-{turn}-{number}")
        time.sleep(number * 0.071)
        before = time.time()
        begin(url)
        # The server has counted from some instant between these two.
        after = time.time()
        assert len(receive(url, WaitTimeSeconds=20)) == 1, number
        assert time.time() - before > 0.95, "it came too early"
        late[number] = time.time() - after - 1

    threads = [threading.Thread(target=one, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in late, late
    return late


def hidden(url):
    sqs.send_message(QueueUrl=url, MessageBody="x")
    assert len(receive(url, VisibilityTimeout=1)) == 1


def delayed(url):
    sqs.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=1)


def dead_letters(rounds):
    """How often a dead letter was there at once."""
    dead = make("dead")
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    url = make("source", RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1}))
    there = 0
    for number in range(rounds):
        sqs.send_message(QueueUrl=url, MessageBody=f"poison {number}")
        assert len(receive(url, VisibilityTimeout=0)) == 1
        # A message that goes on is received beside the one that leaves, or nothing is.
        if number % 2:
            sqs.send_message(QueueUrl=url, MessageBody="next")
        next_ones = receive(url, MaxNumberOfMessages=10)
        assert [message["Body"] for message in next_ones] == ["next"] * (number % 2), next_ones
        found = receive(dead)
        there += len(found)
        for message in found or receive(dead, WaitTimeSeconds=20):
            assert message["Body"] == f"poison {number}", message
            sqs.delete_message(QueueUrl=dead, ReceiptHandle=message["ReceiptHandle"])
        for message in next_ones:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return there


def is_in_time(begin, turn):
    late = lateness(15, begin, turn)
    print(f"{begin.__name__}: {[round(1000 * one) for one in sorted(late)]} ms late", file=sys.stderr)
    return statistics.median(late) < 0.07


def is_there_at_once():
    there = dead_letters(20)
    print(f"dead letters: {there} of 20 at once", file=sys.stderr)
    return there >= 13


for begin in [hidden, delayed]:
    assert any(is_in_time(begin, turn) for turn in range(ROUNDS)), begin
assert any(is_there_at_once() for _ in range(ROUNDS))
