"""Cats: workers that are killed at random continue a chain of tasks, and it stays one chain.

    python3 run.py URL [LAST]        the service needs --min-claim-ttl 2
"""

import pathlib
import random
import subprocess
import sys
import time

from worker import request

WORKERS = ["Tom", "Minka", "Felix"]
SECONDS = 240


def start(base, name, last):
    program = pathlib.Path(__file__).with_name("worker.py")
    return subprocess.Popen([sys.executable, str(program), base, name, str(last)])


def kill(worker):
    """Ends a worker by SIGKILL, wherever it is."""
    worker.kill()
    worker.wait()


def total(base, queue):
    return request("GET", f"{base}/v2/queues/{queue}/stats")["messages"]["total"]


def has_ended(base, last):
    """Whether each number is recorded and there is no task any more, in transfer or not; or there are too many records."""
    records = total(base, "cats-done")
    return records > last or records == last and total(base, "cats") == 0


def run(base, last):
    """Kills a worker and starts it again, until the chain has ended. Returns the number of those killed."""
    deadline = time.monotonic() + SECONDS
    workers = {name: start(base, name, last) for name in WORKERS}
    killed = 0
    try:
        while not has_ended(base, last):
            assert time.monotonic() < deadline, f"{total(base, 'cats-done')} of {last} after {SECONDS} seconds"
            time.sleep(random.uniform(0, 0.5))
            name = random.choice(WORKERS)
            kill(workers[name])
            killed += 1
            workers[name] = start(base, name, last)
    finally:
        for worker in workers.values():
            kill(worker)
    return killed


def recorded(base):
    """Takes all records, and returns their numbers."""
    numbers = []
    while popped := request("DELETE", f"{base}/v2/queues/cats-done/messages?pop=20")["messages"]:
        numbers += [message["body"]["number"] for message in popped]
    return numbers


def main(base, last):
    for queue in ("cats", "cats-done"):
        request("DELETE", f"{base}/v2/queues/{queue}")
    first = {"body": {"chain": "cats"}, "tags": ["counter:1"]}
    request("POST", f"{base}/v2/queues/cats/messages", {"messages": [first]})
    killed = run(base, last)
    numbers = recorded(base)
    assert sorted(numbers) == list(range(1, last + 1)), f"not one chain: {numbers}"
    print(f"cats: one chain of {last}, none missing, none twice; {killed} workers were killed")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100)
