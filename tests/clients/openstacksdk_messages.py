"""What openstacksdk can do with queues, messages and subscriptions, against the server of the first argument.

Without an identity service the SDK sends an empty project. Two of its own faults, the same against Zaqar itself: its
lists ask the session for a project and stop there, and creating a claim breaks after the
server's answer, because the SDK takes a location that it has computed for a header. So these are not called here.
"""

import sys

import openstack

URL = sys.argv[1]


def connect():
    return openstack.connect(auth_type="none", messaging_endpoint_override=URL + "/", load_yaml_config=False)


def queues(messaging):
    queue = messaging.create_queue(name="sdk")
    assert queue.name == "sdk", queue
    found = messaging.get_queue("sdk")
    assert found.default_message_ttl == 3600, found
    assert found.max_messages_post_size == 262144, found


def deletion(messaging):
    messaging.create_queue(name="deleted")
    messaging.delete_queue("deleted")
    messaging.delete_queue("deleted")


def messages(messaging):
    posted = messaging.post_message("sdk", [{"body": {"a": 1}, "ttl": 60}, {"body": "b", "ttl": 60}])
    ids = [path.rsplit("/", 1)[-1] for path in posted]
    assert len(ids) == 2, posted
    message = messaging.get_message("sdk", ids[0])
    assert (message.id, message.body, message.ttl) == (ids[0], {"a": 1}, 60), message
    for number in ids:
        messaging.delete_message("sdk", number)
    try:
        messaging.get_message("sdk", ids[0])
    except openstack.exceptions.NotFoundException:
        return
    raise AssertionError("the message should be gone")


def subscriptions(messaging):
    made = messaging.create_subscription("sdk", subscriber="https://hooks.example.com/sdk", ttl=600, options={"a": 1})
    assert made.subscription_id, made
    found = messaging.get_subscription("sdk", made.subscription_id)
    assert (found.subscriber, found.ttl, found.source) == ("https://hooks.example.com/sdk", 600, "sdk"), found
    assert found.options == {"a": 1} and found.age >= 0, found
    messaging.delete_subscription("sdk", made.subscription_id)
    messaging.delete_subscription("sdk", made.subscription_id)
    try:
        messaging.get_subscription("sdk", made.subscription_id)
    except openstack.exceptions.NotFoundException:
        return
    raise AssertionError("the subscription should be gone")


if __name__ == "__main__":
    conn = connect()
    for part in (queues, messages, subscriptions, deletion):
        print(part.__name__, flush=True)
        part(conn.message)
