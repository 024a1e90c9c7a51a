"""A worker over REST, without any package: claims up to ten messages, works, deletes each, and waits for more.

    python3 worker.py URL QUEUE [COUNT]        with COUNT it ends after so many messages
"""

import json
import sys
import threading
import urllib.error
import urllib.request

CLAIM_SECONDS = 60


def request(method, url, body=None):
    """Sends a request; returns status and parsed body. A refusal raises HTTPError."""
    data = None if body is None else json.dumps(body).encode()
    call = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    # The server waits up to 20 seconds for a message.
    with urllib.request.urlopen(call, timeout=30) as answer:
        text = answer.read()
        return answer, json.loads(text) if text else None


def work(body):
    print("working on", body, flush=True)


def renew(url, ended):
    """Extends the claim until the work has ended."""
    while not ended.wait(CLAIM_SECONDS / 3):
        request("PATCH", url, {"ttl": CLAIM_SECONDS})


def main(base, queue, count=None):
    done = 0
    while count is None or done < count:
        url = f"{base}/v2/queues/{queue}/claims?limit=10&wait=20"
        answer, claim = request("POST", url, {"ttl": CLAIM_SECONDS, "grace": 60})
        if claim is None:
            continue
        ended = threading.Event()
        threading.Thread(target=renew, args=(base + answer.headers["Location"], ended), daemon=True).start()
        try:
            for message in claim["messages"]:
                work(message["body"])
                # The href names the claim: after its end the deletion is refused, and another worker has the message.
                request("DELETE", base + message["href"])
                done += 1
        finally:
            ended.set()
    print("worker.py: done", done)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
