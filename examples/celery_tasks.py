"""Tasks of Celery over the SQS endpoint. The broker is in CELERY_BROKER_URL, as sqs://KEY:SECRET@HOST:PORT//."""

from celery import Celery

app = Celery("celery_tasks")
app.conf.update(
    # A task is deleted after it has run: a killed worker loses none.
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    task_default_queue="celery",
    # SQS has no broadcast.
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "region": "us-east-1",
        "is_secure": False,
        # Longer than the longest task.
        "visibility_timeout": 300,
        "wait_time_seconds": 20,
    },
)


@app.task
def write(path, text):
    with open(path, "w") as file:
        file.write(text + "\n")
