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


def test_a_branch_that_a_table_names_is_compacted_and_main_stays_and_back(lab, sidecar):
    spark, pyiceberg, table = lab.spark, lab.pyiceberg, "db.branched"
    properties = "'format-version'='2', 'afterwrite.branches'='main,audit'"
    spark.sql(f"CREATE TABLE lake.{table} (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ({properties})")

    def write(branch, first):
        name = table if branch == "main" else f"{table}.branch_{branch}"
        for i in range(first, first + 9):
            spark.sql(f"INSERT INTO lake.{name} SELECT id, concat('v', id) FROM range({i * 10}, {i * 10 + 10}, 1, 1)")

    def heads():
        return {r["name"]: r["snapshot_id"] for r in spark.files(table, "refs")}

    def compacted(branch):
        """The head, once it is a rewrite of ours, and the snapshot before it."""
        at = heads()[branch]
        head = {s["snapshot_id"]: s for s in spark.snapshots(table)}[at]
        return head["operation"] == "replace" and (head["snapshot_id"], head["parent_id"])

    def look_and_wait(branch):
        sidecar.ask("report", f"lake.{table}", "--branch", branch, "--snapshot", str(heads()[branch]))
        engines.wait_until(lambda: compacted(branch))
        head, parent = compacted(branch)
        for engine in (spark, pyiceberg):
            assert engine.digest(table, head) == engine.digest(table, parent)
        return head

    spark.sql(f"INSERT INTO lake.{table} VALUES (-1, 'shared')")
    spark.sql(f"ALTER TABLE lake.{table} CREATE BRANCH audit")
    # what a table's properties name is known once it was looked at
    sidecar.report(table)
    engines.wait_until(lambda: sidecar.ask("why", f"lake.{table}", "--branch", "audit", ok=(0, NOT_FOUND)).returncode == 0)
    write("audit", 0)
    main = heads()["main"]
    audit = look_and_wait("audit")
    assert heads() == {"main": main, "audit": audit}
    by_name = spark.sql(f"SELECT count(*), count(DISTINCT id) FROM lake.{table}.branch_audit").collect()[0]
    assert (tuple(by_name), spark.digest(table)[0]) == ((91, 91), 1)
    assert pyiceberg.digest(table, audit) == spark.digest(table, audit)

    # the branch is written with the columns that the table has by now
    spark.sql(f"ALTER TABLE lake.{table} ADD COLUMN w INT")
    write_wide = f"INSERT INTO lake.{table} SELECT id, 'wide', 7 FROM range({{0}}, {{0}} + 10, 1, 1)"
    for i in range(9):
        spark.sql(write_wide.format(1000 + i * 10))
    main = look_and_wait("main")
    assert heads() == {"main": main, "audit": audit}
    assert spark.digest(table)[0] == 91 and pyiceberg.digest(table) == spark.digest(table)
    assert tuple(spark.sql(f"SELECT count(*), count(w) FROM lake.{table}.branch_audit").collect()[0]) == (91, 0)
    why = [json.loads(line) for line in sidecar.ask("why", f"lake.{table}", "--branch", "audit", "--json").stdout.splitlines()]
    assert [d["branch"] for d in why] == ["audit"] and why[0]["last_job"]["state"] == "committed"
    assert "branch `dev` is not looked after: only `main` and `audit` are" in sidecar.ask("report", f"lake.{table}", "--branch", "dev").stdout


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
