"""Everything that python-zaqarclient and its command line have for subscriptions, against the server of the first argument.

It exits with an error at the first thing that is not as the client's users expect it. The client has no confirmation.
"""

import json
import os
import subprocess
import sys
import urllib.request

from zaqarclient.transport import errors

from connected import URL, fails, zaqar

PROGRAM = os.path.join(os.path.dirname(sys.executable), "openstack")
HOOK = "http://hooks.example.com/orders"


def objects():
    ours = zaqar()
    made = ours.subscription("orders", subscriber=HOOK, ttl=600, options={"owner": "a"})
    assert made.id and made.confirmed is True, vars(made)
    assert (made.subscriber, made.ttl, made.options) == (HOOK, 600, {"owner": "a"}), vars(made)
    # The queue was made for it.
    assert "orders" in [queue.name for queue in ours.queues()[0]]
    shown = ours.subscription("orders", id=made.id)
    assert (shown.subscriber, shown.ttl, shown.age) == (HOOK, 600, 0), vars(shown)
    made.update({"ttl": 1200, "options": {"owner": "b"}})
    shown = ours.subscription("orders", id=made.id)
    assert (shown.ttl, shown.options) == (1200, {"owner": "b"}), vars(shown)
    made.update({"subscriber": HOOK + "/2"})
    assert ours.subscription("orders", id=made.id).subscriber == HOOK + "/2"
    made.delete()
    made.delete()
    fails(errors.ResourceNotFound, ours.subscription, "orders", id=made.id)


def refusals():
    ours = zaqar("refused")
    ours.subscription("q", subscriber=HOOK, ttl=600)
    fails(errors.ConflictError, ours.subscription, "q", subscriber=HOOK, ttl=600)
    for subscriber, ttl in [("ftp://example.com", 600), (HOOK + "/2", 0), (HOOK + "/2", 59)]:
        fails(errors.MalformedRequest, ours.subscription, "q", subscriber=subscriber, ttl=ttl)
    # No trust of Keystone, and no e-mail.
    for subscriber in ["trust+" + HOOK, "mailto:a@example.com"]:
        fails(errors.MalformedRequest, ours.subscription, "q", subscriber=subscriber, ttl=600)
    ours.subscription("q", subscriber=HOOK + "/ages", ttl=9_000_000_000)


def lists():
    ours = zaqar("listed")
    made = sorted(ours.subscription("q", subscriber=f"{HOOK}/{number}", ttl=600).id for number in range(12))
    assert [found.id for found in ours.subscriptions("q")] == made[:10]
    walked = [found.id for found in ours.subscriptions("q", limit=5).stream()]
    assert walked == made, walked
    assert [found.id for found in ours.subscriptions("q", marker=made[9])] == made[10:]
    assert list(ours.subscriptions("missing")) == []
    ours.queue("q").purge(resource_types=["subscriptions"])
    assert list(ours.subscriptions("q")) == []


def consumer_groups():
    """A subscriber that Zaqar does not have, made by its client."""
    ours = zaqar("groups")
    made = ours.subscription("orders", subscriber="pull:billing", ttl=600, options={"max_messages": 10})
    ours.queue("orders").post({"body": {"order": 1}})
    path = f"{URL}/v2/queues/orders/subscriptions/{made.id}/messages?echo=true"
    with urllib.request.urlopen(urllib.request.Request(path, headers={"X-Project-Id": "groups"})) as answer:
        assert [message["body"] for message in json.load(answer)["messages"]] == [{"order": 1}]


def confirmation():
    """The request of a confirmation page."""
    made = zaqar().subscription("confirmed", subscriber=HOOK, ttl=600)
    path = f"{URL}/v2/queues/confirmed/subscriptions/{made.id}/confirm"
    headers = {"X-Project-Id": "clients", "Content-Type": "application/json"}
    put = urllib.request.Request(path, b'{"confirmed": true}', headers, method="PUT")
    with urllib.request.urlopen(put) as answer:
        assert answer.status == 204


def command_line():
    names = ("PATH", "HOME", "LANG", "NO_PROXY", "no_proxy")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    how = ["--os-auth-type", "none", "--os-endpoint", URL, "messaging", "subscription"]

    def told(*arguments):
        ended = subprocess.run([PROGRAM, *how, *arguments], env=kept, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, (arguments, ended.stdout, ended.stderr)
        return ended.stdout

    made = json.loads(told("create", "cli", HOOK, "600", "--options", '{"owner": "a"}', "-f", "json"))
    assert (made["Subscriber"], made["TTL"], made["Options"]) == (HOOK, 600, {"owner": "a"}), made
    # It sends null for each value that is not given.
    told("update", "cli", made["ID"], "--ttl", "1200", "--options", '{"owner": "b"}')
    shown = json.loads(told("show", "cli", made["ID"], "-f", "json"))
    assert (shown["Subscriber"], shown["TTL"], shown["Options"]) == (HOOK, 1200, {"owner": "b"}), shown
    [listed] = json.loads(told("list", "cli", "-f", "json"))
    assert (listed["ID"], listed["TTL"], listed["Confirmed"]) == (made["ID"], 1200, True), listed
    told("delete", "cli", made["ID"])
    assert json.loads(told("list", "cli", "-f", "json")) == []


if __name__ == "__main__":
    for part in (objects, refusals, lists, consumer_groups, confirmation, command_line):
        print(part.__name__, flush=True)
        part()
