"""Every format, as its sender writes it, over a live broker and over HTTP: each brings a look at the table that it speaks of."""

import json
import urllib.request

import pytest

import broker as brokers
import engines
import heard
from sidecar import Sidecar
from test_kafka import RECORDINGS, Writer

REGIONS = ["eu", "us"]


def protobuf(table, snapshot, location):
    name = f"lake.db.{table}".encode()
    return b"\x0a" + bytes([len(name)]) + name


def native(table, snapshot, location):
    return {"table": f"lake.db.{table}", "snapshots": [{"snapshotId": str(snapshot)}]}


def cloudevents(table, snapshot, location):
    """A commit as Iceberg's Java client posted it, as Lakekeeper sends it on."""
    posted = [json.loads(line)["request"] for line in (RECORDINGS / "rest-java-requests.jsonl").read_text().splitlines()]
    commit = next(request for request in posted if request and "updates" in request)
    commit = {**commit, "identifier": {"namespace": ["db"], "name": table}}
    return {
        "specversion": "1.0", "id": "1", "type": "updateTable", "source": "uri:iceberg-catalog-service:h", "datacontenttype": "application/json", "data": commit,
        "tabular-type": "table", "name": table, "namespace": "db", "num-events": 1,
    }


def report(table, snapshot, location):
    """A report of a Flink job, of another table."""
    recorded = json.loads((RECORDINGS / "flink-reports.jsonl").read_text().splitlines()[0])
    return {**recorded, "table-name": f"lake.db.{table}", "snapshot-id": snapshot}


def hudi(table, snapshot, location):
    return {"commitTime": "20261129204400123", "tableName": table, "basePath": location, "hoodieWriteStat": [{"fileId": "1", "path": "a.parquet"}], "commitActionType": {"present": True, "empty": False}}


def polaris(table, snapshot, location):
    return {"event_type": "AFTER_UPDATE_TABLE", "event_id": "6b1c", "timestamp": "2026-11-29T20:44:01.123Z", "catalog_name": "prod", "realm_id": "POLARIS", "namespace": ["db"], "table_name": table}


def openlineage(table, snapshot, location):
    output = {"namespace": "file", "name": location.removeprefix("file://"), "facets": {"version": {"datasetVersion": str(snapshot)}}}
    return {"eventType": "COMPLETE", "run": {"runId": "r"}, "job": {"namespace": "n", "name": "j"}, "inputs": [], "outputs": [output]}


def trino(table, snapshot, location):
    """A query as Trino's event listener told of it, with another name."""
    recorded = json.loads((RECORDINGS / "trino-query-completed-insert.json").read_text())
    recorded["ioMetadata"]["output"].update(schema="db", table=table)
    return recorded


FORMATS = {
    "protobuf": (protobuf, None), "json": (native, "/v1/commits"), "cloudevents": (cloudevents, "/cloudevents"),
    "iceberg-report": (report, "/iceberg/v1/namespaces/db/tables/{table}/metrics"), "hudi": (hudi, "/hudi/callback"),
    "polaris": (polaris, "/polaris/events"), "openlineage": (openlineage, "/api/v1/lineage"), "trino": (trino, "/trino/events"),
}


def table_of(format):
    return "t_" + format.replace("-", "_")


@pytest.fixture(scope="module")
def broker(scratch):
    broker = brokers.Broker(scratch / "formats-broker")
    for format in FORMATS:
        broker.topic(format)
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def writer(scratch):
    writer = Writer(engines.Home(scratch / "formats"))
    for format in FORMATS:
        # some formats name a table by where it lies: such a table is found once a poll has listed it
        writer.table(table_of(format))
        writer.append(table_of(format), [0], REGIONS)
    return writer


@pytest.fixture(scope="module")
def sidecar(scratch, broker, writer):
    topics = ", ".join(f'{{ topic = "{f}", format = "{f}", catalog = "lake" }}' for f in FORMATS)
    running = Sidecar(engines.Home(scratch / "formats"), f'[kafka.formats]\nbrokers = "{broker.plain}"\ntopics = [{topics}]\n')
    for format in FORMATS:
        engines.wait_until(lambda: heard.partitions(running, f"db.{table_of(format)}"))
    yield running
    running.stop()


def event(writer, format, ids):
    """A commit that is not told yet, and the event that tells of it."""
    table = table_of(format)
    snapshot = writer.append(table, ids, REGIONS)
    made = FORMATS[format][0](table, snapshot, writer.catalog.load_table(f"db.{table}").location())
    return snapshot, made if isinstance(made, bytes) else json.dumps(made).encode()


@pytest.mark.parametrize("format", FORMATS)
def test_a_format_over_kafka(sidecar, broker, writer, format):
    snapshot, body = event(writer, format, [1])
    broker.write(format, [b"\x07 no event", body])
    heard.until_known(sidecar, f"db.{table_of(format)}", REGIONS, snapshot)
    engines.wait_until(lambda: heard.door(sidecar, format)["received"] == 2)
    door = heard.door(sidecar, format)
    assert (door["accepted"], door["parked"], door["dropped"]) == (1, 1, 0)


@pytest.mark.parametrize("format", [f for f, (_, path) in FORMATS.items() if path])
def test_a_format_over_http(sidecar, writer, format):
    snapshot, body = event(writer, format, [2])
    path = FORMATS[format][1].format(table=table_of(format))
    with urllib.request.urlopen(urllib.request.Request(f"http://{sidecar.http}{path}", body), timeout=10) as answer:
        assert answer.status // 100 == 2
    heard.until_known(sidecar, f"db.{table_of(format)}", REGIONS, snapshot)
