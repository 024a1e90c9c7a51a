"""The tour of the README with the client that openapi-python-client makes of the document. The server is the first argument; the
client, `angarium_sdk`, is on PYTHONPATH.
"""

import sys
from http import HTTPStatus

from angarium_sdk import Client
from angarium_sdk.api.claims import claim_create, claim_get, claim_release, claim_renew
from angarium_sdk.api.messages import message_delete, message_get, messages_delete, messages_list, messages_post
from angarium_sdk.api.queues import queue_create, queue_get, queue_stats_get, queue_update
from angarium_sdk.api.sqs import sqs_message_receive, sqs_message_send, sqs_queue_url_get
from angarium_sdk.models import (
    ClaimTerms,
    ErrorCode,
    GetQueueUrlRequest,
    MessagePostRequest,
    PostedMessage,
    QueueAttributes,
    QueuePatchOperation,
    ReceiveMessageRequest,
    SendMessageRequest,
)

QUEUE = "python-client"


def tour(client):
    attributes = QueueAttributes.from_dict({"_default_message_ttl": 600, "team": "billing"})
    made = queue_create.sync_detailed(QUEUE, client=client, body=attributes)
    assert made.status_code == HTTPStatus.CREATED, made
    shown = queue_get.sync(QUEUE, client=client)
    assert shown.field_default_message_ttl == 600 and shown["team"] == "billing", shown
    change = QueuePatchOperation(op="replace", path="/metadata/team", value="sales")
    assert queue_update.sync(QUEUE, client=client, body=[change])["team"] == "sales"
    named = messages_list.sync(QUEUE, client=client, client_id="30387f00d4ba4c12ac0ea31e6e5e0bc1")
    assert named.messages == [], named

    bodies = [{"invoice": 4711}, "text", None, [1, 2.5, True]]
    post = MessagePostRequest(messages=[PostedMessage(body=body, ttl=600) for body in bodies])
    posted = messages_post.sync(QUEUE, client=client, body=post)
    assert len(posted.ids) == len(bodies), posted

    claim = claim_create.sync(QUEUE, client=client, limit=10, body=ClaimTerms(ttl=60, grace=60))
    assert [message.id for message in claim.messages] == posted.ids, claim
    assert [message.body for message in claim.messages] == bodies, claim
    renewed = claim_renew.sync_detailed(QUEUE, claim.id, client=client, body=ClaimTerms(ttl=120))
    assert renewed.status_code == HTTPStatus.NO_CONTENT, renewed
    assert claim_get.sync(QUEUE, claim.id, client=client).ttl == 120

    for message in claim.messages[:-1]:
        deleted = message_delete.sync_detailed(QUEUE, message.id, client=client, claim_id=claim.id)
        assert deleted.status_code == HTTPStatus.NO_CONTENT, deleted
    claim_release.sync_detailed(QUEUE, claim.id, client=client)
    left = messages_list.sync(QUEUE, client=client)
    assert [message.id for message in left.messages] == posted.ids[-1:], left
    assert queue_stats_get.sync(QUEUE, client=client).messages.free == 1
    popped = messages_delete.sync(QUEUE, client=client, pop=1)
    assert [message.id for message in popped.messages] == posted.ids[-1:], popped
    assert claim_create.sync(QUEUE, client=client, body=ClaimTerms()) is None, "a claim of nothing has no body"


def sqs(client):
    url = sqs_queue_url_get.sync(client=client, body=GetQueueUrlRequest(queue_name=QUEUE)).queue_url
    sent = SendMessageRequest(queue_url=url, message_body="hello")
    assert sqs_message_send.sync(client=client, body=sent).message_id
    received = sqs_message_receive.sync(client=client, body=ReceiveMessageRequest(queue_url=url))
    assert [message.body for message in received.messages] == ["hello"], received


def errors_are_read(client):
    error = message_get.sync(QUEUE, "00000000-0000-0000-0000-000000000001", client=client)
    assert error.code == ErrorCode.NOT_FOUND and not error.may_retry, error


if __name__ == "__main__":
    with Client(base_url=sys.argv[1]) as connected:
        for part in (tour, sqs, errors_are_read):
            print(part.__name__, flush=True)
            part(connected)
