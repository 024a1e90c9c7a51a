"""Every operation of standard queues, one fact after the other, with whatever boto3 is there."""

import hashlib
import json
import time

from botocore.exceptions import ClientError

from face import BASE, REGION, client, refused

sqs = client()
MISSING = "AWS.SimpleQueueService.NonExistentQueue"
# The URL of a queue in another region than the service's own names it.
REGIONAL = BASE if REGION == "us-east-1" else f"{BASE}/queue/{REGION}"


def make(name, **attributes):
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]


def receive(url, **arguments):
    return sqs.receive_message(QueueUrl=url, **arguments).get("Messages", [])


def attribute(url, name):
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name]


def queues():
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="")
    url = make("orders", VisibilityTimeout="45", DelaySeconds="0")
    assert url == f"{REGIONAL}/000000000000/orders", url
    assert make("orders", VisibilityTimeout="45") == url
    assert sqs.create_queue(QueueName="orders")["QueueUrl"] == url
    refused("QueueAlreadyExists", sqs.create_queue, QueueName="orders", Attributes={"VisibilityTimeout": "46"})
    assert sqs.get_queue_url(QueueName="orders")["QueueUrl"] == url
    refused(MISSING, sqs.get_queue_url, QueueName="nothing")
    refused("InvalidParameterValue", sqs.create_queue, QueueName="a.b")
    refused("InvalidParameterValue", sqs.create_queue, QueueName="x" * 81)
    long = make("y" * 80)
    for number in range(5):
        make(f"page-{number}")
    first = sqs.list_queues(QueueNamePrefix="page-", MaxResults=2)
    assert len(first["QueueUrls"]) == 2, first
    refused("InvalidParameterValue", sqs.list_queues, QueueNamePrefix="page-", MaxResults=10, NextToken="page-1")
    rest = sqs.list_queues(QueueNamePrefix="page-", MaxResults=10, NextToken=first["NextToken"])
    assert len(rest["QueueUrls"]) == 3 and "NextToken" not in rest, rest
    assert len(sqs.list_queues()["QueueUrls"]) == 7
    for gone in [long] + first["QueueUrls"] + rest["QueueUrls"]:
        sqs.delete_queue(QueueUrl=gone)
        refused(MISSING, sqs.delete_queue, QueueUrl=gone)
    assert sqs.list_queues()["QueueUrls"] == [url]
    assert client(region="eu-west-1").list_queues().get("QueueUrls", []) == []
    other = client(key="123456789012")
    assert other.create_queue(QueueName="orders")["QueueUrl"] == f"{REGIONAL}/123456789012/orders"
    try:
        sqs.send_message(QueueUrl=f"{BASE}/000000000000/nothing", MessageBody="x")
    except sqs.exceptions.QueueDoesNotExist as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def attributes():
    url = make("attributes")
    every = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    expected = {"VisibilityTimeout": "30", "MaximumMessageSize": "1048576", "MessageRetentionPeriod": "345600",
                "DelaySeconds": "0", "ReceiveMessageWaitTimeSeconds": "0", "ApproximateNumberOfMessages": "0",
                "QueueArn": f"arn:aws:sqs:{REGION}:000000000000:attributes"}
    assert expected.items() <= every.items(), every
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url)
    refused("InvalidAttributeName", sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["Colour"])
    changed = {"VisibilityTimeout": "0", "MaximumMessageSize": "1024", "MessageRetentionPeriod": "60",
               "DelaySeconds": "900", "ReceiveMessageWaitTimeSeconds": "20"}
    sqs.set_queue_attributes(QueueUrl=url, Attributes=changed)
    every = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert changed.items() <= every.items(), every
    for name, value in [("VisibilityTimeout", "43201"), ("MaximumMessageSize", "1023"), ("DelaySeconds", "901"),
                        ("MessageRetentionPeriod", "59"), ("ReceiveMessageWaitTimeSeconds", "21"),
                        ("DelaySeconds", "x"), ("DelaySeconds", " 6"), ("DelaySeconds", "+6"), ("DelaySeconds", ""), ("Policy", "{}"), ("RedriveAllowPolicy", "{}")]:
        refused("InvalidAttributeValue", sqs.set_queue_attributes, QueueUrl=url, Attributes={name: value})
    for name in ["Colour", "QueueArn", "FifoQueue", "ContentBasedDeduplication"]:
        refused("InvalidAttributeName", sqs.set_queue_attributes, QueueUrl=url, Attributes={name: "true"})
    assert attribute(url, "DelaySeconds") == "900"
    policy = json.dumps({"Version": "2012-10-17", "Statement": []})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    assert json.loads(attribute(url, "Policy")) == json.loads(policy)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])


