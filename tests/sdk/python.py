"""Posts, claims and deletes with the Python client that openapi-generator makes of the document. The server is the first
argument; the client, `angarium_sdk`, is on PYTHONPATH.
"""

import sys

import angarium_sdk as sdk

QUEUE = "python"


def post_claim_delete(api):
    messages, claims, queues = sdk.MessagesApi(api), sdk.ClaimsApi(api), sdk.QueuesApi(api)
    queues.queue_create(QUEUE, request_body={"team": "billing"})
    assert queues.queue_get(QUEUE)["team"] == "billing"
    change = sdk.ChangeBody(op="replace", path="/metadata/team", value="sales")
    assert queues.queue_patch(QUEUE, [change])["team"] == "sales"
    # A client that names itself is told apart from others.
    assert messages.messages_list(QUEUE, client_id="30387f00d4ba4c12ac0ea31e6e5e0bc1").messages == []

    bodies = [{"invoice": 4711}, "text", None, [1, 2.5, True]]
    posted = messages.messages_post(
        QUEUE, sdk.PostBody(messages=[sdk.PostedMessage(body=body, ttl=600) for body in bodies])
    )
    assert len(posted.ids) == len(bodies), posted

    claim = claims.claim_create(QUEUE, limit=10, claim_body=sdk.ClaimBody(ttl=60, grace=60))
    assert [message.id for message in claim.messages] == posted.ids, claim
    assert [message.body for message in claim.messages] == bodies, claim
    claims.claim_renew(QUEUE, claim.id, sdk.RenewBody(ttl=120))
    assert claims.claim_get(QUEUE, claim.id).ttl == 120

    for message in claim.messages[:-1]:
        messages.message_delete(QUEUE, message.id, claim_id=claim.id)
    claims.claim_release(QUEUE, claim.id)
    left = messages.messages_list(QUEUE)
    assert [message.id for message in left.messages] == posted.ids[-1:], left

    popped = messages.messages_delete(QUEUE, pop=1)
    assert [message.id for message in popped.messages] == posted.ids[-1:], popped
    assert claims.claim_create(QUEUE) is None, "a claim of nothing has no body"
    assert queues.queue_stats(QUEUE).messages.total == 0


def errors_are_read(api):
    messages = sdk.MessagesApi(api)
    try:
        messages.message_get(QUEUE, "00000000-0000-0000-0000-000000000001")
    except sdk.exceptions.NotFoundException as error:
        assert error.data.code == "not_found" and not error.data.may_retry, error
        return
    raise AssertionError("there is no such message")


if __name__ == "__main__":
    with sdk.ApiClient(sdk.Configuration(host=sys.argv[1])) as client:
        for part in (post_claim_delete, errors_are_read):
            print(part.__name__, flush=True)
            part(client)
