"""Every kind of door tells, of each of its sources, what it received and what became of it: on the command line and in the metrics."""

import contextlib
import json
import os
import re
import subprocess
import threading
import urllib.error
import urllib.request

import pyarrow as pa
import pytest

import broker as brokers
import engines

FIGURES = ("received", "accepted", "duplicate", "ignored", "parked", "dropped")


class Sidecar:
    """`serve` with every door open. The poller lists once, at the start."""

    def __init__(self, home, rest, broker):
        config = home.config(
            f"""
[catalog.lake.proxy]
listen = "127.0.0.1:0"
upstream = "{rest.url}"
[server]
listen = "127.0.0.1:0"
http = "127.0.0.1:0"
[poll]
min = "600s"
max = "600s"
[kafka.test]
brokers = "{broker.plain}"
topics = [{{ topic = "own", format = "json" }}, {{ topic = "foreign", format = "polaris", catalog = "lake" }}]
"""
        )
        self.afterwrite = engines.Afterwrite(config)
        self.process = subprocess.Popen([os.environ["AFTERWRITE_BIN"], "--config", str(config), "serve"], stderr=subprocess.PIPE, text=True)
        self.at = {}
        while {"proxy of catalog lake", "http", "grpc"} - self.at.keys():
            line = self.process.stderr.readline()
            assert line, "the sidecar ended before it listened"
            for door, address in re.findall(r"^(proxy of catalog lake|http|grpc) listens on (?:http://)?(127\.0\.0\.1:\d+)", line):
                self.at[door] = f"http://{address}"
        # its log must not fill the pipe
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0, "the sidecar did not drain"

    def rows(self):
        return {(row["door"], row["source"]): row for row in self.afterwrite.json("doors", "--server", self.at["grpc"])}

    def figures(self, *source):
        return tuple(self.rows()[source][figure] for figure in FIGURES)

    def metrics(self):
        """The metrics of sources: by name, source and what became of the record."""
        text = urllib.request.urlopen(f"{self.at['http']}/metrics", timeout=10).read().decode()
        found = {}
        for name, labels, value in re.findall(r"^afterwrite_source_(\w+)\{([^}]*)\} (\S+)$", text, re.M):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            found[name, labels["door"], labels["source"], labels.get("result")] = float(value)
        return found

    def post(self, path, body):
        request = urllib.request.Request(self.at["http"] + path, body, {"Content-Type": "application/json"})
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(request, timeout=10).read()


@pytest.fixture(scope="module")
def broker(scratch):
    broker = brokers.Broker(scratch / "doors-broker")
    broker.topic("own")
    broker.topic("foreign")
    yield broker
    broker.stop()


@pytest.fixture
def sidecar(scratch, broker):
    home = engines.Home(scratch / "doors")
    engines.PyIceberg(home).catalog.create_namespace("db")
    rest = engines.RestCatalog(home)
    sidecar = Sidecar(home, rest, broker)
    yield sidecar
    sidecar.stop()
    rest.stop()


def told(table, snapshot):
    return json.dumps({"table": f"lake.db.{table}", "snapshots": [{"snapshotId": str(snapshot)}]}).encode()


def test_every_source_shows_what_became_of_its_records(sidecar, broker):
    from pyiceberg.catalog.rest import RestCatalog

    # through the proxy: a create and a commit
    rows = pa.table({"id": pa.array(range(3), pa.int64())})
    table = RestCatalog("lake", uri=sidecar.at["proxy of catalog lake"]).create_table("db.t", rows.schema)
    table.append(rows)
    # own events over HTTP: what the proxy has told of, of another catalog, not readable
    again = told("t", table.current_snapshot().snapshot_id)
    for body in (again, again, again.replace(b"lake", b"sea"), b"{"):
        sidecar.post("/v1/commits", body)
    # another system's: about no commit, and not readable
    sidecar.post("/hudi/callback", b"x")
    sidecar.post("/api/v1/lineage?catalog=lake", json.dumps({"eventType": "START", "outputs": []}).encode())
    # over gRPC: a bare name, of another catalog
    sidecar.afterwrite.run("report", "lake.db.t", "--server", sidecar.at["grpc"])
    sidecar.afterwrite.run("report", "sea.db.t", "--server", sidecar.at["grpc"], ok=(7,))
    broker.write("own", [again, told("t", 7), again.replace(b"lake", b"sea"), b"garbage"])
    changed = {"event_type": "AFTER_UPDATE_TABLE", "namespace": ["db"], "table_name": "t"}
    broker.write("foreign", [json.dumps(changed).encode(), json.dumps({**changed, "event_type": "BEFORE_UPDATE_TABLE"}).encode()])

    expected = {
        ("proxy", "lake"): (2, 2, 0, 0, 0, 0),
        ("http", "/v1/commits"): (4, 0, 2, 0, 1, 1),
        ("http", "/hudi/callback"): (1, 0, 0, 0, 1, 0),
        ("http", "/api/v1/lineage"): (1, 0, 0, 1, 0, 0),
        ("grpc", ""): (2, 1, 0, 0, 0, 1),
        ("kafka", "own"): (4, 1, 1, 0, 1, 1),
        ("kafka", "foreign"): (2, 1, 0, 1, 0, 0),
        ("poll", "lake"): (0, 0, 0, 0, 0, 0),
    }
    seen = lambda: {source: sidecar.figures(*source) for source in expected}
    try:
        engines.wait_until(lambda: seen() == expected, 30)
    except AssertionError:
        assert seen() == expected
    # nothing is behind once every look is over
    behind = lambda: {source: (row["lag"], row["staleness_ms"]) for source, row in sidecar.rows().items()}
    engines.wait_until(lambda: set(behind().values()) == {(0, 0)}, 30)
    for source, row in sidecar.rows().items():
        assert row["problem"] in (None, ""), row
        assert row["state"] or source[0] in ("poll", "http"), row

    def in_metrics():
        metrics = sidecar.metrics()
        for (door, source), figures in expected.items():
            for figure, count in zip(FIGURES, figures):
                if metrics.get(("events_total", door, source, figure)) != count:
                    return False
            if (metrics.get(("lag", door, source, None)), metrics.get(("staleness_seconds", door, source, None))) != (0, 0):
                return False
        return True

    engines.wait_until(in_metrics, 30)