def encryption():
    url = make("encrypted")
    names = ["KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled"]

    def shown():
        return [sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"].get(name) for name in names]

    def put(**attributes):
        sqs.set_queue_attributes(QueueUrl=url, Attributes=attributes)

    assert shown() == [None, None, "true"], shown()
    both = {"KmsMasterKeyId": "alias/mine", "SqsManagedSseEnabled": "true"}
    refused("InvalidAttributeName", put, **both)
    refused("InvalidAttributeName", make, name="both", **both)
    put(KmsMasterKeyId="alias/mine", KmsDataKeyReusePeriodSeconds="6000")
    assert shown() == ["alias/mine", "6000", "false"], shown()
    put(KmsDataKeyReusePeriodSeconds="300")
    assert shown() == ["alias/mine", "300", "false"], shown()
    put(KmsDataKeyReusePeriodSeconds="600")
    put(KmsMasterKeyId="")
    assert shown() == [None, None, "false"], shown()
    put(KmsMasterKeyId="alias/mine")
    assert shown() == ["alias/mine", "300", "false"], "the reuse period went with the key"
    put(SqsManagedSseEnabled="true")
    assert shown() == [None, None, "true"], shown()
    put(SqsManagedSseEnabled="false")
    assert shown() == [None, None, "false"], shown()
    new = make("keyed", KmsMasterKeyId="alias/mine", KmsDataKeyReusePeriodSeconds="300", SqsManagedSseEnabled="false")
    assert make("keyed", KmsMasterKeyId="alias/mine", KmsDataKeyReusePeriodSeconds="300") == new
    refused("QueueAlreadyExists", make, name="keyed", SqsManagedSseEnabled="true")
    assert make("plain", KmsDataKeyReusePeriodSeconds="300") == make("plain", SqsManagedSseEnabled="true")


def tags():
    url = sqs.create_queue(QueueName="tagged", tags={"team": "billing"})["QueueUrl"]
    sqs.tag_queue(QueueUrl=url, Tags={"team": "orders", "stage": ""})
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "orders", "stage": ""}
    sqs.untag_queue(QueueUrl=url, TagKeys=["team", "nothing"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"stage": ""}
    refused("InvalidParameterValue", sqs.tag_queue, QueueUrl=url, Tags={"aws:x": "y"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["stage"])
    assert "Tags" not in sqs.list_queue_tags(QueueUrl=url)


def messages():
    url = make("messages")
    body = "a \"b\" <&> \r\n\t ä \U0001f600"
    values = {"text": {"DataType": "String", "StringValue": "ä"}, "number": {"DataType": "Number.int", "StringValue": "7"},
              "bytes": {"DataType": "Binary", "BinaryValue": b"\0\xff"}}
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
    before = time.time()
    sent = sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=values, MessageSystemAttributes=trace)
    assert sent["MD5OfMessageBody"] == hashlib.md5(body.encode()).hexdigest()
    [got] = receive(url, AttributeNames=["All"], MessageAttributeNames=["All"], MaxNumberOfMessages=10)
    assert got["Body"] == body and got["MessageId"] == sent["MessageId"], got
    assert got["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert got["MessageAttributes"] == values, got["MessageAttributes"]
    assert got["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    system = got["Attributes"]
    assert system["AWSTraceHeader"] == trace["AWSTraceHeader"]["StringValue"]
    assert (system["ApproximateReceiveCount"], system["SenderId"]) == ("1", "000000000000"), system
    assert abs(int(system["SentTimestamp"]) / 1000 - before) < 60
    assert receive(url) == []
    counted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    assert [attribute(url, name) for name in counted] == ["0", "1"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    assert [attribute(url, name) for name in counted] == ["0", "0"]
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=values)
    [got] = receive(url, MessageAttributeNames=["num.*", "nothing"])
    assert list(got["MessageAttributes"]) == ["number"] and "Attributes" not in got, got
    sqs.purge_queue(QueueUrl=url)
    assert [attribute(url, name) for name in counted] == ["0", "0"]
    refused("InvalidMessageContents", sqs.send_message, QueueUrl=url, MessageBody="\u0001")
    refused("MissingParameter", sqs.send_message, QueueUrl=url, MessageBody="")
    refused("InvalidParameterValue", sqs.send_message, QueueUrl=url, MessageBody="x" * 1048577)
    refused("InvalidParameterValue", sqs.send_message, QueueUrl=url, MessageBody="x", DelaySeconds=901)
    refused("InvalidParameterValue", sqs.receive_message, QueueUrl=url, MaxNumberOfMessages=11)
    refused("InvalidParameterValue", sqs.receive_message, QueueUrl=url, WaitTimeSeconds=21)
    refused("InvalidParameterValue", sqs.send_message, QueueUrl=url, MessageBody="x",
            MessageAttributes={"aws.x": {"DataType": "String", "StringValue": "y"}})
    sqs.send_message(QueueUrl=url, MessageBody="x" * 1048576)
    assert len(receive(url)[0]["Body"]) == 1048576
    sqs.purge_queue(QueueUrl=url)
    sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=5)
    assert attribute(url, "ApproximateNumberOfMessagesDelayed") == "1" and receive(url) == []
    [got] = receive(url, WaitTimeSeconds=20)
    assert got["Body"] == "later"


def batches():
    url = make("batches", MaximumMessageSize="1024")
    entries = [{"Id": str(number), "MessageBody": f"body {number}"} for number in range(10)]
    entries[3]["MessageBody"] = "\u0001"
    entries[4]["MessageBody"] = "x" * 1025
    answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [done["Id"] for done in answer["Successful"]] == list("01256789"), answer
    failed = {entry["Id"]: (entry["Code"], entry["SenderFault"]) for entry in answer["Failed"]}
    assert failed == {"3": ("InvalidMessageContents", True), "4": ("InvalidParameterValue", True)}, failed
    refused("AWS.SimpleQueueService.TooManyEntriesInBatchRequest", sqs.send_message_batch, QueueUrl=url,
            Entries=[{"Id": str(number), "MessageBody": "x"} for number in range(11)])
    refused("AWS.SimpleQueueService.BatchEntryIdsNotDistinct", sqs.send_message_batch, QueueUrl=url,
            Entries=[{"Id": "a", "MessageBody": "x"}] * 2)
    refused("AWS.SimpleQueueService.InvalidBatchEntryId", sqs.send_message_batch, QueueUrl=url,
            Entries=[{"Id": "a b", "MessageBody": "x"}])
    refused("AWS.SimpleQueueService.EmptyBatchRequest", sqs.delete_message_batch, QueueUrl=url, Entries=[])
    refused("AWS.SimpleQueueService.BatchRequestTooLong", sqs.send_message_batch, QueueUrl=url,
            Entries=[{"Id": str(number), "MessageBody": "x" * 524289} for number in range(2)])
    got = receive(url, MaxNumberOfMessages=10)
    assert [message["Body"] for message in got] == [f"body {number}" for number in [0, 1, 2, 5, 6, 7, 8, 9]], got
    entries = [{"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(got)]
    entries[0]["ReceiptHandle"] = "no handle"
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=entries)
    assert len(answer["Successful"]) == 7 and answer["Failed"][0]["Code"] == "ReceiptHandleIsInvalid", answer
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=got[0]["ReceiptHandle"], VisibilityTimeout=0)
    assert [message["Body"] for message in receive(url)] == ["body 0"]


def visibility():
    url, other = make("visibility"), make("other")
    for number in range(4):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    got = receive(url, MaxNumberOfMessages=10, VisibilityTimeout=600)
    handles = [message["ReceiptHandle"] for message in got]
    assert receive(url) == []
    # One of several is visible again, and the others are not.
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handles[1], VisibilityTimeout=0)
    [again] = receive(url, MaxNumberOfMessages=10, AttributeNames=["ApproximateReceiveCount"], VisibilityTimeout=600)
    assert (again["Body"], again["Attributes"]["ApproximateReceiveCount"]) == ("1", "2")
    # Its old handle says for how long it is hidden as well as the new one, alone and in a batch, and deletes it.
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handles[1], VisibilityTimeout=0)
    [again] = receive(url, MaxNumberOfMessages=10, AttributeNames=["ApproximateReceiveCount"], VisibilityTimeout=4)
    assert (again["Body"], again["Attributes"]["ApproximateReceiveCount"]) == ("1", "3")
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handles[1], VisibilityTimeout=600)
    assert receive(url, WaitTimeSeconds=6) == [], "it is hidden for longer"
    answer = sqs.change_message_visibility_batch(QueueUrl=url, Entries=[
        {"Id": "a", "ReceiptHandle": handles[1], "VisibilityTimeout": 0}])
    assert [done["Id"] for done in answer["Successful"]] == ["a"], answer
    [latest] = receive(url, MaxNumberOfMessages=10, VisibilityTimeout=600)
    assert latest["Body"] == "1"
    # One of a receive of several: the others stay as they are.
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handles[1])
    for handle in [again["ReceiptHandle"], latest["ReceiptHandle"]]:
        refused("InvalidParameterValue", sqs.change_message_visibility, QueueUrl=url, VisibilityTimeout=1,
                ReceiptHandle=handle)
    several = make("several")
    for number in range(3):
        sqs.send_message(QueueUrl=several, MessageBody=str(number))
    old = [message["ReceiptHandle"] for message in receive(several, MaxNumberOfMessages=10, VisibilityTimeout=0)]
    assert len(receive(several, MaxNumberOfMessages=10, VisibilityTimeout=600)) == 3
    sqs.change_message_visibility(QueueUrl=several, ReceiptHandle=old[1], VisibilityTimeout=0)
    assert [message["Body"] for message in receive(several, MaxNumberOfMessages=10)] == ["1"]
    # A batch: two come back soon, the third stays.
    entries = [{"Id": "a", "ReceiptHandle": handles[0], "VisibilityTimeout": 1},
               {"Id": "b", "ReceiptHandle": handles[2], "VisibilityTimeout": 1},
               {"Id": "c", "ReceiptHandle": handles[3], "VisibilityTimeout": 43300},
               {"Id": "d", "ReceiptHandle": "no handle", "VisibilityTimeout": 1}]
    answer = sqs.change_message_visibility_batch(QueueUrl=url, Entries=entries)
    assert [done["Id"] for done in answer["Successful"]] == ["a", "b"], answer
    assert {entry["Id"]: entry["Code"] for entry in answer["Failed"]} == {
        "c": "InvalidParameterValue", "d": "ReceiptHandleIsInvalid"}, answer
    bodies = []
    deadline = time.time() + 30
    while len(bodies) < 2 and time.time() < deadline:
        bodies += [message["Body"] for message in receive(url, MaxNumberOfMessages=10, WaitTimeSeconds=5)]
    assert bodies == ["0", "2"], bodies
    refused("ReceiptHandleIsInvalid", sqs.delete_message, QueueUrl=other, ReceiptHandle=handles[3])
    refused("ReceiptHandleIsInvalid", sqs.delete_message, QueueUrl=url, ReceiptHandle="x")
    # No time at all: it was received, and stays visible.
    sqs.send_message(QueueUrl=other, MessageBody="x")
    [first] = receive(other, VisibilityTimeout=0)
    [second] = receive(other, AttributeNames=["All"])
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    sqs.delete_message(QueueUrl=other, ReceiptHandle=first["ReceiptHandle"])
    assert attribute(other, "ApproximateNumberOfMessagesNotVisible") == "0"


