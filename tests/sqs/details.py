"""Behaviour that clients meet when they look closely, and in which services that speak SQS differ: order, waits, groups,
deduplication, delays."""

import hashlib
import json
import threading
import time

from botocore.exceptions import ClientError

from face import client, refused

sqs = client()


def make(name, **attributes):
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]


def fifo(name, **attributes):
    return make(f"{name}.fifo", FifoQueue="true", **attributes)


def send(url, body, group=None, **arguments):
    if group:
        arguments.setdefault("MessageDeduplicationId", body)
        arguments["MessageGroupId"] = group
    return sqs.send_message(QueueUrl=url, MessageBody=body, **arguments)


def receive(url, count=10, **arguments):
    return sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=count, **arguments).get("Messages", [])


def bodies(messages):
    return [message["Body"] for message in messages]


def hide(url, message, seconds):
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds)


def delete(url, message):
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def attributes(url):
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]


def counts(url):
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"]
    return [int(attributes(url)[name]) for name in names]


def expired_message_keeps_its_place():
    url = make("place")
    send(url, "old")
    assert len(receive(url, VisibilityTimeout=1)) == 1
    send(url, "new")
    time.sleep(4)
    assert bodies(receive(url)) == ["old", "new"]


def handle_outlives_its_receive():
    url = make("handle")
    send(url, "x")
    names = ["ApproximateFirstReceiveTimestamp"]
    [first] = receive(url, VisibilityTimeout=0, AttributeNames=names)
    [second] = receive(url, VisibilityTimeout=0, AttributeNames=names)
    assert first["Attributes"] == second["Attributes"], "the first receive stays the first"
    hide(url, first, 5)
    delete(url, first)
    assert counts(url) == [0, 0, 0]


def wait_of_the_call_counts_more():
    url = make("wait", ReceiveMessageWaitTimeSeconds="6")
    before = time.time()
    assert receive(url, WaitTimeSeconds=0) == []
    assert time.time() - before < 5
    before = time.time()
    assert receive(url) == []
    assert time.time() - before > 5


def waits_end_at_the_first_message():
    hidden, ended, late, ordered = make("hidden"), make("ended"), make("late"), fifo("ordered")
    send(hidden, "hidden")
    [taken] = receive(hidden, VisibilityTimeout=600)
    send(ended, "ended")
    assert len(receive(ended, VisibilityTimeout=2)) == 1
    send(ordered, "first", "g")
    send(ordered, "second", "g")
    [blocker] = receive(ordered, 1, VisibilityTimeout=600)
    causes = {hidden: lambda: hide(hidden, taken, 0), ended: lambda: None,
              late: lambda: send(late, "late", DelaySeconds=2), ordered: lambda: delete(ordered, blocker)}
    got = {}

    def wait(url):
        began = time.time()
        messages = receive(url, WaitTimeSeconds=20)
        got[url] = (bodies(messages), time.time() - began < 15)

    waiting = [threading.Thread(target=wait, args=[url]) for url in causes]
    for thread in waiting:
        thread.start()
    time.sleep(0.5)
    for cause in causes.values():
        cause()
    for thread in waiting:
        thread.join()
    assert got == {hidden: (["hidden"], True), ended: (["ended"], True), late: (["late"], True), ordered: (["second"], True)}


def group_is_free_when_all_its_messages_are():
    url = fifo("held")
    for number in range(6):
        send(url, str(number), "g")
    first, second = receive(url, 2)
    # What its group blocks counts as visible.
    assert counts(url) == [4, 2, 0]
    delete(url, first)
    assert receive(url) == [], "the second is in flight still"
    delete(url, second)
    held = receive(url, 3, VisibilityTimeout=4)
    assert bodies(held) == ["2", "3", "4"]
    hide(url, held[2], 600)
    time.sleep(5)
    again = receive(url, VisibilityTimeout=4, WaitTimeSeconds=10)
    assert bodies(again) == ["2", "3"], "those before the one that is hidden for longer"
    hide(url, again[0], 600)
    time.sleep(5)
    assert receive(url) == [], "the first of the group is hidden"


def receive_fills_from_one_group_first():
    url = fifo("groups")
    for number in range(4):
        for group in "abc":
            send(url, f"{group}{number}", group)
    got = bodies(receive(url))
    assert got == ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3", "c0", "c1"], got
    taking_turns = fifo("turns")
    for group in "abc":
        for number in range(2):
            send(taking_turns, f"{group}{number}", group)
    got = []
    for _ in range(3):
        [message] = receive(taking_turns, 1)
        got.append(message["Body"])
        delete(taking_turns, message)
    assert got == ["a0", "b0", "c0"], got


def deduplication():
    url = make("dedup.fifo", FifoQueue="True", ContentBasedDeduplication="TRUE")
    shown = attributes(url)
    assert (shown["FifoQueue"], shown["ContentBasedDeduplication"]) == ("true", "true"), shown
    own = hashlib.sha256(b"x").hexdigest()
    ids = [send(url, body, "g", MessageDeduplicationId=dedup)["MessageId"] for body, dedup in [("y", own), ("x", "other")]]
    by_content = sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g")["MessageId"]
    assert by_content == ids[0] != ids[1], "an id that equals the hash is that of the content, and one that is named wins"
    got = receive(url, AttributeNames=["MessageDeduplicationId"])
    assert [message["Attributes"]["MessageDeduplicationId"] for message in got] == [own, "other"], got
    sqs.purge_queue(QueueUrl=url)
    assert send(url, "x", "g", MessageDeduplicationId="other")["MessageId"] != ids[1], "a purge forgets the ids"
    named_alone = fifo("named")
    entries = [{"Id": "a", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "x"},
               {"Id": "b", "MessageBody": "y", "MessageGroupId": "g"}]
    refused("InvalidParameterValue", sqs.send_message_batch, QueueUrl=named_alone, Entries=entries)
    assert receive(named_alone) == [], "the whole batch is refused"


