"""What clients repeat, through a wire that breaks before or after the service hears of a request, or answers for it: in both
retry modes each request has exactly the effect that it must have."""

import http.client
import http.server
import socket
import sys
import threading
import time
import urllib.parse

import boto3
from botocore.config import Config

from face import BASE, refused

SERVICE = urllib.parse.urlsplit(BASE).netloc
AHEAD, BEHIND, UNAVAILABLE = "cut ahead of the request", "cut behind it", "503 by somebody in between"
# What becomes of the next requests, and how many there were.
faults, heard = [], []


class Wire(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        heard.append(self.headers["X-Amz-Target"])
        fault = faults.pop(0) if faults else None
        if fault == UNAVAILABLE:
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if fault != AHEAD:
            service = http.client.HTTPConnection(SERVICE)
            service.request("POST", self.path, body, dict(self.headers))
            answer = service.getresponse()
            content = answer.read()
            service.close()
        if fault in (AHEAD, BEHIND):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() in ("content-type", "x-amzn-requestid", "x-amzn-query-error"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


wire = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Wire)
wire.daemon_threads = True
threading.Thread(target=wire.serve_forever, daemon=True).start()
sqs = boto3.client("sqs", region_name="us-east-1", endpoint_url=f"http://127.0.0.1:{wire.server_port}",
                   config=Config(retries={"mode": sys.argv[2], "max_attempts": 3}))


def through(broken, call, **arguments):
    """Calls while the wire breaks so: once more than that often the request is made."""
    faults[:], heard[:] = broken, []
    answer = call(**arguments)
    assert len(heard) == len(broken) + 1, (broken, heard)
    return answer


def receive(url, **arguments):
    return sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, **arguments).get("Messages", [])


plain = through([UNAVAILABLE, BEHIND], sqs.create_queue, QueueName="plain")["QueueUrl"]
ordered = through([BEHIND], sqs.create_queue, QueueName="ordered.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]

# A send that nobody heard of is made once, and one whose answer is lost is made twice: no standard queue can tell.
for broken, count in [([AHEAD], 1), ([UNAVAILABLE], 1), ([AHEAD, UNAVAILABLE], 1), ([BEHIND], 2), ([BEHIND, AHEAD], 2)]:
    through(broken, sqs.send_message, QueueUrl=plain, MessageBody="x")
    got = receive(plain)
    assert len(got) == count, (broken, got)
    for message in got:
        through([BEHIND], sqs.delete_message, QueueUrl=plain, ReceiptHandle=message["ReceiptHandle"])
    counted = sqs.get_queue_attributes(QueueUrl=plain, AttributeNames=["ApproximateNumberOfMessagesNotVisible"])
    assert counted["Attributes"] == {"ApproximateNumberOfMessagesNotVisible": "0"}, counted

# In a queue in order of groups its id makes the second send the first one.
for number, broken in enumerate([[AHEAD], [BEHIND], [BEHIND, BEHIND], [UNAVAILABLE, BEHIND]]):
    sent = through(broken, sqs.send_message, QueueUrl=ordered, MessageBody=str(number), MessageGroupId="g",
                   MessageDeduplicationId=str(number))
    [got] = receive(ordered)
    assert (got["Body"], got["MessageId"]) == (str(number), sent["MessageId"]), got
    through([BEHIND], sqs.delete_message, QueueUrl=ordered, ReceiptHandle=got["ReceiptHandle"])
entries = [{"Id": f"{number}", "MessageBody": f"b{number}", "MessageGroupId": "g", "MessageDeduplicationId": f"b{number}"}
           for number in range(10)]
assert len(through([BEHIND], sqs.send_message_batch, QueueUrl=ordered, Entries=entries)["Successful"]) == 10
got = receive(ordered)
assert [message["Body"] for message in got] == [entry["MessageBody"] for entry in entries], got
entries = [{"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(got)]
assert len(through([BEHIND], sqs.delete_message_batch, QueueUrl=ordered, Entries=entries)["Successful"]) == 10

# A receive whose answer is lost hides its message for its time, and not for longer.
through([], sqs.send_message, QueueUrl=plain, MessageBody="hidden")
began = time.time()
[got] = through([BEHIND], sqs.receive_message, QueueUrl=plain, VisibilityTimeout=2, WaitTimeSeconds=20,
                AttributeNames=["ApproximateReceiveCount"])["Messages"]
assert got["Attributes"] == {"ApproximateReceiveCount": "2"} and time.time() - began > 1.9, got
through([BEHIND], sqs.change_message_visibility, QueueUrl=plain, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=0)
assert [message["Body"] for message in receive(plain)] == ["hidden"]

# What is wrong stays so: it is asked once.
heard.clear()
refused("InvalidParameterValue", sqs.send_message, QueueUrl=plain, MessageBody="x", DelaySeconds=901)
refused("AWS.SimpleQueueService.NonExistentQueue", sqs.receive_message, QueueUrl=f"{BASE}/000000000000/nothing")
assert len(heard) == 2, heard
