"""Two replicas judge a request alike by where it comes from, whichever of them it is sent to and whoever owns the queue."""

import json
import sys

import boto3
from botocore.config import Config

from face import refused

bases = sys.argv[1].split(",")
denial = {"Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}
outside = {**denial, "Condition": {"NotIpAddress": {"aws:SourceIp": "203.0.113.0/24"}}}
in_the_clear = {**denial, "Condition": {"Bool": {"aws:SecureTransport": "false"}}}


def via(base, address, scheme):
    def forwarded(request, **_):
        request.headers["X-Forwarded-For"], request.headers["X-Forwarded-Proto"] = address, scheme
        # What replicas tell each other is not a client's to say.
        request.headers["X-Angarium-Source"] = "https 203.0.113.9"
    made = boto3.client("sqs", region_name="us-east-1", endpoint_url=base, aws_access_key_id="AKIDONE",
                        aws_secret_access_key="secret one", config=Config(retries={"total_max_attempts": 1}))
    made.meta.events.register("before-send.sqs", forwarded)
    return made


# Replicas have random ids: of a few queues one of them may own none, and the other then passes nothing on.
for number in range(20):
    made = via(bases[number % 2], "203.0.113.9", "https")
    policy = json.dumps({"Statement": [outside, in_the_clear]})
    url = made.create_queue(QueueName=f"judged-{number}", Attributes={"Policy": policy})["QueueUrl"]
    for base in bases:
        via(base, "203.0.113.9", "https").send_message(QueueUrl=url, MessageBody="x")
        for address, scheme in [("203.0.113.9", "http"), ("198.51.100.1", "https"), ("203.0.113.9, 198.51.100.1", "https")]:
            refused("AccessDenied", via(base, address, scheme).send_message, QueueUrl=url, MessageBody="x")
