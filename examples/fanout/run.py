"""Fan-out: one topic, and each order reaches five readers. Three queues, one of them with a filter; a webhook that fails
at random; and a consumer group that begins later and replays from the oldest order.

    python3 run.py URL
"""

import base64
import json
import secrets
import sys
import textwrap
import threading
import time
import urllib.request

from receiver import Receiver

ORDERS, SECONDS = 40, 120
PLACES = ["DE", "AT", "US", "JP"]


def call(method, url, body=None):
    """Sends a request and returns the answer; an error is raised."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as answer:
        text = answer.read()
        return json.loads(text) if text else None


def step(text):
    print(f"\n{textwrap.fill(text, 100)}")


def show(text):
    print(textwrap.fill(text, 100, initial_indent="    ", subsequent_indent="    "))


def subscribe(source, subscriber, secret=None, **options):
    """Subscribes for a day. Returns the path of the subscription."""
    body = {"subscriber": subscriber, "ttl": 86400, "options": options}
    if secret:
        body["secrets"] = [secret]
    return f"{source}/subscriptions/{call('POST', f'{source}/subscriptions', body)['subscription_id']}"


def publish(topic, numbers):
    messages = [{"body": {"order": number, "country": PLACES[number % 4], "total": 50 * number}} for number in numbers]
    call("POST", f"{topic}/messages", {"messages": messages})


def consume(queue, count):
    """Claims and deletes until there were so many orders, and then nothing. Returns their numbers."""
    orders, deadline = [], time.monotonic() + SECONDS
    while True:
        claim = call("POST", f"{queue}/claims?limit=20&wait=1", {"ttl": 60, "grace": 60})
        if claim is None and len(orders) >= count:
            return sorted(orders)
        assert time.monotonic() < deadline, f"{len(orders)} of {count} orders in {queue}"
        for message in claim["messages"] if claim else []:
            orders.append(message["body"]["order"])
            call("DELETE", queue[:queue.index("/v2/")] + message["href"])


def main(base):
    topic, queues = f"{base}/v2/topics/orders", f"{base}/v2/queues"
    everything = list(range(ORDERS))
    call("PUT", topic)

    step("Three queues read the topic: billing and archive get each order, customs the large ones from outside the EU.")
    outside = {"country": [{"anything-but": ["DE", "AT"]}], "total": [{"numeric": [">=", 500]}]}
    subscribe(topic, "queue:billing")
    subscribe(topic, "queue:archive")
    subscribe(topic, "queue:customs", filter=outside, filter_scope="body")

    step("So does a webhook. It checks the signatures, and fails each third request.")
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    receiver = Receiver(0, secret)
    threading.Thread(target=receiver.server.serve_forever, daemon=True).start()
    hook = subscribe(topic, receiver.url, secret, _backoff={"first": 1, "factor": 2, "max": 8})

    step(f"{ORDERS // 2} orders are published. When a post is answered, each reader has its copy on disk.")
    publish(topic, everything[:ORDERS // 2])
    show(call("GET", f"{topic}/explain")["says"])

    step("A consumer group begins now, and replays the archive from the oldest order. Then the other orders follow: what "
         "arrives in the archive is copied for the group.")
    deadline = time.monotonic() + SECONDS
    while call("GET", f"{queues}/archive/stats")["messages"]["total"] < ORDERS // 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    group = subscribe(f"{queues}/archive", "pull:reports", **{"from": "oldest"})
    publish(topic, everything[ORDERS // 2:])
    reports = [[], []]
    members = [threading.Thread(target=lambda n=n: reports[n].extend(consume(group, 0))) for n in range(2)]
    wait_for(f"{group}/stats", ORDERS)
    [member.start() for member in members]
    [member.join() for member in members]
    show(f"two members of the group have read {len(reports[0])} and {len(reports[1])} orders")
    assert sorted(reports[0] + reports[1]) == everything, reports

    step("Each queue has its orders, and has lost none to the others.")
    large = [number for number in everything if PLACES[number % 4] not in ("DE", "AT") and number >= 10]
    for name, expected in [("billing", everything), ("archive", everything), ("customs", large)]:
        orders = consume(f"{queues}/{name}", len(expected))
        assert orders == expected, (name, orders)
        show(f"{name}: {len(orders)} orders")

    step("The webhook gets what it has failed again, a little later each time, by 8 seconds at most.")
    deadline = time.monotonic() + SECONDS
    while len(receiver.done) < ORDERS or call("GET", f"{hook}/stats")["messages"]["total"]:
        assert time.monotonic() < deadline, call("GET", hook)
        time.sleep(0.2)
    show(f"{len(receiver.done)} orders done, {receiver.counts}")
    assert sorted(receiver.done) == everything and not receiver.counts["unsigned"]
    call("DELETE", topic)
    for name in ["billing", "archive", "customs"]:
        call("DELETE", f"{queues}/{name}")
    print(f"\nfanout: {ORDERS} orders, each read once by each reader")


def wait_for(stats, count):
    """Waits until a queue has so many messages."""
    deadline = time.monotonic() + SECONDS
    while call("GET", stats)["messages"]["total"] < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1])
