"""The Python client of openapi-generator, which checks what it reads, beside a service with wider settings than the default
ones. The server is the first argument; the client, `angarium_sdk`, is on PYTHONPATH.
"""

import json
import sys
import urllib.request

import angarium_sdk as sdk

QUEUE = "wide"
MONTH = 30 * 24 * 3_600
STORED = {"_max_messages_post_size": 2_000_000, "_default_message_ttl": MONTH, "_default_message_delay": 0,
          "_dead_letter_queue_messages_ttl": MONTH}


def create_without_the_client(base):
    headers = {"Client-ID": "3381af92-2b9e-11e3-b191-71861300734c", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{base}/v2/queues/{QUEUE}", json.dumps(STORED).encode(), headers, method="PUT")
    assert urllib.request.urlopen(request).status == 201


def is_as_stored(attributes):
    assert attributes.max_messages_post_size == 2_000_000, attributes
    assert attributes.default_message_ttl == attributes.dead_letter_queue_messages_ttl == MONTH, attributes


def tour(api):
    queues, messages, claims = sdk.QueuesApi(api), sdk.MessagesApi(api), sdk.ClaimsApi(api)
    is_as_stored(queues.queue_get(QUEUE))
    [listed] = queues.queues_list(detailed=True).queues
    is_as_stored(listed.metadata)
    change = sdk.QueuePatchOperation(op="add", path="/metadata/team", value="sales")
    is_as_stored(queues.queue_update(QUEUE, [change]))
    posted = messages.messages_post(QUEUE, sdk.MessagePostRequest(messages=[sdk.PostedMessage(body="x" * 1_500_000)]))
    [message] = messages.messages_list(QUEUE).messages
    assert message.id == posted.ids[0] and message.ttl == MONTH, message
    [claimed] = claims.claim_create(QUEUE).messages
    assert claimed.ttl == MONTH and len(claimed.body) == 1_500_000, claimed.ttl


if __name__ == "__main__":
    create_without_the_client(sys.argv[1])
    with sdk.ApiClient(sdk.Configuration(host=sys.argv[1])) as client:
        tour(client)