def dead_letters():
    dead, url = make("dead"), make("source")
    arn = attribute(dead, "QueueArn")
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "2"})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    assert json.loads(attribute(url, "RedrivePolicy")) == {"deadLetterTargetArn": arn, "maxReceiveCount": 2}
    assert make("source", RedrivePolicy=policy) == url
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    assert sqs.list_dead_letter_source_queues(QueueUrl=url).get("queueUrls", []) == []
    sent = sqs.send_message(QueueUrl=url, MessageBody="poison",
                            MessageAttributes={"a": {"DataType": "String", "StringValue": "b"}})
    for _ in range(2):
        assert len(receive(url, VisibilityTimeout=0)) == 1
    assert receive(url) == []
    [got] = receive(dead, WaitTimeSeconds=20, AttributeNames=["All"], MessageAttributeNames=["All"])
    assert (got["Body"], got["MessageId"]) == ("poison", sent["MessageId"]), got
    assert got["Attributes"]["DeadLetterQueueSourceArn"] == attribute(url, "QueueArn"), got
    assert got["Attributes"]["ApproximateReceiveCount"] == "3" and "a" in got["MessageAttributes"], got
    for wrong in [{"deadLetterTargetArn": arn, "maxReceiveCount": 2, "reason": "x"}, {"deadLetterTargetArn": arn}, {"deadLetterTargetArn": arn, "maxReceiveCount": 0},
                  {"deadLetterTargetArn": arn + "x", "maxReceiveCount": 2},
                  {"deadLetterTargetArn": attribute(url, "QueueArn"), "maxReceiveCount": 2}]:
        refused("InvalidParameterValue", sqs.set_queue_attributes, QueueUrl=url,
                Attributes={"RedrivePolicy": json.dumps(wrong)})
    sqs.set_queue_attributes(QueueUrl=dead, Attributes={"RedriveAllowPolicy": json.dumps({"redrivePermission": "denyAll"})})
    refused("InvalidParameterValue", sqs.set_queue_attributes, QueueUrl=url, Attributes={"RedrivePolicy": policy})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])


