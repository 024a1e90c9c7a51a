"""The AWS CLI, as somebody types it."""

import json
import os
import subprocess
import sys

BASE, CLI = sys.argv[1], os.environ["SQS_CLI"]


def aws(*arguments):
    command = [sys.executable, f"{CLI}/bin/aws", "--endpoint-url", BASE, "--output", "json", "sqs", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": CLI})
    assert done.returncode in (0, 254, 255), done
    return json.loads(done.stdout) if done.stdout.strip() else done.stderr


url = aws("create-queue", "--queue-name", "cli.fifo", "--attributes", "FifoQueue=true,VisibilityTimeout=60")["QueueUrl"]
assert aws("list-queues")["QueueUrls"] == [url]
sent = aws("send-message", "--queue-url", url, "--message-body", "hello", "--message-group-id", "g",
           "--message-deduplication-id", "d")
[got] = aws("receive-message", "--queue-url", url, "--attribute-names", "All", "--wait-time-seconds", "5")["Messages"]
assert (got["Body"], got["Attributes"]["SequenceNumber"]) == ("hello", sent["SequenceNumber"]), got
assert not aws("delete-message", "--queue-url", url, "--receipt-handle", got["ReceiptHandle"])
counted = aws("get-queue-attributes", "--queue-url", url, "--attribute-names", "All")["Attributes"]
assert counted["ApproximateNumberOfMessagesNotVisible"] == "0" and counted["VisibilityTimeout"] == "60", counted
assert "NonExistentQueue" in aws("get-queue-url", "--queue-name", "nothing")