def delays():
    url = fifo("delayed", DelaySeconds="5")
    send(url, "x", "g", DelaySeconds=0)
    assert receive(url) == [] and counts(url) == [0, 0, 1], "the queue alone delays"
    assert bodies(receive(url, WaitTimeSeconds=10)) == ["x"]
    plain = make("plain", DelaySeconds="900")
    send(plain, "x")
    sqs.set_queue_attributes(QueueUrl=plain, Attributes={"DelaySeconds": "0"})
    send(plain, "y")
    assert bodies(receive(plain)) == ["y"], "what was sent keeps its delay"
    send(plain, "z")
    assert counts(plain) == [1, 1, 1]
    sqs.purge_queue(QueueUrl=plain)
    assert counts(plain) == [0, 0, 0]


def dead_letters_in_order():
    dead = fifo("dead")
    policy = json.dumps({"deadLetterTargetArn": attributes(dead)["QueueArn"], "maxReceiveCount": 1})
    url = fifo("source", RedrivePolicy=policy)
    sent = send(url, "poison", "g", MessageDeduplicationId="own")
    assert len(receive(url, VisibilityTimeout=0)) == 1 and receive(url) == []
    [got] = receive(dead, WaitTimeSeconds=20, AttributeNames=["MessageDeduplicationId", "MessageGroupId"])
    expected = {"MessageDeduplicationId": sent["MessageId"], "MessageGroupId": "g"}
    assert got["Attributes"] == expected, "several queues may have had the id that it was sent with"
    assert send(dead, "another", "g", MessageDeduplicationId="own")["MessageId"] != sent["MessageId"]


def queue_is_compared_as_it_is_now():
    url = make("compared", VisibilityTimeout="10")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "20"})
    refused("QueueAlreadyExists", make, name="compared", VisibilityTimeout="10")
    assert make("compared", VisibilityTimeout="20") == url == make("compared")
    for name, value in [("DeduplicationScope", "queue"), ("FifoThroughputLimit", "perQueue")]:
        error = refused("InvalidAttributeName", make, name="no-groups", **{name: value})
        assert error["Error"]["Message"] == f"You can specify the {name} only when FifoQueue is set to true.", error


def sources_are_allowed_by_name():
    dead, named, other = make("dead"), make("named"), make("other")
    policy = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": attributes(dead)["QueueArn"], "maxReceiveCount": 1})}
    allow = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [attributes(named)["QueueArn"]]})
    sqs.set_queue_attributes(QueueUrl=dead, Attributes={"RedriveAllowPolicy": allow})
    sqs.set_queue_attributes(QueueUrl=named, Attributes=policy)
    refused("InvalidParameterValue", sqs.set_queue_attributes, QueueUrl=other, Attributes=policy)
    sqs.set_queue_attributes(QueueUrl=dead, Attributes={"RedriveAllowPolicy": ""})
    sqs.set_queue_attributes(QueueUrl=other, Attributes=policy)


def permission_is_written_as_a_statement():
    url = make("shared")
    arn = attributes(url)["QueueArn"]
    arguments = {"Label": "l", "AWSAccountIds": ["111111111111"], "Actions": ["SendMessage"]}
    sqs.add_permission(QueueUrl=url, **arguments)
    statement = {"Sid": "l", "Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::111111111111:root"},
                 "Action": "SQS:SendMessage", "Resource": arn}
    expected = {"Version": "2008-10-17", "Id": f"{arn}/SQSDefaultPolicy", "Statement": [statement]}
    assert json.loads(attributes(url)["Policy"]) == expected
    refused("InvalidParameterValue", sqs.add_permission, QueueUrl=url, **arguments)
    refused("InvalidParameterValue", sqs.remove_permission, QueueUrl=url, Label="m")
    sqs.remove_permission(QueueUrl=url, Label="l")
    assert "Policy" not in attributes(url)


def ids_have_the_characters_of_names():
    plain, ordered = make("plain-ids"), fifo("ids")
    for wrong in ["", "a b", "x" * 129, "ä"]:
        refused("InvalidParameterValue", send, url=plain, body="x", MessageGroupId=wrong)
        refused("InvalidParameterValue", send, url=ordered, body="x", group="g", MessageDeduplicationId=wrong)
    send(ordered, "x", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", MessageDeduplicationId="x" * 128)


def quiet_group_is_not_kept_waiting():
    url = make("fair")
    for first in range(0, 60, 10):
        entries = [{"Id": str(number), "MessageBody": "noise", "MessageGroupId": "noisy"} for number in range(first, first + 10)]
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert sum(len(receive(url, VisibilityTimeout=600)) for _ in range(4)) == 40
    send(url, "quiet", MessageGroupId="quiet")
    assert bodies(receive(url, 1)) == ["quiet"]


for part in [expired_message_keeps_its_place, handle_outlives_its_receive, wait_of_the_call_counts_more,
             waits_end_at_the_first_message, group_is_free_when_all_its_messages_are, receive_fills_from_one_group_first,
             deduplication, delays, dead_letters_in_order, queue_is_compared_as_it_is_now, sources_are_allowed_by_name,
             permission_is_written_as_a_statement, ids_have_the_characters_of_names, quiet_group_is_not_kept_waiting]:
    try:
        part()
    except (AssertionError, ClientError) as error:
        raise SystemExit(f"{part.__name__}: {error!r} at line {error.__traceback__.tb_next.tb_lineno}") from error
