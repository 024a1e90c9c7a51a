"""A worker of Celery is killed in the middle of a task that is acknowledged late; the next worker does that task."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

BASE = os.environ.get("SQS_BASE") or sys.argv[1]
NOTES = pathlib.Path(os.environ.get("SQS_NOTES") or tempfile.mkdtemp())

from celery import Celery  # noqa: E402

app = Celery("celery_work", broker=f"sqs://AKIDEXAMPLE:secret@{BASE.removeprefix('http://')}//")
app.conf.update(
    task_acks_late=True, worker_prefetch_multiplier=1, task_default_queue="work", worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True, worker_enable_remote_control=False, worker_send_task_events=False,
    broker_transport_options={"region": os.environ["AWS_DEFAULT_REGION"], "is_secure": False, "visibility_timeout": 5,
                              "wait_time_seconds": 1, "polling_interval": 0.1})


@app.task(name="work")
def work(number, seconds):
    with open(NOTES / f"begun-{number}", "a") as note:
        note.write("x")
    time.sleep(seconds)
    (NOTES / f"done-{number}").touch()


def worker():
    command = [sys.executable, "-m", "celery", "-A", "celery_work", "worker", "-c", "1", "--without-gossip",
               "--without-mingle", "--without-heartbeat", "-l", "warning"]
    environment = {**os.environ, "SQS_BASE": BASE, "SQS_NOTES": str(NOTES), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(command, env=environment, cwd=pathlib.Path(__file__).parent, start_new_session=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_for(*names):
    deadline = time.time() + 60
    while not all((NOTES / name).exists() for name in names):
        assert time.time() < deadline, f"{names}, and there is {os.listdir(NOTES)}"
        time.sleep(0.1)


if __name__ == "__main__":
    first = worker()
    try:
        app.send_task("work", args=[0, 0])
        wait_for("done-0")
        app.send_task("work", args=[1, 3])
        wait_for("begun-1")
    finally:
        kill(first)
    assert not (NOTES / "done-1").exists()
    second = worker()
    try:
        app.send_task("work", args=[2, 0])
        wait_for("done-1", "done-2")
    finally:
        kill(second)
    assert (NOTES / "begun-1").read_text() == "xx", "it was begun once, killed, and begun again"
