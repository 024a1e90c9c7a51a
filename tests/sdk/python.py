"""The tour of the README with the Python client that openapi-generator makes of the document. The server is the first argument;
the client, `angarium_sdk`, is on PYTHONPATH.
"""

import sys

import angarium_sdk as sdk

QUEUE = "python"


def tour(api):
    messages, claims, queues = sdk.MessagesApi(api), sdk.ClaimsApi(api), sdk.QueuesApi(api)
    attributes = sdk.QueueAttributes.from_dict({"_default_message_ttl": 600, "team": "billing"})
    queues.queue_create(QUEUE, queue_attributes=attributes)
    shown = queues.queue_get(QUEUE)
    assert shown.default_message_ttl == 600 and shown.additional_properties["team"] == "billing", shown
    assert shown.fifo is None, "what nobody has set is not sent"
    change = sdk.QueuePatchOperation(op="replace", path="/metadata/team", value="sales")
    assert queues.queue_update(QUEUE, [change]).additional_properties["team"] == "sales"
    assert [queue.name for queue in queues.queues_list().queues] == [QUEUE]
    # A client that names itself is told apart from others.
    assert messages.messages_list(QUEUE, client_id="30387f00d4ba4c12ac0ea31e6e5e0bc1").messages == []

    bodies = [{"invoice": 4711}, "text", None, [1, 2.5, True]]
    posted = messages.messages_post(
        QUEUE, sdk.MessagePostRequest(messages=[sdk.PostedMessage(body=body, ttl=600) for body in bodies])
    )
    assert len(posted.ids) == len(bodies), posted
    assert posted.durability == sdk.Durability.SYNC, posted

    claim = claims.claim_create(QUEUE, limit=10, claim_terms=sdk.ClaimTerms(ttl=60, grace=60))
    assert [message.id for message in claim.messages] == posted.ids, claim
    assert [message.body for message in claim.messages] == bodies, claim
    claims.claim_renew(QUEUE, claim.id, sdk.ClaimTerms(ttl=120))
    assert claims.claim_get(QUEUE, claim.id).ttl == 120

    for message in claim.messages[:-1]:
        messages.message_delete(QUEUE, message.id, claim_id=claim.id)
    claims.claim_release(QUEUE, claim.id)
    left = messages.messages_list(QUEUE)
    assert [message.id for message in left.messages] == posted.ids[-1:], left
    assert queues.queue_stats_get(QUEUE).messages.free == 1

    popped = messages.messages_delete(QUEUE, pop=1)
    assert [message.id for message in popped.messages] == posted.ids[-1:], popped
    assert claims.claim_create(QUEUE) is None, "a claim of nothing has no body"
    assert queues.queue_stats_get(QUEUE).messages.total == 0


def sqs(api):
    queues = sdk.SqsApi(api)
    url = queues.sqs_queue_url_get("AmazonSQS.GetQueueUrl", sdk.GetQueueUrlRequest(QueueName=QUEUE)).queue_url
    sent = sdk.SendMessageRequest(QueueUrl=url, MessageBody="hello")
    assert queues.sqs_message_send("AmazonSQS.SendMessage", sent).message_id
    received = queues.sqs_message_receive("AmazonSQS.ReceiveMessage", sdk.ReceiveMessageRequest(QueueUrl=url))
    assert [message.body for message in received.messages] == ["hello"], received


def errors_are_read(api):
    messages = sdk.MessagesApi(api)
    try:
        messages.message_get(QUEUE, "00000000-0000-0000-0000-000000000001")
    except sdk.exceptions.NotFoundException as error:
        assert error.data.code == sdk.ErrorCode.NOT_FOUND and not error.data.may_retry, error
        return
    raise AssertionError("there is no such message")


if __name__ == "__main__":
    with sdk.ApiClient(sdk.Configuration(host=sys.argv[1])) as client:
        for part in (tour, sqs, errors_are_read):
            print(part.__name__, flush=True)
            part(client)
