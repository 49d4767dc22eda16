"""A running sidecar beside Spark: commit, hook, compaction, equal rows."""

import json
import os
import re
import subprocess
import urllib.request

import pytest

import engines


@pytest.fixture(scope="module")
def sidecar(lab):
    config = lab.home.config(
        """
[server]
listen = "127.0.0.1:0"
http = "127.0.0.1:0"

[poll]
min = "300s"
max = "300s"

[[table]]
match = "lake.db.*"
act = true
cooldown = "0s"
"""
    )
    process = subprocess.Popen([os.environ["AFTERWRITE_BIN"], "--config", str(config), "serve"], stderr=subprocess.PIPE, text=True)
    listening = {}
    while {"grpc", "http"} - listening.keys():
        line = process.stderr.readline()
        assert line, "the sidecar ended before it listened"
        for door, address in re.findall(r"(grpc|http) (?:listens )?on (?:http://)?(127\.0\.0\.1:\d+)", line):
            listening[door] = address
    yield listening
    process.terminate()
    assert process.wait(30) == 0, "the sidecar did not drain"


def report(lab, sidecar, table, *words, ok=(0,)):
    return lab.afterwrite.run("report", f"lake.{table}", "--server", f"http://{sidecar['grpc']}", *words, ok=ok)


def test_a_reported_commit_is_compacted_and_the_rows_stay(lab, sidecar):
    lab.spark.sql("CREATE TABLE lake.db.served (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('format-version'='2')")
    for i in range(10):
        lab.spark.sql(f"INSERT INTO lake.db.served SELECT id, concat('v', id) FROM range({i * 10}, {i * 10 + 10}, 1, 1)")
        report(lab, sidecar, "db.served")
    engines.wait_until(lambda: any(s["operation"] == "replace" for s in lab.spark.snapshots("db.served")))
    replace = [s for s in lab.spark.snapshots("db.served") if s["operation"] == "replace"][0]
    assert lab.spark.digest("db.served", replace["snapshot_id"]) == lab.spark.digest("db.served", replace["parent_id"])
    assert lab.spark.digest("db.served")[0] == 100
    assert lab.pyiceberg.digest("db.served") == lab.duckdb.digest("db.served") == lab.spark.digest("db.served")


def test_why_names_the_rule_and_its_numbers(lab, sidecar):
    why = lab.afterwrite.run("why", "lake.db.served", "--server", f"http://{sidecar['grpc']}", "--json").stdout
    decision = json.loads(why.splitlines()[0])
    assert "checks" in json.dumps(decision) and "small-files" in json.dumps(decision)


def test_a_hook_event_for_a_table_that_does_not_exist_disturbs_nothing(lab, sidecar):
    report(lab, sidecar, "db.no_such_table", ok=(0, 1, 3))
    with urllib.request.urlopen(f"http://{sidecar['http']}/healthz", timeout=10) as answer:
        assert answer.status == 200


def test_metrics_speak_prometheus(sidecar):
    with urllib.request.urlopen(f"http://{sidecar['http']}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert re.search(r"^afterwrite_\w+(\{[^}]*\})? [0-9.e+-]+$", text, re.M), text[:500]
