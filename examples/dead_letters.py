"""Dead letters: a message that fails twice is set aside, and is moved back when the fault is corrected.

    python3 dead_letters.py URL
"""

import json
import sys
import time

import boto3

sqs = boto3.client("sqs", endpoint_url=sys.argv[1], region_name="us-east-1", aws_access_key_id="any",
                   aws_secret_access_key="any")


def arn(url):
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]


dead = sqs.create_queue(QueueName="dead-invoices")["QueueUrl"]
policy = {"deadLetterTargetArn": arn(dead), "maxReceiveCount": 2}
url = sqs.create_queue(QueueName="invoices", Attributes={"RedrivePolicy": json.dumps(policy)})["QueueUrl"]
sqs.send_message(QueueUrl=url, MessageBody="4711")

for attempt in range(2):
    [message] = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
    # The work fails: give the message back at once.
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
# The third receive would be one too many.
assert "Messages" not in sqs.receive_message(QueueUrl=url)
counted = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["ApproximateNumberOfMessages"])["Attributes"]
assert counted["ApproximateNumberOfMessages"] == "1", counted

# The fault is corrected: move everything back.
sqs.start_message_move_task(SourceArn=arn(dead))
while sqs.list_message_move_tasks(SourceArn=arn(dead))["Results"][0]["Status"] == "RUNNING":
    time.sleep(0.1)
[message] = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
assert message["Body"] == "4711"
sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
print("dead_letters.py: moved back")
