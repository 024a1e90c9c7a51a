"""The clients of OpenStack with a token of the service's own file, and without any: the service with tokens is that of the first
argument, its token the second, and a service without authentication the third.
"""

import json
import os
import subprocess
import sys

import openstack
from zaqarclient.queues import client

URL, TOKEN, OPEN_URL = sys.argv[1], sys.argv[2], sys.argv[3]
PROGRAM = os.path.join(os.path.dirname(sys.executable), "openstack")
CLIENT = ["--client-id", "30387f00-d4ba-4c12-ac0e-a31e6e5e0bc1"]


def told(*arguments):
    """What the openstack command line prints."""
    names = ("PATH", "HOME", "LANG", "NO_PROXY", "no_proxy")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    ended = subprocess.run([PROGRAM, *arguments], env=kept, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, (arguments, ended.stdout, ended.stderr)
    return ended.stdout


def use(*how):
    """Makes a queue by the command line, puts a message in it, reads and removes it."""
    told(*how, "messaging", "queue", "create", "tokens")
    told(*how, "messaging", "message", "post", "tokens", json.dumps([{"body": "hello", "ttl": 300}]), *CLIENT)
    assert "hello" in told(*how, "messaging", "claim", "create", "tokens", "-f", "json")
    assert "tokens" in told(*how, "messaging", "queue", "list", "-f", "value")
    told(*how, "messaging", "queue", "delete", "tokens")


def command_line_with_token():
    use("--os-auth-type", "admin_token", "--os-endpoint", URL, "--os-token", TOKEN)


def command_line_without_token():
    use("--os-auth-type", "none", "--os-endpoint", OPEN_URL)


def zaqarclient_with_token():
    options = {"os_auth_token": TOKEN}
    ours = client.Client(URL, version=2, conf={"auth_opts": {"backend": "keystone", "options": options}})
    queue = ours.queue("zaqarclient", force_create=True)
    queue.post({"body": 1, "ttl": 60})
    assert [message.body for message in queue.claim(ttl=60, grace=60)] == [1]


def openstacksdk_with_token():
    cloud = openstack.connect(load_yaml_config=False, load_envvars=False, auth_type="admin_token",
                              auth={"endpoint": URL, "token": TOKEN}, messaging_endpoint_override=URL + "/")
    messaging = cloud.message
    assert messaging.create_queue(name="sdk").name == "sdk"
    posted = messaging.post_message("sdk", [{"body": "b", "ttl": 60}])
    assert messaging.get_message("sdk", posted[0].rsplit("/", 1)[-1]).body == "b"


if __name__ == "__main__":
    parts = (zaqarclient_with_token, openstacksdk_with_token, command_line_with_token, command_line_without_token)
    for part in parts:
        print(part.__name__, flush=True)
        part()
