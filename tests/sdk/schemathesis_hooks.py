"""The media type of the API that schemathesis does not know: it is JSON."""

import json

import schemathesis


@schemathesis.deserializer("application/json-home")
def home(_context, response):
    return json.loads(response.content)
