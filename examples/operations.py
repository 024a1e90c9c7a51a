"""Operations: a bad deploy of a consumer. The queue is held, the failures are looked at and explained, the queue is
released, and the failed messages are made available again: first ten of them, after a dry run.

    python3 operations.py URL
"""

import json
import sys
import textwrap
import time
import urllib.parse
import urllib.request

BAD, GOOD = "1.4.2", "1.4.3"
SECONDS = 60


def call(method, url, body=None):
    """Sends a request and returns status, headers and answer; an error is raised."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as answer:
        text = answer.read()
        return answer.status, answer.headers, json.loads(text) if text else None


def get(url):
    return call("GET", url)[2]


def step(text):
    print(f"\n{text}")


def show(text):
    print(textwrap.fill(text, 100, initial_indent="    ", subsequent_indent="    "))


def post(queue, numbers):
    """Posts orders; each third one is for the EU. The outcome of each is kept for an hour."""
    places = ["us", "uk", "eu"]
    messages = [
        {"body": {"order": number, "to": places[number % 3]}, "tags": [places[number % 3]], "keep": 3600}
        for number in numbers
    ]
    call("POST", f"{queue}/messages", {"messages": messages})


def consume(queue, version):
    """Claims and settles until there is nothing to claim, as this version of the consumer does. The bad one fails each
    order for the EU. Returns the numbers of the orders that were shipped."""
    shipped = []
    while True:
        status, headers, claim = call("POST", f"{queue}/claims?limit=20", {"ttl": 60, "by": f"shipping {version}"})
        if status == 204:
            if "X-Held" in headers:
                show(f"the consumer gets nothing, and the reason: {headers['X-Held']}")
            return shipped
        entries = []
        for message in claim["messages"]:
            if version == BAD and message["body"]["to"] == "eu":
                verdict = {"fail": {"reason": "no customs form", "retry": False}}
            else:
                verdict = {"done": {}}
                shipped.append(message["body"]["order"])
            entries.append({"id": message["id"], **verdict})
        call("POST", f"{queue}/claims/{claim['id']}/settle", {"messages": entries})


def peek(queue, **conditions):
    """Returns all messages that fulfil the conditions. Nothing is changed by it."""
    query = urllib.parse.urlencode({"limit": 20, **conditions})
    url, found = f"{queue}/peek?{query}", []
    while url:
        page = get(url)
        found += page["messages"]
        url = next((queue[:queue.index("/v2/")] + link["href"] for link in page["links"]), None)
    return found


def redrive(queue, task):
    """Starts a task, waits until it has ended, and returns how many messages it has changed."""
    at = f"{queue}/tasks/{call('POST', f'{queue}/tasks', task)[2]['id']}"
    deadline = time.monotonic() + SECONDS
    while (now := get(at))["state"] == "running":
        assert time.monotonic() < deadline, f"not ended after {SECONDS} seconds: {now}"
        time.sleep(0.1)
    assert now["state"] == "completed", now
    return now["moved"]


def main(base):
    queue = f"{base}/v2/queues/shipping"
    call("DELETE", queue)

    step(f"Version {BAD} of the consumer is deployed, and 45 orders are posted.")
    post(queue, range(45))
    shipped = consume(queue, BAD)
    show(f"{len(shipped)} orders were shipped")

    step("Orders fail. Hold the queue: no consumer gets a message, and no message is lost.")
    call("PUT", f"{queue}/hold", {"reason": f"bad deploy {BAD}"})
    post(queue, range(45, 51))
    consume(queue, BAD)

    step("Which orders have failed, and why? A peek changes nothing.")
    failed = peek(queue, state="failed")
    for message in failed[:3]:
        outcome = message["details"]["outcome"]
        show(f"order {message['body']['order']:2} to {message['body']['to']}: {outcome['reason']} ({outcome['by']})")
    show(f"… {len(failed)} in all")

    step("What does the queue wait for?")
    show(get(f"{queue}/explain")["says"])

    step(f"Version {GOOD} is deployed. Release the queue: the orders that have waited are shipped.")
    call("DELETE", f"{queue}/hold")
    shipped += consume(queue, GOOD)
    show(f"{len(shipped)} orders were shipped")

    step("Redrive. First a dry run: which messages would it be?")
    task = {"do": "requeue", "filter": {"state": ["failed"], "tag": "eu", "by": f"shipping {BAD}"}}
    plan = call("POST", f"{queue}/tasks", {**task, "dry_run": True})[2]
    show(f"{plan['matches']} of {plan['looked_at']} messages match")

    step("Ten of them, to see whether they are shipped now.")
    show(f"{redrive(queue, {**task, 'max': 10})} orders can be claimed again")
    ten = consume(queue, GOOD)
    show(f"{len(ten)} orders were shipped, and {len(peek(queue, state='failed'))} failed ones are left")

    step("Then the rest.")
    show(f"{redrive(queue, task)} orders can be claimed again")
    shipped += ten + consume(queue, GOOD)
    assert sorted(shipped) == list(range(51)), sorted(shipped)
    assert not peek(queue, state="failed"), "an order has failed"
    call("DELETE", queue)
    print(f"\noperations.py: {len(shipped)} orders shipped, none lost, none twice")


if __name__ == "__main__":
    main(sys.argv[1])
