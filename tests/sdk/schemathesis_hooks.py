"""The media types of the API that schemathesis does not know: both are JSON."""

import json

import schemathesis


@schemathesis.serializer("application/openstack-messaging-v2.0-json-patch")
def changes(_context, value):
    return json.dumps(value).encode()


@schemathesis.deserializer("application/json-home")
def home(_context, response):
    return json.loads(response.content)
