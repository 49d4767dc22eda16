"""The Iceberg Kafka Connect sink, live: its control topic is what the sidecar hears, and nothing is added to the sink."""

import json
import pathlib

import pytest

import broker as brokers
import connect
import engines
import heard
from sidecar import Sidecar

REGIONS = ["asia", "eu", "us"]


@pytest.fixture(scope="module")
def broker(scratch):
    broker = brokers.Broker(scratch / "connect-broker")
    broker.topic("orders")
    broker.topic("control-iceberg", 2)
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def sidecar(lab, broker):
    control = '{ topic = "control-iceberg", format = "iceberg-connect", catalog = "lake" }'
    kafka = f'[kafka.events]\nbrokers = "{broker.plain}"\ntopics = [{control}]\n'
    running = Sidecar(lab.home, kafka + '[[table]]\nmatch = "lake.db.orders"\nact = true\ncooldown = "0s"\n')
    yield running
    running.stop()


@pytest.fixture(scope="module")
def sink(lab, scratch, broker, sidecar):
    sink = connect.Connect(scratch / "connect", lab.home, broker.plain, "orders", "db.orders", "control-iceberg")
    yield sink
    sink.stop()


def write(broker, ids):
    broker.write("orders", [json.dumps({"id": n, "region": REGIONS[n % 3], "note": f"n{n}"}).encode() for n in ids])


def appends(lab):
    try:
        return [s for s in lab.spark.snapshots("db.orders") if s["operation"] == "append"]
    except Exception as missing:
        assert "TABLE_OR_VIEW_NOT_FOUND" in str(missing), missing
        return []


def test_commits_of_the_sink_are_heard_on_its_control_topic_and_compacted(lab, broker, sidecar, sink):
    write(broker, range(30))
    engines.wait_until(lambda: sink.alive() and appends(lab), seconds=120)
    heard.until_known(sidecar, "db.orders", REGIONS, appends(lab)[-1]["snapshot_id"])
    for step in range(1, 12):
        before = len(appends(lab))
        write(broker, range(step * 30, step * 30 + 30))
        engines.wait_until(lambda: sink.alive() and len(appends(lab)) > before, seconds=60)
        if heard.replaces(lab.spark, "db.orders"):
            break
    heard.until_compacted(lab.spark, "db.orders")
    rows = (step + 1) * 30
    engines.wait_until(lambda: lab.spark.digest("db.orders")[0] == rows)
    assert lab.spark.sql("SELECT count(DISTINCT id), min(id), max(id) FROM lake.db.orders").collect()[0][:] == (rows, 0, rows - 1)
    assert lab.spark.digest("db.orders") == lab.pyiceberg.digest("db.orders") == lab.duckdb.digest("db.orders")
    door = heard.door(sidecar, "control-iceberg")
    assert door["accepted"] >= 2 and door["parked"] == door["dropped"] == 0, door
    assert door["received"] > door["accepted"] * 4, "most records of the topic tell of no commit"


def test_the_sink_goes_on_after_a_compaction(lab, broker, sidecar, sink):
    before = lab.spark.digest("db.orders")[0]
    write(broker, range(10_000, 10_030))
    engines.wait_until(lambda: sink.alive() and lab.spark.digest("db.orders")[0] == before + 30)
    engines.wait_until(lambda: heard.partitions(sidecar, "db.orders") == heard.at(REGIONS, appends(lab)[-1]["snapshot_id"]))
    paths = [f["file_path"] for f in lab.spark.files("db.orders")]
    assert all(pathlib.Path(path.removeprefix("file:")).exists() for path in paths)
