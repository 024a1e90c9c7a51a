"""Messages live by the MessageRetentionPeriod that their queue has now, dead letters by that of their new queue. The least period is
a minute, so all queues share the same two minutes."""

import json
import time
import urllib.request

from face import BASE, client, refused

sqs = client()
began = time.monotonic()


def at(seconds):
    """Waits until so many seconds after the first send."""
    time.sleep(max(0.0, began + seconds - time.monotonic()))


def make(name, retention, **attributes):
    if name.endswith(".fifo"):
        attributes.update(FifoQueue="true", ContentBasedDeduplication="true")
    return sqs.create_queue(QueueName=name, Attributes={"MessageRetentionPeriod": str(retention), **attributes})["QueueUrl"]


def retain(url, retention):
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"MessageRetentionPeriod": str(retention)})


def dying_into(dead):
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    return json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})


def send(url, *bodies):
    group = {"MessageGroupId": "g"} if url.endswith(".fifo") else {}
    for body in bodies:
        sqs.send_message(QueueUrl=url, MessageBody=body, **group)


def bodies(url, **arguments):
    """What can be received, and stays where it is."""
    got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0, **arguments)
    return [message["Body"] for message in got.get("Messages", [])]


def kill(url, dead, body):
    assert bodies(url) == [body], url
    # On a busy machine the receive is answered before the transfer has ended.
    assert bodies(url) == [] and bodies(dead, WaitTimeSeconds=20) == [body], dead


def counts(url):
    """Messages that are visible, in flight, and delayed."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"]
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return [int(shown[name]) for name in names]


def post(name, body, **life):
    """A message of REST, which keeps the life that it gets at the post: its own `ttl`, or that of the queue at that time."""
    data = json.dumps({"messages": [{"body": body, **life}]}).encode()
    headers = {"Client-ID": "3381af92-2b9e-11e3-b191-71861300734c", "X-Project-Id": "000000000000", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{BASE}/v2/queues/{name}/messages", data, headers)
    assert urllib.request.urlopen(request).status == 201


shorter, longer, held = make("shorter", 3600), make("longer", 60), make("held", 60)
later, sooner = make("later", 3600), make("sooner", 60)
into_later, into_sooner = make("into-later", 60, RedrivePolicy=dying_into(later)), make("into-sooner", 3600, RedrivePolicy=dying_into(sooner))
ordered = make("ordered.fifo", 60)
into_ordered = make("into-ordered.fifo", 3600, RedrivePolicy=dying_into(ordered))

began = time.monotonic()
send(shorter, "a", "b")
post("shorter", "posted", ttl=3600)
post("shorter", "posted by default")
send(longer, "a")
post("longer", "posted", ttl=60)
post("longer", "posted by default")
send(held, "a", "b")
sqs.send_message(QueueUrl=held, MessageBody="delayed", DelaySeconds=900)
for url in [into_later, into_sooner, into_ordered]:
    send(url, "letter")
[taken] = sqs.receive_message(QueueUrl=held, VisibilityTimeout=600)["Messages"]
assert counts(held) == [1, 1, 1], counts(held)
kill(into_later, later, "letter")

at(40)
retain(longer, 3600)
kill(into_sooner, sooner, "letter")
kill(into_ordered, ordered, "letter")

at(65)
# Of a minute's period all that was sent is over: in the source's queue too, though it was longer there.
assert sorted(bodies(shorter)) == ["a", "b", "posted", "posted by default"]
retain(shorter, 60)
assert sorted(bodies(shorter)) == ["posted", "posted by default"], "what was sent is over at once, and what was posted is not"
assert bodies(longer) == ["a"], "the longer period holds for what was sent, and for nothing that was posted"
assert bodies(later) == ["letter"], "it lives by its new queue"
assert bodies(sooner) == [], "in a standard queue it lives from its first send on"
assert bodies(ordered) == ["letter"], "in a FIFO queue it lives from its transfer on"

at(105)
assert bodies(ordered) == []
assert bodies(longer) == ["a"] and bodies(later) == ["letter"]
deadline = time.monotonic() + 100
# One in flight and one that is delayed leave their counters too.
emptied = {shorter: [2, 0, 0], longer: [1, 0, 0], sooner: [0, 0, 0], ordered: [0, 0, 0], held: [0, 0, 0], into_later: [0, 0, 0]}
while any(counts(url) != left for url, left in emptied.items()):
    assert time.monotonic() < deadline, {url: counts(url) for url in emptied}
    time.sleep(0.5)
# The handle of the one in flight is of nothing now.
sqs.delete_message(QueueUrl=held, ReceiptHandle=taken["ReceiptHandle"])
refused("InvalidParameterValue", sqs.change_message_visibility, QueueUrl=held, ReceiptHandle=taken["ReceiptHandle"], VisibilityTimeout=5)
