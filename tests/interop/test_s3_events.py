"""Notifications of an object store: its bucket tells a queue, the queue tells the HTTP door, and the table that lies there is looked at."""

import json
import os
import urllib.request

import pyarrow as pa
import pytest

import engines
from sidecar import Sidecar

KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
BUCKET, NOT_FOUND = "notified", 7


@pytest.fixture(scope="module")
def queue():
    """A queue that hears of every object of a new bucket."""
    import boto3

    endpoint = os.environ["AFTERWRITE_TEST_S3"]
    sqs = boto3.client("sqs", endpoint_url=endpoint, **KEYS)
    url = sqs.create_queue(QueueName="objects")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    s3 = boto3.client("s3", endpoint_url=endpoint, **KEYS)
    s3.create_bucket(Bucket=BUCKET)
    told = {"QueueConfigurations": [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}]}
    s3.put_bucket_notification_configuration(Bucket=BUCKET, NotificationConfiguration=told)

    def bodies():
        found = []
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                found.append(message["Body"])
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return found

    return bodies


class Place(engines.Home):
    """A home whose warehouse is the bucket."""

    def __init__(self, folder):
        super().__init__(folder)
        self.settings = {"s3.endpoint": os.environ["AFTERWRITE_TEST_S3"], "s3.region": "us-east-1", "s3.access-key-id": "test", "s3.secret-access-key": "test"}

    def config(self, extra="", rest=None, file="afterwrite.toml"):
        path = super().config(extra, rest, file)
        store = "\n".join(f'"{k}" = "{v}"' for k, v in {**self.settings, "s3.path-style-access": "true"}.items())
        path.write_text(path.read_text().replace(f'warehouse = "file://{self.warehouse}"', f'warehouse = "s3://{BUCKET}/wh"\n{store}'))
        return path

    def catalog(self):
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog(self.name, uri=f"sqlite:///{self.database}?timeout=30", warehouse=f"s3://{BUCKET}/wh", **self.settings)


def test_an_object_that_the_store_tells_of_leads_to_its_table_and_its_compaction(queue, scratch):
    place = Place(scratch / "s3-events")
    catalog = place.catalog()
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    sidecar = Sidecar(place, '[defaults]\nact = true\ncooldown = "0s"\n')

    def post(body):
        request = urllib.request.Request(f"http://{sidecar.http}/s3/events?catalog=lake", body.encode(), {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=30).status

    def known():
        done = sidecar.ask("why", "lake.db.t", "--json", ok=(0, NOT_FOUND))
        return {json.loads(line)["snapshot_id"] for line in done.stdout.splitlines()}

    def operations():
        return [s.summary.operation.value for s in catalog.load_table("db.t").snapshots()]

    try:
        # the store's test of the queue, and what the creation of the table wrote
        assert [post(body) for body in queue()].count(200) >= 2
        for n in range(10):
            table.append(pa.table({"id": pa.array(range(n * 10, n * 10 + 10), pa.int64())}))
            head = str(catalog.load_table("db.t").current_snapshot().snapshot_id)
            assert {post(body) for body in queue()} == {200}
            engines.wait_until(lambda: known() == {head} or "replace" in operations())
        engines.wait_until(lambda: "replace" in operations())
    finally:
        sidecar.stop()
    assert sorted(catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist()) == list(range(100))

