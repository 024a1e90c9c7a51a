"""python-zaqarclient against the server of the first argument, and what the scripts of it share."""

import sys

from zaqarclient.queues import client

URL = sys.argv[1]


def zaqar(project="clients"):
    """A client of a project."""
    options = {"os_project_id": project}
    return client.Client(URL, version=2, conf={"auth_opts": {"backend": "noauth", "options": options}})


def fails(error, call, *arguments, **named):
    """Checks that a call raises an error."""
    try:
        call(*arguments, **named)
    except error:
        return
    raise AssertionError(f"{call} should have failed with {error}")
