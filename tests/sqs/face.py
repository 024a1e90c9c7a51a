"""What the scripts of this folder share: a client of the server that they were given, and how a refusal is expected."""

import os
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

BASE = sys.argv[1]
# Queues of another region are others.
REGION = os.environ["AWS_DEFAULT_REGION"]


def client(region=REGION, key="AKIDEXAMPLE", secret="secret"):
    """A client that never repeats a request: what the server does wrong must be seen."""
    config = Config(retries={"total_max_attempts": 1})
    return boto3.client("sqs", region_name=region, endpoint_url=BASE, aws_access_key_id=key,
                        aws_secret_access_key=secret, config=config)


def refused(code, call, **arguments):
    """Calls, and expects this code."""
    try:
        answer = call(**arguments)
    except ClientError as error:
        assert error.response["Error"]["Code"] == code, error.response
        return error.response
    raise AssertionError(f"{code} was expected, and it was answered {answer}")
