"""openstacksdk, python-zaqarclient and the openstack command line with users of Keystone: the service is that of the first argument, a
stand-in of Keystone that of the second. The service remembers a token for one second.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request

import openstack
from zaqarclient.queues import client
from zaqarclient.transport import errors

URL, KEYSTONE = sys.argv[1], sys.argv[2]
# Longer than the service remembers a token.
FORGOTTEN = 1.5
PROGRAM = os.path.join(os.path.dirname(sys.executable), "openstack")


def fails(error, call, *arguments, **named):
    """Checks that a call raises an error."""
    try:
        call(*arguments, **named)
    except error:
        return
    raise AssertionError(f"{call} should have failed with {error}")


def login(user, project):
    """The credentials of a user as keystoneauth names them."""
    domains = {"user_domain_name": "Default", "project_domain_name": "Default"}
    return {"auth_url": KEYSTONE, "username": user, "password": f"{user}-password", "project_name": project} | domains


def zaqar(user, project):
    """A python-zaqarclient that finds the service in the catalogue."""
    options = {f"os_{name}": value for name, value in login(user, project).items()}
    return client.Client(None, version=2, conf={"auth_opts": {"backend": "keystone", "options": options}})


def revoke(token):
    request = urllib.request.Request(f"{KEYSTONE}/v3/auth/tokens", method="DELETE", headers={"X-Subject-Token": token})
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 204


def zaqarclient():
    ours = zaqar("alice", "demo")
    queue = ours.queue("of-zaqarclient", force_create=True)
    queue.post([{"body": {"number": number}, "ttl": 300} for number in range(3)])
    assert [message.body["number"] for message in queue.messages(echo=True)] == [0, 1, 2]
    held = list(queue.claim(ttl=60, grace=60, limit=2))
    assert [message.body["number"] for message in held] == [0, 1]
    for message in held:
        message.delete()
    assert queue.stats["messages"]["total"] == 1
    assert [found.name for found in ours.queues()[0]] == ["of-zaqarclient"]
    # Another project has another queue of the name; a reader reads, and changes nothing; only an administrator sees pools.
    assert list(zaqar("bob", "other").queue("of-zaqarclient").messages(echo=True)) == []
    reader = zaqar("rita", "demo").queue("of-zaqarclient")
    assert reader.stats["messages"]["total"] == 1
    fails(errors.ForbiddenError, reader.post, {"body": 1, "ttl": 60})
    fails(errors.ForbiddenError, lambda: list(ours.pools()))
    assert [pool.name for pool in zaqar("root", "demo").pools()] == ["default"]
    fails(errors.ForbiddenError, zaqar("nemo", "demo").queue, "q", force_create=True)
    queue.delete()


def sdk(user="alice", project="demo"):
    return openstack.connect(load_yaml_config=False, load_envvars=False, auth=login(user, project),
                             region_name="RegionOne", identity_interface="public")


def openstacksdk():
    cloud = sdk()
    messaging = cloud.message
    assert messaging.create_queue(name="of-sdk").name == "of-sdk"
    assert [queue.name for queue in messaging.queues()] == ["of-sdk"]
    posted = messaging.post_message("of-sdk", [{"body": {"a": 1}, "ttl": 60}, {"body": "b", "ttl": 60}])
    ids = [path.rsplit("/", 1)[-1] for path in posted]
    assert messaging.get_message("of-sdk", ids[0]).body == {"a": 1}
    assert [message.body for message in messaging.messages("of-sdk", echo=True)] == [{"a": 1}, "b"]
    # Making a claim breaks in the SDK after the service's answer (see openstacksdk_messages.py), so it is made without the SDK's part.
    made = messaging.post("/queues/of-sdk/claims?limit=1", json={"ttl": 60, "grace": 60},
                          headers={"Client-ID": "30387f00d4ba4c12ac0ea31e6e5e0bc1"})
    assert made.status_code == 201, made.text
    claim = made.headers["Location"].rsplit("/", 1)[-1]
    messaging.delete_message("of-sdk", ids[0], claim)
    messaging.delete_message("of-sdk", ids[1])
    # A revoked token is answered 401, for which the SDK gets another one.
    before = cloud.session.get_token()
    revoke(before)
    time.sleep(FORGOTTEN)
    assert messaging.get_queue("of-sdk").default_message_ttl == 3600
    assert cloud.session.get_token() != before
    # A project that is named beside the token's is refused.
    named = messaging.get("/queues", headers={"X-PROJECT-ID": "other"})
    assert named.status_code == 403, named.text
    assert sdk("bob", "other").message.get_queue("of-sdk").default_message_ttl == 3600
    assert list(sdk("bob", "other").message.queues()) == []
    messaging.delete_queue("of-sdk")


def told(arguments, **environment):
    """What the openstack command line prints."""
    names = ("PATH", "HOME", "LANG", "NO_PROXY", "no_proxy")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    ended = subprocess.run([PROGRAM, *arguments], env=kept | environment, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def command_line():
    names = {
        "OS_AUTH_URL": f"{KEYSTONE}/v3", "OS_USERNAME": "alice", "OS_PASSWORD": "alice-password", "OS_PROJECT_NAME": "demo",
        "OS_USER_DOMAIN_NAME": "Default", "OS_PROJECT_DOMAIN_NAME": "Default", "OS_IDENTITY_API_VERSION": "3",
        "OS_MESSAGE_CLIENT_ID": "30387f00-d4ba-4c12-ac0e-a31e6e5e0bc1",
    }

    def messaging(*arguments, **other):
        code, out, said = told(["messaging", *arguments], **(names | other))
        assert code == 0, (arguments, out, said)
        return out

    messaging("queue", "create", "of-cli")
    messaging("message", "post", "of-cli", json.dumps([{"body": {"n": 1}, "ttl": 300}, {"body": 2, "ttl": 300}]))
    assert "of-cli" in messaging("queue", "list", "-f", "value")
    claimed = json.loads(messaging("claim", "create", "of-cli", "--limit", "1", "-f", "json"))
    assert len(claimed) == 1, claimed
    assert "'n': 1" in str(claimed) or '"n": 1' in str(claimed), claimed
    stats = messaging("queue", "stats", "of-cli", "-f", "json")
    assert "'claimed': 1" in stats or '"claimed": 1' in stats, stats
    assert "'total': 2" in stats or '"total": 2' in stats, stats
    messaging("queue", "delete", "of-cli")
    code, _, said = told(["messaging", "pool", "list"], **names)
    assert code != 0 and "403" in said or "admin" in said, said
    assert "default" in messaging("pool", "list", "-f", "value", OS_USERNAME="root", OS_PASSWORD="root-password")
    code, _, said = told(["messaging", "queue", "list"], **(names | {"OS_PASSWORD": "wrong"}))
    assert code != 0, said


if __name__ == "__main__":
    for part in (zaqarclient, openstacksdk, command_line):
        print(part.__name__, flush=True)
        part()
