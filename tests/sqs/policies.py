"""Policies of queues, against a server that has keys of two accounts and trusts the proxies of its own machine."""

import json
import urllib.error
import urllib.request

from face import BASE, client, refused

ONE, TWO = ("AKIDONE", "secret one"), ("AKIDOTHER", "secret/other")
INSIDE, OUTSIDE = "203.0.113.9", "198.51.100.1"


def via(key, address=None, scheme=None):
    """A client of this key, as a proxy passes its requests on."""
    def forwarded(request, **_):
        if address:
            request.headers["X-Forwarded-For"] = f"{OUTSIDE}, {address}"
        if scheme:
            request.headers["X-Forwarded-Proto"] = scheme
    made = client(key=key[0], secret=key[1])
    made.meta.events.register("before-send.sqs", forwarded)
    return made


one, two = via(ONE), via(TWO)
url = one.create_queue(QueueName="guarded")["QueueUrl"]
arn = "arn:aws:sqs:us-east-1:111111111111:guarded"


def statement(**elements):
    whole = {"Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*", **elements}
    for name in elements:
        if name.startswith("Not"):
            del whole[name[3:]]
    return whole


def put(*statements):
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements}) if statements else ""
    one.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})


def may_send(*clients):
    for sender in clients:
        sender.send_message(QueueUrl=url, MessageBody="x")


def may_not_send(*clients):
    for sender in clients:
        refused("AccessDenied", sender.send_message, QueueUrl=url, MessageBody="x")


# What is allowed under a condition is allowed to whom it holds for.
inside, outside = via(TWO, INSIDE), via(TWO, OUTSIDE)
put(statement(Effect="Allow", Principal={"AWS": "222222222222"}, Action="SQS:send*", Resource="arn:aws:sqs:*:*:guard?d",
              Condition={"IpAddress": {"aws:SourceIp": ["203.0.113.0/24", "2001:db8::/32"]}}))
may_send(one, inside, via(TWO, "2001:db8::9"))
may_not_send(outside, two, via(TWO, "2001:db9::9"))
refused("AccessDenied", inside.receive_message, QueueUrl=url)

# The forms with Not deny, to the queue's own account too.
put(statement(NotPrincipal={"AWS": "arn:aws:iam::222222222222:root"}, Action="sqs:SendMessage"),
    statement(Effect="Allow"))
may_not_send(one)
may_send(two)
put(statement(NotAction=["sqs:Send*", "sqs:GetQueueUrl"]))
may_send(one)
refused("AccessDenied", one.receive_message, QueueUrl=url)
refused("AccessDenied", one.purge_queue, QueueUrl=url)
put(statement(NotResource="arn:aws:sqs:*:*:guarded"))
may_send(one)
put(statement(NotResource="arn:aws:sqs:*:*:other"))
may_not_send(one)
put(statement(Resource="arn:aws:sqs:*:guarded"))
may_not_send(one)

# Conditions bind the own account: address, TLS, the caller and dates.
put(statement(Condition={"NotIpAddress": {"aws:SourceIp": "203.0.113.0/24"}}))
may_send(via(ONE, INSIDE))
may_not_send(via(ONE, OUTSIDE), one)
put(statement(Condition={"Bool": {"aws:SecureTransport": "false"}}))
may_send(via(ONE, INSIDE, "https"))
may_not_send(one, via(ONE, INSIDE, "http"), via(ONE, INSIDE, "https, http"))
put(statement(Condition={"ArnNotLike": {"aws:PrincipalArn": "arn:aws:iam::1*:root"}}), statement(Effect="Allow"))
may_send(one)
may_not_send(two)
put(statement(Condition={"DateGreaterThan": {"aws:CurrentTime": "2020-01-01T00:00:00Z"}}))
may_not_send(one)
put(statement(Condition={"DateLessThan": {"aws:CurrentTime": "2020-01-01T00:00:00Z"}}))
may_send(one)

# What would not be understood is refused, and named.
for elements, named in [
    ({"Condition": {"ForAllValues:StringLike": {"aws:PrincipalArn": "*"}}}, "ForAllValues:StringLike"),
    ({"Condition": {"ArnEquals": {"aws:SourceArn": arn}}}, "aws:SourceArn"),
    ({"Condition": {"IpAddress": {"aws:SourceIp": "203.0.113.0/33"}}}, "203.0.113.0/33"),
    ({"Principal": {"Service": "sns.amazonaws.com"}}, "Service"),
    ({"Action": "sqs:SendMesage"}, "SendMesage"),
    ({"Colour": "red"}, "Colour"),
]:
    policy = json.dumps({"Statement": statement(**elements)})
    for call, arguments in [(one.set_queue_attributes, {"QueueUrl": url}), (one.create_queue, {"QueueName": "new"})]:
        said = refused("InvalidAttributeValue", call, Attributes={"Policy": policy}, **arguments)
        assert named in said["Error"]["Message"], said
assert "QueueUrls" not in one.list_queues(QueueNamePrefix="new")

# REST refuses the same: what it stored all the same would be understood by nobody.
put()
for stored, named in [
    ({"Statement": "all"}, "Statement"),
    ({"Statement": [statement(Condition={"Null": {"aws:SourceIp": "true"}})]}, "Null"),
]:
    headers = {"X-Project-Id": "111111111111"}
    patch = {"Content-Type": "application/openstack-messaging-v2.0-json-patch"} | headers
    for method, queue, headers, body in [
        ("PATCH", "guarded", patch, [{"op": "add", "path": "/metadata/_policy", "value": stored}]),
        ("PUT", "new", headers, {"_policy": stored}),
    ]:
        request = urllib.request.Request(
            f"{BASE}/v2/queues/{queue}", data=json.dumps(body).encode(), method=method, headers=headers)
        try:
            urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            said = json.load(error)["description"]
            assert error.code == 400 and "_policy" in said and named in said, said
        else:
            raise AssertionError(f"{method} stored {stored}")
    assert "Attributes" not in one.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])
put()
may_send(one)
may_not_send(two)
