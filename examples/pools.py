"""Pools: two are filled by their weights, a third is added while messages flow, and the first is drained and retired.

    python3 pools.py URL
"""

import json
import random
import sys
import threading
import time
import urllib.request

QUEUES = [f"pools-{number}" for number in range(60)]
SECONDS = 120


def call(method, url, body=None):
    """Sends a request and returns its answer; an error is raised."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as answer:
        text = answer.read()
        return json.loads(text) if text else None


def wait(what, condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not after {SECONDS} seconds: {what}"
        time.sleep(0.2)


def show(base, title):
    """Prints the map of the pools: the share of each by weight, and its part of the bytes."""
    print(title)
    for pool in call("GET", f"{base}/v2/admin/map?format=json")["pools"]:
        share, held, queues = (pool[key] for key in ("share", "held", "queues"))
        print(f"  {pool['name']:8} {pool['state']:8} share {share:4.0%}  held {held:4.0%}  {queues} queues")


class Producer(threading.Thread):
    """Posts numbers to random queues until it is stopped."""

    def __init__(self, base):
        super().__init__(daemon=True)
        self.base, self.posted, self.is_stopped = base, 0, threading.Event()

    def run(self):
        while not self.is_stopped.is_set():
            message = {"body": {"number": self.posted, "text": "x" * 500}}
            queue = random.choice(QUEUES)
            call("POST", f"{self.base}/v2/queues/{queue}/messages", {"messages": [message]})
            self.posted += 1


def balance(base):
    """Begins the planned moves until the plan is empty and no queue is on its way."""

    def is_balanced():
        moving = call("GET", f"{base}/v2/admin/map?format=json")["moves"]
        return not moving and not call("POST", f"{base}/v2/admin/balance", {})["moves"]

    wait("the pools have their shares", is_balanced)


def take_all(base):
    """Pops all messages and returns their numbers."""
    numbers = []
    for queue in QUEUES:
        while popped := call("DELETE", f"{base}/v2/queues/{queue}/messages?pop=20")["messages"]:
            numbers += [message["body"]["number"] for message in popped]
    return numbers


def main(base):
    pools = f"{base}/v2/pools"
    call("PATCH", f"{pools}/default", {"weight": 0})
    for name, weight in (("first", 200), ("second", 100)):
        call("PUT", f"{pools}/{name}", {"uri": f"embedded:{name}", "weight": weight})
    for queue in QUEUES:
        call("PUT", f"{base}/v2/queues/{queue}", {})
    producer = Producer(base)
    producer.start()
    wait("a thousand messages are posted", lambda: producer.posted >= 1_000)
    show(base, "two pools, 2 : 1")

    call("PUT", f"{pools}/third", {"uri": "embedded:third", "weight": 300})
    balance(base)
    show(base, "a third pool, as large as both")

    call("POST", f"{pools}/first/drain", {})
    wait("no queue is in the first pool", lambda: call("GET", f"{pools}/first/drain")["done"])
    show(base, "the first pool is drained")
    call("DELETE", f"{pools}/first")

    producer.is_stopped.set()
    producer.join()
    numbers = take_all(base)
    assert sorted(numbers) == list(range(producer.posted)), f"{len(numbers)} of {producer.posted} messages"
    for queue in QUEUES:
        call("DELETE", f"{base}/v2/queues/{queue}")
    call("PATCH", f"{pools}/default", {"weight": 100})
    print(f"pools.py: {producer.posted} messages, none missing, none twice")


if __name__ == "__main__":
    main(sys.argv[1])
