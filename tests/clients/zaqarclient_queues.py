"""Everything that python-zaqarclient has for queues, messages and claims, against the server of the first argument.

It exits with an error at the first thing that is not as the client's users expect it.
"""

import json
import urllib.request

from zaqarclient.transport import errors

from connected import URL, fails, zaqar


def home_and_ping():
    ours = zaqar()
    assert ours.ping() is True
    assert "rel/queues" in ours.homedoc()["resources"]


def queues():
    ours = zaqar("of-queues")

    def listed(**params):
        found, _ = ours.queues(**params)
        return found

    assert list(listed()) == []
    names = [f"queue-{number:02}" for number in range(25)]
    for name in names:
        assert ours.queue(name, force_create=True).exists()
    walked = [queue.name for queue in listed(limit=10).stream()]
    assert walked == names, walked
    page, count = ours.queues(with_count=True)
    assert count == 25, count
    assert [queue.name for queue in page] == names[:10]
    detailed = next(listed(detailed=True, marker="queue-23"))
    assert detailed.name == "queue-24", detailed.name
    assert detailed.metadata()["_default_message_ttl"] == 3600
    assert [queue.name for queue in listed(name="-07")] == ["queue-07"]


def deletion():
    queue = zaqar().queue("deleted", force_create=True)
    queue.post({"body": 1})
    queue.delete()
    assert queue.stats["messages"]["total"] == 0
    assert "deleted" not in [other.name for other in zaqar().queues()[0]]
    queue.delete()


def metadata():
    queue = zaqar().queue("metadata", force_create=True)
    assert queue.metadata()["_max_messages_post_size"] == 262144
    shown = queue.metadata(new_meta={"owner": "a/b~c", "_default_message_ttl": 120})
    assert (shown["owner"], shown["_default_message_ttl"]) == ("a/b~c", 120), shown
    shown = queue.metadata(new_meta={"other": [1, 2]})
    assert "owner" not in shown and shown["other"] == [1, 2], shown
    assert shown["_default_message_ttl"] == 3600, shown
    assert queue.metadata(force_reload=True) == shown
    fails(errors.MalformedRequest, queue.metadata, new_meta={"_default_message_ttl": 1})


def messages():
    ours, theirs = zaqar(), zaqar()
    queue = ours.queue("messages", force_create=True)
    posted = queue.post([{"body": {"number": number}, "ttl": 300} for number in range(25)])
    ids = [path.rsplit("/", 1)[-1] for path in posted["resources"]]
    assert len(ids) == 25
    one = queue.message(ids[3])
    assert (one.id, one.body, one.ttl, one.claim_id) == (ids[3], {"number": 3}, 300, None), vars(one)
    assert [message.id for message in queue.messages(*ids[:2])] == ids[:2]
    fails(errors.ResourceNotFound, queue.message, "01a1fc0b-7a70-73e1-a5b6-7f7b06722333")
    # Without echo a client does not see what it has posted itself.
    assert list(queue.messages()) == []
    walked = [message.id for message in queue.messages(echo=True, limit=7).stream()]
    assert walked == ids, walked
    walked = [message.id for message in theirs.queue("messages").messages(limit=20).stream()]
    assert walked == ids, walked
    one.delete()
    queue.delete_messages(*ids[:3])
    assert [message.id for message in queue.messages(echo=True, limit=1)] == [ids[4]]
    assert [message.body["number"] for message in queue.pop(2)] == [4, 5]
    stats = queue.stats["messages"]
    assert (stats["free"], stats["claimed"], stats["total"]) == (19, 0, 19), stats
    assert set(stats["oldest"]) == {"age", "created", "href"}, stats
    queue.purge(resource_types=["messages"])
    assert queue.stats["messages"]["total"] == 0
    queue.purge()
    fails(errors.MalformedRequest, queue.post, {"body": 1, "ttl": 1})


def claims():
    ours = zaqar()
    queue = ours.queue("claims", force_create=True)
    assert list(queue.claim(ttl=60, grace=60)) == []
    queue.post([{"body": number} for number in range(5)])
    claim = queue.claim(ttl=60, grace=60, limit=2)
    held = list(claim)
    assert [message.body for message in held] == [0, 1]
    assert all(message.claim_id == claim.id for message in held)
    assert claim.ttl == 60 and claim.age >= 0
    claim.update(ttl=120, grace=60)
    again = queue.claim(id=claim.id)
    assert (again.ttl, [message.id for message in again]) == (120, [message.id for message in held])
    # Another client is refused; who has claimed them needs no claim, which this call cannot name.
    fails(errors.ForbiddenError, zaqar().queue("claims", force_create=True).delete_messages, held[0].id)
    queue.delete_messages(held[0].id)
    assert [message.body for message in queue.claim(id=claim.id)] == [1]
    claim.delete()
    fails(errors.ResourceNotFound, queue.claim(id=claim.id)._get)
    assert [message.body for message in queue.claim(ttl=60, grace=60, limit=20)] == [1, 2, 3, 4]
    assert queue.stats["messages"]["claimed"] == 4
    # Listed under their claims; and deleted by the path that names the claim.
    for message in queue.messages(echo=True, include_claimed=True):
        assert message.claim_id is not None
        message.delete()
    assert queue.stats["messages"]["total"] == 0


def traces():
    """A client that knows nothing of traces reads what was posted in one."""
    queue = zaqar("traced").queue("traced", force_create=True)
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    path = f"{URL}/v2/queues/traced/messages"
    body = json.dumps({"messages": [{"body": {"number": 1}}]}).encode()
    headers = {"traceparent": parent, "X-Project-Id": "traced"}
    with urllib.request.urlopen(urllib.request.Request(path, body, headers)) as answer:
        assert answer.status == 201
        message_id = json.load(answer)["ids"][0]
    assert queue.message(message_id).body == {"number": 1}
    assert [message.body for message in queue.messages(echo=True)] == [{"number": 1}]
    assert [message.body for message in queue.messages(message_id)] == [{"number": 1}]
    claim = queue.claim(ttl=60, grace=60)
    assert [message.body for message in claim] == [{"number": 1}]
    assert [message.body for message in queue.claim(id=claim.id)] == [{"number": 1}]
    claim.delete()
    assert [message.body for message in queue.pop()] == [{"number": 1}]


def projects():
    first, second = zaqar("first"), zaqar("second")
    first.queue("shared-name", force_create=True).post({"body": "secret"})
    assert list(second.queues()[0]) == []
    assert list(second.queue("shared-name").messages()) == []


if __name__ == "__main__":
    for part in (home_and_ping, queues, deletion, metadata, messages, claims, traces, projects):
        print(part.__name__, flush=True)
        part()