def permissions():
    url = make("shared")
    sqs.add_permission(QueueUrl=url, Label="all", AWSAccountIds=["111111111111", "222222222222"], Actions=["*"])
    policy = json.loads(attribute(url, "Policy"))
    assert policy["Version"] == "2008-10-17" and policy["Statement"][0]["Action"] == "SQS:*", policy
    sqs.remove_permission(QueueUrl=url, Label="all")
    refused("OverLimit", sqs.add_permission, QueueUrl=url, Label="x", AWSAccountIds=["1"], Actions=["SendMessage"] * 8)


def not_there():
    url = f"{BASE}/000000000000/nothing"
    for call, arguments in [(sqs.send_message, {"MessageBody": "x"}), (sqs.receive_message, {}),
                            (sqs.purge_queue, {}), (sqs.list_queue_tags, {}), (sqs.get_queue_attributes, {}),
                            (sqs.delete_message, {"ReceiptHandle": "x"}), (sqs.list_dead_letter_source_queues, {}),
                            (sqs.tag_queue, {"Tags": {"a": "b"}})]:
        refused(MISSING, call, QueueUrl=url, **arguments)


for part in [queues, attributes, encryption, tags, messages, batches, visibility, dead_letters, permissions, not_there]:
    try:
        part()
    except (AssertionError, ClientError) as error:
        raise SystemExit(f"{part.__name__}: {error!r} at line {error.__traceback__.tb_next.tb_lineno}") from error
