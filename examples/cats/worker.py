"""A worker of the cats, without any package: takes the task, finishes it and creates the next one in one step.

    python3 worker.py URL NAME LAST        runs until it is killed; the chain ends with the number LAST
"""

import json
import random
import sys
import time
import urllib.error
import urllib.request

CLAIM_SECONDS = 2


def request(method, url, body=None, headers=None):
    """Sends a request; returns the parsed body. A refusal raises HTTPError."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **(headers or {})}
    # The server waits up to 20 seconds for a message.
    with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=30) as answer:
        text = answer.read()
        return json.loads(text) if text else None


def claim(base, name):
    """Waits for the task and claims it. Returns the claim's id and the message, or none."""
    terms = {"ttl": CLAIM_SECONDS, "by": name}
    url = f"{base}/v2/queues/cats/claims?limit=1&wait=20"
    claim = request("POST", url, terms, {"X-Message-Details": "true"})
    return claim and (claim["id"], claim["messages"][0])


def counter(message):
    """The number of the task, from its tags: the body is not needed for it."""
    tags = dict(tag.split(":") for tag in message["details"]["tags"])
    return int(tags["counter"])


def settle(base, claim, entry):
    """Settles a message. A settle whose answer is lost is repeated: its effect and its answer stay the same."""
    while True:
        try:
            url = f"{base}/v2/queues/cats/claims/{claim}/settle"
            [result] = request("POST", url, {"messages": [entry]})["results"]
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise
        except OSError as error:
            print("settle:", error, file=sys.stderr, flush=True)
        else:
            if result["status"] < 500:
                return result
        time.sleep(0.1)


def main(base, name, last):
    while True:
        granted = claim(base, name)
        if granted is None:
            continue
        claim_id, message = granted
        number = counter(message)
        time.sleep(random.uniform(0, 0.1))  # the work
        forward = [{"queue": "cats-done", "body": {"number": number, "by": name}}]
        if number < last:
            forward.append({"queue": "cats", "body": message["body"], "tags": [f"counter:{number + 1}"]})
        # Done, recorded and continued, or none of it: also when this worker is killed just now.
        result = settle(base, claim_id, {"id": message["id"], "done": {}, "forward": forward})
        if result["status"] != 200:
            # The claim has expired, and with it the right to continue the chain: another worker has the task.
            print(f"{name}: {number} is not mine any more", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
