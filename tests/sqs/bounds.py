"""Bounds that an operator set: batches of 20, 15 messages in flight, and the minute that SQS has between two purges."""

import threading
import time
import urllib.request

from face import BASE, client, refused

sqs = client()


def make(name, **attributes):
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]


def receive(url, count, wait=0):
    return sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=count, WaitTimeSeconds=wait).get("Messages", [])


def batch(count, **more):
    return [{"Id": str(number), "MessageBody": str(number), **more} for number in range(count)]


url = make("bounded")
assert len(sqs.send_message_batch(QueueUrl=url, Entries=batch(20))["Successful"]) == 20
refused("AWS.SimpleQueueService.TooManyEntriesInBatchRequest", sqs.send_message_batch, QueueUrl=url, Entries=batch(21))
refused("InvalidParameterValue", receive, url=url, count=21)
held = receive(url, 16)
assert len(held) == 16

# With more in flight than there may be a short receive is refused, and a long one waits for some of them to go.
answer = refused("OverLimit", receive, url=url, count=1)
assert answer["ResponseMetadata"]["HTTPStatusCode"] == 403, answer
assert receive(url, 1, wait=1) == []
waited = []
waiting = threading.Thread(target=lambda: waited.extend(receive(url, 1, wait=20)))
waiting.start()
time.sleep(0.5)
handles = [{"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(held)]
assert len(sqs.delete_message_batch(QueueUrl=url, Entries=handles)["Successful"]) == 16
waiting.join()
assert len(waited) == 1, waited
fifo = make("bounded.fifo", FifoQueue="true", ContentBasedDeduplication="true")
sqs.send_message_batch(QueueUrl=fifo, Entries=batch(20, MessageGroupId="g"))
assert len(receive(fifo, 15)) == 15
assert receive(fifo, 1) == [], "an order is kept, and nobody is refused"

# Some things are not done twice in a minute.
sqs.purge_queue(QueueUrl=url)
answer = refused("AWS.SimpleQueueService.PurgeQueueInProgress", sqs.purge_queue, QueueUrl=url)
assert answer["ResponseMetadata"]["HTTPStatusCode"] == 403, answer
sqs.purge_queue(QueueUrl=fifo)
sqs.delete_queue(QueueUrl=url)
refused("AWS.SimpleQueueService.QueueDeletedRecently", make, name="bounded")
# One that is there all the same, since it was made anew through REST, is not refused.
rest = urllib.request.Request(f"{BASE}/v2/queues/bounded", method="PUT", data=b"{}", headers={
    "Client-ID": "3381af92-2b9e-11e3-b191-71861300734c", "X-Project-Id": "000000000000"})
assert urllib.request.urlopen(rest).status == 201
assert make("bounded") == url
assert make("another").endswith("/another")
