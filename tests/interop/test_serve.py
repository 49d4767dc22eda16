"""A running sidecar beside Spark: commit, hook, compaction, equal rows."""

import json
import re
import urllib.request

import pytest

import engines
from sidecar import Sidecar

NOT_FOUND = 7


@pytest.fixture(scope="module")
def sidecar(lab):
    running = Sidecar(lab.home, '[[table]]\nmatch = "lake.db.*"\nact = true\ncooldown = "0s"\n')
    yield running
    running.stop()


def test_a_reported_commit_is_compacted_and_the_rows_stay(lab, sidecar):
    lab.spark.sql("CREATE TABLE lake.db.served (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('format-version'='2')")
    for i in range(10):
        lab.spark.sql(f"INSERT INTO lake.db.served SELECT id, concat('v', id) FROM range({i * 10}, {i * 10 + 10}, 1, 1)")
        sidecar.report("db.served")
    engines.wait_until(lambda: any(s["operation"] == "replace" for s in lab.spark.snapshots("db.served")))
    replace = [s for s in lab.spark.snapshots("db.served") if s["operation"] == "replace"][0]
    assert lab.spark.digest("db.served", replace["snapshot_id"]) == lab.spark.digest("db.served", replace["parent_id"])
    assert lab.spark.digest("db.served")[0] == 100
    assert lab.pyiceberg.digest("db.served") == lab.duckdb.digest("db.served") == lab.spark.digest("db.served")


def test_why_names_the_rule_and_its_numbers(sidecar):
    why = sidecar.ask("why", "lake.db.served", "--json").stdout
    decision = json.loads(why.splitlines()[0])
    assert "checks" in json.dumps(decision) and "small-files" in json.dumps(decision)


def test_a_hook_event_for_a_table_that_does_not_exist_disturbs_nothing(sidecar):
    told = sidecar.report("db.no_such_table").stdout
    assert "marked for a look" in told and "did not list `lake.db.no_such_table`" in told, told
    assert "not known" in sidecar.ask("why", "lake.db.no_such_table", ok=(NOT_FOUND,)).stderr
    assert "known catalogs: lake" in sidecar.ask("report", "nowhere.db.t", ok=(NOT_FOUND,)).stderr
    with urllib.request.urlopen(f"http://{sidecar.http}/healthz", timeout=10) as answer:
        assert answer.status == 200


def test_metrics_speak_prometheus(sidecar):
    with urllib.request.urlopen(f"http://{sidecar.http}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert re.search(r"^afterwrite_\w+(\{[^}]*\})? [0-9.e+-]+$", text, re.M), text[:500]
