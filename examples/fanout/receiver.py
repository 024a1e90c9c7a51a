"""A webhook receiver: checks the signatures of Standard Webhooks, fails at random, and does each message once.

    python3 receiver.py PORT SECRET [FAILS]

FAILS is the share of the requests that it fails, 0.3 when absent. It prints each order that it has done.
"""

import base64
import hashlib
import hmac
import json
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE = 300  # seconds between the clocks of the two sides


def is_signed(secret, headers, body, now):
    """Whether a request has a signature with the secret, of a time that is not long ago."""
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not timestamp.isdigit() or abs(now - int(timestamp)) > TOLERANCE:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{message_id}.{timestamp}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    # There is one for each secret of the subscription.
    given = headers.get("webhook-signature", "").split()
    return any(hmac.compare_digest(expected, signature) for signature in given)


class Receiver:
    """Does each message once, and counts what it was sent."""

    def __init__(self, port, secret, fails=0.3, is_loud=False):
        self.secret, self.fails, self.is_loud = secret, fails, is_loud
        self.done, self.seen = [], set()
        self.counts = {"unsigned": 0, "failed": 0, "repeated": 0}
        self.lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                self.send_response(receiver.answer(self.headers, body))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/orders"

    def answer(self, headers, body):
        """Returns the status for a request."""
        with self.lock:
            if not is_signed(self.secret, headers, body, time.time()):
                self.counts["unsigned"] += 1
                return 401
            if random.random() < self.fails:
                self.counts["failed"] += 1
                return 503
            # A message is sent at least once. A real receiver keeps its ids where it keeps its work, for some days.
            if headers["webhook-id"] in self.seen:
                self.counts["repeated"] += 1
                return 204
            self.seen.add(headers["webhook-id"])
            order = json.loads(body)["body"]["order"]
            self.done.append(order)
            # As when the answer is lost on its way: the service sends the message again.
            is_lost = random.random() < self.fails / 2
        if self.is_loud:
            print(f"order {order}", flush=True)
        return 500 if is_lost else 204


if __name__ == "__main__":
    share = float(sys.argv[3]) if len(sys.argv) > 3 else 0.3
    Receiver(int(sys.argv[1]), sys.argv[2], share, is_loud=True).server.serve_forever()
