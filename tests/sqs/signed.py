"""Signatures and permissions, against a server that has keys: two accounts, each with one key."""

import datetime
import json
import urllib.error
import urllib.request

from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from face import BASE, client, refused

ONE, OTHER = ("AKIDONE", "secret one"), ("AKIDOTHER", "secret/other")
one, other = client(key=ONE[0], secret=ONE[1]), client(key=OTHER[0], secret=OTHER[1])


def fetch(url, **arguments):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, **arguments)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def presigned(query, expires=60):
    request = AWSRequest(method="GET", url=f"{BASE}/?{query}")
    SigV4QueryAuth(Credentials(*ONE), "sqs", "us-east-1", expires=expires).add_auth(request)
    return request.prepare().url


url = one.create_queue(QueueName="signed ".strip())["QueueUrl"]
assert url == f"{BASE}/111111111111/signed", url
assert "arn:aws:sqs:us-east-1:111111111111:signed" in str(
    one.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"]))
one.send_message(QueueUrl=url, MessageBody="ä+b c/d")
[got] = one.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
assert got["Attributes"]["SenderId"] == "111111111111", got
one.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])

# Who is not who he says.
refused("SignatureDoesNotMatch", client(key=ONE[0], secret="wrong").list_queues)
refused("InvalidClientTokenId", client(key="AKIDNOBODY", secret="secret").list_queues)
status, said = fetch(f"{BASE}/?Action=ListQueues")
assert status == 403 and "MissingAuthenticationToken" in said, (status, said)
status, said = fetch(BASE, data=b"{}", headers={"X-Amz-Target": "AmazonSQS.ListQueues"})
assert status == 403 and "MissingAuthenticationToken" in said, (status, said)

# A URL that holds the signature, and what it does not hold for.
good = presigned("Action=SendMessage&MessageBody=a%2Bb%20c&QueueUrl=" + url.replace(":", "%3A").replace("/", "%2F"))
status, said = fetch(good)
assert status == 200 and "<SendMessageResponse" in said, (status, said)
assert one.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "a+b c"
status, said = fetch(good.replace("b%20c", "b%20d"))
assert status == 403 and "SignatureDoesNotMatch" in said, (status, said)
status, said = fetch(presigned("Action=ListQueues", expires=604801))
assert status == 400 and "IncompleteSignature" in said, (status, said)

# A date that is over, and a body that was changed on the way.
request = AWSRequest(method="POST", url=BASE, data=b"{}", headers={
    "X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/x-amz-json-1.0"})
SigV4Auth(Credentials(*ONE), "sqs", "us-east-1").add_auth(request)
headers = dict(request.prepare().headers)
assert fetch(BASE, data=b"{}", headers=headers)[0] == 200
status, said = fetch(BASE, data=b"{ }", headers=headers)
assert status == 403 and "InvalidSignatureException" in said, (status, said)
old = (datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=6)).strftime("%Y%m%dT%H%M%SZ")
status, said = fetch(BASE, data=b"{}", headers={**headers, "X-Amz-Date": old})
assert status == 403, (status, said)

# What belongs to another account is closed, but for what its policy allows.
refused("AccessDenied", other.send_message, QueueUrl=url, MessageBody="x")
refused("AccessDenied", other.get_queue_url, QueueName="signed", QueueOwnerAWSAccountId="111111111111")
one.add_permission(QueueUrl=url, Label="other", AWSAccountIds=["222222222222"], Actions=["SendMessage", "GetQueueUrl"])
refused("InvalidParameterValue", one.add_permission, QueueUrl=url, Label="other", AWSAccountIds=["2"], Actions=["*"])
refused("InvalidParameterValue", one.add_permission, QueueUrl=url, Label="x", AWSAccountIds=["2"], Actions=["DeleteQueue"])
assert other.get_queue_url(QueueName="signed", QueueOwnerAWSAccountId="111111111111")["QueueUrl"] == url
other.send_message(QueueUrl=url, MessageBody="from the other")
refused("AccessDenied", other.receive_message, QueueUrl=url)
policy = json.loads(one.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"])
assert policy["Id"] == "arn:aws:sqs:us-east-1:111111111111:signed/SQSDefaultPolicy", policy
assert policy["Statement"][0]["Principal"] == {"AWS": "arn:aws:iam::222222222222:root"}, policy
one.remove_permission(QueueUrl=url, Label="other")
assert "Attributes" not in one.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])
refused("InvalidParameterValue", one.remove_permission, QueueUrl=url, Label="other")
refused("AccessDenied", other.send_message, QueueUrl=url, MessageBody="x")
assert "QueueUrls" not in other.list_queues()

# A denial binds the account of the queue too; it can take it back.
denial = {"Statement": [{"Effect": "Deny", "Principal": "*", "Action": "SQS:SendMessage", "Resource": "*"}]}
one.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps({"Version": "2012-10-17", **denial})})
refused("AccessDenied", one.send_message, QueueUrl=url, MessageBody="x")
one.receive_message(QueueUrl=url)
one.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
one.send_message(QueueUrl=url, MessageBody="x")
